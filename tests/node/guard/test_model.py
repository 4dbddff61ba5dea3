"""Safety and liveness over many rows: nobody is signalled without proof, and a plain offender always is, in time."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare_node.guard.inputs import Cap, ProcessKind, Settings
from gpushare_node.guard.process_list import Device, ProcessEntry
from gpushare_node.guard.verdicts import Kill, Terminate
from tests.node.guard.guard_fixture import GIB, GPU, OTHER, Node, stranger, tenant
from tests.node.guard.guard_model import GuardModel
from tests.support import scale


def siege(rows: int, seed: int, *, each: int = 60, noise: float = 0.04) -> GuardModel:
    """A node that has shown so many rows; the model has held every signal against its curve."""
    model = GuardModel(rng=Random(seed), each=each, noise=noise)
    while model.rows < rows:
        model.cycle()
    return model


def assert_every_offender_was_ended(model: GuardModel) -> None:
    """And that again and again, each within the bound."""
    offenders = [actor for actor in model.actors.values() if actor.is_offender]
    late = {actor.name: actor.longest for actor in offenders if actor.longest > model.bound()}
    assert not late, f"over for longer than {model.bound():.0f} s: {late}"
    assert {actor.name for actor in offenders if not actor.ends} == set()


@pytest.mark.parametrize("seed", scale.part([1, 2], 2))
def test_model_kills_every_offender_and_no_container_within_its_cap(seed: int) -> None:
    assert_every_offender_was_ended(siege(40_000, seed, each=40))


@pytest.mark.parametrize("seed", scale.part(range(10, 16), 3))
def test_model_kills_every_offender_in_a_small_noisy_population(seed: int) -> None:
    model = siege(4_000, seed, each=2, noise=0.3)
    assert sum(actor.ends for actor in model.actors.values()) > 5


@given(st.integers(0, 2**32))
@settings(max_examples=scale.examples(40))
def test_model_never_signals_a_container_within_its_cap(seed: int) -> None:
    # Random numbers of Hypothesis's own would be more than it can keep of one example.
    model = GuardModel(rng=Random(seed), gpus=1, each=3, noise=0.2)
    for _ in range(60):
        model.cycle()


@given(
    interval=st.sampled_from([0.5, 1.0, 2.0, 3.7, 15.0]),
    grace=st.sampled_from([0.0, 1.0, 10.0, 45.0]),
    samples=st.integers(1, 5),
    excess=st.integers(1, 20 * GIB),
    neighbours=st.lists(st.integers(0, 4 * GIB).filter(lambda used: used == 0 or used >= 1 << 20), max_size=3),
    noise=st.randoms(use_true_random=False),
)
@settings(max_examples=scale.examples(60))
def test_steady_offender_is_killed_within_the_promised_time(
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
    term_seconds = math.ceil((samples * asked.interval_seconds + grace) / interval - 1e-6) * interval
    assert told[Terminate] == pytest.approx(term_seconds)
    assert told[Kill] == pytest.approx(term_seconds + math.ceil(asked.exit_seconds / interval) * interval)


def test_history_of_removed_containers_is_bounded() -> None:
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
    assert len(history.endings) <= len(history.namespaces) <= 20
