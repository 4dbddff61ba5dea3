"""Containers that no status lists: kubelet writes their ids when hooks and pulls let it, so that their owner decides when."""

import random
from typing import Any

import pytest

from gpushare_node.adapters.host.state_files import FirstCaps
from gpushare_node.backends.backend import Allocation
from gpushare_node.contract import tenancy
from gpushare_node.enforce.exemptions import WallClock
from gpushare_node.enforce.grants import by_pod, grant, terms
from gpushare_node.enforce.identities import PodIndex
from gpushare_node.guard.inputs import ContainerId
from tests.node.enforce.enforcement import (
    CAP_MIB,
    NOON,
    SHARED,
    YOUNG,
    EnforcementFixture,
    ManualClock,
    await_end,
    blindness,
    container_id,
    hold,
    lives,
    pod,
    pod_uid,
    policy,
    tenancy_text,
)
from tests.support import scale
from tests.support.process_fixtures import IGNORING_SIGTERM, systemd_path

HASH = "0123456789abcdef0123456789abcdef"
HOOK: dict[str, Any] = {"containers": {}, "started": {}, "phase": "Pending"}
"""What the API server has of a pod whose postStart hook runs, whose second image is pulled, or whose init container runs."""


def allocate(node: EnforcementFixture, number: int, container: str, *replicas: int, gpu: int = 0) -> None:
    """Kubelet writes down what it gave to this container of a pod."""
    node.allocate(number, SHARED, [f"{node.fake_nvml.uuid(gpu)}::{one}" for one in replicas])
    node.entries[-1]["ContainerName"] = container
    node.register(10)


def hook(node: EnforcementFixture) -> int:
    node.admit(1, "pod", **HOOK)
    return 1


def slow_pull(node: EnforcementFixture) -> int:
    """The second container has no image yet, so the status of the first is not written either."""
    node.admit(1, "pod", **HOOK)
    allocate(node, 1, "second", 200, gpu=1)
    return 1


def init_container(node: EnforcementFixture) -> int:
    """The container after it begins with what it had."""
    node.admit(1, "pod", **HOOK)
    allocate(node, 1, "prepare", 100)
    return 1


def no_share(node: EnforcementFixture) -> int:
    node.arrive(1, "pod", **HOOK)
    return 1


def listed_in_part(node: EnforcementFixture) -> int:
    """The first container is listed, and uses all of its own; what is seen is the second."""
    node.admit(1, "pod")
    allocate(node, 1, "second", 200)
    node.begin(1, CAP_MIB)
    return 22


def restarted(node: EnforcementFixture) -> int:
    """The status still lists the run that has ended."""
    node.admit(1, "pod")
    return 99


def restarted_and_waiting(node: EnforcementFixture) -> int:
    """The status lists the run that has ended, as ended."""
    node.admit(1, "pod", started={})
    return 99


def static(node: EnforcementFixture) -> int:
    node.admit(1, "pod", uids=(pod_uid(1), HASH), **HOOK)
    return 1


def over_its_deadline(node: EnforcementFixture) -> int:
    """It has failed at once, and ends in its own time."""
    node.admit(1, "pod", **HOOK | {"phase": "Failed"})
    return 1


VARIANTS = {
    one.__name__: (one, CAP_MIB)
    for one in (hook, slow_pull, init_container, listed_in_part, restarted, restarted_and_waiting, static, over_its_deadline)
} | {"no_share": (no_share, 0)}


def begin(node: EnforcementFixture, variant: str, used_mib: int, code: str = IGNORING_SIGTERM) -> int:
    container = VARIANTS[variant][0](node)
    pid = node.begin(1, used_mib, code, container=container)
    if variant == "static":
        node.fake_proc.show(pid, systemd_path(HASH, container_id(container)))
    return pid


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("age", [0.0, 0.5], ids=["API server answers", "its watch is a little late"])
def test_an_unlisted_container_over_what_its_pod_holds_is_ended(
    enforcement: EnforcementFixture, variant: str, age: float
) -> None:
    honest = enforcement.admit_and_begin(2, "honest", CAP_MIB)
    enforcement.list.age_seconds = 0.0 if variant == "no_share" else age
    pid = begin(enforcement, variant, VARIANTS[variant][1] + 100)
    enforcement.has_begun = True
    enforcement.run(13)
    await_end(pid)
    enforcement.run(20)
    assert lives(honest)
    assert enforcement.told.reasons("pod")[-2:].count("GPUProcessKilled") > 0
    assert blindness(enforcement) == ""


@pytest.mark.parametrize("variant", [one for one in VARIANTS if one != "no_share"])
def test_an_unlisted_container_within_what_its_pod_holds_is_left_alone(enforcement: EnforcementFixture, variant: str) -> None:
    pid = begin(enforcement, variant, VARIANTS[variant][1])
    enforcement.run(60)
    assert lives(pid)
    assert enforcement.told.events == []


