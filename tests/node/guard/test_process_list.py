"""Rows that cannot be true make their whole GPU untouchable for the cycle, and nothing else."""

from typing import Any

import pytest

from gpushare_node.guard.inputs import Cap, Grant
from gpushare_node.guard.process_list import (
    MAX_ROWS,
    MEMORY_UNKNOWN,
    Device,
    Kind,
    MigInstance,
    ProcessEntry,
    ProcessUsage,
    RejectReason,
    validate,
)
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind, CapState, ContainerStatus, Terminate, Verdict
from tests.node.guard.guard_fixture import GIB, GPU, OTHER, Node, container, owner, reasons, signalled, states, steps, tenant

GOOD = ProcessEntry(pid=500, used_bytes=9 * GIB)
MPS_ROW = ProcessEntry(pid=500, used_bytes=9 * GIB, kind=Kind.MPS)


def gpu(*rows: ProcessEntry, **changes: Any) -> Device:
    fields: dict[str, Any] = {"uuid": GPU, "total_bytes": 40 * GIB, "rows": rows, **changes}
    return Device(**fields)


BAD = {
    "44 scrambled list of R530 and R535": (
        (
            ProcessEntry(pid=1184, used_bytes=0),
            ProcessEntry(pid=0, used_bytes=1184),
            ProcessEntry(pid=4294967295, used_bytes=4294967295),
            ProcessEntry(pid=16040, used_bytes=0),
        ),
        RejectReason.BAD_PID,
    ),
    "45 pid and memory swapped": ((ProcessEntry(pid=9 * GIB, used_bytes=500),), RejectReason.BAD_PID),
    "47 pid 0": ((ProcessEntry(pid=0, used_bytes=GIB),), RejectReason.BAD_PID),
    "47 pid 1": ((ProcessEntry(pid=1, used_bytes=GIB),), RejectReason.BAD_PID),
    "47 pid 2": ((ProcessEntry(pid=2, used_bytes=GIB),), RejectReason.BAD_PID),
    "47 pid -1": ((ProcessEntry(pid=-1, used_bytes=GIB),), RejectReason.BAD_PID),
    "47 pid -1, unsigned": ((ProcessEntry(pid=0xFFFFFFFF, used_bytes=GIB),), RejectReason.BAD_PID),
    "more than the device has": ((ProcessEntry(pid=501, used_bytes=41 * GIB),), RejectReason.ABOVE_TOTAL),
    "negative": ((ProcessEntry(pid=501, used_bytes=-GIB),), RejectReason.ABOVE_TOTAL),
    "sum above the total": ((ProcessEntry(pid=501, used_bytes=34 * GIB),), RejectReason.SUM_ABOVE_TOTAL),
    "one process twice with different values": ((ProcessEntry(pid=500, used_bytes=GIB),), RejectReason.CONFLICTING),
    "a GPU instance without MIG": ((ProcessEntry(pid=501, used_bytes=GIB, gpu_instance=1),), RejectReason.BAD_INSTANCE),
}


@pytest.mark.parametrize(("rows", "why"), BAD.values(), ids=BAD)
def test_an_implausible_row_discredits_the_whole_gpu(rows: tuple[ProcessEntry, ...], why: RejectReason) -> None:
    assert validate(gpu(GOOD, *rows)) is why


@pytest.mark.parametrize(("rows", "why"), BAD.values(), ids=BAD)
def test_no_process_is_signalled_on_an_untrusted_gpu(rows: tuple[ProcessEntry, ...], why: RejectReason) -> None:
    node = Node(gpus=(GPU, OTHER))
    node.run(tenant(500), 9 * GIB)
    node.run(tenant(600, "b"), 9 * GIB, gpu=OTHER)
    verdicts: list[Verdict] = []
    for _ in range(20):
        verdicts += node.cycle(gpu0=gpu(GOOD, *rows))
    assert {process.pid for process in signalled(verdicts)} == {600}
    reports = {verdict.distrust for verdict in verdicts if isinstance(verdict, Anomaly) and verdict.device == GPU}
    assert reports == {why}
    assert not [verdict for verdict in verdicts if isinstance(verdict, ContainerStatus) and verdict.unit.device == GPU]


