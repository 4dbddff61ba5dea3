"""The real closed loop on N simulated nodes; figures as JSON.

`python -m tests.e2e.scale.simulation --nodes N --latency S BUNDLE…`. Real: API server, DaemonSets and their controller, the
loop, its requests. Simulated: GPUs that never change, kubelet and device plugin, and time: every request takes S seconds
of it, however long the machine needs, so that a slow machine changes no figure. KUBECONFIG names the server, which has the
first bundle's objects. The nodes are made before, and taken away at the end; every policy is begun everywhere at once, as the
DaemonSets begin it.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.kube.api_endpoint import ApiEndpoint, find_endpoint
from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL, REPARTITIONING_TAINT, ClusterError
from gpushare_node.adapters.kube.connection import Connection, Json, Request
from gpushare_node.adapters.kube.events import EventRecorder
from gpushare_node.adapters.kube.node_client import NodeClient
from gpushare_node.adapters.kube.pod_identity import PodIdentity
from gpushare_node.backends.backend import Checkpoint
from gpushare_node.backends.device_plugin import DevicePlugin
from gpushare_node.core.clock import SystemClock
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.core.policy import read
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.reconcile.dependencies import Dependencies
from gpushare_node.reconcile.reconciler import reconcile
from gpushare_node.reporting.outcome import Outcome
from tests.e2e.cluster.plugin.offer import Gpu, offers
from tests.e2e.scale.nodes import simulated, standing
from tests.e2e.scale.still import MACHINE, StillDriver
from tests.e2e.scale.virtual_time import VirtualTime

NAMESPACE = "gpu-system"
POOL = "training"
_PURPOSE = "rollout"
_ENOUGH_SECONDS = 600.0
_MERGE = "application/merge-patch+json"


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

    def ask(self, request: Request) -> Json:
        """As ever; what changes the node is seen by its kubelet."""
        self._time.sleep(self._latency * random.uniform(0.5, 1.5))
        kind = next((one for one in ("leases", "events", "pods", "daemonsets", "nodes") if f"/{one}" in request.path), "other")
        self.requests[f"{request.method} {kind}"] += 1
        try:
            found = super().ask(request)
        except ClusterError as error:
            self.in_vain += request.method != "GET" and error.status in {404, 409}
            raise
        self.writes += request.method != "GET"
        self.received += len(json.dumps(found, separators=(",", ":")))
        if request.method == "PATCH" and found.get("kind") == "Node":
            self._kubelets.see(found)
        return found


@dataclass
class SimulatedNode:
    """One node's runtime."""

    name: str
    folder: Path
    connection: Counted
    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint(allocations=(), registered={}))
    pods: int = 0

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
        deps = Dependencies(
            open_hardware=lambda digest: Hardware(
                open_driver=lambda: StillDriver(self.uuid, policy),  # type: ignore[arg-type,return-value]
                folder=StateDir(self.folder),
                clock=clock,
                policy_digest=digest,
                machine=MACHINE,
            ),
            cluster=NodeClient(self.connection, place, clock, events, StateDir(self.folder)),
            folder=StateDir(self.folder),
            clock=clock,
            report=lambda _: None,
            backend=DevicePlugin(read_checkpoint=lambda: self.checkpoint, find_sockets=frozenset),
            boot_id=MACHINE.boot_id,
        )
        outcome = reconcile(deps, DesiredPolicy(policy=policy, text=text), hold=True)
        events.drain(3.0)
        return outcome


class Kubelets:
    """Kubelet and device plugin of all nodes: a new label value is a new offer. Sees who is out meanwhile."""

    def __init__(self, address: ApiEndpoint, clock: VirtualTime) -> None:
        self.clock = clock
        self._connection = Connection(address, SystemClock())
        self._lock = threading.Lock()
        self._offered: dict[str, str] = {}
        self._out: set[str] = set()
        self.nodes: dict[str, SimulatedNode] = {}
        self.configs: dict[str, Any] = {}
        self.most_out = 0

    def see(self, node: Json) -> None:
        """The node was written."""
        name = node["metadata"]["name"]
        is_out = any(taint["key"] == REPARTITIONING_TAINT for taint in node["spec"].get("taints") or ())
        with self._lock:
            (self._out.add if is_out else self._out.discard)(name)
            self.most_out = max(self.most_out, len(self._out))
        label = (node["metadata"].get("labels") or {}).get(PLUGIN_LABEL, "")
        if label and self._offered.get(name) != label:
            self._offered[name] = label
            self._offer(self.nodes[name], self.configs[label])

    def _offer(self, node: SimulatedNode, config: Mapping[str, Any]) -> None:
        found = offers(config, (Gpu(uuid=node.uuid, mig=False),))
        node.checkpoint = Checkpoint(allocations=(), registered={name: frozenset(one.ids) for name, one in found.items()})
        none = dict.fromkeys(("nvidia.com/gpu", "nvidia.com/gpu.shared"), "0")
        counts = none | {name: str(len(one.ids)) for name, one in found.items()}
        body = {"status": {"capacity": counts, "allocatable": counts}}
        self._connection.ask(Request(method="PATCH", path=f"/api/v1/nodes/{node.name}/status", body=body, content_type=_MERGE))


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
    kubelets.most_out = 0
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
            clock.leave()

    clock.run([threading.Thread(target=run, args=(node,)) for node in nodes.values()])
    if failures:
        raise SystemExit(f"{len(failures)} of {len(nodes)} nodes failed, the first: {failures[0]}")
    writes = [node.connection.writes for node in nodes.values()]
    total = sum((node.connection.requests for node in nodes.values()), Counter[str]())
    waited = sum(durations.values())
    return {
        "ready": sum(outcome.reason.value.is_ready for outcome in outcomes.values()),
        "most_out": kubelets.most_out,
        "most_writes": max(writes),
        "mean_writes": sum(writes) / len(writes),
        "writes_in_vain": sum(node.connection.in_vain for node in nodes.values()),
        "seconds": round(clock.now() - begun),
        "requests": dict(sorted(total.items())),
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
    threading.stack_size(512 * 1024)
    address = find_endpoint(os.environ)
    kubelets = Kubelets(address, VirtualTime())
    names = [f"simulated-{number}" for number in range(chosen.nodes)]
    connection = Connection(address, SystemClock())
    with tempfile.TemporaryDirectory() as scratch, standing(connection, _PURPOSE, map(node_object, names)):
        await_daemonset(connection, chosen.nodes)
        for name in names:
            counted = Counted(address, kubelets, chosen.latency)
            kubelets.nodes[name] = SimulatedNode(name=name, folder=Path(scratch) / name, connection=counted)
        figures = [roll_out(kubelets, bundle) for bundle in chosen.bundles]
    json.dump(figures, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
