"""Every value of a bundle's files counts: with another one, or without it, import ends otherwise than with the whole bundle."""

import copy
from functools import cache, lru_cache
from typing import Any

import pytest
import yaml

from gpushare import importing, pipeline
from gpushare.bundle import lock
from gpushare.core import emit
from gpushare.importing import InputFile
from gpushare.pipeline import Compilation
from gpushare.reading import source
from tests.compiler.importing.test_accounting import leaves, other
from tests.support import broken_bundles, scale

EXAMPLES = ("15-argocd", "16-flux", "05-h100-mig-time-slicing", "13-existing-plugin", "17-monitoring")


@pytest.fixture(autouse=True)
def _read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not edited is parsed once, not for each edit of another."""
    monkeypatch.setattr(source, "read", lru_cache(maxsize=100)(source.read))


@cache
def texts(example: str) -> dict[str, bytes]:
    """The files of a bundle that import reads, by path."""
    return {
        path: data
        for path, data in broken_bundles.files(example).items()
        if path.endswith(".yaml") and "/templates/" not in path and path != lock.FILE
    }


@cache
def bundle(example: str) -> dict[str, Any]:
    """The documents of a bundle that is not edited, by path."""
    return {path: yaml.safe_load(data) for path, data in texts(example).items()}


@cache
def compiled(text: str) -> Compilation:
    return pipeline.compile_intent(text.encode(), "", lock.EMPTY)


def result(example: str, path: str = "", document: Any = None) -> tuple[str, tuple[str, ...]]:
    """The intent of the bundle with one file edited, and the messages."""
    files = texts(example) | ({path: emit.yaml_text(document, "").encode()} if path else {})
    inputs = [InputFile(name=name, data=data) for name, data in files.items()]
    found = importing.build(inputs)
    if found.text:
        compilation = compiled(found.text)
        found = found.checked(compilation.findings)
        if found.of_bundle:
            found = found.compared(inputs, {file.path: file.text for file in compilation.artifacts})
    return found.text, tuple(sorted(f"{one.file} {one.message}" for one in found.findings))


def edits(example: str) -> list[tuple[str, tuple[Any, ...]]]:
    return [(path, leaf) for path, document in bundle(example).items() for leaf in leaves(document) if leaf]


@pytest.mark.parametrize("remove", [False, True], ids=["changed", "removed"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_no_value_of_a_bundle_can_be_edited_unnoticed(example: str, remove: bool) -> None:
    whole, silent = result(example), []
    for path, leaf in scale.some(edits(example), 80):
        document = copy.deepcopy(bundle(example)[path])
        place = document
        for step in leaf[:-1]:
            place = place[step]
        if place[leaf[-1]] is None:
            continue  # null is the same as no value
        if remove:
            del place[leaf[-1]]
        else:
            place[leaf[-1]] = other(place[leaf[-1]])
        if result(example, path, document) == whole:
            silent.append((path, leaf))
    assert not silent


@pytest.mark.parametrize("example", EXAMPLES)
def test_unedited_bundle_is_imported_completely(example: str) -> None:
    _, messages = result(example)
    assert not [one for one in messages if "nothing in this input is read" in one]
    assert not [one for one in messages if "not imported" in one or "lacks" in one]


@pytest.mark.parametrize("example", EXAMPLES)
def test_rewritten_file_is_not_an_edit(example: str) -> None:
    assert {path for path, document in bundle(example).items() if result(example, path, document) != result(example)} == set()


@pytest.mark.parametrize("odd", [["a"], {"a": 1}, 1, None])
def test_object_with_a_non_text_kind_does_not_crash(odd: Any) -> None:
    document = {**bundle("16-flux")["flux/sync.yaml"], "kind": odd}
    assert result("16-flux", "flux/sync.yaml", document) != result("16-flux")