@pytest.mark.failure_case(48, 50)
def test_unreadable_or_lost_gpu_has_no_kills_until_it_is_back() -> None:
    node = Node(gpus=(GPU, OTHER))
    node.run(tenant(500), 9 * GIB)
    node.run(tenant(600, "b"), 9 * GIB, gpu=OTHER)
    node.cycles(2)
    verdicts = [verdict for _ in range(20) for verdict in node.cycle(gpu0=gpu(rows=None))]
    assert {process.pid for process in signalled(verdicts)} == {600}
    assert AnomalyKind.DISTRUSTED in reasons(verdicts)
    back = node.until(Terminate)
    assert isinstance(back, Terminate)
    assert back.processes == (tenant(500),)


def test_device_of_unknown_memory_is_not_enforced() -> None:
    assert validate(gpu(GOOD, total_bytes=None)) is RejectReason.TOTAL_UNKNOWN


@pytest.mark.failure_case(61)
def test_a_process_in_several_lists_counts_once_with_its_largest_value() -> None:
    rows = (
        GOOD,
        ProcessEntry(pid=500, used_bytes=2 * GIB, kind=Kind.GRAPHICS),
        ProcessEntry(pid=500, used_bytes=9 * GIB, kind=Kind.MPS),
        GOOD,
    )
    assert validate(gpu(*rows)) == ProcessUsage(uses={GPU: {500: 9 * GIB}}, clients=frozenset({500}))


def test_process_unknown_to_one_list_uses_at_least_the_known_value() -> None:
    for rows in ((GOOD, ProcessEntry(pid=500, used_bytes=None, kind=Kind.GRAPHICS)), (GOOD._replace(used_bytes=None), MPS_ROW)):
        sifted = validate(gpu(*rows))
        assert sifted == ProcessUsage(
            uses={GPU: {500: 9 * GIB}}, partial=frozenset({500}), clients=frozenset({500} if MPS_ROW in rows else ())
        )


@pytest.mark.failure_case(46)
@pytest.mark.parametrize("unknown", [None, MEMORY_UNKNOWN, 4096], ids=["None", "all ones", "4 KiB"])
def test_unknown_memory_counts_neither_as_zero_nor_over_the_cap(unknown: int | None) -> None:
    node = Node()
    node.run(tenant(500), 4 * GIB)
    node.run(tenant(501), unknown)
    verdicts = node.cycles(30)
    assert steps(verdicts) == []
    assert AnomalyKind.MEMORY_UNKNOWN in reasons(verdicts)
    assert {verdict.used_bytes for verdict in verdicts if isinstance(verdict, ContainerStatus)} == {None}


@pytest.mark.failure_case(88)
@pytest.mark.parametrize("odd", [None, 1, 4096, (1 << 20) - 1])
def test_unknown_row_affects_only_its_own_container(odd: int | None) -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    node.run(tenant(501), odd)
    node.run(tenant(600, "b"), 8 * GIB)
    node.run(tenant(700, "c"), odd)
    verdicts = node.cycles(16)
    assert signalled(verdicts) == [tenant(500), tenant(600, "b")]
    assert states(verdicts)["c"] is CapState.UNKNOWN


@pytest.mark.failure_case(88)
@pytest.mark.parametrize("excess", [0, 1])
def test_row_above_the_used_memory_makes_the_device_untrusted(excess: int) -> None:
    for before, after in ((9 * GIB - excess, GIB), (GIB, 9 * GIB - excess)):
        sifted = validate(gpu(GOOD, used_bytes=after, used_before_bytes=before))
        assert (sifted is RejectReason.ABOVE_USED) == bool(excess)


@pytest.mark.failure_case(88)
def test_rows_are_compared_with_the_total_if_used_memory_is_unknown() -> None:
    for changes in ({"used_bytes": GIB}, {"used_before_bytes": GIB}):
        assert isinstance(validate(gpu(GOOD, **changes)), ProcessUsage)


