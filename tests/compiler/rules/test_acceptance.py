"""`spec.accept`: what it takes out of the findings, and what it may not."""

import io
import json

import jsonschema
import pytest

from gpushare import pipeline
from gpushare.cli import report
from gpushare.cli.exits import ExitCode
from gpushare.core.diagnostics import Severity, pointer
from gpushare.pipeline import Compilation
from gpushare.reading import schema
from gpushare.report import finding_formats, terminal
from tests.compiler.rules.intents import pool, written

SMALL = pool(sharing="{mode: time-slicing, replicas: 40}")


def check(accept: str, one: str = SMALL) -> Compilation:
    return pipeline.check(written(one, accept=accept, platform="{registry: registry.example.org}").encode(), "intent.yaml")


def places(compilation: Compilation) -> list[tuple[str, str, str, bool]]:
    return [(finding.code, finding.severity.value, pointer(finding.path), finding.on_key) for finding in compilation.findings]


def test_accepted_warning_is_listed_with_its_reason_instead_of_a_finding() -> None:
    compilation = check("{GS504: these notebooks only draw}")
    assert compilation.findings == ()
    assert [(one.finding.code, one.reason) for one in compilation.accepted] == [("GS504", "these notebooks only draw")]
    assert compilation.artifacts
    assert report.verdict(compilation.findings, strict=True) is ExitCode.DONE


def test_an_image_that_is_not_published_fails_a_strict_check_until_it_is_accepted() -> None:
    unpublished = pipeline.check(written(pool()).encode(), "intent.yaml")
    assert [finding.code for finding in unpublished.findings] == ["GS725"]
    assert unpublished.artifacts
    assert report.verdict(unpublished.findings, strict=False) is ExitCode.DONE
    assert report.verdict(unpublished.findings, strict=True) is ExitCode.FINDINGS
    accepted = pipeline.check(written(pool(), accept="{GS725: our mirror answers for ghcr.io}").encode(), "intent.yaml")
    assert report.verdict(accepted.findings, strict=True) is ExitCode.DONE


def test_other_warnings_remain() -> None:
    compilation = check(
        "{GS504: known}",
        pool(
            sharing="{mode: time-slicing, replicas: 40}", enforcement="{mechanism: driver}", tolerations="[{operator: Exists}]"
        ),
    )
    assert [finding.code for finding in compilation.findings] == ["GS215"]
    assert report.verdict(compilation.findings, strict=True) is ExitCode.FINDINGS


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("GS402", "GS402 is an error, and only warnings can be accepted"),
        ("GS791", "GS791 is about the bundle, not the intent, and cannot be accepted"),
        ("GS999", "invalid finding code 'GS999'"),
        ("small", "invalid finding code 'small'"),
        ("GS801", "GS801 is about spec.accept itself and cannot be accepted"),
        ("GS802", "GS802 is about spec.accept itself and cannot be accepted"),
    ],
)
def test_finding_codes_that_cannot_be_accepted_are_refused(code: str, message: str) -> None:
    compilation = check(f"{{{code}: because}}", pool())
    assert places(compilation) == [("GS801", "error", f"/spec/accept/{code}", True)]
    assert compilation.findings[0].message == message
    assert compilation.artifacts == ()


def test_an_accepted_warning_that_does_not_occur() -> None:
    compilation = check("{GS504: these notebooks only draw}", pool())
    assert places(compilation) == [("GS802", "warning", "/spec/accept/GS504", True)]
    assert compilation.findings[0].message == "GS504 is accepted, but nothing in this intent causes it"
    assert compilation.artifacts


def test_errors_are_never_accepted() -> None:
    compilation = check("{GS721: sizes are for later}", pool(card="none-such"))
    assert [finding.code for finding in compilation.findings] == ["GS201"]


def test_a_reason_must_be_given() -> None:
    assert [code for code, *_ in places(check("{GS504: ''}"))] == ["GS105"]
    assert [code for code, *_ in places(check("{GS504: null}"))] == ["GS103"]
    assert [code for code, *_ in places(check("[GS504]"))] == ["GS103"]


def test_every_format_lists_accepted_findings() -> None:
    compilation = check("{GS504: these notebooks only draw}")
    look = terminal.detect_style(io.StringIO())
    assert report.text((), compilation.source, look, compilation.accepted) == "no errors, no warnings, 1 accepted (GS504)\n"
    document = json.loads(finding_formats.json_text((), compilation.accepted))
    jsonschema.validate(document, schema.load("findings.v1"))
    assert (document["findings"], document["warnings"]) == ([], 0)
    assert [(one["code"], one["reason"]) for one in document["accepted"]] == [("GS504", "these notebooks only draw")]
    (result,) = json.loads(finding_formats.sarif_text((), compilation.accepted))["runs"][0]["results"]
    assert result["suppressions"] == [{"kind": "inSource", "status": "accepted", "justification": "these notebooks only draw"}]
    assert finding_formats.github_text((), compilation.accepted) == ""
    assert Severity.WARNING.value == result["level"]


def test_retired_finding_code_in_accept_is_only_a_warning() -> None:
    compilation = check("{GS715: an earlier version generated no dashboards}", pool())
    assert places(compilation) == [("GS802", "warning", "/spec/accept/GS715", True)]
    assert compilation.artifacts
