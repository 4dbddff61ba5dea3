"""The speed of the loop on a real cluster: from a changed intent to the new allocatable, in its parts.

Ours are the runtime's start, its change of the hardware and its labels; the controller's the new pod; kubelet's that pod's
start and the node's status, which it writes every second here and every ten by default; the plugin's the registration.
"""

import re
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.bench.history import Line, tell
from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster_fixture import CONDITION, ClusterFixture, intent
from tests.support import helm

ROUNDS = 5
BY_HAND = "1 to 2 minutes are reported for relabelling by hand"
_LAYOUTS = ("{1g.5gb: 7}", "{2g.10gb: 3}")
_STATUS = '.status.conditions[?(@.type=="' + CONDITION + '")].status'
_NODE = r"{.metadata.labels.nvidia\.com/device-plugin\.config} {.status.allocatable} {" + _STATUS + r'}{"\n"}'
_POD = '{.metadata.uid} {.metadata.deletionTimestamp} {.status.initContainerStatuses[0].state}{"\\n"}'


@dataclass(frozen=True, kw_only=True)
class Times:
    """When things were seen, in seconds after `helm upgrade` was begun."""

    upgraded: float
    created: float
    started: float
    labelled: float
    offered: float
    ready: float


class Watch:
    """Lines of a `kubectl get --watch`, each with the time of its arrival."""

    def __init__(self, cluster_fixture: ClusterFixture, *arguments: str) -> None:
        kubeconfig = cluster_fixture.cluster.control_plane.folder / "admin.kubeconfig"
        command = cluster_fixture.cluster.network.command(
            helm.kubectl(), "--kubeconfig", kubeconfig, "get", *arguments, "--watch"
        )
        self._process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)
        self.lines: list[tuple[float, str]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append((time.monotonic(), line.strip()))

    def first(self, since: float, holds: Callable[[str], bool], seconds: float = 90) -> float:
        """When the first line came for which it holds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for at, line in list(self.lines):
                if at >= since and holds(line):
                    return at
            time.sleep(0.01)
        raise TimeoutError(f"nothing came: {self.lines[-3:]}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def change(cluster_fixture: ClusterFixture, node: Watch, pods: Watch, layout: str) -> Times:
    """One change of the layout, watched."""
    cluster_fixture.compile(pool(layout))
    assert cluster_fixture.bundle is not None
    profile = layout.strip("{}").split(":")[0]
    uid = next(line.split()[0] for _, line in reversed(pods.lines))
    label = node.lines[-1][1].split()[0]
    begun = time.monotonic()
    cluster_fixture.release.install(cluster_fixture.bundle)
    upgraded = time.monotonic()
    created = pods.first(begun, lambda line: line.split()[0] != uid)
    started = pods.first(created, lambda line: line.split()[0] != uid and '"running"' in line)
    labelled = node.first(begun, lambda line: line.split()[0] != label)
    offer = re.compile(rf'"nvidia.com/mig-{profile}":"[1-9]')
    offered = node.first(labelled, lambda line: offer.search(line) is not None)
    ready = node.first(offered, lambda line: line.endswith(" True"))
    times = (upgraded, created, started, labelled, offered, ready)
    return Times(**dict(zip(Times.__dataclass_fields__, (at - begun for at in times), strict=True)))


def pool(layout: str) -> str:
    """The intent."""
    return intent(training=f"card: a100-sxm4-40gb, sharing: {{mode: mig, layout: {layout}}}")


def lines() -> Iterator[Line]:
    """Bring a cluster up, change the layout ROUNDS times; medians."""
    cluster_fixture = ClusterFixture("gpushare-bench")
    try:
        cluster_fixture.up()
        cluster_fixture.choose(node_1="training")
        cluster_fixture.install(pool(_LAYOUTS[1]))
        cluster_fixture.await_offer("node-1", "training")
        cluster_fixture.cluster.wait(lambda: cluster_fixture.is_ready("node-1"), "the runtime is ready")
        node = Watch(cluster_fixture, "node", "node-1", "--output", f"jsonpath={_NODE}")
        pods = Watch(cluster_fixture, "pods", "--namespace", NAMESPACE, "--output", f"jsonpath={_POD}")
        node.first(0, bool)
        pods.first(0, bool)
        seen = []
        for number in range(ROUNDS):
            seen.append(change(cluster_fixture, node, pods, _LAYOUTS[number % 2]))
            cluster_fixture.cluster.wait(lambda: cluster_fixture.is_ready("node-1"), "the runtime is ready")
            time.sleep(1)
        for watch in (node, pods):
            watch.close()
    finally:
        cluster_fixture.down()
    yield from report(seen)


def report(seen: list[Times]) -> Iterator[Line]:
    """The parts, as medians."""
    parts: dict[str, Callable[[Times], float]] = {
        "Helm": lambda one: one.upgraded,
        "DaemonSet controller: the former pod ends, a new one is made": lambda one: max(0.0, one.created - one.upgraded),
        "kubelet: the pod starts": lambda one: one.started - max(one.created, one.upgraded),
        "ours: hardware and labels": lambda one: one.labelled - one.started,
        "plugin and kubelet: the new allocatable": lambda one: one.offered - one.labelled,
        "ours: it is seen and said": lambda one: one.ready - one.offered,
        "intent to allocatable": lambda one: one.offered,
        "ours altogether": lambda one: one.labelled - one.started + one.ready - one.offered,
    }
    yield Line(f"a changed layout of two GPUs on a real node, {len(seen)} times; {BY_HAND}")
    for name, part in parts.items():
        values = sorted(part(one) for one in seen)
        yield Line(f"  {statistics.median(values):6.1f} s  ({values[0]:.1f} to {values[-1]:.1f})  {name}")


if __name__ == "__main__":
    tell(lines())
