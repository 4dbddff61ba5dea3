"""A node with AMD's GPUs for the closed loop: a made-up sysfs, an API server over HTTP, a folder, and AMD's programs.

Before every write of the runtime the invariants of `reconcile/config_manager.py` are checked. A run can be killed before any
of its writes, to the API server or to its folder. Time passes only where the runtime sleeps; the others act then.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import urllib3

from gpushare_node.adapters.host.programs import Machine
from gpushare_node.adapters.host.state_dir import Journal, StateDir
from gpushare_node.adapters.kube.cluster import ClusterError, PodView
from gpushare_node.adapters.kube.connection import ApiEndpoint, ApiRequest, Connection
from gpushare_node.adapters.kube.events import EventRecorder
from gpushare_node.adapters.kube.node_client import NodeClient
from gpushare_node.adapters.kube.pod_identity import PodIdentity
from gpushare_node.adapters.kube.views import view_pod
from gpushare_node.backends.device_plugin import DevicePlugin, read_checkpoint
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.policy import (
    Action,
    DesiredGpu,
    DesiredPartition,
    Enforcement,
    ExpectedCard,
    Mechanism,
    Mode,
    OnBusy,
    Partitioner,
    Policy,
    Rollout,
    Share,
    Stack,
    Vendor,
    read,
)
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.reconcile.reconciler import reconcile, release_orphan
from gpushare_node.reconcile.run_context import Dependencies
from gpushare_node.reporting.outcome import Outcome, Status, StepResult
from gpushare_node.vendors.amd.session import Session
from tests.node.gpus.gpu_node import FakeClock
from tests.node.reconcile.loop_node import text_of
from tests.support.fake_amd.config_manager import LABEL, STATE, FakeConfigManager
from tests.support.fake_amd.offers import HeterogeneousError, offers
from tests.support.fake_amd.sysfs import FakeSysfs
from tests.support.fake_api.refusals import Refusal
from tests.support.fake_api.server import ApiServer
from tests.support.fake_api.store import chooser

NAME = "n1"
SPACE = "kube-amd-gpu"
MANAGER, PLUGIN, LABELLER, EXPORTER = "manager", "x-device-plugin", "x-node-labeller", "x-metrics-exporter"
PROGRAMS: dict[str, dict[str, str]] = {
    MANAGER: {"app.kubernetes.io/name": "device-config-manager"},
    PLUGIN: {},
    LABELLER: {},
    EXPORTER: {"app.kubernetes.io/name": "metrics-exporter"},
}
"""What AMD's operator runs for the pool's DeviceConfig, with the labels of their pods."""

TAINT = "amd-dcm"
_BEGAN = 1_790_000_000.0
"""When a node's clock is zero, in seconds since 1970."""
OURS = "gpushare.dev/repartitioning"

PARTS = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}


