"""What N nodes ask of the API server: at rest, after the server was restarted, and queued for a slot; figures as lines of JSON.

`python -m tests.e2e.scale.load rest|queue --nodes N --speed S FORMER NEW`, two bundles of one pool; each state in a process
of its own, for the watches of a thousand nodes end when their process does. Real: the API server, its controllers, the
DaemonSet; of the runtime enforcement's cycle with its upkeep, its watches of the API server, the closed loop, all requests.
Simulated: GPUs that never change, the rhythm of looks, and kubelet, which writes its node's status every five minutes. Of a
pool of the DRA driver each node has its slice, and `queue` measures nothing: a number of shares is no change of such a node.
Time passes S times as fast as the server's own. After `rest` comes the restart: it writes `restart`, and reads a line when
that is done. KUBECONFIG names the server, which has FORMER's objects.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpushare_node.adapters.host.state_dir import Published, StateDir
from gpushare_node.adapters.host.tenancy import TenancyFile
from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.connection import APPLY_PATCH, STRATEGIC_PATCH, ApiEndpoint, ApiRequest, Connection, Json
from gpushare_node.adapters.kube.events import EventRecorder
from gpushare_node.adapters.kube.informers import NodeInformer, PodInformer, SliceInformer
from gpushare_node.adapters.kube.node_client import NodeClient, read_node_slices
from gpushare_node.adapters.kube.pod_identity import PodIdentity
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.backends.backend import Checkpoint, NodeBackend
from gpushare_node.backends.device_plugin import DevicePlugin
from gpushare_node.backends.dra.offer import DraBackend
from gpushare_node.cli.wiring import WatchedSlices
from gpushare_node.contract import policy as policies
from gpushare_node.contract.names import BACKEND_LABEL
from gpushare_node.contract.policy import Policy, read
from gpushare_node.core.clock import Stopped, SystemClock
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.enforce.enforcer import Adapters, Enforcer, EnforcerConfig
from gpushare_node.enforce.exemptions import FollowedNode
from gpushare_node.enforce.loop import Loop
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.enforce.node_monitor import NodeMonitor
from gpushare_node.enforce.offer_watch import LOOK_SECONDS
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.gpus.view import build_view
from gpushare_node.membership import desired
from gpushare_node.reconcile.reconciler import reconcile
from gpushare_node.reconcile.run_context import Dependencies
from gpushare_node.reporting.metrics import Registry
from tests.e2e.cluster.dra.devices import DRIVER
from tests.e2e.scale.crowd import shared_endpoint
from tests.e2e.scale.driver import DriverPods
from tests.e2e.scale.nodes import NODES, laden, standing
from tests.e2e.scale.simulation import NAMESPACE, POOL, await_daemonset
from tests.e2e.scale.still import MACHINE, Division, InlineQueue, StillDriver, StillWatched
from tests.e2e.scale.traffic import FastTime, Observed, Traffic

_PURPOSE = "load"
_KUBELET_SECONDS = 300.0
"""Kubelet's `nodeStatusReportFrequency`, where nothing has changed."""
_WARM_SECONDS, _REST_SECONDS = 900.0, 660.0
"""Until nodes that started together do little at once any more; as long as a condition goes without its heartbeat."""
_ARRIVAL_SECONDS, _QUEUE_SECONDS = 60.0, 660.0
"""A node that waits begins anew after ten minutes."""
_CALM_REQUESTS = 1.0
"""A restart lasts until a minute in which a node asks no oftener than this, however slow the machine. At rest it is 0.5."""
_STEPPERS = 16
"""A look waits for the requests that it makes."""


