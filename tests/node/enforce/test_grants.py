"""What a container may use: allocations, pods and the pool's shares become caps, and nobody's is lowered while it runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.host.state_dir import CapRecord, KeptContainer
from gpushare_node.adapters.host.state_files import FirstCaps
from gpushare_node.backends.backend import Allocation
from gpushare_node.contract import tenancy
from gpushare_node.enforce.exemptions import WallClock
from gpushare_node.enforce.grants import Granted, by_pod, grant, profiles, terms
from gpushare_node.guard.inputs import Cap, CapAction, ContainerId, Owner
from gpushare_node.partition.state import Fault, FaultKind, Placement, Profile
from gpushare_node.vendors.driver import ComputeInstance, GpuInfo, GpuInstance, MigInfo
from tests.node.enforce.enforcement import (
    MIG_SHARED,
    SHARED,
    EnforcementFixture,
    ManualClock,
    await_end,
    container_id,
    lives,
    pod,
    pod_uid,
    policy,
    tenancy_text,
    with_instances,
)
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool, systemd_path

MIB = 1 << 20
WHOLE = {"GPU-a": None, "GPU-b": None}
TENANCY = tenancy.read(tenancy_text())
NOW = 1.5e9
FIRST = FirstCaps(since=int(NOW))
DATES = WallClock(clock=ManualClock(), wall=lambda: NOW)


def granted(
    *ids: str,
    kept: dict[str, KeptContainer] | None = None,
    resource: str = SHARED,
    profile: Any = WHOLE,
    pod_changes: dict[str, Any] | None = None,
    **changes: Any,
) -> Granted:
    """The grants of one pod's container that holds these ids."""
    allocations = by_pod([Allocation(pod_uid=pod_uid(1), container="main", resource=resource, ids=ids)])
    now = terms(policy(**changes), TENANCY, profile, FIRST, DATES)
    return grant([pod("one", 1, **pod_changes or {})], allocations, now, kept or {})


def cap(found: Granted, device: str = "GPU-a") -> Cap | None:
    return found.grants[ContainerId(pod_uid=pod_uid(1), container=container_id(1))].caps.get(device)


def kept(cap_mib: int | None, tolerance_mib: int = 0, *, number: int = 1) -> dict[str, KeptContainer]:
    """What is remembered of the container of this number, in the first pod."""
    size = None if cap_mib is None else cap_mib * MIB
    own = CapRecord(device="GPU-a", cap_bytes=size, tolerance_bytes=tolerance_mib * MIB)
    return {container_id(number): KeptContainer(pod_uid=pod_uid(1), name="main", caps=(own,))}


@pytest.mark.failure_case(75)
def test_two_replicas_of_one_gpu_are_two_slices_and_two_tolerances() -> None:
    found = granted("GPU-a::3", "GPU-a::7", share={"toleranceMiB": 10})
    assert cap(found) == Cap(bytes=8192 * MIB, tolerance_bytes=20 * MIB, action=CapAction.KILL, grace_seconds=2)


@pytest.mark.failure_case(59)
def test_replicas_of_two_gpus_are_a_cap_on_each() -> None:
    found = granted("GPU-a::3", "GPU-b::7")
    assert [own.bytes for device in WHOLE if (own := cap(found, device))] == [4096 * MIB, 4096 * MIB]


def test_share_without_a_cap_gives_no_cap_and_is_stored_as_none() -> None:
    found = granted("GPU-a::3", share={"capMiB": None})
    assert cap(found) is None
    assert found.kept == kept(None)
    assert found.unresolved == ()


@pytest.mark.parametrize(("former", "now"), [(6000, 6000), (3000, 4096)])
def test_a_container_keeps_the_cap_of_its_start_unless_it_is_raised(former: int, now: int) -> None:
    found = cap(granted("GPU-a::3", kept=kept(former)))
    assert found is not None
    assert found.bytes == now * MIB


def test_cap_with_the_higher_limit_including_tolerance_applies() -> None:
    found = cap(granted("GPU-a::3", kept=kept(4000, 200)))
    assert found is not None
    assert found.limit_bytes == 4200 * MIB


def test_removed_cap_ends_immediately() -> None:
    assert cap(granted("GPU-a::3", kept=kept(3000), share={"capMiB": None})) is None


@pytest.mark.parametrize(
    ("resource", "profile"), [("nvidia.com/gpu", WHOLE), (SHARED, {"GPU-b": None}), (SHARED, {"GPU-a": "1g.5gb"})]
)
def test_unknown_allocation_gives_no_cap_and_is_reported_but_a_stored_cap_stays(
    resource: str, profile: dict[str, str | None]
) -> None:
    found = granted("GPU-a::3", resource=resource, profile=profile)
    assert cap(found) is None
    assert found.kept == {}
    assert found.unresolved[0].startswith("team/one, container main: ")
    held = granted("GPU-a::3", resource=resource, profile=profile, kept=kept(3000))
    assert cap(held) == Cap(bytes=3000 * MIB, grace_seconds=2)
    assert held.kept == kept(3000)
    assert held.unresolved == ()


def test_container_without_an_allocation_has_a_grant_without_devices() -> None:
    found = grant([pod("one", 1)], {}, terms(policy(), TENANCY, WHOLE, FIRST, DATES), {})
    assert [(one.devices, one.caps) for one in found.grants.values()] == [(frozenset(), {})]


def test_stored_caps_of_removed_containers_are_deleted() -> None:
    assert grant([], {}, terms(policy(), TENANCY, WHOLE, FIRST, DATES), kept(3000)).kept == {}


