"""Findings on whom admission refuses, and where it sends pods."""

import pytest

from tests.compiler.rules.intents import check, found, pool, written

LIMITED = pool(namespaces="[jupyter]")
WIDE = "{scope: cluster}"
DEFAULT = {"default": "true"}
MIG = {"card": "a100-sxm4-40gb", "nodes": "{names: [n1]}", "sharing": "{mode: mig, layout: {1g.5gb: 7}}"}
L4 = {"name": "serving", "card": "l4", "nodes": "{matchLabels: {node.example.org/flavour: gpu-l4}}"}


@pytest.mark.parametrize(
    ("code", "text", "path"),
    [
        ("GS620", written(LIMITED), "/spec/pools/notebooks/namespaces"),
        ("GS621", written(LIMITED, admission=WIDE), "/spec/admission/scope"),
        ("GS622", written(pool(), platform="{stack: existing}"), "/spec/platform/stack"),
        ("GS623", written(pool(**DEFAULT), pool(**L4, **DEFAULT), kubernetes='"1.36"'), "/spec/pools/serving/default"),
        ("GS624", written(pool(**DEFAULT)), "/spec/pools/notebooks/default"),
        ("GS624", written(pool(**DEFAULT), kubernetes='"1.36"', admission="{enforce: none}"), "/spec/pools/notebooks/default"),
        ("GS624", written(pool(**DEFAULT), kubernetes='"1.36"'), "/spec/pools/notebooks/default"),
        ("GS624", written(pool(**MIG, **DEFAULT), kubernetes='"1.36"'), "/spec/pools/notebooks/default"),
        ("GS625", written(pool(namespaces="[jupyter, kube-system]")), "/spec/pools/notebooks/namespaces/1"),
        ("GS625", written(pool(namespaces="[gpu-system]")), "/spec/pools/notebooks/namespaces/0"),
        ("GS625", written(pool(namespaces="[own]"), namespace="own"), "/spec/pools/notebooks/namespaces/0"),
        ("GS625", written(LIMITED, platform="{namespaces: [a, jupyter]}"), "/spec/platform/namespaces/1"),
    ],
)
def test_admission_gaps_and_restrictions_are_reported(code: str, text: str, path: str) -> None:
    assert [where for where, _, _ in found(text, code)] == [path]


@pytest.mark.parametrize(
    "text",
    [
        written(pool()),
        written(pool(), platform="{stack: existing, namespaces: [gpu-operator]}"),
        written(pool(**DEFAULT), pool(**L4), kubernetes='"1.36"'),
        written(pool("whole", sharing="{mode: exclusive}", **DEFAULT), pool(**MIG), kubernetes='"1.36"'),
        written(pool(), quotas="{atlas: {notebooks: 4}}", platform="{namespaces: [monitoring]}"),
    ],
)
def test_complete_admission_has_no_findings(text: str) -> None:
    assert [finding.code for finding in check(text) if finding.code.startswith("GS62")] == []


def test_finding_lists_the_platform_namespaces() -> None:
    [(_, _, message)] = found(written(pool(), admission=WIDE, platform="{namespaces: [monitoring]}"), "GS621")
    assert "gpu-system, kube-system and monitoring" in message


def test_hints_say_how_to_pass_a_strict_check() -> None:
    text = written(LIMITED, admission=WIDE, platform="{namespaces: [monitoring]}")
    (shut,) = [finding for finding in check(text) if finding.code == "GS621"]
    assert "accept: {GS621: " in shut.hints[1]
    (left,) = [finding for finding in check(written(LIMITED)) if finding.code == "GS620"]
    assert "scope: cluster" in left.hints[0]
    assert "accept: {GS620: " in left.hints[1]
