"""Safety and liveness over many rows: nobody is signalled without proof, and a plain offender always is, in time."""

import math
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpushare_node.guard.identity import ProcessKind
from gpushare_node.guard.inputs import Cap, Settings
from gpushare_node.guard.process_list import Device, ProcessEntry
from gpushare_node.guard.verdicts import Kill, Terminate
from tests.node.guard.guard_fixture import GIB, GPU, OTHER, Node, stranger, tenant
from tests.node.guard.guard_model import GuardModel

ROWS = 1_000_000


def crowd_of(rows: int, seed: int, kills_per_minute: int) -> GuardModel:
    """A crowd that has shown that many rows; the oracle has held every signal against its truth."""
    model = GuardModel(rng=Random(seed), settings=Settings(kills_per_minute=kills_per_minute))
    while model.rows < rows:
        model.cycle()
    return model


def tiny_crowd(seed: int, gpus: int) -> None:
    """So few processes that every event hits an offender."""
    model = GuardModel(rng=Random(seed), gpus=gpus, each=4)
    for _ in range(40):
        model.cycle()


@pytest.mark.slow
@pytest.mark.parametrize("kills_per_minute", [6, 20, 60, 1000])
def test_no_signal_without_proof_in_a_million_rows(kills_per_minute: int) -> None:
    model = crowd_of(ROWS // 4, kills_per_minute, kills_per_minute)
    assert min(model.counts[name] for name in ("Terminate", "TerminateClient", "Kill")) >= 5
    assert model.inherited >= 5


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_no_signal_without_proof_in_many_tiny_crowds(gpus: int) -> None:
    for seed in range(300):
        tiny_crowd(seed, gpus)


def test_no_signal_without_proof_in_some_tiny_crowds() -> None:
    for seed in range(1000, 1050):
        tiny_crowd(seed, gpus=2)


def test_no_signal_without_proof_in_a_small_crowd() -> None:
    model = crowd_of(60_000, seed=99, kills_per_minute=60)
    assert model.counts["Kill"] > 0
    assert model.inherited > 0


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_no_signal_without_proof_whatever_happens(rng: Random) -> None:
    model = GuardModel(rng=rng, gpus=2, each=4)
    for _ in range(40):
        model.cycle()


@given(
    interval=st.sampled_from([0.5, 1.0, 2.0, 3.7, 15.0]),
    grace=st.sampled_from([0.0, 1.0, 10.0, 45.0]),
    samples=st.integers(1, 5),
    excess=st.integers(1, 20 * GIB),
    neighbours=st.lists(st.integers(0, 4 * GIB).filter(lambda used: used == 0 or used >= 1 << 20), max_size=3),
    noise=st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_a_plain_offender_is_killed_within_the_promised_time(
    *, interval: float, grace: float, samples: int, excess: int, neighbours: list[int], noise: Random
) -> None:
    asked = Settings(samples=samples)
    node = Node(gpus=(GPU, OTHER), cap=Cap(bytes=4 * GIB, grace_seconds=grace), settings=asked)
    offender = node.run(tenant(500), 4 * GIB + excess)
    for number, used in enumerate(neighbours):
        node.run(tenant(600 + number, f"n{number}"), used)
    node.run(stranger(700, ProcessKind.UNKNOWN), GIB)
    other = node.run(tenant(800, "other"), 3 * GIB, gpu=OTHER)
    bad = Device(uuid=OTHER, total_bytes=40 * GIB, rows=(ProcessEntry(pid=0, used_bytes=5),))
    told = {}
    started = node.now + interval
    while Kill not in told and node.now < started + 900:
        node.processes.pop(800, None) if noise.random() < 0.3 else node.processes.update({800: other})
        verdicts = node.cycle(interval, gpu1=bad) if noise.random() < 0.5 else node.cycle(interval)
        for verdict in verdicts:
            if isinstance(verdict, Terminate | Kill):
                assert verdict.processes == (offender,)
                told[type(verdict)] = node.now - started
    counted = min(interval, 2 * asked.interval_seconds)
    term_seconds = math.ceil((samples * asked.interval_seconds + grace) / counted - 1e-6) * interval
    assert told[Terminate] == pytest.approx(term_seconds)
    assert told[Kill] == pytest.approx(term_seconds + math.ceil(asked.exit_seconds / interval) * interval)


def test_nothing_is_remembered_of_containers_that_are_gone() -> None:
    node = Node(cap=Cap(bytes=4 * GIB, grace_seconds=0))
    for pid in range(1000, 3000, 2):
        node.run(tenant(pid, f"c{pid}"), 9 * GIB)
        node.cycles(4)
        node.end(pid)
        node.grants.clear()
        node.cycle()
    history = node.history
    assert (history.targets, history.empty) == ({}, {})
    assert len(history.violations) <= 20
    assert len(history.choices) <= 60
