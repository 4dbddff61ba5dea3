"""The recipes of CONTRIBUTING.md have five steps each; every path, every test and every name of the code in them exists."""

import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", PAGE)))
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")} - {"build", "dist"}
MADE = {"docs/bench-history.jsonl"}
"""What `make` makes: not part of the repository."""


@cache
def names_of_tests() -> set[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return {name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}


@cache
def words_of_the_code() -> set[str]:
    return {
        word
        for folder in ("compiler", "node-runtime", "tests", "charts", "profiles", "templates", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".json", ".yaml", ".j2", ".sh", ".tpl", ".c"} and path.is_file()
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))
    }


def paths() -> Iterator[str]:
    """The words in code that begin with a folder of the repository, those of commands included."""
    for quoted in QUOTED:
        for word in quoted.split():
            if "/" in word and word.partition("/")[0] in FOLDERS and word not in MADE:
                yield word


def test_the_recipes_are_found() -> None:
    assert {"Add a card", "Add a metric", "Release"} <= RECIPES.keys()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_five_steps(name: str) -> None:
    assert re.findall(r"^(\d+)\. ", RECIPES[name], re.MULTILINE) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("path", sorted(set(paths())))
def test_every_path_that_the_page_names_exists(path: str) -> None:
    assert any(ROOT.glob(re.sub(r"<\w+>", "*", path).rstrip("/"))), f"CONTRIBUTING.md names {path}, which does not exist"


@pytest.mark.parametrize("name", [one for one in QUOTED if re.fullmatch(r"test_\w+", one)])
def test_every_test_that_the_page_names_exists(name: str) -> None:
    assert name in names_of_tests(), f"CONTRIBUTING.md names {name}, which does not exist"


IDENTIFIER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(…?\))?")


def identifiers() -> list[str]:
    """The quoted names of classes, functions, constants and fields: those with `_`, an inner capital, a dot or a call."""
    code = [one for one in QUOTED if IDENTIFIER.fullmatch(one) and not re.fullmatch(r"test_\w+", one)]
    return [one for one in code if "_" in one or re.search(r"[a-z][A-Z]", one)]


@pytest.mark.parametrize("name", identifiers())
def test_every_name_of_the_code_that_the_page_quotes_exists(name: str) -> None:
    parts = set(re.findall(r"\w+", name.removesuffix("(…)")))
    unknown = parts - words_of_the_code()
    assert not unknown, f"CONTRIBUTING.md names {name}: {unknown} is nowhere in the code"


def test_the_names_of_the_code_are_found() -> None:
    assert {"ConditionReason", "_REASONS_WORST_FIRST", "RunContext"} <= set(identifiers())
