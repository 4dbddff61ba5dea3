"""Rules on who is kept from what: code, place and sentence."""

import pytest

from tests.compiler.rules.intents import found, pool, written

ONE = "{names: [n1]}"


@pytest.mark.parametrize(
    ("enforce", "why"),
    [
        ("none", "admission.enforce: none creates no policies"),
        ("audit", "admission.enforce: audit only writes to the audit log"),
        ("warn", None),
        ("deny", None),
    ],
)
def test_unenforced_namespace_restriction_is_reported(enforce: str, why: str | None) -> None:
    text = written(pool(namespaces="[atlas]"), admission=f"{{enforce: {enforce}}}")
    place = ("/spec/pools/notebooks/namespaces", False, f"pool notebooks is open to every namespace: {why}")
    assert found(text, "GS611") == ([place] if why else [])
    assert not found(written(pool(), admission=f"{{enforce: {enforce}}}"), "GS611")


def test_quotas_above_the_total_capacity_are_reported() -> None:
    text = written(pool(nodes=ONE), quotas="{atlas: {notebooks: 8}, cms: {notebooks: 9}}")
    message = "the quotas of atlas and cms add up to 17 nvidia.com/gpu.shared, but the pools have 16"
    assert found(text, "GS612") == [("/spec/quotas/cms/notebooks", False, message)]
    assert not found(text.replace("9", "8"), "GS612")


def test_single_too_large_quota_is_reported_only_once() -> None:
    text = written(pool(nodes=ONE), quotas="{atlas: {notebooks: 8}, cms: {notebooks: 17}}")
    assert found(text, "GS606")
    assert not found(text, "GS612")


def test_quotas_are_summed_over_the_pools_that_share_a_resource() -> None:
    pools = pool("a", nodes=ONE), pool("b", nodes="{names: [n2]}")
    quotas = "{atlas: {a: 12, b: 4}, cms: {a: 4, b: 12}}"
    assert not found(written(*pools, quotas=quotas), "GS612")
    ((place, _, message),) = found(written(*pools, quotas=quotas.replace("b: 12", "b: 13")), "GS612")
    assert (place, "33 nvidia.com/gpu.shared, but the pools have 32" in message) == ("/spec/quotas/cms/b", True)


def test_pool_without_a_node_count_has_no_quota_total() -> None:
    assert not found(written(pool(), quotas="{atlas: {notebooks: 8000}, cms: {notebooks: 8000}}"), "GS612")


@pytest.mark.parametrize("namespace", ["gpu-system", "kube-system", "monitoring"])
def test_a_quota_on_a_namespace_of_the_platform(namespace: str) -> None:
    text = written(pool(), quotas=f"{{{namespace}: {{notebooks: 2}}}}", platform="{namespaces: [monitoring]}")
    message = f"{namespace} is a namespace of the platform: the quota also holds its test and validator pods"
    assert found(text, "GS613") == [(f"/spec/quotas/{namespace}", True, message)]


def test_a_quota_on_a_tenant() -> None:
    assert not found(written(pool(), quotas="{atlas: {notebooks: 2}}", namespace="other"), "GS613")
