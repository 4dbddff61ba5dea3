"""What the node's tests share: the doubles of the worlds outside."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare_node.core.worker import Future
from tests.node.adapters.kube.kube_fixture import Skips
from tests.node.adapters.kube.turns import On, runtimes
from tests.node.enforce.enforcement import Stage, two_gpus
from tests.node.enforce.rig import Rig
from tests.support.fake_api.server import ApiServer
from tests.support.fake_nvml import Silicon
from tests.support.process_fixtures import Ward, ward


@pytest.fixture
def api() -> Iterator[ApiServer]:
    """An API server, listening."""
    with ApiServer() as server:
        yield server


@pytest.fixture
def clock() -> Skips:
    """Only sleeping moves it."""
    return Skips()


@pytest.fixture
def on(api: ApiServer, tmp_path: Path, clock: Skips) -> Iterator[On]:
    """Starts the runtime of a node that wants a turn."""
    with runtimes(api, tmp_path, clock) as start:
        yield start


@pytest.fixture
def silicon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Silicon]:
    """Eight idle A100, loaded into this process's pynvml."""
    monkeypatch.setenv("GPUSHARE_SILICON", "")  # so that what `load` sets is undone
    made = Silicon.make(tmp_path)
    made.load()
    yield made
    made.heal()  # calls that still hang come back


@pytest.fixture
def started() -> Iterator[Ward]:
    """Real processes that a test starts; none of them outlives it."""
    with ward() as everyone:
        yield everyone


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Silicon]:
    """Two GPUs, loaded, as the stage has them."""
    with two_gpus(tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def stage(tmp_path: Path, two: Silicon, started: Ward) -> Stage:
    """Enforcement on two GPUs, with real processes as tenants."""
    return Stage(tmp_path, two, started)


@pytest.fixture
def rig(tmp_path: Path, two: Silicon, started: Ward) -> Rig:
    """The same with upkeep and loop."""
    return Rig(tmp_path, two, started)


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The deadlines that have run out: who waits for a hung call twice appears twice."""
    seconds: list[float] = []
    is_kept = Future.is_kept

    def counted(promise: Future[object], within_seconds: float = 0.0) -> bool:
        came = is_kept(promise, within_seconds)
        if within_seconds and not came:
            seconds.append(within_seconds)
        return came

    monkeypatch.setattr(Future, "is_kept", counted)
    return seconds