@dataclass(kw_only=True)
class Node:
    """One node's connection and folder, and the policy that is in force there."""

    name: str
    folder: StateDir
    clock: FastTime
    connection: Observed
    policy: Policy

    @property
    def uuid(self) -> str:
        """Its GPU's."""
        return f"GPU-{self.name}"

    @property
    def published(self) -> Published:
        """What its label says."""
        return Published(key=f"{self.policy.profile}-a" if self.policy.profile else "", devices=frozenset({self.uuid}))

    @property
    def is_of_dra(self) -> bool:
        """Whether its pool is the DRA driver's."""
        return self.policy.backend is policies.Backend.DRA

    def _backend(self) -> NodeBackend:
        """As `cli.wiring` puts it together for a program that stays."""
        ids = {name: frozenset(f"{self.uuid}::{one}" for one in range(count)) for name, count in self.policy.resources}
        checkpoint = Checkpoint(allocations=(), registered={} if self.is_of_dra else ids)
        if not self.is_of_dra:
            return DevicePlugin(read_checkpoint=lambda: checkpoint, find_sockets=frozenset)
        watch = SliceInformer(self.connection, self.name, DRIVER, self.clock)
        slices = WatchedSlices(watch, partial(read_node_slices, self.connection, self.name, DRIVER))
        return DraBackend(policy=self.policy, read_checkpoint=lambda: checkpoint, node=self.name, read_slices=slices.read)

    def object(self, number: int) -> Json:
        """As the API server has it, brought to the policy."""
        counts = {} if self.is_of_dra else {name: str(count) for name, count in self.policy.resources}
        labels = {"example.org/pool": POOL, **desired(self.policy, self.published)}
        labels |= {BACKEND_LABEL: str(self.policy.backend)} if self.is_of_dra else {}
        return laden(number, _PURPOSE, labels, capacity=counts, allocatable=counts)

    def server(self) -> tuple[NodeClient, EventRecorder]:
        """Its part of the API server."""
        place = PodIdentity(node=self.name, namespace=NAMESPACE, pod=f"pod-{self.name}", pod_uid=self.name, pool=POOL)
        events = EventRecorder(self.connection, place, self.clock)
        return NodeClient(self.connection, place, self.clock, events, self.folder), events

    def rest(self) -> Callable[[], None]:
        """`enforce`, as `cli.enforce` puts it together; one look."""
        server, events = self.server()
        followed_node = FollowedNode()
        pods = PodInformer(self.connection, self.name, self.clock)
        adapters = Adapters(
            driver=StillWatched(StillDriver(self.uuid, self.policy)),  # type: ignore[arg-type]
            processes=LinuxProcesses(),
            pods=pods,
            cluster=server,
            folder=self.folder,
            clock=self.clock,
            tenants=TenancyFile(None, NAMESPACE),
            followed_node=followed_node,
            backend=self._backend(),
        )
        config = EnforcerConfig(policy=self.policy, policy_digest="none", node=self.name)
        enforcer = Enforcer(
            adapters=adapters,
            config=config,
            metrics=EnforcementMetrics(Registry()),
            queue=InlineQueue(),
            mps_queue=InlineQueue(),
        )
        monitor = NodeMonitor(
            enforcer=enforcer,
            cluster=server,
            labels=desired(self.policy, self.published),
            boot_id="none",
            plan=lambda surveys: build_view(surveys, self.policy, allocated=frozenset(), pending_modes={}).plan,
        )
        followed_node.node = NodeInformer(self.connection, self.name, self.clock, monitor.trigger)
        looks = Loop(enforcer=enforcer, monitor=monitor, clock=self.clock)
        pods.start()
        followed_node.node.start()

        def look() -> None:
            looks.step()
            events.deliver()

        return look

    def queue(self, text: str) -> None:
        """The init container under another policy, until all are asked to end."""
        server, _ = self.server()
        policy = read(text)
        deps = Dependencies(
            open_hardware=lambda digest: Hardware(
                open_driver=lambda: StillDriver(self.uuid, policy),  # type: ignore[arg-type,return-value]
                folder=self.folder,
                clock=self.clock,
                policy_digest=digest,
                machine=MACHINE,
            ),
            cluster=server,
            folder=self.folder,
            clock=self.clock,
            report=lambda _: None,
            boot_id=MACHINE.boot_id,
            backend=self._backend(),
            open_enforcer=lambda _: self,
        )
        PodInformer(self.connection, self.name, self.clock).start()
        self.clock.sleep(random.uniform(0.0, _ARRIVAL_SECONDS))
        reconcile(deps, DesiredPolicy(policy=policy, text=text), hold=True)

    def cycle(self) -> None:
        """The former policy stays enforced while it waits, which asks the API server for nothing but the pods."""

    def close(self) -> None:
        """Nothing is held."""


