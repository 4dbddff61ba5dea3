"""Enforcement with every part real that can be: driver session, processes, threads, clock, and the API over HTTP."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.kube import events
from gpushare_node.adapters.kube.events import EventRecorder
from gpushare_node.adapters.kube.informers import PodInformer
from gpushare_node.adapters.kube.node_client import NodeClient
from gpushare_node.adapters.kube.pod_identity import PodIdentity
from gpushare_node.adapters.procs.mps import HostMpsControl
from gpushare_node.contract.names import POOL_LABEL, RELEASE_ANNOTATION
from gpushare_node.contract.struct import replace
from gpushare_node.core.clock import SystemClock, wall_seconds
from gpushare_node.core.worker import WorkQueue
from gpushare_node.enforce import inventory, node_monitor
from gpushare_node.enforce.loop import Loop
from gpushare_node.enforce.node_monitor import NodeMonitor
from gpushare_node.gpus.view import build_view
from gpushare_node.guard.inputs import Settings
from tests.node.adapters.kube.kube_fixture import NoStore, await_that, connect
from tests.node.adapters.procs import test_mps_cli as mps_double
from tests.node.adapters.procs.test_real_cgroups import Groups, hierarchies
from tests.node.enforce.enforcement import NODE, NOON, EnforcementFixture, await_end, container_id, lives, pod_uid, policy_text
from tests.support.fake_api.server import ApiServer
from tests.support.fake_nvml import FakeNvml
from tests.support.ports import free_port
from tests.support.process_fixtures import IGNORING_SIGTERM, ProcessPool, said, systemd_path
from tests.support.waiting import PATIENCE, wait_for

LONG_WAITS = Settings(interval_seconds=0.05, exit_seconds=PATIENCE)
"""Who ends when asked to is not killed, however long the machine takes for it."""
SHORT_WAITS = replace(LONG_WAITS, exit_seconds=0.3)
AT_ONCE = {"graceSeconds": 0}
PLACE = PodIdentity(node=NODE, namespace="gpushare", pod="runtime", pod_uid="own", pool="pool")


class Quick(SystemClock):
    """Real time; pauses are short."""

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.05))


class RealNode(EnforcementFixture):
    """A node whose API server is reached over HTTP. `Loop` runs in a thread of its own."""

    clock: SystemClock  # type: ignore[assignment]

    def __init__(self, folder: Path, fake_nvml: FakeNvml, process_pool: ProcessPool, api: ApiServer, **changes: Any) -> None:
        self.api = api
        parts: dict[str, Any] = {"settings": LONG_WAITS, "queue": WorkQueue(), "deadline": 5.0} | changes
        parts["enforcement"] = AT_ONCE | parts.get("enforcement", {})
        self.wire = connect(api, folder, Quick())
        self.quick = Quick()
        self.events = EventRecorder(self.wire, PLACE, self.quick)
        self.pod_list = PodInformer(self.wire, NODE, self.quick)
        self.pod_list.start()
        threading.Thread(target=self.events.run, daemon=True).start()
        super().__init__(folder, fake_nvml, process_pool, **parts)

    def start(self) -> Any:
        self.clock = SystemClock()
        # The API server's double starts containers by the real date.
        self.ahead = wall_seconds() - self.clock.now() - NOON
        self.list = self.pod_list  # type: ignore[assignment]
        self.told = NodeClient(self.wire, PLACE, self.quick, self.events, NoStore())
        enforcer = super().start()
        self.monitor = NodeMonitor(
            enforcer=enforcer,
            cluster=self.told,
            labels={POOL_LABEL: "pool"},
            boot_id="b1",
            plan=lambda surveys: build_view(surveys, self.policy, allocated=frozenset(), pending_modes={}).plan,
        )
        self.loop = Loop(enforcer=enforcer, monitor=self.monitor, clock=self.clock)
        return enforcer

    def arrive(self, number: int, name: str) -> None:  # type: ignore[override]
        """A pod is bound to this node, and kubelet gives it a replica."""
        self.api.add_pod(
            name, namespace="team", node=NODE, uid=pod_uid(number), containers={"main": f"containerd://{container_id(number)}"}
        )
        self.allocate(number, "nvidia.com/gpu.shared", [f"{self.fake_nvml.uuid(0)}::{number}"])

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.loop.run)
        thread.start()
        try:
            yield
        finally:
            self.clock.stop()
            thread.join(PATIENCE)
            self.quick.stop()
            assert not thread.is_alive()

    def reasons(self) -> list[str]:
        return [event["reason"] for event in self.api.events("team")]


@pytest.fixture
def start_node(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., RealNode]:
    monkeypatch.setattr(node_monitor, "_NODE_SECONDS", 0.1)
    monkeypatch.setattr(node_monitor, "_REPORT_SECONDS", 0.2)
    api.add_node(NODE, labels={POOL_LABEL: "pool", "gpu": "yes"})
    api.add_daemonset("gpushare-pool")
    api.add_pod("runtime", namespace="gpushare", node=NODE, uid="own")
    return lambda **changes: RealNode(tmp_path, two_gpus, process_pool, api, **changes)


def test_kill_writes_pod_events_and_the_node_condition(start_node: Callable[..., RealNode], api: ApiServer) -> None:
    real_node = start_node()
    real_node.arrive(1, "greedy")
    pid = real_node.begin(1, 5000)
    with real_node.running():
        await_end(pid)
        await_that(lambda: sorted(real_node.reasons()) == ["GPUMemoryOverCap", "GPUProcessKilled"])
        await_that(lambda: (api.condition(NODE) or {}).get("reason") == "Ready")
    events = api.events("team")
    assert all("has exceeded its cap of 4096 MiB" in event["message"] for event in events)
    assert {(event["involvedObject"]["name"], event["involvedObject"]["uid"]) for event in events} == {("greedy", pod_uid(1))}


@pytest.mark.failure_case(57, 70)
def test_kills_without_an_api_server_are_reported_when_it_is_back(
    start_node: Callable[..., RealNode], api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "STALE_SECONDS", 0.3)
    real_node = start_node()
    real_node.arrive(1, "known")
    with real_node.running():
        wait_for(lambda: real_node.enforcer.inventory.grants)
        api.down()
        wait_for(lambda: real_node.pod_list.age_seconds > 0.3)
        real_node.api.add_pod(
            "new", namespace="team", node=NODE, uid=pod_uid(2), containers={"main": f"containerd://{container_id(2)}"}
        )
        real_node.allocate(2, "nvidia.com/gpu.shared", [f"{real_node.fake_nvml.uuid(0)}::2"])
        known, new = real_node.begin(1, 5000), real_node.begin(2, 6000)
        await_end(known)
        assert lives(new)
        assert real_node.reasons() == []
        api.up()
        await_end(new)
        await_that(lambda: real_node.reasons().count("GPUProcessKilled") == 2)
        await_that(lambda: bool(real_node.metric('api_errors_total{op="node"}')))


@pytest.mark.failure_case(70)
def test_missing_event_permission_is_a_metric_and_stops_no_kill(
    start_node: Callable[..., RealNode], api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_FORBIDDEN_SECONDS", 0.2)
    monkeypatch.setattr(events, "_FORBIDDEN_PAUSE_SECONDS", 0.3)
    api.fail("/events", 403)
    real_node = start_node()
    real_node.arrive(1, "greedy")
    pid = real_node.begin(1, 5000)
    with real_node.running():
        await_end(pid)
        wait_for(lambda: 'events_total{outcome="refused"} 2' in real_node.metric("events_total"))
    assert real_node.reasons() == []


@pytest.mark.parametrize("why", ["release", "pool", "selector", "drift"])
def test_runtime_pod_is_deleted_when_the_node_is_released_or_drifts(
    start_node: Callable[..., RealNode], api: ApiServer, two_gpus: FakeNvml, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(inventory, "SURVEY_SECONDS", 0.1)
    real_node = start_node()
    with real_node.running():
        await_that(lambda: (api.condition(NODE) or {}).get("reason") == "Ready")
        match why:
            case "release":
                api.patch("nodes", NODE, {"metadata": {"annotations": {RELEASE_ANNOTATION: api.asking()}}}, manager="job")
            case "pool":
                api.patch("nodes", NODE, {"metadata": {"labels": {POOL_LABEL: "other"}}}, manager="admin")
            case "selector":
                api.remove("daemonsets", "gpushare-pool", namespace="gpushare")
            case _:
                two_gpus.set_mode(1, current=True)
        await_that(lambda: ("DELETE", "/api/v1/namespaces/gpushare/pods/runtime") in api.requests)
    assert api.writes(f"/api/v1/nodes/{NODE}") == [("PATCH", f"/api/v1/nodes/{NODE}/status")] * len(api.writes(NODE))


def test_eviction_refused_by_a_budget_is_retried(start_node: Callable[..., RealNode], api: ApiServer) -> None:
    api.eviction_budget = 0
    real_node = start_node(settings=replace(LONG_WAITS, retry_seconds=0.2), enforcement={"action": "evict"})
    real_node.arrive(1, "greedy")
    pid = real_node.begin(1, 5000)
    with real_node.running():
        wait_for(lambda: real_node.metric('evictions_total{outcome="refused"}'))
        api.eviction_budget = 1
        wait_for(lambda: real_node.metric('evictions_total{outcome="evicted"} 1'))
        await_that(lambda: "greedy" not in {pod.name for pod in real_node.pod_list.pods()})
    assert lives(pid)


@pytest.mark.failure_case(62)
def test_pod_of_an_mps_client_is_evicted_and_its_neighbour_and_server_live(
    start_node: Callable[..., RealNode], tmp_path: Path, process_pool: ProcessPool
) -> None:
    program = tmp_path / "control"
    program.write_text(mps_double.PROGRAM)
    program.chmod(0o755)
    daemon = mps_double.Daemon(tmp_path / "mps/nvidia.com/gpu.shared/pipe")
    real_node = start_node(mode="mps", profile="mps-01234567", settings=SHORT_WAITS)
    for uuid in (real_node.fake_nvml.uuid(gpu) for gpu in (0, 1)):
        daemon.write(f"limit-{uuid}", "4096M\n")
    real_node.mps = HostMpsControl(real_node.processes, root=tmp_path / "mps", program=str(program))
    real_node.start()
    real_node.arrive(1, "client")
    target, neighbour = real_node.begin(1, 5000, IGNORING_SIGTERM), real_node.begin(None, 3000)
    server = mps_double.serve(daemon, real_node.fake_proc, process_pool)
    with real_node.running():
        wait_for(lambda: real_node.metric('evictions_total{outcome="evicted"} 1'))
        wait_for(lambda: real_node.metric('enforcement_tier{tier="mps"} 1'))
    assert [lives(pid) for pid in (target, neighbour, server)] == [True] * 3


PROGRAM = """
import sys
from gpushare_node.contract.struct import replace
from pathlib import Path
from gpushare_node.cli import main, wiring
from gpushare_node.backends import device_plugin
from gpushare_node.adapters.procs import linux
device_plugin.read_checkpoint.__defaults__ = (Path(sys.argv[1]),)
linux.DEVICE_MAJORS = {1}
wiring.DEFAULTS = replace(wiring.DEFAULTS, exit_seconds=float(sys.argv[2]))
sys.exit(main(sys.argv[3:]))
"""
HOLDING = f"keep = open('/dev/null')\n{IGNORING_SIGTERM}"
"""Holds a device open, for a real one needs a driver, and does not heed SIGTERM."""


@pytest.fixture
def groups() -> Iterator[Groups]:
    found = hierarchies()
    if not found:
        pytest.skip("no cgroup hierarchy can be written to here")
    made = Groups(found[0])
    try:
        yield made
    finally:
        made.remove()


class Program:
    """`gpushare-node enforce` as a process, over the real /proc, and one tenant in a real cgroup that is over its cap."""

    def __init__(self, folder: Path, two_gpus: FakeNvml, api: ApiServer, groups: Groups) -> None:
        self.folder, self.two, self.api, self.groups = folder, two_gpus, api, groups
        (folder / "policy.json").write_text(policy_text(enforcement=AT_ONCE))
        entry = {
            "PodUID": pod_uid(1),
            "ContainerName": "main",
            "ResourceName": "nvidia.com/gpu.shared",
            "DeviceIDs": {"-1": [f"{two_gpus.uuid(0)}::1"]},
        }
        data = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}}
        (folder / "checkpoint").write_text(json.dumps(data))
        api.add_node(NODE, labels={POOL_LABEL: "pool"})
        api.add_daemonset("gpushare-pool")
        api.add_pod(
            "greedy", namespace="team", node=NODE, uid=pod_uid(1), containers={"main": f"containerd://{container_id(1)}"}
        )

    def begin(self, process_pool: ProcessPool) -> int:
        process = process_pool.start(HOLDING)
        assert said(process) == "ready"
        path = f"/test{os.getpid()}{systemd_path(pod_uid(1), container_id(1))}"
        self.groups.put(process.pid, path)
        self.two.put(0, process.pid, 5000)
        return process.pid

    def start(self, exit_seconds: float) -> "subprocess.Popen[str]":
        environment = (
            os.environ
            | self.two.environment
            | self.api.kubeconfig(self.folder / "kubeconfig")
            | {"NODE_NAME": NODE, "POD_NAME": "runtime", "POD_NAMESPACE": "gpushare", "POD_UID": "own"}
        )
        command = [
            sys.executable,
            "-c",
            PROGRAM,
            str(self.folder / "checkpoint"),
            str(exit_seconds),
            "enforce",
            "--policy",
            str(self.folder / "policy.json"),
            "--state-dir",
            str(self.folder / "kept"),
            "--interval",
            "100ms",
            "--port",
            str(free_port()),
        ]
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def told(self, reason: str, part: str) -> bool:
        events = self.api.events("team")
        return any(event["reason"] == reason and part in event["message"] for event in events)


def test_sigterm_to_the_runtime_finishes_the_current_kill_and_exits_cleanly(
    tmp_path: Path, two_gpus: FakeNvml, api: ApiServer, groups: Groups, process_pool: ProcessPool
) -> None:
    program = Program(tmp_path, two_gpus, api, groups)
    pid = program.begin(process_pool)
    running = program.start(2.0)
    wait_for(lambda: program.told("GPUProcessKilled", "SIGTERM"))
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, errors
    await_end(pid)
    assert program.told("GPUProcessKilled", "SIGKILL")
    assert not program.told("GPUKillsPaused", "")


@pytest.mark.failure_case(68)
def test_runtime_killed_during_the_grace_restarts_it_and_kills_once(
    tmp_path: Path, two_gpus: FakeNvml, api: ApiServer, groups: Groups, process_pool: ProcessPool
) -> None:
    program = Program(tmp_path, two_gpus, api, groups)
    pid = program.begin(process_pool)
    first = program.start(PATIENCE)
    wait_for(lambda: program.told("GPUProcessKilled", "SIGTERM"))
    first.kill()
    first.communicate()
    assert lives(pid)
    second = program.start(0.5)
    await_end(pid)
    wait_for(lambda: program.told("GPUProcessKilled", "SIGKILL"))
    second.terminate()
    _, errors = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, errors
    kills = [line for line in errors.splitlines() if '\\"exited_kill\\"' in line or '"exited_kill"' in line]
    assert len(kills) <= 1
