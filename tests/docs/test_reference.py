"""The two reference pages are complete: docs/intent.md has every field of the schema, docs/bundle.md every file of a bundle."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.core import resources
from gpushare.reading import schema
from tests.support.paths import ROOT

INTENT = (ROOT / "docs/intent.md").read_text()
SCHEMA = schema.load("intent.v1")
BUNDLES = sorted(ROOT.glob("examples/*/bundle"))
LISTED = re.findall(r"^(\S+) +\S.*$", (ROOT / "docs/bundle.md").read_text().split("```")[1], re.MULTILINE)


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """The part, or the definition that it refers to."""
    name = part.get("$ref", "").removeprefix("#/definitions/")
    return dict(SCHEMA["definitions"][name]) if name else part


def words(part: dict[str, Any]) -> Iterator[str]:
    """Every field below this part, and every word of which a field's value is one."""
    part = resolved(part)
    yield from (word for word in part.get("enum", ()) if isinstance(word, str))
    for name, inner in part.get("properties", {}).items():
        yield name
        yield from words(inner)
    for keyword in ("items", "additionalProperties"):
        if isinstance(part.get(keyword), dict):
            yield from words(part[keyword])


def has_field(dotted: str, root: dict[str, Any]) -> bool:
    """Whether the schema has the field at this path below the root."""
    part = resolved(root)
    for step in dotted.split("."):
        if step not in part.get("properties", {}):
            return False
        part = resolved(part["properties"][step])
    return True


def shapes() -> dict[str, re.Pattern[str]]:
    """The listed files; `<pool>` stands for any name. A folder of which the static chart is the content is not one."""
    return {line: re.compile(re.sub(r"<\w+>", "[^/]+", re.escape(line))) for line in LISTED if not line.endswith("/")}


def generated(bundle: Path) -> list[str]:
    """The files of a bundle that are not copied from the static chart as they are."""
    static = {f"chart/{path.relative_to(resources.chart())}" for path in resources.chart().rglob("*")} - {"chart/values.yaml"}
    return sorted({str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file()} - static)


@pytest.mark.parametrize("word", sorted(set(words(SCHEMA))))
def test_the_page_on_the_intent_has_every_field_and_every_word_of_the_schema(word: str) -> None:
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", INTENT, re.DOTALL))
    assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", code), f"docs/intent.md does not mention {word}"


def test_every_field_on_the_intent_page_is_in_the_schema() -> None:
    pool = SCHEMA["definitions"]["pool"]
    tables = dict(re.findall(r"^## (Cluster|Pools)\n(.*?)(?=^## )", INTENT, re.MULTILINE | re.DOTALL))
    for title, root in (("Cluster", SCHEMA), ("Pools", pool)):
        rows = [row.split("|")[1] for row in re.findall(r"^\| .*", tables[title], re.MULTILINE) if row.startswith("| `")]
        assert len(rows) > 10
        for row in rows:
            first, *others = re.findall(r"`([^`]+)`", row)
            parent = first.rpartition(".")[0]
            for field in (first, *(parent + other if other.startswith(".") else other for other in others)):
                assert has_field(field, root), f"docs/intent.md: there is no {field}"


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.parent.name)
def test_the_page_on_the_bundle_lists_every_file_of_an_example(bundle: Path) -> None:
    for path in generated(bundle):
        assert any(shape.fullmatch(path) for shape in shapes().values()), f"docs/bundle.md does not list {path}"


@cache
def files() -> frozenset[str]:
    """The files of all examples, and of the one with an installed plugin after another, the place of the plugin left open."""
    text = (ROOT / "examples/13-existing-plugin/intent.yaml").read_text()
    unplaced, changed = re.subn(r"^    namespace: .*\n", "", text, flags=re.MULTILINE)
    assert changed == 1
    before = lock.read((ROOT / "examples/20-dra/bundle/gpushare.lock.yaml").read_bytes())
    assert isinstance(before, lock.Lock)
    compilation = pipeline.compile_intent(unplaced.encode(), "intent.yaml", before)
    return frozenset(path for bundle in BUNDLES for path in generated(bundle)) | {one.path for one in compilation.artifacts}


@pytest.mark.parametrize("listed", shapes())
def test_every_listed_file_is_in_some_bundle(listed: str) -> None:
    assert any(shapes()[listed].fullmatch(path) for path in files())
