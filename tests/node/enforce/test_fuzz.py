"""A million hostile rows through the whole watch: no signal for anybody but a process of a container over its cap."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.node.enforce.enforcement_fuzz import SETTINGS, Siege
from tests.support.process_fixtures import ward


@pytest.fixture
def besiege(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, int], Siege]]:
    """Makes a siege of this mode and seed, over real processes that are nobody's."""
    with ward() as everyone:

        def begin(mode: str, admission: str, seed: int) -> Siege:
            pids = tuple(everyone.run("sleep", "600").pid for _ in range(150))
            siege = Siege(folder=tmp_path, pids=pids, rng=Random(seed), mode=mode, admission=admission)
            monkeypatch.setattr(signal, "pidfd_send_signal", siege.take)
            return siege

        yield begin


@pytest.mark.parametrize(("mode", "admission", "rows", "seed"), [
    ("time-slicing", "none", 60_000, 1), ("mps", "none", 30_000, 2), ("time-slicing", "deny", 120_000, 5),
    pytest.param("time-slicing", "none", 1_000_000, 3, marks=pytest.mark.slow),
    pytest.param("mps", "none", 500_000, 4, marks=pytest.mark.slow),
])  # fmt: skip
def test_no_signal_without_proof_under_siege(
    besiege: Callable[[str, str, int], Siege], mode: str, admission: str, rows: int, seed: int
) -> None:
    siege = besiege(mode, admission, seed)
    while siege.rows < rows:
        siege.cycle()
    print(f"{siege.rows} rows, sent {siege.sent}, {siege.raw} raw, the defiant one ended after {sorted(siege.defied)[-9:]} s")
    if mode == "time-slicing":
        # Twice what it takes under true lists: cycles whose list is missing or false count nothing.
        longest = 2 * (4 * SETTINGS.confirm_seconds + SETTINGS.exit_seconds)
        assert len(siege.defied) > 5
        assert max(siege.defied) <= longest
        assert siege.waited <= longest
    assert siege.sent["SIGTERM"] > 10
    assert siege.sent["SIGKILL"] > (3 if mode == "mps" else 10)