@dataclass(kw_only=True)
class NodeCrowd:
    """All nodes, and who works beside them."""

    nodes: list[Node]
    address: ApiEndpoint
    clock: FastTime
    traffic: Traffic

    @contextmanager
    def sliced(self) -> Iterator[None]:
        """While each node of a pool of the DRA driver has its slice."""
        driver, nodes = DriverPods(self.address, NAMESPACE), [one for one in self.nodes if one.is_of_dra]
        for node in nodes:
            driver.publish(node.name, node.uuid, node.policy, Division())
        try:
            yield
        finally:
            for node in nodes:
                driver.withdraw(node.name)

    def measure(self, seconds: float) -> dict[str, Any]:
        """What is asked from now on, a node and second. Bookmarks come by the server's clock."""
        self.traffic.take()
        self._late.clear()
        begun, real = self.clock.now(), time.monotonic()
        self.clock.sleep(seconds)
        node_seconds = (self.clock.now() - begun) * len(self.nodes)
        return self._figures(self.traffic.take(), node_seconds, (time.monotonic() - real) * len(self.nodes))

    def _figures(self, taken: Traffic, node_seconds: float, real: float) -> dict[str, Any]:
        return {
            "requests": taken.requests.total() / node_seconds,
            "events": taken.events / node_seconds,
            "bookmarks": taken.bookmarks / real,
            "bytes": taken.received / node_seconds,
            # How far the machine falls behind the time that is simulated: what is late is asked less often.
            "late": sum(self._late) / max(1, len(self._late)),
            "kinds": taken.kinds(node_seconds),
        }

    def rest(self) -> dict[str, Any]:
        """All enforce; kubelets write."""
        looks = [node.rest() for node in self.nodes]
        random.shuffle(looks)
        kubelets: list[Callable[[], None]] = [partial(self._write_status, node) for node in self.nodes]
        for number in range(_STEPPERS):
            # A cycle between two comparisons of the offer makes no request.
            for jobs, seconds in ((looks, LOOK_SECONDS), (kubelets, _KUBELET_SECONDS)):
                self._start(partial(self._go_round, jobs[number::_STEPPERS], seconds))
        self.clock.sleep(_WARM_SECONDS)
        return self.measure(_REST_SECONDS)

    def restart(self) -> dict[str, Any]:
        """What a restart costs each node until nodes ask as rarely as before, and what was not answered."""
        self.clock.set_speed(1.0)
        self.traffic.take()
        _say({"restart": len(self.nodes)})
        sys.stdin.readline()
        taken, minutes, is_calm = Traffic(), 0, False
        while not is_calm:
            self.clock.sleep(60.0)
            minute = self.traffic.take()
            taken.add(minute)
            minutes += 1
            is_calm = minute.requests.total() <= _CALM_REQUESTS * len(self.nodes)
        each = {"requests": taken.requests.total(), "unanswered": taken.unanswered, "bytes": taken.received}
        return {name: count / len(self.nodes) for name, count in each.items()} | {
            "minutes": minutes,
            "kinds": taken.kinds(len(self.nodes)),
        }

    def queue(self, text: str) -> dict[str, Any]:
        """All wait for a slot, which other nodes hold."""
        for node in self.nodes:
            self._start(partial(node.queue, text))
        self._start(lambda: self._go_round([self._renew], 300.0))
        self._start(lambda: self._go_round([lambda: None], 1.0))
        self.clock.sleep(2 * _ARRIVAL_SECONDS)
        return self.measure(_QUEUE_SECONDS)

    def _go_round(self, jobs: list[Callable[[], None]], seconds: float) -> None:
        """Each once in so many seconds, one after the other; who is late does not stop for it."""
        due = self.clock.now()
        while jobs:
            for job in jobs:
                due += seconds / len(jobs)
                self.clock.sleep(due - self.clock.now())
                self._late.append(max(0.0, self.clock.now() - due))
                job()

    def _write_status(self, node: Node) -> None:
        """Kubelet's own heartbeat; its connection is none of ours."""
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        self._write(
            ApiRequest(
                method="PATCH",
                path=f"{NODES}/{node.name}/status",
                body={"status": {"conditions": [ready]}},
                content_type=STRATEGIC_PATCH,
            )
        )

    def _renew(self) -> None:
        """Other nodes have all slots, and are not done."""
        for slot in range(max(1, (len(self.nodes) + 1) // 10)):
            now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
            spec = {"holderIdentity": f"laden-{len(self.nodes):05}", "renewTime": now}
            name = f"gpushare-{POOL}.{slot}"
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
            path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{name}"
            query = {"fieldManager": "simulation", "force": "true"}
            self._write(ApiRequest(method="PATCH", path=path, query=query, body=body, content_type=APPLY_PATCH))

    def _write(self, request: ApiRequest) -> None:
        try:
            self._plain.ask(request)
        except ClusterError as error:
            print(f"simulated: {error}", file=sys.stderr)

    def __post_init__(self) -> None:
        self._plain = Connection(self.address, SystemClock())
        self._late: list[float] = []

    def _start(self, job: Callable[[], None]) -> None:
        def run() -> None:
            try:
                job()
            except Stopped:
                return

        threading.Thread(target=run, daemon=True).start()


@contextmanager
def many_nodes(chosen: argparse.Namespace, text: str, address: ApiEndpoint, scratch: Path) -> Iterator[NodeCrowd]:
    """The nodes under that policy, until what is measured is measured."""
    clock, traffic, policy = FastTime(chosen.speed), Traffic(), read(text)
    nodes = []
    for number in range(chosen.nodes):
        folder, connection = StateDir(scratch / str(number)), Observed(address, clock, traffic)
        node = Node(name=f"laden-{number:05}", folder=folder, clock=clock, connection=connection, policy=policy)
        with folder.lock():
            folder.keep_policy(text)
            folder.keep_profile(node.published.key, node.published.devices)
        nodes.append(node)
    try:
        yield NodeCrowd(nodes=nodes, address=address, clock=clock, traffic=traffic)
    finally:
        clock.stop()


def _say(document: object) -> None:
    print(json.dumps(document), flush=True)


def main() -> None:
    """Measure one state, and the restart after `rest`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("state", choices=("rest", "queue"))
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--speed", type=float, required=True)
    parser.add_argument("bundles", nargs=2, type=Path)
    chosen = parser.parse_args()
    address = shared_endpoint()
    former, new = (_policy(bundle) for bundle in chosen.bundles)
    connection = Connection(address, SystemClock())
    with tempfile.TemporaryDirectory() as scratch, many_nodes(chosen, former, address, Path(scratch)) as nodes:
        objects = [one.object(number) for number, one in enumerate(nodes.nodes)]
        objects.append(laden(chosen.nodes, _PURPOSE, objects[0]["metadata"]["labels"]))
        with standing(connection, _PURPOSE, objects):
            await_daemonset(connection, len(objects))
            with nodes.sliced():
                if chosen.state == "rest":
                    _say({"rest": nodes.rest()})
                    _say({"restarted": nodes.restart()})
                else:
                    _say({"queue": nodes.queue(new)})
                nodes.clock.stop()


def _policy(bundle: Path) -> str:
    [path] = (bundle / "chart" / "files" / "policies").glob("*.yaml")
    return path.read_text()


if __name__ == "__main__":
    main()
    # Threads wait for the API server in watches.
    os._exit(0)
