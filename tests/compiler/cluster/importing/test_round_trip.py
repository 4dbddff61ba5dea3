"""An intent compiled, its bundle imported: the same intent."""

from pathlib import Path

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.cluster import importing
from gpushare.cluster.importing import Imported, InputFile
from tests.compiler.cluster.importing.imports import codes, compiled, config_map, imported, node
from tests.support.paths import ROOT

EXAMPLES = sorted(ROOT.glob("examples/*/intent.yaml"))


def bundle(path: Path) -> dict[str, str]:
    found = pipeline.compile_intent(path.read_bytes(), "intent.yaml", lock.EMPTY)
    return {file.path: file.text for file in found.artifacts}


def from_files(files: dict[str, str]) -> Imported:
    return importing.build([InputFile(name=path, data=text.encode()) for path, text in files.items()])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_bundle_of_an_example_is_imported_as_its_intent(path: Path) -> None:
    files = bundle(path)
    found = from_files({"intent.yaml": files["intent.yaml"]})
    assert found.findings == ()
    assert {file.path: file.text for file in compiled(found).artifacts} == files


def test_what_the_intent_says_is_read_of_no_other_file() -> None:
    files = bundle(EXAMPLES[0])
    read = ("intent.yaml", "chart/values.yaml", "chart/files/policies/notebooks.yaml", "gpu-operator/values.yaml")
    found = from_files({path: files[path] for path in read})
    assert [(one.code, one.file) for one in found.findings] == [("GS865", "gpu-operator/values.yaml")]
    assert {file.path: file.text for file in compiled(found).artifacts} == files
    other = imported(files["intent.yaml"], node(), config_map("a: b"))
    assert codes(other) == []
    assert other.draft.pools == found.draft.pools


@pytest.mark.parametrize("path", ["chart/values.yaml", "chart/files/policies/notebooks.yaml"])
def test_files_of_a_bundle_without_its_intent_are_one_error(path: str) -> None:
    files = bundle(EXAMPLES[0])
    found = from_files({one: files[one] for one in (path, "chart/files/policies/teaching.yaml")})
    assert (codes(found), found.text) == (["GS876"], "")


def test_an_intent_with_errors_is_not_written() -> None:
    text = bundle(EXAMPLES[0])["intent.yaml"]
    found = imported(text.replace("gpusPerNode: 4", "gpusPerNode: 0", 1))
    assert (codes(found), found.text) == (["GS868"], "")
    line = text.split("\n").index("      gpusPerNode: 4") + 1
    assert [(one.span.line, one.span.column) for one in found.findings if one.span] == [(line, 20)]
    assert codes(imported(text, text)) == ["GS876"]