def test_containers_of_completed_pods_have_no_grant() -> None:
    assert granted("GPU-a::3", pod_changes={"phase": "Succeeded", "started": {}}).grants == {}


@pytest.mark.failure_case(55)
def test_a_container_that_still_runs_in_a_pod_that_has_failed_keeps_its_cap() -> None:
    """A pod over its deadline, or evicted for want of disk, has failed at once and ends in its own time."""
    running = {"phase": "Failed", "started": {container_id(1): 1000.0}}
    assert cap(granted("GPU-a::3", pod_changes=running)) is not None


@pytest.mark.failure_case(55)
def test_terminating_pod_keeps_its_cap() -> None:
    assert cap(granted("GPU-a::3", pod_changes={"is_terminating": True})) == cap(granted("GPU-a::3"))


@pytest.mark.failure_case(54)
def test_a_static_pod_is_granted_under_the_uid_that_cgroups_know() -> None:
    mirror = "0123456789abcdef0123456789abcdef"
    found = granted("GPU-a::3", pod_changes={"uids": (pod_uid(1), mirror)})
    assert {container.pod_uid for container in found.grants} == {pod_uid(1), mirror}


def survey(**changes: Any) -> GpuInfo:
    instances = tuple(
        GpuInstance(
            gi_id=gi,
            profile_id=19,
            start=gi,
            size=1,
            compute=tuple(ComputeInstance(ci_id=ci, is_whole=count == 1, uuid=f"MIG-{gi}-{ci}") for ci in range(count)),
        )
        for gi, count in ((1, 1), (2, 2))
    )
    names = (Profile(id=19, name=changes.pop("name", "1g.5gb"), placements=(Placement(start=0, size=1),)),)
    fields: dict[str, Any] = {"mig": MigInfo(current=True, pending=True, instances=instances, profiles=names)}
    return GpuInfo(index=0, uuid="GPU-a", name="A100", **fields | changes)


@pytest.mark.failure_case(60)
def test_mig_device_has_its_profile_and_a_split_instance_has_none() -> None:
    assert profiles([survey()], policy()) == {"MIG-1-0": "1g.5gb"}


def test_a_driver_without_names_is_understood_through_the_policys_ids() -> None:
    gpus = [{"indexes": [0, 1], "mig": True, "instances": [{"profile": "1g.5gb", "profileId": 19, "start": 0, "size": 1}]}]
    assert profiles([survey(name=None)], policy(mode="mig", gpus=gpus)) == {"MIG-1-0": "1g.5gb"}
    assert profiles([survey(name=None)], policy()) == {}


def test_gpu_without_mig_is_a_device_and_a_faulty_one_is_not() -> None:
    assert profiles([survey(mig=None)], policy()) == {"GPU-a": None}
    assert profiles([survey(fault=Fault(kind=FaultKind.LOST, detail="gone"))], policy()) == {}


def test_a_lower_cap_holds_for_containers_that_start_later_also_after_a_restart(enforcement: EnforcementFixture) -> None:
    early = enforcement.admit_and_begin(1, "early", 4000)
    enforcement.run(2)
    enforcement.policy = policy(share={"capMiB": 2048})
    enforcement.start()
    late = enforcement.admit_and_begin(2, "late", 4000)
    enforcement.run(10)
    await_end(late)
    assert lives(early)


def test_caps_are_enforced_even_if_they_cannot_be_stored(enforcement: EnforcementFixture, tmp_path: Path) -> None:
    (tmp_path / "state").rmdir()
    (tmp_path / "state").write_text("no folder")
    pid = enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement.run(6)
    await_end(pid)


def test_unreadable_checkpoint_keeps_caps_of_known_containers(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "known")
    enforcement.run(1)
    enforcement.checkpoint.write_text(json.dumps({"Data": 3}))
    known = enforcement.begin(1, 5000)
    enforcement.run(30)
    await_end(known)


@pytest.mark.failure_case(54)
def test_a_static_pods_process_is_found_under_the_hash_of_its_file(enforcement: EnforcementFixture) -> None:
    hashed = "0123456789abcdef0123456789abcdef"
    pid = enforcement.admit_and_begin(1, "static", 5000, uids=(pod_uid(1), hashed))
    enforcement.fake_proc.show(pid, systemd_path(hashed, container_id(1)))
    enforcement.run(6)
    await_end(pid)


@pytest.mark.failure_case(60)
def test_cap_on_a_mig_instance_does_not_depend_on_other_instances(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    enforcement, (first, second) = with_instances(tmp_path, two_gpus, process_pool)
    for number, instance in ((1, first), (2, second)):
        enforcement.list.known = (*enforcement.list.known, pod(f"on-{number}", number))
        enforcement.allocate(number, MIG_SHARED, [f"{two_gpus.mig_uuid(0, instance)}::0"])
    greedy, modest = enforcement.begin(1, 5000, gi=first), enforcement.begin(2, 4000, gi=second)
    enforcement.run(6)
    await_end(greedy)
    enforcement.run(10)
    assert lives(modest)
    assert enforcement.told.reasons("on-2") == []


def test_container_owner_is_its_pod_and_name_whatever_the_controller() -> None:
    pods = (pod("replica", 1, owner="controller"), pod("bare", 2, namespace="other"))
    granted = grant(pods, {}, terms(policy(), TENANCY, {}, FIRST, DATES), {})
    assert {one.owner for one in granted.grants.values()} == {
        Owner(namespace="team", uid=f"{pod_uid(1)}/main"),
        Owner(namespace="other", uid=f"{pod_uid(2)}/main"),
    }
