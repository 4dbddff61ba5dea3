"""Rules on quotas: code, place and sentence."""

import pytest

from tests.compiler.rules.intents import check, found, pool, written

TRAINING = pool(
    "training", card="a100-sxm4-40gb", nodes="{names: [n1, n2]}", sharing="{mode: mig, layout: {2g.10gb: 2, 1g.5gb: 3}}"
)
WHOLE = pool("whole", nodes="{matchLabels: {node.example.org/flavour: whole}}", sharing="{mode: exclusive}")


def one(code: str, quotas: str, *pools: str) -> tuple[str, bool, str]:
    (only,) = found(written(*(pools or (pool(),)), quotas=quotas), code)
    return only


def clean(quotas: str, *pools: str) -> None:
    assert [finding.code for finding in check(written(*(pools or (pool(),)), quotas=quotas))] == []


@pytest.mark.parametrize(
    "quota", ["8", "0", "{memory: 56Gi}", "{shares: 8, memory: 56Gi}", "{nvidia.com/gpu.shared: 4}", "{gpu: 4}"]
)
def test_quotas_on_a_pool_with_one_resource(quota: str) -> None:
    clean(f"{{atlas: {{notebooks: {quota}}}}}")


@pytest.mark.parametrize("quota", ["{2g.10gb: 4}", "{1g.5gb: 3, nvidia.com/mig-2g.10gb: 1}"])
def test_quotas_on_a_pool_with_several_resources(quota: str) -> None:
    clean(f"{{atlas: {{training: {quota}}}}}", TRAINING)


def test_an_unknown_pool_is_reported_at_its_key_with_the_nearest() -> None:
    path, on_key, _ = one("GS601", "{atlas: {notebook: 8}}")
    assert (path, on_key) == ("/spec/quotas/atlas/notebook", True)


@pytest.mark.parametrize(("quota", "place"), [("4", ""), ("{shares: 4, memory: 5Gi}", "/shares"), ("{memory: 5Gi}", "/memory")])
def test_quota_without_a_resource_gets_the_mapping_as_hint(quota: str, place: str) -> None:
    text = written(TRAINING, quotas=f"{{atlas: {{training: {quota}}}}}")
    (finding,) = (finding for finding in check(text) if finding.code == "GS602")
    assert finding.path == ("spec", "quotas", "atlas", "training", *([place[1:]] if place else []))
    assert "{2g.10gb: " in finding.hints[0]


def test_a_resource_that_is_not_offered_is_reported_at_its_key() -> None:
    path, on_key, message = one("GS603", "{atlas: {training: {3g.20gb: 1}}}", TRAINING)
    assert (path, on_key) == ("/spec/quotas/atlas/training/3g.20gb", True)
    assert message == "pool training does not offer 3g.20gb"


@pytest.mark.parametrize(
    ("pools", "quota", "words"),
    [
        ((WHOLE,), "{whole: {memory: 8Gi}}", "whole devices"),
        ((pool(memory="{cap: none}"),), "{notebooks: {memory: 8Gi}}", "has no cap"),
    ],
)
def test_memory_quota_that_is_not_whole_shares_is_reported(pools: tuple[str, ...], quota: str, words: str) -> None:
    path, _, message = one("GS604", f"{{atlas: {quota}}}", *pools)
    assert path.endswith("/memory")
    assert words in message


def test_memory_quota_below_one_share_gets_a_hint_to_write_0() -> None:
    (none,) = check(written(pool(), quotas="{atlas: {notebooks: {memory: 1Gi}}}"))
    assert none.hints == ("a share is 3724Mi: write memory: 3724Mi or more, or 0 in place of the mapping for none",)
    assert [finding.code for finding in check(written(pool(), quotas="{atlas: {notebooks: 0}}"))] == []


def test_memory_of_exactly_one_share_is_enough() -> None:
    clean("{atlas: {notebooks: {memory: 3072Mi}}}", pool(memory="{cap: 3Gi}"))


def test_a_namespace_that_may_not_use_the_pool_is_reported_at_the_pool() -> None:
    path, on_key, _ = one("GS605", "{atlas: {notebooks: 8}}", pool(namespaces="[cms]"))
    assert (path, on_key) == ("/spec/quotas/atlas/notebooks", True)


