"""A whole node for the closed loop: fake GPUs, an API server over HTTP, a folder, and a device plugin like upstream's.

The plugin enumerates only when its label's value changes or it starts anew, writes kubelet's checkpoint, and sets allocatable.
Time passes only where the runtime sleeps; the plugin acts then.
"""

import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import urllib3
import yaml

from gpushare_node.adapters.host.programs import Machine
from gpushare_node.adapters.host.state_dir import UnselectedMark
from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL, Cluster, PodView
from gpushare_node.adapters.kube.connection import ApiEndpoint, ApiRequest, Connection
from gpushare_node.adapters.kube.events import EventRecorder
from gpushare_node.adapters.kube.node_client import NodeClient
from gpushare_node.adapters.kube.pod_identity import PodIdentity
from gpushare_node.adapters.kube.views import view_pod
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.backends.device_plugin import DevicePlugin, read_checkpoint
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.policy import DesiredPartition, Mode, ModeSwitch, Policy, PoolDra, Share, rollout_document
from gpushare_node.contract.struct import replace
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.gpus.programs import with_programs
from gpushare_node.membership import RELEASE_AFTER_SECONDS
from gpushare_node.reconcile.reconciler import reconcile, release_orphan
from gpushare_node.reconcile.run_context import Dependencies
from gpushare_node.reporting.outcome import Outcome, Status, StepResult
from gpushare_node.vendors.nvidia.session import Session
from tests.node.gpus import gpu_node
from tests.node.gpus.gpu_node import A100, IDS, GpuNode
from tests.support.fake_api.server import ApiServer

NAME = "n1"
PLUGIN_POD = "nvidia-device-plugin-x"
PLATFORM = frozenset({"kube-system", "gpushare", "gpu-operator", "dra", "kube-amd-gpu"})
DEPLOY = "nvidia.com/gpu.deploy.device-plugin"

SEVEN = tuple(("1g.5gb", start) for start in range(7))
TWO = (("3g.20gb", 0), ("3g.20gb", 4))


def mig(*layouts: Any, pool: str = "training", key: str = "mig-00000001", card: str = A100, **changed: Any) -> Policy:
    """A MIG policy that promises what its layouts have."""
    made = gpu_node.policy(*layouts, card=card)
    names = [name for layout in layouts for name, _ in layout] or ["nvidia.com/gpu"]
    counts = {f"nvidia.com/mig-{name}": names.count(name) for name in dict.fromkeys(names)}
    shares = tuple(_share(f"nvidia.com/mig-{name}", name, 1) for name in dict.fromkeys(names))
    return replace(made, pool=pool, profile=key, resources=tuple(counts.items()), shares=shares, **changed)


def whole(
    count: int = 1, *, replicas: int = 1, pool: str = "training", mode: Mode | None = None, key: str = "", card: str = A100
) -> Policy:
    """Whole GPUs, shared by time-slicing or MPS where there is more than one replica."""
    mode = mode or (Mode.EXCLUSIVE if replicas == 1 else Mode.TIME_SLICING)
    name = "nvidia.com/gpu" if replicas == 1 else "nvidia.com/gpu.shared"
    made = gpu_node.policy(*((),) * count, card=card)
    return replace(
        made,
        pool=pool,
        mode=mode,
        profile=key or f"{mode}-{replicas:08x}",
        resources=((name, count * replicas),),
        shares=(_share(name, None, replicas),),
    )


def rollout(policy: Policy, **changed: Any) -> Policy:
    return replace(policy, rollout=replace(policy.rollout, **changed))


def _share(resource: str, profile: str | None, replicas: int) -> Share:
    return Share(resource=resource, profile=profile, replicas=replicas, memory_mib=None, cap_mib=None, tolerance_mib=0)


