"""The guard is asked only where it must be: what is said without it is what it would have said."""

from collections.abc import Callable, Collection
from random import Random
from typing import Any

import pytest

from gpushare_node.core.structs import replace
from gpushare_node.enforce import evaluator
from gpushare_node.enforce.evaluator import Evaluator
from gpushare_node.guard.evaluate import evaluate
from gpushare_node.guard.identity import ProcessKind
from gpushare_node.guard.inputs import Grant, GuardInput, Settings
from gpushare_node.guard.process_list import MEMORY_UNKNOWN, Device, Kind, MigInstance, Mps, ProcessEntry
from gpushare_node.guard.state import GuardState
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind, ContainerStatus, Kill, Verdict
from tests.node.guard.guard_fixture import GIB, GPU, OTHER, Node, container, owner, stranger, tenant

MIB = 1 << 20
TOTAL = 40 * GIB
SETTINGS = Settings(within_seconds=5)
PIDS = {GPU: (500, 501, 502, 600, 700, 900), OTHER: (510, 610, 710, 950)}
"""Of containers with several processes, of one without a cap, of the platform, and of nobody."""


def tenants() -> Node:
    node = Node(gpus=(GPU, OTHER))
    for pid, name in ((500, "a"), (501, "a"), (502, "a"), (510, "a"), (600, "b"), (610, "c"), (700, "free"), (710, "d")):
        node.run(tenant(pid, name), 0)
    node.grants[container("free")] = Grant(owner=owner("free"), devices=frozenset({GPU}))
    node.run(stranger(900, ProcessKind.SYSTEM), 0)
    node.run(stranger(950, ProcessKind.UNKNOWN), 0)
    return node


Change = Callable[[Random, Device], Device]


def _rows(change: Callable[[Random, list[ProcessEntry]], list[ProcessEntry]]) -> Change:
    return lambda rng, device: replace(device, rows=tuple(change(rng, list(device.rows or ()))))


def _first(**changes: Any) -> Change:
    return _rows(lambda _, rows: [rows[0]._replace(**changes), *rows[1:]])


