"""The real closed loop on N simulated nodes; figures as JSON.

`python -m tests.e2e.scale.simulation --nodes N --latency S BUNDLE…`. Real: API server, DaemonSets and their controller, the
loop, its requests. Simulated: GPUs that nobody uses, kubelet, device plugin and DRA driver, and time: every request takes S
seconds of it, however long the machine needs, so that a slow machine changes no figure. KUBECONFIG names the server, which has
the first bundle's objects. The nodes are made before, and taken away at the end; every policy is begun everywhere at once, as
the DaemonSets begin it.
"""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL, ClusterError
from gpushare_node.adapters.kube.connection import ApiEndpoint, ApiRequest, Connection, Json
from gpushare_node.adapters.kube.events import EventRecorder
from gpushare_node.adapters.kube.node_client import NodeClient, read_node_slices
from gpushare_node.adapters.kube.pod_identity import PodIdentity
from gpushare_node.backends.backend import Checkpoint, NodeBackend
from gpushare_node.backends.device_plugin import DevicePlugin
from gpushare_node.backends.dra.offer import DraBackend
from gpushare_node.contract import policy as policies
from gpushare_node.contract.names import BACKEND_LABEL, NO_BACKEND, REPARTITIONING_TAINT
from gpushare_node.contract.policy import Policy, read
from gpushare_node.core.clock import SystemClock
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.reconcile.reconciler import reconcile
from gpushare_node.reconcile.run_context import Dependencies
from gpushare_node.reporting.outcome import Outcome
from tests.e2e.cluster.dra.devices import DRIVER
from tests.e2e.cluster.plugin.offer import Gpu, offers
from tests.e2e.scale.crowd import shared_endpoint
from tests.e2e.scale.driver import DriverPods, node_of
from tests.e2e.scale.nodes import simulated, standing
from tests.e2e.scale.still import MACHINE, Division, driver_of
from tests.e2e.scale.traffic import kind_of
from tests.e2e.scale.virtual_time import VirtualTime

NAMESPACE = "gpu-system"
POOL = "training"
_PURPOSE = "rollout"
_ENOUGH_SECONDS = 600.0
_MERGE = "application/merge-patch+json"
_DRA = policies.Backend.DRA.value
_START_SECONDS, _LEAVE_SECONDS, _WIPE_SECONDS = 2.0, 3.0, 30.0
"""Of a back end after its label changes; and until kubelet removes the slices of a driver that has gone."""


class Counted(Connection):
    """A node's connection: its requests are counted, and each takes its time."""

    def __init__(self, address: ApiEndpoint, kubelets: "Kubelets", latency: float) -> None:
        super().__init__(address, kubelets.clock)
        self._time = kubelets.clock
        self._kubelets = kubelets
        self._latency = latency
        self.requests: Counter[str] = Counter()
        self.received = 0
        self.writes = 0
        """What the API server has written."""
        self.in_vain = 0
        """What it refused to write: another node was faster."""

    def forget(self) -> None:
        """Count anew."""
        self.requests.clear()
        self.received = self.writes = self.in_vain = 0

    def ask(self, request: ApiRequest) -> Json:
        """As ever; what changes the node is seen by its kubelet."""
        self._time.sleep(self._latency * random.uniform(0.5, 1.5))
        self.requests[f"{request.method} {kind_of(request)}"] += 1
        try:
            found = super().ask(request)
        except ClusterError as error:
            self.in_vain += request.method != "GET" and error.status in {404, 409}
            raise
        self.writes += request.method != "GET"
        self.received += len(json.dumps(found, separators=(",", ":")))
        if request.method == "PATCH" and found.get("kind") == "Node":
            self._kubelets.see(found)
        if request.method == "DELETE" and (name := node_of(request.path)):
            self._kubelets.lose_slice(name)
        return found


