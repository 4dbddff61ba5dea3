"""Many offenders at once: no one waits for others, containers started again, readings that are false."""

from random import Random
from typing import Any

import pytest

from gpushare_node.contract.struct import replace
from gpushare_node.guard.inputs import Grant, Owner, Process
from gpushare_node.guard.process_list import Device, ProcessEntry
from gpushare_node.guard.verdicts import AnomalyKind, KillScope, Terminate, Verdict
from tests.node.guard.guard_fixture import CAP, GIB, GPU, Node, reasons, signalled, steps, tenant

SMALL = replace(CAP, bytes=GIB)
DECOYS = 12


def join(node: Node, pid: int, name: str, namespace: str, *, uid: str = "", used: int = 2 * GIB, gpu: str = GPU) -> Process:
    """A container of this owner appears."""
    process = tenant(pid, name)
    assert process.container is not None
    own = Owner(namespace=namespace, uid=uid or name)
    node.grants[process.container] = Grant(owner=own, devices=frozenset(node.gpus), caps=dict.fromkeys(node.gpus, node.cap))
    return node.run(process, used, gpu=gpu)


def leave(node: Node, process: Process) -> None:
    """Its container ends with it."""
    node.end(process.pid)
    if process.container is not None:
        node.grants.pop(process.container, None)


class Decoys:
    """Containers in three namespaces that go up and down, end so long after they were asked to, and come again."""

    def __init__(self, node: Node, deaf_seconds: float) -> None:
        self.node, self.deaf_seconds, self.rng = node, deaf_seconds, Random(5)
        self.number = 1000
        self.alive: dict[int, Process] = {}
        self.asked: dict[int, float] = {}

    def cycle(self) -> list[Process]:
        """One look; who is signalled."""
        while len(self.alive) < DECOYS:
            self.number += 1
            self.alive[self.number] = join(self.node, self.number, f"d{self.number}", f"evil-{self.number % 3}")
        for pid in self.alive:
            self.node.used[GPU][pid] = self.rng.choice((2, 2, 2, 0)) * GIB
        chosen = signalled(self.node.cycle())
        for process in chosen:
            self.asked.setdefault(process.pid, self.node.now)
        for pid in [pid for pid in self.alive if self.node.now - self.asked.get(pid, self.node.now) >= self.deaf_seconds > 0]:
            leave(self.node, self.alive.pop(pid))
        return chosen


@pytest.mark.failure_case(87)
@pytest.mark.parametrize("deaf_seconds", [0.5, 7])
def test_recurring_decoys_do_not_delay_an_offender_of_another_namespace(deaf_seconds: float) -> None:
    node = Node(cap=SMALL)
    decoys = Decoys(node, deaf_seconds)
    for _ in range(120):
        decoys.cycle()
    assert len(decoys.asked) > 6
    began = node.now
    offender = join(node, 500, "offender", "fourth")
    while node.now < began + 1 + 13 + 60:
        if offender in decoys.cycle():
            return
    raise AssertionError("the offender was not asked to end")


@pytest.mark.failure_case(87)
def test_restarted_container_is_killed_as_a_whole_the_second_time() -> None:
    node = Node(cap=replace(SMALL, grace_seconds=0))
    scopes = []
    for number in range(3):
        process = join(node, 500 + number, f"run{number}", "team", uid="pod/main")
        terminate = node.until(Terminate)
        assert isinstance(terminate, Terminate)
        scopes.append(terminate.scope)
        leave(node, process)
        node.cycles(2)
    assert scopes == [KillScope.PROCESSES, KillScope.CONTAINER, KillScope.CONTAINER]


def crowded() -> Node:
    """Eight GPUs with a container each, of another namespace each, within their caps."""
    node = Node(gpus=tuple(f"GPU-{number}" for number in range(8)))
    for number, gpu in enumerate(node.gpus):
        node.run(tenant(500 + number, f"t{number}"), 3 * GIB, gpu=gpu)
    return node


def look(node: Node, scrambled: int) -> tuple[Verdict, ...]:
    """A look at which the driver doubles each row of so many devices, and says truly how much of each is in use."""
    devices: dict[str, Any] = {}
    for number, gpu in enumerate(node.gpus):
        uses = {pid: own or 0 for pid, own in node.used.get(gpu, {}).items()}
        factor, used = 2 if number < scrambled else 1, sum(uses.values())
        rows = tuple(ProcessEntry(pid=pid, used_bytes=own * factor) for pid, own in uses.items())
        devices[f"gpu{number}"] = Device(uuid=gpu, total_bytes=40 * GIB, rows=rows, used_bytes=used, used_before_bytes=used)
    return node.cycle(**devices)


def looks(node: Node, scrambled: int, count: int) -> list[Verdict]:
    """So many looks."""
    return [verdict for _ in range(count) for verdict in look(node, scrambled)]


@pytest.mark.failure_case(87)
def test_scrambled_lists_on_eight_gpus_cause_no_kill() -> None:
    verdicts = looks(crowded(), 8, 100)
    assert steps(verdicts) == []
    assert AnomalyKind.DISTRUSTED in reasons(verdicts)


@pytest.mark.failure_case(87)
def test_contradictions_in_several_namespaces_stop_kills_and_restart_the_grace() -> None:
    node = crowded()
    node.used["GPU-7"][507] = 9 * GIB
    verdicts = looks(node, 3, 60)
    assert steps(verdicts) == ["Warn"]
    assert AnomalyKind.CONTRADICTED in reasons(verdicts)
    later = looks(node, 0, 9)
    assert steps(later) == ["Warn"]
    later += looks(node, 0, 2)
    assert set(signalled(later)) == {tenant(507, "t7")}
    assert AnomalyKind.CONTRADICTED not in reasons(later)


@pytest.mark.failure_case(87)
def test_contradiction_in_one_namespace_does_not_stop_kills_elsewhere() -> None:
    node = crowded()
    node.used["GPU-7"][507] = 9 * GIB
    verdicts = looks(node, 1, 20)
    assert AnomalyKind.CONTRADICTED not in reasons(verdicts)
    assert set(signalled(verdicts)) == {tenant(507, "t7")}


@pytest.mark.failure_case(87)
def test_single_contradictions_do_not_delay_kills() -> None:
    node = crowded()
    node.used["GPU-7"][507] = 9 * GIB
    verdicts: list[Verdict] = []
    for second in range(17):
        verdicts += look(node, 3 if second % 5 == 3 else 0)
    assert set(signalled(verdicts)) == {tenant(507, "t7")}