def test_a_container_that_is_listed_in_the_end_keeps_to_its_own_cap(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "pod", **HOOK)
    pid = enforcement.begin(1, CAP_MIB)
    enforcement.run(30)
    enforcement.list.known = (pod("pod", 1),)
    enforcement.run(30)
    assert lives(pid)
    enforcement.fake_nvml.put(0, pid, CAP_MIB + 100)
    enforcement.run(8)
    await_end(pid)


def test_a_restart_is_known_without_the_api_server(enforcement: EnforcementFixture) -> None:
    first = enforcement.admit_and_begin(1, "pod", 1000)
    enforcement.run(5)
    enforcement.list.age_seconds = 1e9
    enforcement.fake_nvml.take(0, first)
    enforcement.fake_proc.hide(first)
    within = enforcement.begin(1, CAP_MIB, container=98)
    enforcement.run(60)
    assert lives(within)
    enforcement.fake_nvml.put(0, within, CAP_MIB + 100)
    enforcement.run(9)
    await_end(within)


def test_a_sidecar_that_is_not_listed_has_nothing_of_what_a_listed_container_holds(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "pod")
    main, side = enforcement.begin(1, 1000), enforcement.begin(1, 600, container=22)
    enforcement.run(8)
    await_end(side)
    enforcement.run(20)
    assert lives(main)


def test_a_sidecar_that_is_not_listed_does_not_live_on_an_idle_container(enforcement: EnforcementFixture) -> None:
    """The one that holds the share runs, and uses no GPU."""
    enforcement.admit(1, "pod")
    hold(enforcement, 1)
    side = enforcement.begin(1, 600, container=22)
    enforcement.run(8)
    await_end(side)


def test_the_debt_of_a_container_is_not_paid_by_being_listed(enforcement: EnforcementFixture) -> None:
    """Nor by starting again as one that is not listed yet."""
    enforcement.admit(1, "pod", **HOOK)
    pid = enforcement.begin(1, CAP_MIB + 100)
    enforcement.run(4)
    enforcement.list.known = (pod("pod", 1),)
    enforcement.run(3)
    await_end(pid)


def test_what_kubelet_has_given_to_a_pod_that_the_api_server_does_not_know_is_all_it_may_use(
    enforcement: EnforcementFixture,
) -> None:
    """A static pod without a mirror, or one that was deleted by force before this program began."""
    enforcement.admit(1, "lost")
    enforcement.list.known = ()
    within, over = enforcement.begin(1, 1000), enforcement.begin(1, CAP_MIB)
    enforcement.run(75)
    await_end(over)
    enforcement.run(60)
    assert lives(within)


def test_unlisted_containers_have_what_no_running_container_that_is_listed_has() -> None:
    """Pods in any state, against a count of replicas: each container has its own, and init containers hand theirs on."""
    dice = random.Random(9)
    tenants = tenancy.read(tenancy_text())
    dates = WallClock(clock=ManualClock(), wall=lambda: NOON)
    gpus = ("GPU-a", "GPU-b")
    for _ in range(scale.examples(3000)):
        names = [f"k{number}" for number in range(dice.randint(1, 4))]
        ids = {name: {(dice.choice(gpus), f"{name}{one}") for one in range(dice.randint(0, 2))} for name in names}
        first = dice.choice(names)
        ids["init"] = dice.choice((set(), ids[first], {("GPU-a", "init")}))
        fates = {name: dice.choice(("listed", "ended", "gone", "unlisted")) for name in names} | {"init": "ended"}
        runs = {container_id(number): name for number, name in enumerate(ids) if fates[name] != "unlisted"}
        started = {run: YOUNG for run, name in runs.items() if fates[name] in ("listed", "gone")}
        one = pod("pod", 1, containers=runs, started=started)
        allocations = by_pod(
            Allocation(pod_uid=pod_uid(1), container=name, resource=SHARED, ids=tuple(f"{gpu}::{text}" for gpu, text in own))
            for name, own in ids.items()
            if own
        )
        ended = frozenset(ContainerId(pod_uid(1), run) for run, name in runs.items() if fates[name] == "gone")
        found = grant(
            [one], allocations, terms(policy(), tenants, dict.fromkeys(gpus), FirstCaps(since=0), dates, ended=ended), {}
        )
        own = found.rests[ContainerId(pod_uid(1), "")]
        running = {portion for name in ids if fates[name] == "listed" for portion in ids[name]}
        free = {portion for some in ids.values() for portion in some} - running
        desired = {gpu: sum(at == gpu for at, _ in free) * CAP_MIB << 20 for gpu in gpus}
        assert {gpu: cap.bytes for gpu, cap in own.caps.items()} == {gpu: size for gpu, size in desired.items() if size}
        assert own.stray_cap is not None
        assert own.devices == own.caps.keys()
        index = PodIndex.of([one])
        for number, name in enumerate(ids):
            container = ContainerId(pod_uid(1), container_id(number))
            assert (index.resolve(container) == container) is (fates[name] != "unlisted")
