"""Quotas become `requests.<resource>` per namespace."""

from gpushare.intent.types import Mig, Quota, TimeSlicing
from tests.compiler.resolved.builders import plan, pool

NOTEBOOKS = pool(TimeSlicing(replicas=4), "t4", "notebooks")
SERVING = pool(TimeSlicing(replicas=8), "l40s", "serving")
TRAINING = pool(Mig(wanted=(("2g.10gb", 2), ("1g.5gb", 3)), replicas=(("1g.5gb", 2),)), name="training")


def hard(*quotas: Quota) -> dict[str, dict[str, int]]:
    resolved = plan(NOTEBOOKS, SERVING, TRAINING, quotas=quotas)
    return {quota.namespace: dict(quota.hard) for quota in resolved.quotas}


def test_a_count_is_a_request_of_the_pools_resource() -> None:
    assert hard(Quota(namespace="atlas", pool="notebooks", shares=8)) == {"atlas": {"requests.nvidia.com/gpu.shared": 8}}


def test_pools_with_one_resource_name_share_one_quota() -> None:
    both = (Quota(namespace="atlas", pool="notebooks", shares=8), Quota(namespace="atlas", pool="serving", shares=3))
    assert hard(*both) == {"atlas": {"requests.nvidia.com/gpu.shared": 11}}


def test_memory_quota_is_rounded_down_to_whole_shares() -> None:
    # 56 GiB in caps of 3724 MiB.
    quota = Quota(namespace="cms", pool="notebooks", memory_bytes=56 << 30)
    assert hard(quota) == {"cms": {"requests.nvidia.com/gpu.shared": 15}}


def test_of_shares_and_memory_the_smaller_applies() -> None:
    few, little = (Quota(namespace="cms", pool="notebooks", shares=shares, memory_bytes=56 << 30) for shares in (10, 20))
    assert hard(few) == {"cms": {"requests.nvidia.com/gpu.shared": 10}}
    assert hard(little) == {"cms": {"requests.nvidia.com/gpu.shared": 15}}


def test_quota_profiles_are_mapped_to_resource_names() -> None:
    quota = Quota(namespace="atlas", pool="training", per_resource=(("2g.10gb", 4), ("1g.5gb", 6)))
    assert hard(quota) == {"atlas": {"requests.nvidia.com/mig-1g.5gb.shared": 6, "requests.nvidia.com/mig-2g.10gb": 4}}


def test_namespaces_are_sorted_and_those_without_quota_absent() -> None:
    quotas = tuple(Quota(namespace=name, pool="notebooks", shares=1) for name in ("cms", "atlas"))
    assert list(hard(*quotas)) == ["atlas", "cms"]