@cache
def text_of(policy: Policy) -> str:
    """The policy as a bundle carries it."""
    one = policy
    return yaml.safe_dump(
        {
            "apiVersion": "gpushare.dev/v1",
            "kind": "NodePolicy",
            "metadata": {"name": one.pool, "cluster": one.cluster},
            "spec": {
                "card": {
                    "id": one.card.id,
                    "name": one.card.name,
                    "pciDeviceIds": list(one.card.pci_device_ids),
                    "memoryMiB": one.card.memory_mib,
                },
                "gpusPerNode": len(one.gpus),
                "mode": str(one.mode),
                "stack": str(one.stack),
                "partitioner": str(one.partitioner),
                "profile": one.profile or None,
                "migConfig": one.mig_config,
                "gpus": [
                    {
                        "indexes": [gpu.index],
                        "mig": bool(gpu.instances) or gpu.on_demand is ModeSwitch.RUNTIME,
                        "instances": [
                            {"profile": each.profile, "profileId": each.profile_id, "start": each.start, "size": each.size}
                            for each in gpu.instances
                        ],
                        "partition": gpu.partition and _partition(gpu.partition),
                    }
                    for gpu in one.gpus
                ],
                "resources": dict(one.resources),
                "shares": [
                    {
                        "resource": each.resource,
                        "profile": each.profile,
                        "replicas": each.replicas,
                        "memoryMiB": None,
                        "capMiB": None,
                        "toleranceMiB": 0,
                    }
                    for each in one.shares
                ],
                "enforcement": {"action": "kill", "graceSeconds": 10, "mechanism": "auto"},
                "rollout": rollout_document(one.rollout),
                "namespaces": [],
                "repartitioningTaint": str(one.repartitioning_taint),
                "vendor": str(one.vendor),
                "managerConfig": one.manager_config,
                **({} if one.dra is None else {"backend": str(one.backend), "dra": _dra(one.dra)}),
            },
        }
    )


def _dra(dra: PoolDra) -> dict[str, Any]:
    return {"driver": dra.driver, "shares": dra.shares and str(dra.shares), "onDemand": dra.on_demand}


def _partition(partition: DesiredPartition) -> dict[str, Any]:
    modes = {"compute": partition.compute, "memory": partition.memory}
    return {**modes, "devices": partition.devices, "memoryMiB": partition.memory_mib}


SLOT = "gpushare-training.0"
"""The pool's only slot."""


def take_slot(node: "LoopNode", name: str = "n2") -> None:
    """Another node of the pool has the only slot; or this one, since a run before."""
    if name == NAME:
        node.folder.keep_slot(SLOT)
    else:
        node.api.add_node(name)
    spec = {"holderIdentity": name, "leaseDurationSeconds": 900}
    node.api.add("leases", SLOT, {"metadata": {"labels": {POOL_LABEL: "training"}}, "spec": spec}, namespace="gpushare")


class Watch:
    """What is enforced while the runtime waits."""

    def __init__(self, policy: Policy, log: list[str]) -> None:
        self.policy, self._log = policy, log
        log.append(f"open {policy.profile}")

    def cycle(self) -> None:
        self._log.append(f"cycle {self.policy.profile}")

    def close(self) -> None:
        self._log.append(f"close {self.policy.profile}")