@pytest.mark.parametrize(
    ("quota", "place"), [("{training: {1g.5gb: 25}}", "training/1g.5gb"), ("{training: {2g.10gb: 17}}", "training/2g.10gb")]
)
def test_quota_above_the_pool_capacity_is_a_warning(quota: str, place: str) -> None:
    assert one("GS606", f"{{atlas: {quota}}}", TRAINING)[0] == f"/spec/quotas/atlas/{place}"


@pytest.mark.parametrize(
    ("quota", "place", "hint"),
    [
        ("{shares: 33, memory: 200Gi}", "shares", "write 32 or less: the rest can never be used"),
        ("{shares: 90, memory: 121Gi}", "memory", "write 119168Mi or less: the rest can never be used"),
        ("{memory: 121Gi}", "memory", "write 119168Mi or less: the rest can never be used"),
    ],
)
def test_the_smaller_of_shares_and_memory_is_compared_with_the_pool(quota: str, place: str, hint: str) -> None:
    (finding,) = check(written(pool(nodes="{names: [n1, n2]}"), quotas=f"{{atlas: {{notebooks: {quota}}}}}"))
    assert finding.code == "GS606"
    assert finding.path == ("spec", "quotas", "atlas", "notebooks", place)
    assert finding.message == "33 nvidia.com/gpu.shared exceed pool notebooks: 16 on each of 2 nodes"
    assert finding.hints == (hint,)


@pytest.mark.parametrize("quota", ["{shares: 33, memory: 8Gi}", "{shares: 8, memory: 121Gi}"])
def test_larger_of_shares_and_memory_is_no_finding(quota: str) -> None:
    clean(f"{{atlas: {{notebooks: {quota}}}}}", pool(nodes="{names: [n1, n2]}"))


def test_hint_on_a_bare_count_repeats_it() -> None:
    (finding,) = check(written(TRAINING, quotas="{atlas: {training: 0}}"))
    assert finding.hints == ("write one number for each: {2g.10gb: 0, 1g.5gb: 0}",)


def test_quotas_of_shares_and_memory_are_added_up_by_the_smaller() -> None:
    both = "{atlas: {notebooks: {shares: 20, memory: 60Gi}}, cms: {notebooks: {shares: 16, memory: 90Gi}}}"
    assert not found(written(pool(nodes="{names: [n1, n2]}"), quotas=both), "GS612")


def test_quota_equal_to_the_pool_capacity_has_no_warning() -> None:
    clean("{atlas: {training: {1g.5gb: 24, 2g.10gb: 16}}}", TRAINING)


def test_without_a_number_of_nodes_no_total_is_exceeded() -> None:
    clean("{atlas: {notebooks: 100000}}")


def test_pools_with_one_resource_name_share_one_quota_and_the_sum_is_reported() -> None:
    serving = pool("serving", nodes="{matchLabels: {node.example.org/flavour: serving}}")
    path, _, message = one("GS607", "{atlas: {notebooks: 8, serving: 4}}", pool(), serving)
    assert path == "/spec/quotas/atlas/serving"
    assert message == "atlas gets one budget of 12 nvidia.com/gpu.shared for pools notebooks and serving together"


def test_shared_quota_includes_pools_it_does_not_name() -> None:
    serving = pool("serving", nodes="{matchLabels: {node.example.org/flavour: serving}}")
    assert one("GS607", "{atlas: {notebooks: 8}}", pool(), serving)[0] == "/spec/quotas/atlas/notebooks"


def test_pool_closed_to_the_namespace_is_not_in_its_quota() -> None:
    serving = pool("serving", nodes="{matchLabels: {node.example.org/flavour: serving}}", namespaces="[cms]")
    assert not found(written(pool(), serving, quotas="{atlas: {notebooks: 8}}"), "GS607")


def test_a_bad_namespace_is_reported_at_its_key_once() -> None:
    path, on_key, _ = one("GS608", "{Atlas: {notebooks: 8, whole: 1}}", pool(), WHOLE)
    assert (path, on_key) == ("/spec/quotas/Atlas", True)


def test_one_resource_under_two_names_is_reported_at_the_second() -> None:
    path, _, _ = one("GS609", "{atlas: {training: {1g.5gb: 1, mig-1g.5gb: 2}}}", TRAINING)
    assert path == "/spec/quotas/atlas/training/mig-1g.5gb"


def test_quota_of_a_pool_with_an_unknown_card_is_not_checked() -> None:
    codes = {finding.code for finding in check(written(pool(card="none-such"), quotas="{atlas: {notebooks: {memory: 1}}}"))}
    assert codes == {"GS201"}
