"""The stages in order: where they stop, and that no input raises."""

import pytest

from gpushare import pipeline
from gpushare.bundle.lock import EMPTY
from gpushare.core.diagnostics import MAX_CHARACTERS
from tests.compiler.render.compiled import POOLS, intent

NAMED = "{image: {repository: registry.example.org/node-runtime}}"


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\x00", b"[", b"a: &a [*a]", b"- 1", b"spec: {pools: {x: 1}}", b"null", b"a: 1\n---\nb: 2"]
)
def test_any_bytes_give_findings_and_never_an_exception(data: bytes) -> None:
    for compilation in (pipeline.check(data, "intent.yaml"), pipeline.compile_intent(data, "intent.yaml", EMPTY)):
        assert compilation.findings
        assert all(finding.file == "intent.yaml" and finding.span for finding in compilation.findings)
        assert (compilation.intent, compilation.plan, compilation.artifacts) == (None, None, ())


def test_valid_intent_compiles_completely() -> None:
    compilation = pipeline.check(intent(), "intent.yaml")
    assert compilation.intent is not None
    assert compilation.plan is not None
    assert compilation.artifacts[-1].path == "gpushare.lock.yaml"


def test_an_error_of_a_rule_stops_before_the_plan_with_its_position() -> None:
    unknown = POOLS["hpc"].replace("h100-sxm5-80gb", "h999")
    compilation = pipeline.check(intent("hpc", platform=NAMED, hpc=unknown), "intent.yaml")
    assert [finding.code for finding in compilation.findings] == ["GS201"]
    span = compilation.findings[0].span
    assert span is not None
    assert (span.line, span.column) == (7, 17)
    assert (compilation.plan, compilation.artifacts) == (None, ())


def test_findings_come_in_the_order_of_the_text() -> None:
    bad = POOLS["hpc"].replace("h100-sxm5-80gb", "h999")
    twice = intent("b", "a", platform=NAMED, a=bad.replace("p: hpc", "p: a"), b=bad.replace("p: hpc", "p: b"))
    compilation = pipeline.check(twice, "intent.yaml")
    lines = [finding.span.line for finding in compilation.findings if finding.span]
    assert lines == sorted(lines)
    assert len(lines) == 2


def test_comments_line_ends_and_quotes_do_not_change_the_bundle() -> None:
    plain = intent()
    decorated = b"# a comment\n" + plain.replace(b"\n", b"\r\n").replace(b"mode: mps", b'"mode": "mps"')
    bundles = [pipeline.compile_intent(text, "intent.yaml", EMPTY).artifacts for text in (plain, decorated)]
    assert bundles[0] == bundles[1]


def test_huge_value_is_truncated_in_the_finding() -> None:
    data = intent("hpc", platform=NAMED, hpc=POOLS["hpc"].replace("h100-sxm5-80gb", "h" * 1_000_000))
    (finding,) = pipeline.check(data, "intent.yaml").findings
    assert finding.code == "GS201"
    assert max(map(len, (finding.message, *finding.hints))) <= MAX_CHARACTERS
