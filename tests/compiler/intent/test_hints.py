"""Every finding says what to write instead."""

import pytest

from gpushare import pipeline
from gpushare.core.diagnostics import Finding
from tests.compiler.intent import test_mig, test_nodes, test_platform, test_quotas_and_more, test_sharing, test_values
from tests.compiler.intent.texts import OF_THE_CATALOGUE_AND_THE_RELEASE, intent, mig, pool

ALL = [
    text
    for module in (
        test_values.VALUES,
        test_nodes.NODES,
        test_sharing.SHARING,
        test_mig.MIG,
        test_platform.PLATFORM,
        test_quotas_and_more.QUOTAS,
    )
    for text, expected in module
    if expected
]


def wrong_in(text: str) -> list[Finding]:
    """What a check finds, except for what comes and goes with the release."""
    findings = pipeline.check(text.encode(), "intent.yaml").findings
    return [finding for finding in findings if finding.code not in OF_THE_CATALOGUE_AND_THE_RELEASE]


def test_every_finding_of_the_corpus_has_one_line_hints() -> None:
    bare = []
    for text in ALL:
        for finding in pipeline.check(text.encode(), "intent.yaml").findings:
            if not finding.hints or "\n" in finding.message:
                bare.append((finding.code, finding.message))
    assert bare == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (intent(pool(card="a100")), "a100-pcie-40gb"),
        (intent(pool(card="A100-SXM4-40GB")), "write a100-sxm4-40gb"),
        (intent(pool(card="tesla-t4")), "t4"),
        (intent(mig("layout: {1g.5gb: 8}")), "nearest valid: {1g.5gb: 7}"),
        (intent(mig("layout: {1g.5gb.me: 1}")), "write 1g.5gb+me"),
        (intent(pool(memory="{cap: 4Gi}")), "the largest cap for 4 replicas is 3724Mi"),
        (intent(pool(gpuPerNode="4")), "the field is called gpusPerNode"),
        (intent(pool(replicas="4")), "replicas belongs in sharing"),
        (intent(pool(nodes="{matchLabels: {a: true}}")), 'write it in quotes: "true"'),
        (intent(pool(require="{ecc: 'true'}")), "write it without quotes: true"),
        (intent(pool(), kubernetes="1.30"), 'write it in quotes: "1.30"'),
        (intent(pool(), platform="{values: {psp: {enabled: true}}}"), "write psa.enabled"),
        (intent(pool(), platform="{values: {operator: {migStrategy: single}}}"), "mig.strategy"),
    ],
)
def test_the_hint_names_the_legal_alternative(text: str, hint: str) -> None:
    (finding,) = wrong_in(text)
    assert any(hint in told for told in finding.hints)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (intent(mig("layouts: [{gpus: all, layout: {1g.5gb: 7}}]")), "for all GPUs alike write layout in place of layouts"),
        (intent(mig("layouts: [{gpus: 0-3, layout: {1g.5gb: 7}}]")), "write each number: [0, 1, 2, 3]"),
        (intent(mig("layouts: [{gpus: '2', layout: {1g.5gb: 7}}]")), "write each number: [2]"),
        (intent(mig("layout: balanced")), "write goal: balanced in place of the layout"),
        (intent(pool(sharing="{mode: time-slicing, replicas: {gpu: 2}}")), "write the number alone, 2"),
        (intent(mig("layout: {1g.5gb: 7}, replicas: {gpu: 2}")), "whole GPUs beside MIG are never shared"),
        (intent(pool(memory="{cap: 4GiB}")), "write it as Kubernetes does: 4Gi"),
        (intent(pool(memory="{cap: 512 MB}")), "write it as Kubernetes does: 512Mi, or for powers of ten 512M"),
        (intent(pool(memory="{cap: 4gb}")), "write it as Kubernetes does: 4Gi, or for powers of ten 4G"),
        (intent(pool(memory="{cap: 4 Gi}")), "write it as Kubernetes does: 4Gi"),
    ],
)
def test_hint_proposes_the_intended_valid_text(text: str, hint: str) -> None:
    (finding,) = wrong_in(text)
    assert any(hint in told for told in finding.hints), finding.hints


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (mig("layouts: [{gpus: 0-3, layout: {1g.5gb: 7}}]"), mig("layouts: [{gpus: [0, 1, 2, 3], layout: {1g.5gb: 7}}]")),
        (mig("layout: balanced"), mig("goal: balanced")),
        (pool(sharing="{mode: time-slicing, replicas: {gpu: 2}}"), pool(sharing="{mode: time-slicing, replicas: 2}")),
        (pool(memory="{cap: 3GiB}"), pool(memory="{cap: 3Gi}")),
    ],
)
def test_intent_corrected_by_the_hint_passes(wrong: str, right: str) -> None:
    assert wrong_in(intent(wrong))
    assert wrong_in(intent(right)) == []


def test_no_hint_on_the_shape_repeats_its_message() -> None:
    for text in ALL:
        for finding in pipeline.check(text.encode(), "intent.yaml").findings:
            said = [hint.removeprefix("write ").removeprefix("such as ") for hint in finding.hints if len(hint) > 12]
            assert not (finding.code.startswith("GS1") and any(hint in finding.message for hint in said)), finding


LONG = "x" * (1 << 20)


LONG_TEXTS = [
    intent(pool(card=LONG)),
    intent(pool(nodes=f"{{matchLabels: {{{LONG}: b}}}}")),
    intent(pool(nodes=f"{{names: [{LONG}]}}")),
    intent(pool(namespaces=f"[{LONG}]")),
    intent(pool(require=f"{{ecc: {LONG}}}")),
    intent(pool(gpus=LONG)),
    intent(mig(f"layout: {{{LONG}: 1}}")),
    intent(mig(f"layouts: [{{gpus: {LONG}, layout: none}}]")),
    intent(pool(), platform=f"{{registry: {LONG}}}"),
    intent(pool(), platform=f"{{values: {{{LONG}: 1}}}}"),
    intent(pool(), platform=f"{{values: {{toolkit: {{env: [{{name: A, value: {{a: {LONG}}}}}]}}}}}}"),
    intent(pool(), quotas=f"{{{LONG}: {{p: 1}}}}"),
    intent(pool(), accept=f"{{{LONG}: known}}"),
    intent(pool(), kubernetes=LONG),
    f"{LONG}: 1",
]


@pytest.mark.parametrize("number", range(len(LONG_TEXTS)))
def test_huge_values_are_truncated_in_findings(number: int) -> None:
    findings = pipeline.check(LONG_TEXTS[number].encode(), "intent.yaml").findings
    assert findings
    assert sum(len(sentence) for finding in findings for sentence in (finding.message, *finding.hints)) < 10_000
