"""A node for enforcement's tests: fake GPUs under the real pynvml, real processes in made-up cgroups, and a clock in the hand.

What the API server would be told is collected; `EnforcementFixture.run` makes cycles a second apart.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.host.tenancy import TenancyFile
from gpushare_node.adapters.kube import cluster
from gpushare_node.adapters.kube.cluster import Event, Eviction, PodView
from gpushare_node.adapters.kube.slices import SliceView
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.backends.device_plugin import DevicePlugin, read_checkpoint
from gpushare_node.contract.policy import Policy, read
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.core.worker import WorkQueue
from gpushare_node.enforce.enforcer import Adapters, Enforcer, EnforcerConfig
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.guard.inputs import Settings
from gpushare_node.reporting.metrics import Registry
from gpushare_node.vendors.bounded_driver import BoundedDriver
from gpushare_node.vendors.driver import Driver, Observe
from gpushare_node.vendors.nvidia.session import Session
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import SLEEPING, FakeProc, ProcessPool, systemd_path
from tests.support.waiting import wait_for

NODE, NAMESPACE = "node-1", "gpushare"
SHARED = "nvidia.com/gpu.shared"
MIG_SHARED = "nvidia.com/mig-2g.10gb.shared"
CAP_MIB = 4096
NOON = 1.5e9
"""The date at which `EnforcementFixture`'s clock would show nothing."""
YOUNG, OLD = NOON + 1700, 1e9
"""When containers were started that are younger, or older, than any cap of these tests."""

MAPPED = "7f0000000000-7f0000001000 rw-s 00000000 00:06 1 /dev/nvidia0\n"
"""What the memory map of a process that uses a GPU has in it."""
UNMAPPED = "7f0000000000-7f0000001000 r--p 00000000 08:01 1 /usr/lib/libc.so.6\n"


def policy(**changes: Any) -> Policy:
    """The policy of this text."""
    return read(policy_text(**changes))


def policy_text(**changes: Any) -> str:
    """Two A100 in ten shares each under a cap of 4096 MiB; `changes` replace parts of the spec."""
    share = {
        "resource": SHARED,
        "profile": None,
        "replicas": 10,
        "memoryMiB": 40960,
        "capMiB": CAP_MIB,
        "toleranceMiB": 0,
    }
    spec: dict[str, Any] = {
        "card": {"id": "a100-sxm4-40gb", "name": "NVIDIA A100-SXM4-40GB", "pciDeviceIds": ["0x20B010DE"], "memoryMiB": 40960},
        "gpusPerNode": 2,
        "mode": "time-slicing",
        "stack": "gpu-operator",
        "partitioner": "gpushare",
        "profile": "time-slicing-01234567",
        "migConfig": None,
        "gpus": [{"indexes": [0, 1], "mig": False, "instances": []}],
        "resources": {SHARED: 20},
        "shares": [share | changes.pop("share", {})],
        "enforcement": {"action": "kill", "graceSeconds": 2, "mechanism": "auto"} | changes.pop("enforcement", {}),
        "rollout": {"maxUnavailable": 1, "onBusy": "wait", "drainTimeoutSeconds": 60},
        "namespaces": [],
    }
    document = {
        "apiVersion": "gpushare.dev/v1",
        "kind": "NodePolicy",
        "metadata": {"name": "pool", "cluster": "lab"},
        "spec": spec | changes,
    }
    return json.dumps(document)


def tenancy_text(**changes: Any) -> str:
    """Tenants in the namespace `team`; `changes` replace parts of the spec."""
    spec = {
        "scope": "tenants",
        "admission": "deny",
        "platformNamespaces": ["gpu-operator", "kube-amd-gpu", "kube-system"],
        "tenantNamespaces": ["team"],
    }
    return json.dumps({"apiVersion": "gpushare.dev/v1", "kind": "Tenancy", "spec": spec | changes})


class ManualClock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += max(0.0, seconds)


@dataclass(kw_only=True)
class RecordedCluster(cluster.Cluster):
    """What a cluster would have been told."""

    events: list[Event] = field(default_factory=list)
    evicted: list[PodView] = field(default_factory=list)
    forced: int = 0
    answer: Eviction = Eviction.EVICTED
    listed: tuple[SliceView, ...] = ()

    def slices(self, driver: str) -> tuple[SliceView, ...]:
        return self.listed

    def record_event(self, event: Event) -> None:
        self.events.append(event)

    def event_counts(self) -> cluster.EventCounts:
        return cluster.EventCounts(sent=len(self.events))

    def evict(self, pod: PodView, *, is_forced: bool = False, is_moved: bool = False) -> Eviction:
        assert not is_moved, "who is ended for its cap is not moved"
        self.evicted.append(pod)
        self.forced += is_forced
        return self.answer

    def reasons(self, name: str | None = None) -> list[str]:
        """The reasons of the Events, of one pod or of all."""
        return [event.reason for event in self.events if name is None or (event.pod is not None and event.pod.name == name)]