def amd(compute: str = "SPX", memory: str = "NPS1", *, gpus: int = 2, pool: str = "training", **changed: Any) -> Policy:
    """A policy for MI300X in these modes, whose devices are all offered as amd.com/gpu."""
    parts = PARTS[compute]
    partition = DesiredPartition(compute=compute, memory=memory, devices=parts, memory_mib=196608 // parts)
    share = Share(resource="amd.com/gpu", profile=None, replicas=1, memory_mib=196608 // parts, cap_mib=None, tolerance_mib=0)
    plain: dict[str, Any] = {
        "pool": pool,
        "cluster": "atlas",
        "card": ExpectedCard(id="mi300x", name="AMD Instinct MI300X", pci_device_ids=("0x74A11002",), memory_mib=196608),
        "mode": Mode.EXCLUSIVE if parts == 1 else Mode.PARTITION,
        "stack": Stack.AMD_GPU_OPERATOR,
        "partitioner": Partitioner.CONFIG_MANAGER,
        "profile": "",
        "mig_config": None,
        "manager_config": f"{compute}-{memory}-{gpus}-01234567".lower(),
        "gpus": tuple(DesiredGpu(index=index, instances=(), partition=partition) for index in range(gpus)),
        "resources": (("amd.com/gpu", parts * gpus),),
        "shares": (share,),
        "enforcement": Enforcement(action=Action.KILL, grace_seconds=10, mechanism=Mechanism.NONE),
        "rollout": Rollout(max_unavailable=1, on_busy=OnBusy.WAIT, drain_timeout_seconds=600),
        "namespaces": (),
        "vendor": Vendor.AMD,
    }
    return Policy(**plain | changed)


def _modes(policy: Policy) -> tuple[str, ...]:
    return tuple(gpu.partition.word for gpu in policy.gpus if gpu.partition)


class Killed(BaseException):
    """The program is gone."""


class _Folder(StateDir):
    """The folder, whose writes count as steps."""

    def __init__(self, path: Path, step: Callable[[], None]) -> None:
        super().__init__(path)
        self._step = step

    def _writing(self, name: str, write: Callable[[], None]) -> None:
        self._step()
        super()._writing(name, write)


class _Connection(Connection):
    """A connection whose writes count as steps, and are checked. What it reads comes from the server without HTTP."""

    step: Callable[[], None]
    check: Callable[[ApiRequest], None]
    read: Callable[[ApiRequest], Any]

    def ask(self, request: ApiRequest) -> Any:
        if request.method == "GET":
            return self.read(request)
        self.step()
        self.check(request)
        return super().ask(request)


class AmdNode:
    """One node of the pool `training`. Every `run` is a new start of the program."""

    def __init__(self, folder: Path, api: ApiServer, gpus: int = 2) -> None:
        self.api = api
        self.sysfs = FakeSysfs(folder / "sys", *["mi300x"] * gpus)
        self.clock = FakeClock(at=self._tick)
        self.folder = _Folder(folder / "state", self._step)
        self.checkpoint = folder / "kubelet_internal_checkpoint"
        self.boot_id = "boot-1"
        self.strategy = "single"
        self.entries: list[dict[str, Any]] = []
        self.results: list[StepResult] = []
        self.steps, self.kill_at = 0, -1
        self.kill_when: Callable[[], bool] = lambda: False
        self.allowed: list[Policy] = []
        """What the hardware may have when the taint goes: the policy's modes, or those of the one before."""
        self.violations: list[str] = []
        self.tolerant: set[str] = {MANAGER}
        """The pods that tolerate every taint."""
        self.missing: set[str] = set()
        """The programs that have no pod."""
        self.units: dict[int, str] = {}
        """The host's units of processes."""
        self.on_tick: Callable[[float], object] = lambda _: None
        self.start_seconds = 10.0
        self.wrong_by = 0.0
        """By how much the host's clock is set."""
        self._registered: dict[str, list[str]] = {}
        self._absent: dict[str, float] = {}
        self._numbers = 0
        profiles = {
            one.manager_config or "": [(gpu.partition.compute, gpu.partition.memory) for gpu in one.gpus if gpu.partition]
            for one in (amd(gpus=gpus), amd("CPX", "NPS4", gpus=gpus), amd("CPX", gpus=gpus), amd("DPX", gpus=gpus))
        }
        self.manager = FakeConfigManager(self.sysfs, profiles, lambda name, value: self.label(**{name: value}), self._tell)
        if not self.api.all("daemonsets", namespace="gpushare"):
            terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} for key, value in self._terms()]
            self.api.add_daemonset("gpushare-training", terms=terms)
        self.api.add_node(NAME, labels={"role": "gpu"})
        self._tick(0.0)

    @staticmethod
    def _terms() -> list[tuple[str, str]]:
        return [("role", "gpu"), (POOL_LABEL, "training")]

    # The runtime.

    def run(self, policy: Policy, *, hold: bool = False, kill_at: int = -1) -> Outcome | None:
        """One start of `partition`; None if it was killed."""
        self.allowed = [*self.allowed[-1:], policy] if policy not in self.allowed[-1:] else self.allowed
        self.steps, self.kill_at = 0, kill_at
        desired = DesiredPolicy(policy=policy, text=text_of(policy))
        return self._alive(lambda: reconcile(self.deps(policy.pool), desired, hold=hold))

    def release(self, *, kill_at: int = -1) -> Outcome | None:
        self.steps, self.kill_at = 0, kill_at
        return self._alive(lambda: release_orphan(self.deps("")))

    def _alive(self, run: Callable[[], Outcome]) -> Outcome | None:
        try:
            return run()
        except Killed:
            return None
        finally:
            self.kill_at, self.kill_when = -1, lambda: False
            assert not self.violations, self.violations

    def _step(self) -> None:
        """A step before a write. Who is killed writes nothing more."""
        self.steps += 1
        if 0 <= self.kill_at < self.steps or self.kill_when():
            raise Killed

    def deps(self, pool: str) -> Dependencies:
        self.results = []
        return Dependencies(
            open_hardware=self._hardware,
            cluster=self.server(pool),
            folder=self.folder,
            clock=self.clock,
            report=self.results.append,
            backend=DevicePlugin(read_checkpoint=lambda: read_checkpoint(self.checkpoint), find_sockets=frozenset),
            boot_id=self.boot_id,
            followed=self._followed,
            wall=self.wall,
            vendor=Vendor.AMD,
            platform=lambda: frozenset({"kube-system", "gpushare", SPACE}),
        )

    def wall(self) -> float:
        """The date in seconds since 1970."""
        return _BEGAN + self.clock.now() + self.wrong_by

    def _hardware(self, digest: str) -> Hardware:
        machine = Machine(
            boot_id=self.boot_id,
            reset=lambda _: "there is none",
            make_nodes=lambda: None,
            find_units=lambda pids: {pid: self.units[pid] for pid in pids if pid in self.units},
        )
        return Hardware(
            open_driver=lambda: Session.open(self.sysfs.root),
            folder=self.folder,
            clock=self.clock,
            policy_digest=digest,
            machine=machine,
        )

    def _followed(self) -> Sequence[PodView] | None:
        return [view_pod(one) for one in self._pods()]

    def server(self, pool: str = "training") -> NodeClient:
        address = ApiEndpoint(url=self.api.url, headers=dict, open_pool=lambda: urllib3.PoolManager(retries=False))
        place = PodIdentity(node=NAME, namespace="gpushare", pod="partition-x", pod_uid="uid-x", pool=pool)
        connection = _Connection(address, self.clock)
        connection.step, connection.check, connection.read = self._step, self._check, self._read
        return NodeClient(connection, place, self.clock, EventRecorder(connection, place, self.clock), self.folder)

    def _read(self, request: ApiRequest) -> Any:
        """Objects, or one, as the server has them now."""
        parts = request.path.strip("/").split("/")
        parts = parts[2 if parts[0] == "api" else 3 :]
        namespace = parts[1] if parts[0] == "namespaces" else ""
        plural, *name = parts[2:] if namespace else parts
        try:
            if name:
                return self.api.get(plural, name[0], namespace=namespace)
            return {"items": self.api.store.select(plural, namespace, chooser(request.query))[0]}
        except Refusal as refusal:
            raise ClusterError(request.name, refusal.status, str(refusal)) from refusal

    # The invariants.

    def _check(self, request: ApiRequest) -> None:
        if not request.path.endswith(f"/nodes/{NAME}") and not request.path.endswith(f"/nodes/{NAME}/status"):
            return
        body: Any = request.body
        if isinstance(body, list):
            self._check_taints(body)
            return
        labels = body.get("metadata", {}).get("labels") or {}
        if labels.get(LABEL) is not None:
            is_used = bool(self.sysfs.processes.keys() - self.manager.services or self.tenants())
            is_right = tuple(self.modes()) == _modes(self.allowed[-1])
            self._forbid("a label is written while the GPUs are in use", is_used)
            self._forbid("a label is written without the taint", TAINT not in self.taints() and not is_right)
            self._forbid("the former answer stays", STATE not in labels and STATE in self.labels())
        self._forbid("we answer for the manager", labels.get(STATE) is not None)
        for condition in body.get("status", {}).get("conditions") or ():
            if condition.get("status") == "True":
                self._forbid("Ready with another offer", self.offered() != dict(self.allowed[-1].resources))
                self._forbid("Ready with a taint", bool(self.taints()))
                self._forbid("Ready with other modes", tuple(self.modes()) != _modes(self.allowed[-1]))
                self._forbid("Ready while the manager works", self._has(MANAGER) and not self.manager.is_harmless)

    def _check_taints(self, operations: list[Any]) -> None:
        after = {taint["key"] for one in operations if one["path"] == "/spec/taints" for taint in one["value"] or ()}
        if TAINT in self.taints() and TAINT not in after:
            modes = {_modes(one) for one in self.allowed}
            self._forbid(f"untainted with {self.modes()}", bool(self.allowed) and tuple(self.modes()) not in modes)
            self._forbid("untainted while the manager works", self._has(MANAGER) and not self.manager.is_harmless)
        if TAINT in after and TAINT not in self.taints():
            self._forbid("a node that offers is emptied without a slot", self.is_in_service() and not self.has_slot())

    def is_in_service(self) -> bool:
        """Whether the node offers what the policy in force says, and its GPUs have that."""
        text = self.folder.policy()
        policy = None if text is None else read(text)
        return policy is not None and tuple(self.modes()) == _modes(policy) and self.offered() == dict(policy.resources)

    def has_slot(self) -> bool:
        return any(lease["spec"].get("holderIdentity") == NAME for lease in self.api.leases("gpushare"))

    def _forbid(self, what: str, is_so: bool) -> None:
        if is_so:
            self.violations.append(what)

    # AMD's programs, kubelet, and the controllers.

    def _tick(self, now: float) -> None:
        self.on_tick(now)
        is_tainted = TAINT in self.taints()
        if is_tainted:
            for pod in self._pods():
                name = pod["metadata"]["name"]
                self._forbid("a tenant is ended by the taint", pod["metadata"]["namespace"] == "science")
                if name not in self.tolerant:
                    self._remove(pod["metadata"]["namespace"], name)
        # The DeviceConfig selects nodes by this label.
        is_ours = POOL_LABEL in self.labels()
        there = {pod["metadata"]["name"] for pod in self._pods()}
        for name in PROGRAMS:
            if name in there and not is_ours:
                self._remove(SPACE, name)
            if not is_ours or name in there or (is_tainted and name not in self.tolerant):
                self._absent[name] = now
            elif name not in self.missing and now - self._absent.get(name, now) >= self.start_seconds:
                self._start(name)
            self._absent.setdefault(name, now)
        if self._registered and not self._has(PLUGIN):
            self._offer({})
        if self._has(MANAGER):
            self.manager.look(self.labels().get(LABEL), now)

    def _start(self, name: str) -> None:
        """The DaemonSet's pod starts. The plugin reads the GPUs once; the exporter holds them open."""
        self._numbers += 1
        owner = {"kind": "DaemonSet", "name": name, "uid": f"uid-of-{name}", "controller": True}
        labels = {"daemonset-name": "gpushare-training"} | PROGRAMS[name]
        self.api.add_pod(name, namespace=SPACE, node=NAME, uid=f"{name}-{self._numbers}", owner=owner, labels=labels)
        if name == EXPORTER:
            self.sysfs.start(900)
        if name == MANAGER:
            self.manager.start(self.labels().get(LABEL), self.clock.now())
        if name == PLUGIN:
            try:
                self._offer(offers(self.sysfs.root, self.strategy))
            except HeterogeneousError:
                self._offer({})

    def _offer(self, registered: dict[str, list[str]]) -> None:
        def change(node: Any) -> None:
            shown = node["status"]["allocatable"]
            shown |= {name: "0" for name in shown if name.startswith("amd.com/")}
            shown |= {name: str(len(ids)) for name, ids in registered.items()}

        self._registered = registered
        self.api.edit("nodes", NAME, change)
        data = {"PodDeviceEntries": self.entries or None, "RegisteredDevices": registered}
        self.checkpoint.write_text(json.dumps({"Data": data, "Checksum": 1}))

    def _tell(self, reason: str, message: str) -> None:
        """The manager's Event, on its pod by name."""
        self._numbers += 1
        about = {"kind": "Pod", "name": MANAGER, "namespace": SPACE}
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.wall()))
        event = {"involvedObject": about, "reason": reason, "message": message, "lastTimestamp": at}
        self.api.add("events", f"{reason}{self._numbers:05}", event, namespace=SPACE)

    def reboot(self) -> None:
        """All processes end, the GPUs are whole, and the manager applies its label if nothing uses them."""
        self.boot_id += "'"
        self.sysfs.reboot()
        for name in PROGRAMS:
            self._remove(SPACE, name)
            if POOL_LABEL in self.labels():
                self._start(name)

    def tenant(self, name: str, device: str = "0000:05:00.0", *, pid: int = 0) -> None:
        """A pod with a device, and its process if it has one."""
        self.api.add_pod(name, namespace="science", node=NAME, uid=f"uid-{name}", limits={"amd.com/gpu": 1})
        entry = {"PodUID": f"uid-{name}", "ContainerName": "main", "ResourceName": "amd.com/gpu", "DeviceIDs": {"0": [device]}}
        self.entries.append(entry | {"AllocResp": ""})
        self._offer(self._registered)
        if pid:
            self.sysfs.start(pid, (0, 0, 1024))

    def end_tenant(self, name: str, *, pid: int = 0) -> None:
        self._remove("science", name)
        if pid:
            self.sysfs.end(pid)

    def remove(self, program: str) -> None:
        """The pod of one of AMD's programs ends."""
        self._remove(SPACE, program)

    def _remove(self, namespace: str, name: str) -> None:
        if any(pod["metadata"]["name"] == name for pod in self._pods()):
            self.api.remove("pods", name, namespace=namespace)
        if name == EXPORTER:
            self.sysfs.end(900)
        if name == MANAGER:
            self.manager.stop()

    # What is seen.

    def _pods(self) -> list[Any]:
        """Not copies: this is asked all the time."""
        found = [thing for key, thing in self.api.store._objects.items() if key[0] == "pods"]
        return [pod for pod in found if pod["spec"].get("nodeName") == NAME]

    def _has(self, name: str) -> bool:
        return any(pod["metadata"]["name"] == name for pod in self._pods())

    def pod_uid(self, name: str) -> str:
        return next(str(pod["metadata"]["uid"]) for pod in self._pods() if pod["metadata"]["name"] == name)

    def tenants(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self._pods() if pod["metadata"]["namespace"] == "science"]

    @property
    def _node(self) -> Any:
        return self.api.store._objects["nodes", "", NAME]

    def labels(self) -> dict[str, str]:
        return dict(self._node["metadata"]["labels"])

    def label(self, **labels: str | None) -> None:
        """Labels as somebody else writes them."""
        self.api.patch("nodes", NAME, {"metadata": {"labels": labels}}, manager="kubectl-label")

    def taints(self) -> set[str]:
        return {taint["key"] for taint in self._node["spec"].get("taints") or ()}

    def offered(self) -> dict[str, int]:
        shown = self._node["status"]["allocatable"].items()
        return {name: int(count) for name, count in shown if name.startswith("amd.com/") and count != "0"}

    def modes(self) -> list[str]:
        return [f"{gpu.compute}/{gpu.memory}" for gpu in self.sysfs.gpus]

    def condition(self) -> str | None:
        found = self.api.condition(NAME)
        return None if found is None else str(found["reason"])

    def journal(self) -> Journal | None:
        return self.folder.journal()

    def changed(self) -> list[str]:
        return [result.step for result in self.results if result.status is Status.CHANGED]
