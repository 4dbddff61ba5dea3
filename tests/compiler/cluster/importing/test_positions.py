"""A finding inside the text of a ConfigMap is at the line and column of the file, however the text is written."""

import json

import pytest

from tests.compiler.cluster.importing.imports import config_map, imported, sharing

TEXT = sharing().replace("replicas: 4", "replicas: 4\n      renam: x")
MAP = {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"t4": TEXT}}


@pytest.mark.parametrize(
    "written",
    [
        config_map(TEXT, "t4"),
        config_map(TEXT, "t4").replace("t4: |", "t4: |-"),
        json.dumps(MAP),
        json.dumps(MAP, indent=2),
        config_map(TEXT, "t4").replace("\n", "\r\n"),
        "# a file\n---\na: 1\n---\n" + config_map(TEXT, "t4"),
    ],
)
def test_finding_is_located_at_the_word(written: str) -> None:
    (finding,) = [one for one in imported(written).findings if one.code == "GS851"]
    assert finding.span is not None
    line = written.replace("\r\n", "\n").split("\n")[finding.span.line - 1]
    assert line[finding.span.column - 1 : finding.span.end_column - 1] == "renam"


def test_bad_yaml_in_the_text_is_at_its_line() -> None:
    written = config_map("version: v1\n  sharing: 4", "t4")
    (finding,) = [one for one in imported(written).findings if one.code == "GS003"]
    assert finding.span is not None
    assert (finding.file, finding.span.line) == ("cluster.yaml", 7)


def test_folded_text_has_the_position_of_the_whole() -> None:
    (finding,) = [
        one
        for one in imported(config_map("bad: [\nx", "t4").replace("t4: |", "t4: >") + "  u: 'sharing:'\n").findings
        if one.code == "GS003"
    ]
    assert finding.span is not None
    assert finding.span.line == 5


def test_unindented_config_is_reported_with_a_hint() -> None:
    written = "kind: ConfigMap\nmetadata: {name: c}\ndata:\n  any: |-\n  version: v1\n  sharing:\n    timeSlicing: {}\n"
    (finding,) = [one for one in imported(written).findings if one.code == "GS850"]
    assert "`any: |-`" in finding.hints[0]
