"""A pool changes its back end, and back, under a Deployment whose manifest stays the same; the runtime is killed amid it."""

import itertools
import shlex
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.cluster.cluster_fixture import A100, COURSE, ClusterFixture
from tests.e2e.cluster.dra.agents import BACK_END, Agents, dra_intent, with_agents
from tests.e2e.cluster.images import TENANT
from tests.e2e.cluster.kill_on_write import WriteInterceptor, ambush
from tests.e2e.cluster.machine import MachineError
from tests.e2e.cluster.test_changes import BOTH

GPU = "nvidia.com/gpu"
POOL = "card: a100-sxm4-40gb, sharing: {mode: exclusive}, rollout: {onBusy: evict}"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{COURSE}/deployments/service"


class Witness:
    """Looks at GPUs and offers five times a second, until it is told that the change is over."""

    def __init__(self, cluster_fixture: ClusterFixture, agents: Agents) -> None:
        self._fixture, self._agents = cluster_fixture, agents
        self.faults: list[str] = []
        self.seconds: dict[str, float] = {}
        """How long each node had a taint."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            self._thread.join()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._is_over.wait(0.2):
            with suppress(MachineError):
                now = time.monotonic()
                self._look(now - last)
                last = now

    def _look(self, since: float) -> None:
        states = self._fixture.states()
        for name in BOTH:
            shared = {uuid: count for uuid, count in Counter(self._users(name)).items() if count > 1}
            if shared:
                self.faults.append(f"{name}: several pods on {shared}")
            if states[name]["spec"].get("taints"):
                self.seconds[name] = self.seconds.get(name, 0) + since
            if self._agents.slices(name) and self._fixture.offer(name):
                self.faults.append(f"{name}: both back ends offer its GPUs")
        available = self._fixture.cluster.read(DEPLOYMENT)["status"].get("availableReplicas", 0)
        if available < 1:
            self.faults.append("no pod of the Deployment is available")

    def _users(self, name: str) -> Iterator[str]:
        """The GPU of each living process of a tenant."""
        for pid in self._fixture.node(name).processes("/tenant"):
            with suppress(OSError):
                variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
                yield from (one.partition("=")[2] for one in variables if one.startswith("NVIDIA_VISIBLE_DEVICES="))


@pytest.fixture(scope="module")
def agents(cluster_fixture: ClusterFixture) -> Iterator[Agents]:
    """Both nodes in one pool of whole GPUs of the device plugin, two of which a Deployment has."""
    for node in BOTH:
        cluster_fixture.equip(node, A100)
    with with_agents(cluster_fixture) as made:
        cluster_fixture.choose(node_1="cards", node_2="cards")
        change(cluster_fixture, made, "device-plugin")
        deploy(cluster_fixture)
        try:
            yield made
        finally:
            cluster_fixture.cluster.kubectl("delete", "deployment,poddisruptionbudget", "service", "--namespace", COURSE)


def deploy(cluster_fixture: ClusterFixture) -> None:
    """Two pods, of which one may be away at a time."""
    labels = {"app": "service"}
    container = {
        "name": "work",
        "image": TENANT,
        "imagePullPolicy": "Never",
        "args": ["--mib", "30000"],
        "resources": {"limits": {GPU: 1}},
    }
    spec = {"containers": [container], "runtimeClassName": "nvidia", "terminationGracePeriodSeconds": 1}
    metadata = {"name": "service", "namespace": COURSE}
    template = {"metadata": {"labels": labels}, "spec": spec}
    selector = {"matchLabels": labels}
    cluster_fixture.cluster.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"replicas": 2, "selector": selector, "template": template},
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata,
            "spec": {"maxUnavailable": 1, "selector": selector},
        },
    )
    await_service(cluster_fixture)


def await_service(cluster_fixture: ClusterFixture) -> None:
    cluster_fixture.cluster.wait(
        lambda: cluster_fixture.cluster.read(DEPLOYMENT)["status"].get("availableReplicas") == 2, "both pods are available"
    )


def install(agents: Agents, backend: str) -> None:
    """Pods ask for the GPUs as they do with the plugin."""
    agents.install(dra_intent(backend=backend, cards=POOL + (", requests: limits" if backend == "dra" else "")))


def change(cluster_fixture: ClusterFixture, agents: Agents, backend: str) -> None:
    """Install the pool with this back end, and wait until all nodes have it.

    Where kubelet remembers the plugin, do what the condition says: either node may be the first, and the other waits for it.
    """
    install(agents, backend)

    def is_there(node: str) -> bool:
        told = cluster_fixture.condition(node)
        label = cluster_fixture.labels(node).get(BACK_END, "device-plugin")
        # The condition is there until the node is ready.
        if (backend, label, told.get("reason")) == ("dra", "none", "KubeletRemembersPlugin"):
            forget_plugin(cluster_fixture, node, told["message"])
            return False
        return label == backend and told.get("reason") == "Ready" and not cluster_fixture.taints(node)

    cluster_fixture.cluster.wait(lambda: sum(map(is_there, BOTH)) == len(BOTH), f"the nodes are ready with {backend}")


def forget_plugin(cluster_fixture: ClusterFixture, name: str, message: str) -> None:
    """What the condition asks an administrator for, and nothing else; there is no systemd on these nodes."""
    stop, patch, start = message.split("`")[1::2]
    file = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    assert (stop, start) == (f"systemctl stop kubelet && rm {file}", "systemctl start kubelet")
    node = cluster_fixture.node(name)
    node.stop_kubelet()
    node.path(file).unlink()
    _, *arguments = shlex.split(patch.replace(" NODE ", f" {name} "))
    cluster_fixture.cluster.kubectl(*arguments)
    node.start_kubelet()
    cluster_fixture.cluster.wait(lambda: cluster_fixture.labels(name).get(BACK_END) == "dra", f"{name} goes on")


@pytest.mark.parametrize("backend", ["dra", "device-plugin"])
def test_back_end_changes_under_a_deployment(cluster_fixture: ClusterFixture, agents: Agents, backend: str) -> None:
    """Node by node; no GPU has two pods, none is offered twice, and the Deployment always has a pod."""
    witness = Witness(cluster_fixture, agents)
    with witness.watching():
        change(cluster_fixture, agents, backend)
        await_service(cluster_fixture)
    assert witness.faults == []
    print({name: round(seconds, 1) for name, seconds in witness.seconds.items()})
    for node in BOTH:
        assert bool(agents.slices(node)) == (backend == "dra")
        assert cluster_fixture.offer(node) == ({} if backend == "dra" else {GPU: 2})


@pytest.fixture(scope="module")
def laid(
    agents: Agents, cluster_fixture: ClusterFixture, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WriteInterceptor]:
    """An ambush at the API server."""
    with ambush(cluster_fixture.cluster, tmp_path_factory.mktemp("ambush")) as laid:
        yield laid


WRITES = (("taints", 1), ("labels", 1), ("labels", 2), ("taints", 2))
"""Before the node is out of service, before neither back end may run, before the other one may, before it serves again."""


@pytest.mark.parametrize(
    ("write", "backend"),
    [
        pytest.param(write, backend, id=f"{' '.join(map(str, write))}, to {backend}")
        for write, backend in zip(WRITES, itertools.cycle(("dra", "device-plugin")), strict=False)
    ],
)
def test_runtime_killed_amid_a_change_ends_it(
    cluster_fixture: ClusterFixture, agents: Agents, laid: WriteInterceptor, write: tuple[str, int], backend: str
) -> None:
    witness = Witness(cluster_fixture, agents)
    laid.lay(cluster_fixture.node("node-1"), *write)
    with witness.watching():
        change(cluster_fixture, agents, backend)
        await_service(cluster_fixture)
    assert laid.is_over
    assert witness.faults == []