@dataclass
class SimulatedNode:
    """One node's runtime, and its back ends as its labels have them. `since`: when the back end's label last changed."""

    name: str
    folder: Path
    connection: Counted
    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint(allocations=(), registered={}))
    pods: int = 0
    division: Division = field(default_factory=Division)
    backend: str = ""
    since: float = 0.0
    config: str = ""
    is_tainted: bool = False
    has_plugin: bool = True
    has_driver: bool = False
    is_plugged: bool = True
    is_sliced: bool = False
    resources: set[str] = field(default_factory=lambda: {"nvidia.com/gpu"})

    @property
    def uuid(self) -> str:
        """Its GPU's."""
        return f"GPU-{self.name}"

    def run(self, text: str, clock: VirtualTime) -> Outcome:
        """What the init container does."""
        policy = read(text)
        self.pods += 1
        pod = f"runtime-{self.name}-{self.pods}"
        place = PodIdentity(node=self.name, namespace=NAMESPACE, pod=pod, pod_uid=pod, pool=policy.pool)
        events = EventRecorder(self.connection, place, clock)
        driver = driver_of(self.uuid, policy, self.division)
        deps = Dependencies(
            open_hardware=lambda digest: Hardware(
                open_driver=lambda: driver,  # type: ignore[arg-type,return-value]
                folder=StateDir(self.folder),
                clock=clock,
                policy_digest=digest,
                machine=MACHINE,
            ),
            cluster=NodeClient(self.connection, place, clock, events, StateDir(self.folder)),
            folder=StateDir(self.folder),
            clock=clock,
            report=lambda _: None,
            backend=self._backend(policy),
            backend_of=self._backend,
            boot_id=MACHINE.boot_id,
            is_served=lambda _: self.has_driver,
            platform=lambda: frozenset({NAMESPACE}),
        )
        outcome = reconcile(deps, DesiredPolicy(policy=policy, text=text), hold=True)
        events.drain(3.0)
        return outcome

    def _backend(self, policy: Policy) -> NodeBackend:
        if policy.backend is policies.Backend.DEVICE_PLUGIN:
            return DevicePlugin(read_checkpoint=lambda: self.checkpoint, find_sockets=frozenset)
        read_slices = partial(read_node_slices, self.connection, self.name, DRIVER)
        return DraBackend(policy=policy, read_checkpoint=lambda: self.checkpoint, node=self.name, read_slices=read_slices)


