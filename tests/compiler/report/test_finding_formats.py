"""Findings for programs: the Findings document, workflow commands, SARIF."""

import json
from urllib.parse import unquote

import pytest

from gpushare.core import resources
from gpushare.core.diagnostics import Finding, Severity, Span
from gpushare.reading import schema
from gpushare.report import finding_formats

LOCATED = Finding(
    code="GS402",
    message="100% of it, or none:\nreally",
    hints=("one", "two"),
    path=("spec", "pools", "a/b", "sharing", "layout"),
    file="dir,x/intent: a.yaml",
    span=Span(line=27, column=18, end_line=27, end_column=41),
)
LOST = Finding(code="GS504", message="m", severity=Severity.WARNING, file="<stdin>")


@pytest.fixture(autouse=True)
def _texts(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(code: str) -> resources.FindingText:
        return resources.FindingText(code=code, title="t", severity="error", meaning="It means.", markdown=f"# {code} t\n")

    monkeypatch.setattr(resources, "finding_text", load)


def test_findings_document_is_valid_under_its_schema() -> None:
    document = json.loads(finding_formats.json_text([LOCATED, LOST]))
    assert schema.accepts(schema.load("findings.v1"), document)
    assert document["findings"][0] == {
        "code": "GS402",
        "severity": "error",
        "message": "100% of it, or none:\nreally",
        "hint": "one\ntwo",
        "file": "dir,x/intent: a.yaml",
        "line": 27,
        "column": 18,
        "endLine": 27,
        "endColumn": 41,
        "path": "/spec/pools/a~1b/sharing/layout",
    }
    assert (document["errors"], document["warnings"]) == (1, 1)
    assert document["findings"][1]["line"] is None


def test_empty_findings_are_a_document() -> None:
    document = json.loads(finding_formats.json_text([]))
    assert schema.accepts(schema.load("findings.v1"), document)
    assert document["findings"] == []


def test_workflow_commands_are_one_line_each_and_escaped() -> None:
    first, second = finding_formats.github_text([LOCATED, LOST]).splitlines()
    assert first == (
        "::error file=dir%2Cx/intent%3A a.yaml,line=27,col=18,endLine=27,endColumn=41,title=GS402"
        "::100%25 of it, or none:%0Areally%0Aone%0Atwo"
    )
    assert second == "::warning file=<stdin>,title=GS504::m"


def test_a_workflow_command_over_several_lines_has_no_columns() -> None:
    several = Finding(code="GS402", message="m", file="f", span=Span(line=2, column=3, end_line=4, end_column=5))
    assert finding_formats.github_text([several]) == "::error file=f,line=2,endLine=4,title=GS402::m\n"


def test_empty_findings_give_no_workflow_commands() -> None:
    assert finding_formats.github_text([]) == ""


def test_sarif_names_rules_places_and_levels() -> None:
    log = json.loads(finding_formats.sarif_text([LOCATED, LOCATED, LOST]))
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert (log["version"], driver["name"]) == ("2.1.0", "gpushare")
    assert [rule["id"] for rule in driver["rules"]] == ["GS402", "GS504"]
    assert all(rule["shortDescription"]["text"] and rule["help"]["markdown"] for rule in driver["rules"])
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
    first, _, lost = run["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 27, "startColumn": 18, "endLine": 27, "endColumn": 41}
    assert unquote(place["artifactLocation"]["uri"]) == "dir,x/intent: a.yaml"
    assert ":" not in place["artifactLocation"]["uri"]
    assert (first["level"], lost["level"]) == ("error", "warning")
    assert "region" not in lost["locations"][0]["physicalLocation"]
    assert run["columnKind"] == "unicodeCodePoints"


def test_sarif_without_findings_is_a_run_without_results() -> None:
    (run,) = json.loads(finding_formats.sarif_text([]))["runs"]
    assert run["results"] == []
    assert run["tool"]["driver"]["rules"] == []


def test_an_absolute_path_becomes_a_file_uri() -> None:
    (result,) = json.loads(finding_formats.sarif_text([Finding(code="GS402", message="m", file="/a b/i.yaml")]))["runs"][0][
        "results"
    ]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///a%20b/i.yaml"