class LoopNode:
    """One node of the pool `training`. Every `run` is a new start of the program."""

    def __init__(self, folder: Path, api: ApiServer, *gpus: str) -> None:
        self.api = api
        self.gpus = GpuNode(folder, *gpus)
        self.count = len(gpus) or 1
        self.clock = self.gpus.clock
        self.clock.at = self._tick
        self.began_at = 0.0
        self.fake_nvml = self.gpus.fake_nvml
        self.folder = self.gpus.folder
        self.checkpoint = folder / "kubelet_internal_checkpoint"
        self.known: dict[str, Policy] = {}
        self.entries: list[dict[str, Any]] = []
        self.registered: dict[str, list[str]] = {}
        self.watched: list[str] = []
        self._seen: object = None
        self.followed: Callable[[], Sequence[PodView] | None] = self._followed
        self.results: list[StepResult] = []
        self.starts = 0
        """How often the plugin has started, or begun anew: each time it makes its socket."""
        self.mps: set[int] = set()
        self.is_mps_deaf = False
        self.is_plugin_dead = False
        self.is_plugin_deaf = False
        self.on_tick: Callable[[float], object] = lambda _: None
        self.before_step: Callable[[StepResult], None] = lambda _: None
        self._enumerated: str | None = None
        self.events: EventRecorder | None = None
        terms = [
            [{"key": "role", "operator": "In", "values": ["gpu"]}],
            [{"key": POOL_LABEL, "operator": "In", "values": ["training"]}],
        ]
        if not self.api.all("daemonsets", namespace="gpushare"):
            self.api.add_daemonset("gpushare-training", terms=[{"matchExpressions": each} for each in terms])
        self.api.add_node(NAME, labels={"role": "gpu", DEPLOY: "true"})
        self.enumerate()

    # The runtime.

    def run(self, policy: Policy, *, hold: bool = False, cluster: bool = True) -> Outcome:
        """One start of `partition`."""
        self.known[policy.profile] = policy
        return reconcile(self.deps(policy.pool, cluster=cluster), DesiredPolicy(policy=policy, text=text_of(policy)), hold=hold)

    def release(self, *, cluster: bool = True, hold: bool = False) -> Outcome:
        return release_orphan(self.deps("", cluster=cluster), hold=hold)

    def deps(self, pool: str, *, cluster: bool = True) -> Dependencies:
        self.results = []
        return Dependencies(
            open_hardware=self._hardware,
            cluster=self.server(pool) if cluster else Cluster(),
            folder=self.folder,
            clock=self.clock,
            report=self._report,
            backend=DevicePlugin(
                read_checkpoint=lambda: read_checkpoint(self.checkpoint),
                find_sockets=lambda: frozenset({("nvidia-gpu.sock", 1, self.starts)}),
            ),
            boot_id=self.gpus.boot_id,
            open_enforcer=lambda policy: Watch(policy, self.watched),
            has_news=self._has_news,
            followed=self.followed,
            wall=self.wall,
            platform=lambda: PLATFORM,
        )

    def wall(self) -> float:
        """The date in seconds since 1970: it passes with the clock, and `began_at` sets it."""
        return self.began_at + self.clock.now()

    def _has_news(self) -> bool:
        """As a run in a pod watches its node: its labels and annotations alone, and the unknown while the watch is closed."""
        if not self.api_is_up():
            return True
        before, self._seen = self._seen, (self.labels(), self.annotations())
        return before != self._seen

    def _followed(self) -> list[PodView] | None:
        """As a run in a pod watches the node's pods."""
        if not self.api_is_up():
            return None
        return [view_pod(one) for one in self.api.all("pods") if one["spec"].get("nodeName") == NAME]

    def server(self, pool: str = "training") -> NodeClient:
        address = ApiEndpoint(url=self.api.url, headers=dict, open_pool=lambda: urllib3.PoolManager(retries=False))
        place = PodIdentity(node=NAME, namespace="gpushare", pod="partition-x", pod_uid="uid-x", pool=pool)
        connection = Connection(address, self.clock)
        self.events = EventRecorder(connection, place, self.clock)
        return NodeClient(connection, place, self.clock, self.events, self.folder)

    def _hardware(self, digest: str) -> Hardware:
        machine = Machine(
            boot_id=self.gpus.boot_id,
            reset=lambda _: "there is no nvidia-smi",
            make_nodes=lambda: None,
            find_servers=lambda pids: frozenset(self.mps & set(pids)),
        )
        named = with_programs(machine, LinuxProcesses(), pods=tuple, is_system=lambda *_: True)
        machine = replace(machine, name_processes=named.name_processes)
        return Hardware(open_driver=Session.open, folder=self.folder, clock=self.clock, policy_digest=digest, machine=machine)

    def _report(self, result: StepResult) -> None:
        self.results.append(result)
        self.before_step(result)

    # The device plugin and kubelet.

    def _tick(self, time: float = 0.0) -> None:
        self.on_tick(time)
        if not self.api_is_up():
            return
        labels = self.labels()
        if self.mps and not self.is_mps_deaf and not labels.get(PLUGIN_LABEL, "").startswith("mps"):
            self.stop_mps()
        if labels.get(DEPLOY) != "true":
            self._enumerated = None
            if any(pod["metadata"]["name"] == PLUGIN_POD for pod in self.api.all("pods", namespace="gpu-operator")):
                self.api.remove("pods", PLUGIN_POD, namespace="gpu-operator")
        elif not self.is_plugin_dead and labels.get(PLUGIN_LABEL, "") != self._enumerated and not self.is_plugin_deaf:
            self.enumerate()

    def api_is_up(self) -> bool:
        return self.api._listener is not None

    def enumerate(self) -> None:
        """The plugin starts, or is told that its label has changed."""
        self.starts += 1
        self._enumerated = self.labels().get(PLUGIN_LABEL, "")
        policy = self.known.get(self._enumerated[:-2])
        shares = {share.profile: share for share in policy.shares} if policy else {}
        self.registered = {}
        for gpu in range(self.count):
            for profile, uuid in self._devices(gpu):
                plain = "nvidia.com/gpu" if profile is None else f"nvidia.com/mig-{profile}"
                share = shares.get(profile) or _share(plain, profile, 1)
                ids = [uuid] if share.replicas == 1 else [f"{uuid}::{number}" for number in range(share.replicas)]
                self.registered.setdefault(share.resource, []).extend(ids)
        self.publish()

    def serve_mps(self, *pids: int) -> None:
        """The MPS daemon's: a server on each GPU, whose last client has gone, and the compute mode."""
        self.mps = set(pids)
        for gpu, pid in enumerate(pids):
            self.fake_nvml.set_compute_mode(gpu, 3)
            self.fake_nvml.put(gpu, pid, 30)

    def stop_mps(self) -> None:
        """The daemon stops its servers. One that is killed leaves the compute mode."""
        for gpu, pid in enumerate(sorted(self.mps)):
            self.fake_nvml.take(gpu, pid)
        self.mps = set()

    def publish(self) -> None:
        """Kubelet writes down and offers what is registered."""
        counts = {name: len(ids) for name, ids in self.registered.items()}

        def offer(node: Any) -> None:
            shown = node["status"]["allocatable"]
            shown |= {name: "0" for name in shown if name.startswith("nvidia.com/")}
            shown |= {name: str(count) for name, count in counts.items()}

        self.api.edit("nodes", NAME, offer)
        data = {"PodDeviceEntries": self.entries or None, "RegisteredDevices": self.registered}
        self.checkpoint.write_text(json.dumps({"Data": data, "Checksum": 1}))

    def _devices(self, gpu: int) -> list[tuple[str | None, str]]:
        if not self.fake_nvml.mode(gpu)[0]:
            return [(None, self.fake_nvml.uuid(gpu))]
        names = {number: name for name, number in IDS.items()}
        return [(names[one], self.fake_nvml.mig_uuid(gpu, gi)) for gi, one, *_ in self.fake_nvml.instances(gpu)]

    def tenant(self, name: str, device: str, resource: str = "nvidia.com/gpu", **more: Any) -> None:
        """A pod that sleeps, with a device."""
        self.api.add_pod(name, **{"namespace": "science"} | more, node=NAME, uid=f"uid-{name}")
        entry = {
            "PodUID": f"uid-{name}",
            "ContainerName": "main",
            "ResourceName": resource,
            "DeviceIDs": {"0": [device]},
            "AllocResp": "",
        }
        self.entries.append(entry)
        self.publish()

    def program(self, name: str, app: str, **more: Any) -> None:
        """A pod of a DaemonSet of gpu-operator's."""
        self.api.add_daemon_pod(name, app, namespace="gpu-operator", node=NAME, labels={"app": app}, **more)

    def runtime_pod(self, pool: str) -> None:
        """A pod of our DaemonSet for that pool."""
        labels = {"app.kubernetes.io/name": "gpushare", "app.kubernetes.io/component": "node", POOL_LABEL: pool}
        self.api.add_daemon_pod(f"gpushare-{pool}-x", f"gpushare-{pool}", namespace="gpushare", node=NAME, labels=labels)

    # What is seen.

    def labels(self) -> dict[str, str]:
        return dict(self._node["metadata"]["labels"])

    def label(self, **labels: str | None) -> None:
        """Labels as somebody else writes them."""

        def change(node: Any) -> None:
            for name, value in labels.items():
                node["metadata"]["labels"].pop(name, None)
                if value is not None:
                    node["metadata"]["labels"][name] = value

        self.api.edit("nodes", NAME, change)

    def unselect(self, role: str | None = None) -> None:
        """The pool has not selected the node for longer than a restart of feature discovery takes."""
        self.label(role=role)
        self.folder.mark_unselected(UnselectedMark(boot_id=self.gpus.boot_id, at_seconds=0))
        if self.clock.now() < RELEASE_AFTER_SECONDS:
            self.clock.sleep(RELEASE_AFTER_SECONDS)

    def annotate(self, name: str, value: str | None) -> None:
        def change(node: Any) -> None:
            node["metadata"]["annotations"].pop(name, None)
            if value is not None:
                node["metadata"]["annotations"][name] = value

        self.api.edit("nodes", NAME, change)

    def annotations(self) -> dict[str, str]:
        return dict(self._node["metadata"].get("annotations") or {})

    def taints(self) -> set[str]:
        return {taint["key"] for taint in self._node["spec"].get("taints") or ()}

    @property
    def _node(self) -> Any:
        """Not a copy: this is asked all the time."""
        return self.api.store._objects["nodes", "", NAME]

    def condition(self) -> str | None:
        found = self.api.condition(NAME)
        return None if found is None else found["reason"]

    def holds_slot(self) -> bool:
        return any(lease["spec"].get("holderIdentity") == NAME for lease in self.api.leases("gpushare"))

    def changed(self) -> list[str]:
        return [result.step for result in self.results if result.status is Status.CHANGED]

    def dies_at(self, number: int, policy: Policy) -> bool:
        """Run in a process of its own, gone just before its write to the API server of this number. Whether it came so far."""
        child = os.fork()
        if child == 0:
            writes = iter(range(number))

            def ask(own: Connection, request: ApiRequest, ask: Any = Connection.ask) -> Any:
                if request.method != "GET" and next(writes, None) is None:
                    os._exit(9)
                return ask(own, request)

            Connection.ask = ask  # type: ignore[assignment,method-assign]
            self.fake_nvml.load()
            try:
                self.run(policy)
            finally:
                os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
