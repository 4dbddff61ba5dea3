"""GS217: nodes with a cloud's label for GPUs that never offer what Cluster Autoscaler waits for."""

import pytest

from tests.compiler.rules.intents import codes, found, one, pool, written

SLICED = "{mode: time-slicing, replicas: 4}"
PLAIN = "{mode: time-slicing, replicas: 4, rename: false}"
A100 = "a100-sxm4-40gb"


def nodes(label: str, autoscaler: str = "cluster-autoscaler") -> str:
    added = f", autoscaler: {autoscaler}" if autoscaler else ""
    return f"{{matchLabels: {{{label}: a}}{added}}}"


@pytest.mark.parametrize(
    ("label", "named"),
    [
        ("cloud.google.com/gke-accelerator", "cloud.google.com/gke-accelerator"),
        ("cloud.google.com/gke-nodepool", "cloud.google.com/gke-accelerator"),
        ("kubernetes.azure.com/agentpool", "kubernetes.azure.com/accelerator"),
        ("k8s.amazonaws.com/accelerator", "k8s.amazonaws.com/accelerator"),
        ("cluster-api/accelerator", "cluster-api/accelerator"),
        ("accelerator", "accelerator"),
    ],
)
def test_renamed_shares_on_a_clouds_label_are_reported(label: str, named: str) -> None:
    path, _, message = one("GS217", pool(nodes=nodes(label)))
    assert path == "/spec/pools/notebooks/nodes"
    assert f"the label {named} and" in message


@pytest.mark.parametrize(
    ("selector", "reported"),
    [
        ("{key: cloud.google.com/gke-accelerator, operator: Exists}", True),
        ("{key: cloud.google.com/gke-accelerator, operator: In, values: [a, b]}", True),
        ("{key: cloud.google.com/gke-accelerator, operator: NotIn, values: [a]}", False),
        ("{key: cloud.google.com/gke-accelerator, operator: DoesNotExist}", False),
    ],
)
def test_only_nodes_that_must_have_the_label_are_reported(selector: str, reported: bool) -> None:
    text = written(pool(nodes=f"{{matchLabels: {{a: b}}, matchExpressions: [{selector}], autoscaler: cluster-autoscaler}}"))
    assert bool(found(text, "GS217")) is reported


@pytest.mark.parametrize(
    ("sharing", "reported"),
    [
        ("{mode: exclusive}", False),
        ("{mode: mig, layout: {1g.5gb: 7}}", True),
        ("{mode: mig, layout: {1g.5gb: 7}, strategy: single}", False),
        ("{mode: mig, layout: {1g.5gb: 7}, strategy: single, replicas: 2}", True),
        ("{mode: mig, layouts: [{gpus: [0, 1, 2], layout: {1g.5gb: 7}}, {gpus: [3], layout: none}]}", False),
        (SLICED, True),
        (PLAIN, False),
    ],
)
def test_nodes_that_offer_the_plain_resource_are_not_reported(sharing: str, reported: bool) -> None:
    text = written(pool(card=A100, nodes=nodes("cloud.google.com/gke-nodepool"), sharing=sharing))
    assert bool(found(text, "GS217")) is reported


def test_unmanaged_pool_that_blocks_the_autoscaler_is_reported() -> None:
    text = written(
        pool("static", nodes="{matchLabels: {cloud.google.com/gke-nodepool: b}}"),
        pool("elastic", nodes=nodes("cloud.google.com/gke-nodepool"), sharing=PLAIN),
    )
    ((path, _, message),) = found(text, "GS217")
    assert path == "/spec/pools/static/nodes"
    assert "adds no nodes to any pool" in message


@pytest.mark.parametrize("autoscaler", ["", "karpenter"])
def test_without_cluster_autoscaler_the_label_has_no_meaning(autoscaler: str) -> None:
    assert not found(written(pool(nodes=nodes("cloud.google.com/gke-nodepool", autoscaler))), "GS217")


def test_pool_with_an_unknown_card_is_not_checked() -> None:
    text = written(pool(card="none-such", nodes=nodes("cloud.google.com/gke-nodepool")))
    assert not found(text, "GS217")


@pytest.mark.parametrize("value", ["none", "Karpenter", "true", "[]", "null"])
def test_an_unknown_autoscaler_is_refused(value: str) -> None:
    assert codes(pool(nodes=f"{{matchLabels: {{a: b}}, autoscaler: {value}}}")) != []


def test_an_autoscaler_alone_selects_no_nodes() -> None:
    assert codes(pool(nodes="{autoscaler: karpenter}")) != []