class Kubelets:
    """Kubelet and back ends of all nodes: a new label value is a new offer. Sees who is out meanwhile, and who offers twice."""

    def __init__(self, address: ApiEndpoint, clock: VirtualTime) -> None:
        self.clock = clock
        self._connection = Connection(address, SystemClock())
        self._driver = DriverPods(address, NAMESPACE)
        self._lock = threading.Lock()
        self._out: set[str] = set()
        self._changing: set[str] = set()
        self.nodes: dict[str, SimulatedNode] = {}
        self.configs: dict[str, Any] = {}
        self.policy: Policy | None = None
        self.most_out = 0
        self.offered_twice: set[str] = set()

    def see(self, seen: Json) -> None:
        """The node was written."""
        labels, node = seen["metadata"].get("labels") or {}, self.nodes[seen["metadata"]["name"]]
        node.is_tainted = any(taint["key"] == REPARTITIONING_TAINT for taint in seen["spec"].get("taints") or ())
        backend = labels.get(BACKEND_LABEL, "")
        if backend != node.backend:
            node.backend, node.since = backend, self.clock.now()
            with self._lock:
                self._changing.add(node.name)
        self._count(node)
        label = labels.get(PLUGIN_LABEL, "")
        if node.config != label:
            node.config = label
            if node.has_plugin:
                self._plug(node)

    def lose_slice(self, name: str) -> None:
        """The runtime has deleted it."""
        self.nodes[name].is_sliced = False
        self._count(self.nodes[name])

    def clear(self) -> None:
        """Leave no pod of the driver and no slice."""
        for node in self.nodes.values():
            if node.has_driver:
                self._driver.end(node.name)
            if node.is_sliced:
                self._driver.withdraw(node.name)

    def run(self, is_over: Callable[[], bool]) -> None:
        """Start and end back ends some seconds after the labels say so, until the rollout is over."""
        while not is_over():
            self.clock.sleep(1.0)
            with self._lock:
                changing = sorted(self._changing)
            for name in changing:
                self.follow(self.nodes[name], self.clock.now() - self.nodes[name].since)

    def follow(self, node: SimulatedNode, seconds: float) -> None:
        """Start or end what must run or not by the node's label, which changed so many seconds ago."""
        may_plug, may_drive = node.backend not in (NO_BACKEND, _DRA), node.backend == _DRA
        if node.has_plugin and not may_plug and seconds >= _LEAVE_SECONDS:
            node.has_plugin = False
            self._plug(node)
        elif not node.has_plugin and may_plug and seconds >= _START_SECONDS:
            node.has_plugin = True
            self._plug(node)
        if node.has_driver and not may_drive and seconds >= _LEAVE_SECONDS:
            self._driver.end(node.name)
            node.has_driver = False
        elif not node.has_driver and may_drive and seconds >= _START_SECONDS:
            assert self.policy is not None
            self._driver.start(node.name)
            self._driver.publish(node.name, node.uuid, self.policy, node.division)
            node.has_driver = node.is_sliced = True
        if node.is_sliced and not node.has_driver and seconds >= _WIPE_SECONDS:
            self._driver.withdraw(node.name)
            node.is_sliced = False
        self._count(node)
        if node.has_plugin is may_plug and node.has_driver is node.is_sliced is may_drive:
            with self._lock:
                self._changing.discard(node.name)

    def _count(self, node: SimulatedNode) -> None:
        """Whether the node takes pods now, and whether both back ends offer its GPU."""
        is_out = node.is_tainted or not (node.is_plugged or node.is_sliced)
        with self._lock:
            (self._out.add if is_out else self._out.discard)(node.name)
            self.most_out = max(self.most_out, len(self._out))
            if node.is_plugged and node.is_sliced:
                self.offered_twice.add(node.name)

    def _plug(self, node: SimulatedNode) -> None:
        """Offer what the node's plugin offers now, if it runs, and nothing else."""
        found = {}
        if node.has_plugin:
            assert self.policy is not None
            devices = tuple((one.profile, one.uuid) for one in node.division.devices(node.uuid, self.policy.card.id))
            gpu = Gpu(uuid=node.uuid, mig=node.division.is_on, devices=devices)
            found = offers(self.configs[node.config] if node.config else {}, (gpu,))
        node.checkpoint = Checkpoint(allocations=(), registered={name: frozenset(one.ids) for name, one in found.items()})
        node.resources |= found.keys()
        counts = dict.fromkeys(sorted(node.resources), "0") | {name: str(len(one.ids)) for name, one in found.items()}
        body = {"status": {"capacity": counts, "allocatable": counts}}
        self._connection.ask(
            ApiRequest(method="PATCH", path=f"/api/v1/nodes/{node.name}/status", body=body, content_type=_MERGE)
        )
        node.is_plugged = bool(found)


def node_object(name: str) -> Json:
    """A node of the pool, on which NVIDIA's plugin has offered one whole GPU so far."""
    whole = {"nvidia.com/gpu": "1"}
    ready = {"type": "Ready", "status": "True", "reason": "Simulated", "message": ""}
    status = {"conditions": [ready], "capacity": whole, "allocatable": whole}
    return simulated(name, _PURPOSE, {"example.org/pool": POOL}, status)


def _configs(bundle: Path) -> dict[str, Any]:
    """The plugin's configs, by both of their names."""
    files = (bundle / "chart" / "files" / "profiles").glob("*.yaml")
    return {f"{path.stem}-{half}": yaml.safe_load(path.read_text()) for path in files for half in "ab"}