CHANGES: dict[str, Change] = {
    "over": _first(used_bytes=9 * GIB),
    "just over": _first(used_bytes=4 * GIB + 1),
    "just at the cap": _rows(lambda _, rows: [row._replace(used_bytes=4 * GIB if row.pid == 500 else 0) for row in rows]),
    "unknown": _first(used_bytes=None),
    "all ones": _first(used_bytes=MEMORY_UNKNOWN),
    "odd": _first(used_bytes=4096),
    "negative": _first(used_bytes=-1),
    "too much": _first(used_bytes=TOTAL + 1),
    "bad pid": _first(pid=0),
    "an instance": _first(gpu_instance=3),
    "gone": _rows(lambda _, rows: rows[1:]),
    "another order": _rows(lambda rng, rows: rng.sample(rows, len(rows))),
    "twice": _rows(lambda _, rows: [*rows, *(row._replace(kind=Kind.MPS) for row in rows)]),
    "twice and different": _rows(lambda _, rows: [*rows, rows[0]._replace(kind=Kind.GRAPHICS, used_bytes=3 * GIB)]),
    "in conflict": _rows(lambda _, rows: [*rows, rows[0]._replace(used_bytes=3 * GIB)]),
    "a stranger": _rows(lambda _, rows: [*rows, ProcessEntry(pid=990, used_bytes=GIB)]),
    "full": _rows(lambda _, rows: [row._replace(used_bytes=11 * GIB) for row in rows]),
    "unread": lambda _, device: replace(device, rows=None),
    "empty": lambda _, device: replace(device, rows=()),
    "unaccounted": lambda _, device: replace(device, used_bytes=TOTAL, used_before_bytes=TOTAL),
    "contradicted": lambda _, device: replace(device, used_bytes=MIB, used_before_bytes=MIB),
    "another total": lambda _, device: replace(device, total_bytes=TOTAL + GIB),
    "no total": lambda _, device: replace(device, total_bytes=None),
    "under MIG": lambda _, device: replace(device, instances={1: MigInstance(uuid="MIG-1", total_bytes=TOTAL)}),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[GuardInput]:
    """What the guard was asked to judge: the readings, with the GPUs that were not calm."""
    readings: list[GuardInput] = []

    def ask(inputs: GuardInput, history: GuardState, now: float, settings: Settings, calm: Collection[str]) -> object:
        judged = tuple(device for device in inputs.devices if device.uuid not in calm)
        readings.append(replace(inputs, devices=judged))
        return evaluate(inputs, history, now, settings, calm)

    monkeypatch.setattr(evaluator, "evaluate", ask)
    return readings


def plain(rng: Random) -> tuple[Device, ...]:
    """Everybody within the cap, with other uses than before."""
    rows = {
        gpu: tuple(ProcessEntry(pid=pid, used_bytes=rng.randrange(1, 1024) * MIB) for pid in pids) for gpu, pids in PIDS.items()
    }
    return tuple(Device(uuid=gpu, total_bytes=TOTAL, rows=own) for gpu, own in rows.items())


class Twins:
    """A court, and the guard by itself, about the same node: they say the same and remember the same."""

    def __init__(self, node: Node, settings: Settings) -> None:
        self.node, self.settings = node, settings
        self.court, self.history, self.now = Evaluator(settings), GuardState(), 1000.0
        self.identities, self.grants = dict(node.processes), dict(node.grants)

    def cycle(self, devices: tuple[Device, ...], seconds: float) -> tuple[Verdict, ...]:
        self.now += seconds
        if self.identities != self.node.processes:
            self.identities = dict(self.node.processes)
        inputs = GuardInput(devices=devices, identities=self.identities, grants=self.grants)
        expected, self.history = evaluate(inputs, self.history, self.now, self.settings)
        steps = tuple(one for one in expected if not isinstance(one, ContainerStatus))
        assert tuple(one for one in self.court.evaluate(inputs, self.now) if not isinstance(one, ContainerStatus)) == steps
        assert self.court.observe() == [one for one in expected if isinstance(one, ContainerStatus)]
        for name in ("now", "violations", "targets", "seen", "empty", "paused_since"):
            assert getattr(self.court.history, name) == getattr(self.history, name)
        return steps


@pytest.mark.parametrize("change", [*CHANGES.values(), None], ids=[*CHANGES, "nothing"])
def test_what_is_said_without_the_guard_is_what_it_would_say(change: Change | None, asked: list[GuardInput]) -> None:
    twins, rng = Twins(tenants(), SETTINGS), Random(7)
    for second in range(120):
        devices = plain(rng)
        if change is not None and second % 40 in (10, 11, 12, 20):
            devices = (change(rng, devices[0]), *devices[1:])
        twins.cycle(devices, rng.choice((0, 1, 1, 1, 1, 1, 1, 1)))
    assert len(asked) < 100


def test_other_processes_or_grants_are_judged_by_the_guard(asked: list[GuardInput]) -> None:
    node, rng, held = tenants(), Random(7), Evaluator(SETTINGS)
    first = GuardInput(devices=plain(rng), identities=dict(node.processes), grants=dict(node.grants))
    others = (
        first, replace(first, devices=plain(rng)), replace(first, identities=dict(first.identities)),
        replace(first, grants=dict(first.grants)), replace(first, is_allocation_known=True), replace(first, devices=()),
    )
    for now, inputs in enumerate(others):
        held.evaluate(inputs, float(now))
    assert asked == [first, *others[2:]]


@pytest.mark.parametrize("seed", range(8))
def test_offenders_come_to_the_same_end_where_only_their_gpus_are_judged(seed: int, asked: list[GuardInput]) -> None:
    node, rng, ended, last = tenants(), Random(seed), 0, None
    over: dict[int, int] = {}
    twins = Twins(
        node,
        Settings(interval_seconds=1, exit_seconds=3, stale_seconds=20, stuck_seconds=5, kills_per_minute=rng.choice((1, 6))),
    )
    for second in range(400):
        # One that owes has no row for a while, and everybody else is calm.
        hidden = {600} if second % 20 < 6 else set()
        over = {pid: cycles - 1 for pid, cycles in over.items() if cycles > 1}
        if rng.random() < 0.05:
            over[rng.choice((500, 502, 600, 610, 710))] = rng.choice((1, 4, 25))
        devices = [
            replace(device, mps=Mps.REACHABLE if device.uuid == OTHER and seed % 2 else Mps.OFF, rows=tuple(
                row._replace(used_bytes=5 * GIB) if row.pid in over else row
                for row in device.rows or () if row.pid in node.processes.keys() - hidden
            ))
            for device in plain(rng)
        ]
        if rng.random() < 0.03:
            number = rng.randrange(2)
            devices[number] = rng.choice([*CHANGES.values()])(rng, devices[number]) if devices[number].rows else devices[number]
        # A second like the one before, too.
        last = tuple(devices) if last is None or rng.random() < 0.8 else last
        for step in twins.cycle(last, rng.choice((0, 1, 1, 1, 1, 1, 1, 1, 30))):
            if isinstance(step, Kill) and rng.random() < 0.7:
                ended += 1
                node.end(*(process.pid for process in step.processes))
            elif isinstance(step, Anomaly) and step.reason is AnomalyKind.GONE:
                for pid, name in ((500, "a"), (502, "a"), (600, "b"), (610, "c"), (710, "d")):
                    node.run(tenant(pid, name), 0)
    assert ended
    assert any(len(inputs.devices) == 1 for inputs in asked)
