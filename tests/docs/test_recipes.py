"""The recipes of CONTRIBUTING.md have five steps each, and every path and every test that the page names exists."""

import re
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", PAGE)))
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")} - {"build", "dist"}
MADE = {"docs/bench-history.jsonl"}
"""What `make` makes: not part of the repository."""

TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
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
    assert name in TESTS, f"CONTRIBUTING.md names {name}, which does not exist"
