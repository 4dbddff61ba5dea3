"""The guard is asked only where it must be: what is said without it is what it would have said."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from gpushare_node.enforce import court
from gpushare_node.enforce.court import Court
from gpushare_node.guard.identity import ProcessKind
from gpushare_node.guard.judge import judge
from gpushare_node.guard.ledger import History
from gpushare_node.guard.reading import Grant, Reading, Settings
from gpushare_node.guard.rows import MEMORY_UNKNOWN, Device, Instance, Kind, Row
from gpushare_node.guard.verdicts import Observe
from tests.node.scenes import GIB, GPU, OTHER, Node, container, owner, stranger, tenant

MIB = 1 << 20
TOTAL = 40 * GIB
SETTINGS = Settings(calm_seconds=5)
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


def _rows(change: Callable[[Random, list[Row]], list[Row]]) -> Change:
    return lambda rng, device: replace(device, rows=tuple(change(rng, list(device.rows or ()))))


def _first(**changes: object) -> Change:
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
    "a stranger": _rows(lambda _, rows: [*rows, Row(pid=990, used_bytes=GIB)]),
    "full": _rows(lambda _, rows: [row._replace(used_bytes=11 * GIB) for row in rows]),
    "unread": lambda _, device: replace(device, rows=None),
    "empty": lambda _, device: replace(device, rows=()),
    "unaccounted": lambda _, device: replace(device, used_bytes=TOTAL, used_before_bytes=TOTAL),
    "contradicted": lambda _, device: replace(device, used_bytes=MIB, used_before_bytes=MIB),
    "another total": lambda _, device: replace(device, total_bytes=TOTAL + GIB),
    "no total": lambda _, device: replace(device, total_bytes=None),
    "under MIG": lambda _, device: replace(device, instances={1: Instance(uuid="MIG-1", total_bytes=TOTAL)}),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Reading]:
    """The readings about which the guard was asked."""
    readings: list[Reading] = []

    def ask(reading: Reading, *rest: object) -> object:
        readings.append(reading)
        return judge(reading, *rest)

    monkeypatch.setattr(court, "judge", ask)
    return readings


def plain(rng: Random) -> tuple[Device, ...]:
    """Everybody within the cap, with other uses than before."""
    rows = {gpu: tuple(Row(pid=pid, used_bytes=rng.randrange(1, 1024) * MIB) for pid in pids) for gpu, pids in PIDS.items()}
    return tuple(Device(uuid=gpu, total_bytes=TOTAL, rows=own) for gpu, own in rows.items())


@pytest.mark.parametrize("change", [*CHANGES.values(), None], ids=[*CHANGES, "nothing"])
def test_what_is_said_without_the_guard_is_what_it_would_say(change: Change | None, asked: list[Reading]) -> None:
    node, rng = tenants(), Random(7)
    identities, grants = dict(node.processes), dict(node.grants)
    held, history, now = Court(SETTINGS), History(), 1000.0
    for second in range(120):
        now += rng.choice((0, 1, 1, 1, 1, 1, 1, 1))
        devices = plain(rng)
        if change is not None and second % 40 in (10, 11, 12, 20):
            devices = (change(rng, devices[0]), *devices[1:])
        reading = Reading(devices=devices, identities=identities, grants=grants)
        expected, history = judge(reading, history, now, SETTINGS)
        steps = tuple(one for one in expected if not isinstance(one, Observe))
        assert tuple(one for one in held.judge(reading, now) if not isinstance(one, Observe)) == steps
        assert held.observe() == [one for one in expected if isinstance(one, Observe)]
        for name in ("now", "offences", "victims", "seen", "empty", "paused_since"):
            assert getattr(held.history, name) == getattr(history, name)
    assert len(asked) < 100


def test_other_processes_or_grants_are_judged_by_the_guard(asked: list[Reading]) -> None:
    node, rng, held = tenants(), Random(7), Court(SETTINGS)
    first = Reading(devices=plain(rng), identities=dict(node.processes), grants=dict(node.grants))
    others = (
        first, replace(first, devices=plain(rng)), replace(first, identities=dict(first.identities)),
        replace(first, grants=dict(first.grants)), replace(first, is_allocation_known=True), replace(first, devices=()),
    )  # fmt: skip
    for now, reading in enumerate(others):
        held.judge(reading, float(now))
    assert asked == [first, *others[2:]]