def test_a_zero_byte_row_is_plausible() -> None:
    assert validate(gpu(GOOD, ProcessEntry(pid=501, used_bytes=0))) == ProcessUsage(
        uses={GPU: {500: 9 * GIB, 501: 0}}, clients=frozenset()
    )


MIG = {1: MigInstance(uuid="MIG-1", total_bytes=20 * GIB), 2: MigInstance(uuid="MIG-2", total_bytes=20 * GIB)}


@pytest.mark.failure_case(60)
def test_a_container_is_judged_for_each_mig_instance_by_itself() -> None:
    node = Node(gpus=("MIG-1", "MIG-2"))
    node.run(tenant(500), 3 * GIB, gpu="MIG-1")
    node.run(tenant(501), 9 * GIB, gpu="MIG-2")
    rows = (
        ProcessEntry(pid=500, used_bytes=3 * GIB, gpu_instance=1),
        ProcessEntry(pid=501, used_bytes=9 * GIB, gpu_instance=2),
    )
    verdicts: list[Verdict] = []
    for _ in range(15):
        verdicts += node.cycle(gpu0=gpu(*rows, instances=MIG), gpu1=gpu(uuid="GPU-x"))
    assert signalled(verdicts) == [tenant(501)]
    seen = {(v.unit.device, v.used_bytes) for v in verdicts if isinstance(v, ContainerStatus)}
    assert seen == {("MIG-1", 3 * GIB), ("MIG-2", 9 * GIB)}


@pytest.mark.parametrize("instance", [None, 7], ids=["no instance", "unknown instance"])
def test_a_row_outside_every_mig_instance_discredits_the_gpu(instance: int | None) -> None:
    assert (
        validate(gpu(ProcessEntry(pid=500, used_bytes=GIB, gpu_instance=instance), instances=MIG)) is RejectReason.BAD_INSTANCE
    )


def test_a_process_larger_than_its_mig_instance_discredits_the_gpu() -> None:
    assert validate(gpu(ProcessEntry(pid=500, used_bytes=21 * GIB, gpu_instance=1), instances=MIG)) is RejectReason.ABOVE_TOTAL


@pytest.mark.failure_case(71)
def test_unattributed_memory_is_reported_and_no_process_is_killed() -> None:
    node = Node()
    node.run(tenant(500), 3 * GIB)
    verdicts = [
        v for _ in range(30) for v in node.cycle(gpu0=gpu(ProcessEntry(pid=500, used_bytes=3 * GIB), used_bytes=30 * GIB))
    ]
    assert steps(verdicts) == []
    gaps = {
        verdict.used_bytes
        for verdict in verdicts
        if isinstance(verdict, Anomaly) and verdict.reason is AnomalyKind.UNATTRIBUTED
    }
    assert gaps == {27 * GIB}


def test_capped_shares_that_never_show_a_process_are_reported() -> None:
    node = Node()
    node.grants[container("a")] = Grant(owner=owner("a"), devices=frozenset({GPU}), caps={GPU: Cap(bytes=GIB)})
    assert AnomalyKind.BLIND not in reasons(node.cycles(10, seconds=59))
    assert AnomalyKind.BLIND in reasons(node.cycle(seconds=70))
    node.run(tenant(500), 0)
    assert AnomalyKind.BLIND not in reasons(node.cycle())
    node.end(500)
    assert AnomalyKind.BLIND not in reasons(node.cycles(20, seconds=59))


@pytest.mark.failure_case(49)
def test_truncated_list_proves_usage_over_the_cap_but_not_usage_within() -> None:
    """What is listed above a cap is proof; who is not listed may be, and is not within its cap for that."""
    node = Node()
    node.run(tenant(500, "hog"), 30 * GIB)
    for number in range(MAX_ROWS):
        node.run(tenant(2000 + number, "decoys"), 2 << 20)
    verdicts = node.cycles(20)
    assert {one.pid for one in signalled(verdicts)} == {500}
    assert AnomalyKind.DISTRUSTED in reasons(verdicts)
    node.end(500)
    node.cycles(10)
    assert [violation.is_within for violation in node.history.violations.values()] == [False]