def roll_out(kubelets: Kubelets, bundle: Path) -> dict[str, Any]:
    """One bundle's policy on all nodes at once; what it took. SystemExit if a node fails in a way that none should."""
    nodes, clock = kubelets.nodes, kubelets.clock
    [policy] = (bundle / "chart" / "files" / "policies").glob("*.yaml")
    kubelets.configs |= _configs(bundle)
    kubelets.policy = read(policy.read_text())
    kubelets.most_out = 0
    kubelets.offered_twice.clear()
    ended: list[str] = []
    outcomes: dict[str, Outcome] = {}
    durations: dict[str, float] = {}
    failures: list[str] = []
    for node in nodes.values():
        node.connection.forget()
    begun, real = clock.now(), time.monotonic()

    def run(node: SimulatedNode) -> None:
        try:
            outcomes[node.name] = node.run(policy.read_text(), clock)
            durations[node.name] = clock.now() - begun
        except Exception:
            # A thread's own error would go nowhere, and its node would count as one that is not ready.
            failures.append(f"{node.name}: {traceback.format_exc()}")
        finally:
            ended.append(node.name)
            clock.leave()

    def serve() -> None:
        try:
            kubelets.run(lambda: len(ended) == len(nodes))
        except Exception:
            failures.append(f"kubelets: {traceback.format_exc()}")
        finally:
            clock.leave()

    clock.run([*(threading.Thread(target=run, args=(node,)) for node in nodes.values()), threading.Thread(target=serve)])
    if failures:
        raise SystemExit(f"{len(failures)} of {len(nodes)} nodes failed, the first: {failures[0]}")
    writes = [node.connection.writes for node in nodes.values()]
    total = sum((node.connection.requests for node in nodes.values()), Counter[str]())
    waited = sum(durations.values())
    return {
        "ready": sum(outcome.reason.value.is_ready for outcome in outcomes.values()),
        "most_out": kubelets.most_out,
        "offered_twice": len(kubelets.offered_twice),
        "most_writes": max(writes),
        "mean_writes": sum(writes) / len(writes),
        "writes_in_vain": sum(node.connection.in_vain for node in nodes.values()),
        "seconds": round(clock.now() - begun),
        "requests": dict(sorted(total.items())),
        "requests_a_node": total.total() / len(nodes),
        # Of a node that is on its way: nearly all of that it waits for its slot.
        "requests_a_second": total.total() / waited,
        "bytes_a_second": sum(node.connection.received for node in nodes.values()) / waited,
        "real_seconds": round(time.monotonic() - real),
    }


def await_daemonset(connection: Connection, nodes: int) -> None:
    """Until a percentage of the nodes is one of all of them."""
    deadline, path = time.monotonic() + _ENOUGH_SECONDS, f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/gpushare-{POOL}"
    while connection.get(path).get("status", {}).get("desiredNumberScheduled") != nodes:
        if time.monotonic() > deadline:
            raise SystemExit("the DaemonSet does not want a pod on every node")
        time.sleep(0.5)


def main() -> None:
    """Roll the bundles out, one after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("bundles", nargs="+", type=Path)
    chosen = parser.parse_args()
    address = shared_endpoint()
    kubelets = Kubelets(address, VirtualTime())
    names = [f"simulated-{number}" for number in range(chosen.nodes)]
    connection = Connection(address, SystemClock())
    with tempfile.TemporaryDirectory() as scratch, standing(connection, _PURPOSE, map(node_object, names)):
        await_daemonset(connection, chosen.nodes)
        for name in names:
            counted = Counted(address, kubelets, chosen.latency)
            kubelets.nodes[name] = SimulatedNode(name=name, folder=Path(scratch) / name, connection=counted)
        try:
            figures = [roll_out(kubelets, bundle) for bundle in chosen.bundles]
        finally:
            kubelets.clear()
    json.dump(figures, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