class FakePodList:
    """The pods as a cache has them."""

    def __init__(self) -> None:
        self.known: tuple[PodView, ...] = ()
        self.age_seconds = 0.0

    def pods(self) -> tuple[PodView, ...]:
        return tuple(self.known)


def pod(name: str, number: int, **changes: Any) -> PodView:
    """A pod of a ReplicaSet with one container `main`; its ids follow from the number."""
    fields: dict[str, Any] = {
        "uids": (pod_uid(number),),
        "namespace": "team",
        "name": name,
        "labels": {},
        "phase": "Running",
        "is_terminating": False,
        "owner": f"{number:08x}-0000-4000-8000-00000000beef",
        "controller": f"ReplicaSet/{name}",
        "containers": {container_id(number): "main"},
        "started": {container_id(number): YOUNG},
    }
    return PodView(**fields | changes)


def pod_uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def container_id(number: int) -> str:
    return f"{number:064x}"


class InlineQueue(WorkQueue):
    """A work queue whose calls are run at once."""

    def send(self, job: Callable[[], None]) -> bool:
        job()
        return True


class EnforcementFixture:
    """The node. `fake_nvml` and `started` come from fixtures."""

    def __init__(self, folder: Path, fake_nvml: FakeNvml, process_pool: ProcessPool, **changes: Any) -> None:
        (folder / "proc").mkdir()
        self.fake_nvml, self.started = fake_nvml, process_pool
        self.fake_proc = FakeProc(folder / "proc")
        self.clock, self.told, self.list = ManualClock(), changes.pop("told", None) or RecordedCluster(), FakePodList()
        self.checkpoint = folder / "kubelet_internal_checkpoint"
        self.folder = StateDir(folder / "state")
        (folder / "state").mkdir()
        self.entries: list[dict[str, Any]] = []
        self.has_begun = False
        self.settings: Settings = changes.pop("settings", Settings())
        self.mps: Any = changes.pop("mps", None)
        self.queue: Any = changes.pop("queue", InlineQueue())
        self.followed_node: Any = changes.pop("followed_node", None)
        self.deadline: float = changes.pop("deadline", 30.0)
        self.open_driver: Callable[[Observe], Driver] = changes.pop("open_driver", Session.open)
        self.tenancy = folder / "tenancy.json"
        self.tenancy.write_text(tenancy_text(**changes.pop("tenancy", {})))
        self.ahead = 0.0
        """Of the right date."""
        self.policy: Policy = changes.pop("own_policy", None) or policy(**changes)
        self.enforcer = self.start()

    def start(self) -> Enforcer:
        """A new watch, as after a restart. The former session stays open: ending it waits a second for its listener."""
        self.processes = LinuxProcesses(self.fake_proc.root)
        self.metrics = EnforcementMetrics(Registry())
        self.driver = BoundedDriver(
            lambda: self.open_driver(self.metrics.observe_call), clock=self.clock, deadline_seconds=self.deadline
        )
        adapters = Adapters(
            driver=self.driver,
            processes=self.processes,
            pods=self.list,
            cluster=self.told,
            folder=self.folder,
            clock=self.clock,
            tenants=TenancyFile(self.tenancy, NAMESPACE),
            mps=self.mps,
            backend=DevicePlugin(read_checkpoint=lambda: read_checkpoint(self.checkpoint)),
            followed_node=self.followed_node,
            wall=lambda: NOON + self.clock.now() + self.ahead,
        )
        config = EnforcerConfig(policy=self.policy, policy_digest="d1", node=NODE, settings=self.settings)
        self.enforcer = Enforcer(
            adapters=adapters,
            config=config,
            metrics=self.metrics,
            queue=self.queue,
            mps_queue=InlineQueue(),
        )
        return self.enforcer

    def arrive(self, number: int, name: str, **changes: Any) -> None:
        """A pod comes to the node and is given nothing."""
        self.list.known = (*self.list.known, pod(name, number, **changes))

    def admit(self, number: int, name: str, gpu: int = 0, *, replicas: int = 1, **changes: Any) -> None:
        """A pod comes to the node, requests replicas of a GPU and is given them."""
        self.arrive(number, name, **{"resources": frozenset({SHARED})} | changes)
        self.allocate(number, SHARED, [f"{self.fake_nvml.uuid(gpu)}::{number * 100 + one}" for one in range(replicas)])

    def allocate(self, number: int, resource: str, ids: list[str]) -> None:
        """Kubelet writes down what it gave to a pod's container."""
        self.entries.append(
            {
                "PodUID": pod_uid(number),
                "ContainerName": "main",
                "ResourceName": resource,
                "DeviceIDs": {"-1": ids},
            }
        )
        self.register(10)

    def register(self, replicas: int, *gpus: int) -> None:
        """The device plugin's offer, as kubelet writes it down: so many replicas of these GPUs, or of both."""
        ids = [f"{self.fake_nvml.uuid(gpu)}::{number}" for gpu in gpus or (0, 1) for number in range(replicas)]
        data = {"PodDeviceEntries": self.entries, "RegisteredDevices": {SHARED: ids}}
        self.checkpoint.write_text(json.dumps({"Data": data}))

    def begin(self, number: int | None, used_mib: int | None, code: str = SLEEPING, *, gpu: int = 0, **where: Any) -> int:
        """A real process of this pod's container (None: of none) begins to use a GPU; its pid."""
        pid, container = self.started.pid(code), where.pop("container", number)
        path = "/system.slice/some.service" if number is None else systemd_path(pod_uid(number), container_id(container))
        self.fake_proc.show(pid, path)
        self.fake_proc.fake(pid, "maps", MAPPED)
        self.fake_nvml.put(gpu, pid, used_mib, **where)
        self.has_begun = used_mib is None or used_mib > CAP_MIB
        return pid

    def admit_and_begin(self, number: int, name: str, used_mib: int | None, code: str = SLEEPING, **changes: Any) -> int:
        """A pod comes, is given a share of a GPU, and a process of it begins to use the first one; its pid."""
        self.admit(number, name, **changes)
        return self.begin(number, used_mib, code)

    def run(self, cycles: int = 1, seconds: float = 1.0) -> None:
        """That many cycles, each after this time; one more for who has just begun: time counts between two looks."""
        cycles, self.has_begun = cycles + self.has_begun, False
        for _ in range(cycles):
            self.clock.time += seconds
            self.enforcer.cycle()

    def metric(self, start: str) -> list[str]:
        """The lines of the metrics that begin so, without the prefix."""
        lines = self.metrics.registry.text().splitlines()
        return [line.removeprefix("gpushare_") for line in lines if line.startswith(f"gpushare_{start}")]


