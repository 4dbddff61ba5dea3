"""What the tests of the API server's side share: a clock that only sleeping moves, and the parts connected to the double."""

import threading
from collections.abc import Callable
from pathlib import Path

from gpushare_node.adapters.kube.connection import Connection, from_kubeconfig, in_cluster
from gpushare_node.adapters.kube.events import EventRecorder
from gpushare_node.adapters.kube.node_client import NodeClient
from gpushare_node.adapters.kube.pod_identity import PodIdentity
from gpushare_node.adapters.kube.rollout_slots import SlotStore
from gpushare_node.core.clock import Clock, Stopped
from tests.support.fake_api.server import ApiServer
from tests.support.waiting import wait_for

LABELS = {"app.kubernetes.io/name": "gpushare", "app.kubernetes.io/component": "node"}
"""Of the runtime's pods and DaemonSets."""


class FakeClock:
    """Time goes by as somebody sleeps, at once. With a limit it stops the sleeper there."""

    def __init__(self, limit_seconds: float = float("inf")) -> None:
        self.seconds = 1000.0
        self.pauses: list[float] = []
        self.on_sleep: Callable[[], object] = lambda: None
        self.is_stopped = threading.Event()
        self._limit = self.seconds + limit_seconds

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        if self.is_stopped.is_set() or self.seconds >= self._limit:
            raise Stopped
        self.pauses.append(seconds)
        self.seconds += seconds
        self.on_sleep()

    def stop(self) -> None:
        self.is_stopped.set()


def place(node: str = "n1", pool: str = "train") -> PodIdentity:
    return PodIdentity(node=node, namespace="gpushare", pod=f"gpushare-{pool}-{node}", pod_uid=f"uid-{node}", pool=pool)


def connect(api: ApiServer, folder: Path, clock: Clock | None = None) -> Connection:
    """As in a pod: by a service account's folder."""
    (folder / "token").write_text(api.token or "token")
    return Connection(in_cluster(api.url, folder), clock or FakeClock())


def by_kubeconfig(api: ApiServer, folder: Path, clock: FakeClock | None = None) -> Connection:
    return Connection(from_kubeconfig(api.kubeconfig(folder / "kubeconfig")["KUBECONFIG"]), clock or FakeClock())


class NoStore:
    """For what acquires no slot, or forgets it with its program."""

    def slot(self) -> None:
        return None

    def keep_slot(self, name: str | None) -> None:
        pass


def server(
    api: ApiServer, folder: Path, clock: FakeClock | None = None, *, node: str = "n1", store: SlotStore | None = None
) -> NodeClient:
    clock = clock or FakeClock()
    connection = connect(api, folder, clock)
    return NodeClient(connection, place(node), clock, EventRecorder(connection, place(node), clock), store or NoStore())


def await_that(holds: Callable[[], bool]) -> None:
    """Wait, in real time, for what another thread is about to do."""
    wait_for(holds)


def add_runtimes(api: ApiServer, *nodes: str) -> None:
    """The DaemonSet of the pool `train`, with these nodes and a runtime on each."""
    owner = api.add_daemonset("gpushare-train", labels=LABELS)["metadata"]["uid"]
    for name in nodes:
        api.add_node(name, labels={"gpushare.dev/pool": "train"})
        api.add_pod(
            f"gpushare-train-{name}",
            namespace="gpushare",
            node=name,
            labels=LABELS,
            owner={"kind": "DaemonSet", "name": "gpushare-train", "uid": owner, "controller": True},
        )
