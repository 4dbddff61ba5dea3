"""Every finding says what to write instead."""

import pytest

from gpushare import pipeline
from tests.language import test_mig, test_nodes, test_platform, test_quotas_and_more, test_sharing, test_values
from tests.language.texts import intent, mig, pool

ALL = [
    text
    for module in (test_values.VALUES, test_nodes.NODES, test_sharing.SHARING, test_mig.MIG, test_platform.PLATFORM,
                   test_quotas_and_more.QUOTAS)
    for text, expected in module
    if expected
]  # fmt: skip


def test_no_finding_of_the_corpus_is_without_a_hint_and_each_is_one_line() -> None:
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
        (intent(pool(card="A100-SXM4-40GB")), "nearest: a100-sxm4-40gb"),
        (intent(pool(card="tesla-t4")), "t4"),
        (intent(mig("layout: {1g.5gb: 8}")), "legal and nearest: {1g.5gb: 7}"),
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
    (finding,) = pipeline.check(text.encode(), "intent.yaml").findings
    assert any(hint in told for told in finding.hints)