def lives(pid: int) -> bool:
    """Whether a process of ours still runs; a zombie does not."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def await_end(pid: int) -> None:
    """Until the process has ended."""
    wait_for(lambda: not lives(pid), f"the end of {pid}")


@contextmanager
def load_two_gpus(folder: Path) -> Iterator[FakeNvml]:
    """Two idle A100, loaded into this process's pynvml."""
    made = FakeNvml.make(folder, ("a100-sxm4-40gb",) * 2)
    made.load()
    try:
        yield made
    finally:
        made.heal()


def with_instances(folder: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> tuple[EnforcementFixture, tuple[int, int]]:
    """A node whose first GPU has two MIG instances that are shared, and these."""
    for _ in range(2):
        two_gpus.set_mode(0, current=True)
    instances = [{"profile": "2g.10gb", "profileId": 14, "start": start, "size": 2} for start in (0, 2)]
    made = two_gpus.add_instance(0, 14, 0), two_gpus.add_instance(0, 14, 2)
    node = EnforcementFixture(
        folder,
        two_gpus,
        process_pool,
        mode="mig",
        profile="mig-01234567",
        gpus=[{"indexes": [0], "mig": True, "instances": instances}, {"indexes": [1], "mig": False, "instances": []}],
        share={"resource": MIG_SHARED, "profile": "2g.10gb", "replicas": 2, "memoryMiB": 9856},
    )
    return node, made


def hold(node: EnforcementFixture, number: int, path: str | None = None, code: str = SLEEPING) -> int:
    """A process of this pod's container that has a GPU open, and that no list names; its pid."""
    pid = node.started.pid(code)
    node.fake_proc.show(pid, path or systemd_path(pod_uid(number), container_id(number)))
    node.fake_proc.fake(pid, "maps", MAPPED)
    return pid


def blindness(node: EnforcementFixture) -> str:
    """Why the node is EnforcementBlind; empty if it is not."""
    reason = node.enforcer.reason()
    return reason[1] if reason is not None and reason[0] is ConditionReason.ENFORCEMENT_BLIND else ""
