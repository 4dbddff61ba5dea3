"""A double of the API server over real HTTP/1.1 on 127.0.0.1: what the node's runtime asks of one, with what can go wrong.

Nodes, pods, events, leases, daemonsets, configmaps, quotas and secrets;
get, list, watch (bookmarks, 410), create, put, all kinds of patches, delete, evict.
Faults by request line: statuses, silence, answers that get lost, a server that is down.
"""

import copy
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from tests.support.fake_api.listener import Listener
from tests.support.fake_api.patches import apply, merge, own
from tests.support.fake_api.store import Object, Store

HOUR = 3600.0


@dataclass(kw_only=True)
class Fault:
    """What happens to requests whose line has `match` in it, `times` times (-1: always), after `after` that go well."""

    match: str
    times: int
    after: int = 0
    status: int | None = None
    retry_after: int | None = None
    seconds: float = 0.0
    lose: str = ""
    garbage: bytes | None = None
    act: Callable[[], object] | None = None


@dataclass(kw_only=True)
class ApiServer:
    """The double. `token`: what every request must bear, if any. `eviction_budget`: evictions that the budget still allows."""

    token: str | None = None
    eviction_budget: int = 1_000_000
    lingers: bool = False
    """Deleted pods and daemonsets stay, terminating, until `remove`."""
    gone_by_event: bool = True
    """410 comes as an ERROR event on a watch that began well, as the watch cache sends it; else as the answer's status."""
    certificate: tuple[Path, Path] | None = None
    """Certificate and key: TLS."""
    store: Store = field(default_factory=Store)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """(method, path without query), in the order of their arrival."""
    lines: list[str] = field(default_factory=list)
    """`METHOD path?query`, for what `requests` leaves out."""
    bodies: list[Any] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    """In which form each answer is wanted: the header Accept."""

    allows: Callable[[str, str], bool] | None = None
    """Whether the caller may do this: (method, path with query). None: everything."""
    proxied: dict[str, bytes] = field(default_factory=dict)
    """What pods answer through the server's proxy, by path."""

    connections: int = 0
    """How many have been opened."""

    def __post_init__(self) -> None:
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self._faults: list[Fault] = []
        self._port = 0
        self._listener: Listener | None = None

    # Start and stop.

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self._port}"

    def up(self) -> None:
        """Listen; at the former port, after `down`."""
        if self._listener is None:
            self.stopping.clear()
            self._listener = Listener(self, self._port)
            self._port = self._listener.server_address[1]

    def down(self) -> None:
        """Refuse connections and cut those that are open. The objects stay."""
        if self._listener is not None:
            self.stopping.set()
            with self.store.changed:
                self.store.changed.notify_all()
            self._listener.end()
            self._listener = None

    def cut(self) -> None:
        """Cut all open connections, watches too, and go on listening."""
        if self._listener is not None:
            self._listener.cut()

    def kubeconfig(self, path: Path) -> dict[str, str]:
        """Write a kubeconfig for this server; the environment that names it."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": {"token": self.token} if self.token else {}}],
        }
        path.write_text(json.dumps(config))
        return {"KUBECONFIG": str(path)}

    # Faults.

    def fail(self, match: str, status: int, times: int = -1, *, retry_after: int | None = None, after: int = 0) -> None:
        """Answer with this status. `match` is a part of `METHOD path?query`."""
        self._faults.append(Fault(match=match, status=status, times=times, retry_after=retry_after, after=after))

    def hang(self, match: str, seconds: float = HOUR, times: int = -1) -> None:
        """Be silent for so long, then do it."""
        self._faults.append(Fault(match=match, seconds=seconds, times=times))

    def lose(self, match: str, times: int = 1, *, what: str = "answer") -> None:
        """Cut the connection: what="request" before anything is done, "answer" when it is done already."""
        self._faults.append(Fault(match=match, times=times, lose=what))

    def garble(self, match: str, garbage: bytes, times: int = -1, *, status: int = 200) -> None:
        """Answer with these bytes."""
        self._faults.append(Fault(match=match, times=times, garbage=garbage, status=status))

    def before(self, match: str, act: Callable[..., object], times: int = 1) -> None:
        """Let somebody else do something right before such a request is done."""
        self._faults.append(Fault(match=match, times=times, act=act))

    def heal(self) -> None:
        """No faults."""
        with self.lock:
            self._faults.clear()

    def fault(self, line: str) -> Fault | None:
        """The fault that this request meets; counts it."""
        with self.lock:
            for fault in self._faults:
                if fault.match not in line or fault.times == 0:
                    continue
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.times -= 1
                return fault
            return None

    # What was asked.

    def note(self, line: str, body: Any) -> None:
        with self.lock:
            method, _, target = line.partition(" ")
            self.requests.append((method, target.partition("?")[0]))
            self.lines.append(line)
            self.bodies.append(body)

    def writes(self, part: str = "") -> list[tuple[str, str]]:
        """The requests that change something and have this in their path."""
        with self.lock:
            return [(method, path) for method, path in self.requests if method != "GET" and part in path]

    def forget_requests(self) -> None:
        with self.lock:
            self.requests.clear()
            self.lines.clear()
            self.bodies.clear()

    # Objects.

    def add(self, plural: str, name: str, thing: Object, *, namespace: str = "") -> Object:
        return self.store.create((plural, namespace, name), thing)

    def get(self, plural: str, name: str, *, namespace: str = "") -> Object:
        """As it is now; Refusal(404) if it is not."""
        return self.store.find((plural, namespace, name))

    def all(self, plural: str, *, namespace: str = "") -> list[Object]:
        return self.store.select(plural, namespace, lambda _: True)[0]

    def edit(self, plural: str, name: str, change: Callable[[Object], object], *, namespace: str = "") -> Object:
        """Change an object in place, as somebody else's write; owners are not kept up to date."""

        def changed(thing: Object) -> Object:
            change(thing)
            return thing

        return self.store.change((plural, namespace, name), changed)

    def patch(self, plural: str, name: str, body: Object, *, manager: str, namespace: str = "") -> Object:
        """Merge patch, as this manager."""
        return self.store.change((plural, namespace, name), lambda before: own(before, merge(before, body), manager))

    def apply(self, plural: str, name: str, body: Object, *, manager: str, namespace: str = "") -> Object:
        """Apply by force, as this manager."""
        return self.store.change((plural, namespace, name), lambda before: apply(before, body, manager, force=True))

    def remove(self, plural: str, name: str, *, namespace: str = "") -> None:
        self.store.drop((plural, namespace, name))

    def add_event(self, kind: str, name: str, reason: str, message: str, *, namespace: str, **more: object) -> None:
        """An Event on an object of the namespace, or in the namespace `default` on a Node."""
        about = {"kind": kind, "name": name} | ({} if kind == "Node" else {"namespace": namespace})
        event = {"involvedObject": about, "reason": reason, "message": message, **more}
        self.add("events", f"{name}.{reason.lower()}", event, namespace=namespace)

    def add_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        taints: list[dict[str, str]] | None = None,
        allocatable: Mapping[str, object] | None = None,
    ) -> Object:
        offers = {key: str(value) for key, value in {"cpu": 64, **(allocatable or {})}.items()}
        conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]
        return self.add(
            "nodes",
            name,
            {
                "metadata": {
                    "labels": {"kubernetes.io/hostname": name, **(labels or {})},
                    "annotations": dict(annotations or {}),
                },
                "spec": {"taints": taints} if taints else {},
                "status": {"allocatable": offers, "capacity": dict(offers), "conditions": conditions},
            },
        )

    def node(self, name: str) -> Object:
        return self.get("nodes", name)

    def condition(self, node: str, kind: str = "GPUShareReady") -> Object | None:
        """The node's condition of this type."""
        return next((one for one in self.node(node)["status"]["conditions"] if one["type"] == kind), None)

    def add_pod(
        self,
        name: str,
        *,
        namespace: str = "default",
        node: str = "",
        containers: Mapping[str, str] | None = None,
        phase: str = "Running",
        owner: Mapping[str, Any] | None = None,
        limits: Mapping[str, object] | None = None,
        **more: Any,
    ) -> Object:
        """A pod. `containers`: runtime's ids by container name. `more`: labels, annotations, uid, priority_class."""
        ids = dict(containers if containers is not None else {"main": f"containerd://{name:0>64.64}"})
        metadata: Object = {key: more[key] for key in ("labels", "annotations", "uid") if key in more}
        if owner:
            metadata["ownerReferences"] = [dict(owner)]
        spec: Object = {
            "nodeName": node,
            "containers": [
                {"name": device_id, "resources": {"limits": {key: str(value) for key, value in (limits or {}).items()}}}
                for device_id in ids
            ],
        }
        if "priority_class" in more:
            spec["priorityClassName"] = more["priority_class"]
        # Younger than any cap, by less than would be a wrong clock: what ran before one is exempt from it.
        started = datetime.now(UTC) + timedelta(minutes=20)
        state = {"running": {"startedAt": started.isoformat(timespec="seconds").replace("+00:00", "Z")}}
        statuses = [{"name": one, "containerID": identity, "state": state} for one, identity in ids.items()]
        status: Object = {"phase": phase, "containerStatuses": statuses}
        if phase == "Pending" and not node:
            # As kube-scheduler 1.36 writes it, in short; kubelet has not seen the pod.
            why = {"reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient resources."}
            status = {"phase": phase, "conditions": [{"type": "PodScheduled", "status": "False", **why}]}
        return self.add("pods", name, {"metadata": metadata, "spec": spec, "status": status}, namespace=namespace)

    def add_daemon_pod(self, name: str, daemonset: str, **more: Any) -> Object:
        """A pod as the controller of DaemonSets makes it; the rest as `add_pod`."""
        kind = {"apiVersion": "apps/v1", "kind": "DaemonSet"}
        owner = {**kind, "name": daemonset, "uid": f"uid-of-{daemonset}", "controller": True, "blockOwnerDeletion": True}
        return self.add_pod(name, owner=owner, **more)

    def asking(self) -> str:
        """The uninstall Job's pod, which runs; what it asks nodes by."""
        name, uid = "gpushare-uninstall-x", "uid-of-the-job"
        if all(pod["metadata"]["name"] != name for pod in self.all("pods", namespace="gpushare")):
            self.add_pod(name, namespace="gpushare", uid=uid)
        return f"{name}/{uid}"

    def add_daemonset(
        self,
        name: str,
        *,
        namespace: str = "gpushare",
        terms: list[Any] | None = None,
        desired: int = 1,
        labels: Mapping[str, str] | None = None,
        policy: str = "",
    ) -> Object:
        """A DaemonSet with these node selector terms (None: it selects all nodes), whose pods have this policy."""
        template: Object = {"metadata": {"labels": {}}, "spec": {}}
        if policy:
            template["metadata"]["annotations"] = {"gpushare.dev/policy": policy}
        if terms is not None:
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": copy.deepcopy(terms)}}
            template["spec"]["affinity"] = {"nodeAffinity": required}
        return self.add(
            "daemonsets",
            name,
            {
                "metadata": {"labels": dict(labels or {})},
                "spec": {"template": template},
                "status": {"desiredNumberScheduled": desired},
            },
            namespace=namespace,
        )

    def events(self, namespace: str = "") -> list[Object]:
        return self.all("events", namespace=namespace)

    def leases(self, namespace: str = "") -> list[Object]:
        return self.all("leases", namespace=namespace)

    def forget(self) -> None:
        """Compact the history, and tell the open watches so: 410."""
        self.store.forget()

    def bookmark(self) -> None:
        self.store.bookmark()
