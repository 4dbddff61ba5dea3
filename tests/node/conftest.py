"""What the node's tests share: the doubles of the worlds outside."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare_node.core.worker import Future
from tests.node.adapters.kube.kube_fixture import FakeClock
from tests.node.adapters.kube.slots import On, runtimes
from tests.node.enforce.enforcement import EnforcementFixture, load_two_gpus
from tests.node.enforce.enforcement_loop import EnforcementLoop
from tests.support.fake_api.server import ApiServer
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import FakeProc, ProcessPool, open_process_pool


@pytest.fixture
def api() -> Iterator[ApiServer]:
    """An API server, listening."""
    with ApiServer() as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    """Only sleeping moves it."""
    return FakeClock()


@pytest.fixture
def connected(api: ApiServer, tmp_path: Path, clock: FakeClock) -> Iterator[On]:
    """Starts the runtime of a node that wants a position."""
    with runtimes(api, tmp_path, clock) as start:
        yield start


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test finds no GPUs of another test."""
    monkeypatch.setenv("GPUSHARE_FAKE_NVML", "")  # so that what loading the GPUs sets is undone


@pytest.fixture
def fake_nvml(tmp_path: Path) -> Iterator[FakeNvml]:
    """Eight idle A100, loaded into this process's pynvml."""
    made = FakeNvml.make(tmp_path)
    made.load()
    yield made
    made.heal()  # calls that still hang come back


@pytest.fixture
def process_pool() -> Iterator[ProcessPool]:
    """Real processes that a test starts; none of them outlives it."""
    with open_process_pool() as everyone:
        yield everyone


@pytest.fixture
def fake_proc(tmp_path: Path) -> FakeProc:
    """The processes of a host, most of them made up."""
    root = tmp_path / "proc"
    root.mkdir()
    return FakeProc(root)


@pytest.fixture
def two_gpus(tmp_path: Path) -> Iterator[FakeNvml]:
    """Two GPUs, loaded, as the stage has them."""
    with load_two_gpus(tmp_path) as made:
        yield made


@pytest.fixture
def enforcement(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> EnforcementFixture:
    """Enforcement on two GPUs, with real processes as tenants."""
    return EnforcementFixture(tmp_path, two_gpus, process_pool)


@pytest.fixture
def enforcement_loop(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> EnforcementLoop:
    """The same with upkeep and loop."""
    return EnforcementLoop(tmp_path, two_gpus, process_pool)


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The deadlines that have run out: who waits for a hung call twice appears twice."""
    seconds: list[float] = []
    wait = Future.wait

    def counted(promise: Future[object], within_seconds: float = 0.0) -> bool:
        came = wait(promise, within_seconds)
        if within_seconds and not came:
            seconds.append(within_seconds)
        return came

    monkeypatch.setattr(Future, "wait", counted)
    return seconds
