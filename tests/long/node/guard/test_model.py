"""Safety over a million rows, and over many crowds of a few processes."""

import pytest

from tests.node.guard.test_model import crowd_of, tiny_crowd

ROWS = 1_000_000


@pytest.mark.parametrize("kills_per_minute", [6, 20, 60, 1000])
def test_no_signal_without_proof_in_a_million_rows(kills_per_minute: int) -> None:
    model = crowd_of(ROWS // 4, kills_per_minute, kills_per_minute)
    assert min(model.counts[name] for name in ("Terminate", "TerminateClient", "Kill")) >= 5
    assert model.inherited >= 5


@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_no_signal_without_proof_in_many_tiny_crowds(gpus: int) -> None:
    for seed in range(300):
        tiny_crowd(seed, gpus)
