"""The whole loop at hand: a cluster with fake GPUs, the release of a bundle on it, and what tests ask of both."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpushare_node.contract import quantity
from tests.e2e.cluster import images
from tests.e2e.cluster.bundles import NAMESPACE, compiled, namespace
from tests.e2e.cluster.cluster import ROOT, Cluster
from tests.e2e.cluster.fake_gpus import Fleet
from tests.e2e.cluster.images import TENANT
from tests.e2e.cluster.machine import PATIENCE, MachineError
from tests.e2e.cluster.node import GPU_CLIENTS, Node
from tests.e2e.cluster.release import KEPT_KINDS, NAME, UNCHECKED, Release
from tests.support import helm
from tests.support.fake_nvml import FakeNvml

POOL = "example.org/pool"
"""The label by which the intents of these tests select nodes."""

COURSE = "course"
CONDITION = "GPUShareReady"
KEPT = "configmap/gpushare-profiles"
"""What outlives the release, because the device plugin's pods mount it."""
NEVER = "86400"
"""Seconds after which a tenant grows unasked: `let_grow` tells it when."""
T4, A100 = ("t4", "t4"), ("a100-sxm4-40gb", "a100-sxm4-40gb")
_GPUS = ("nvidia.com/", "amd.com/")
"""How the resources begin that are of either vendor's plugin."""

Object = dict[str, Any]


def intent(**pools: str) -> str:
    """An intent of these pools, each the text of its fields in YAML's flow style. A pool selects nodes by its name."""
    common = f"nodes: {{matchLabels: {{{POOL}: %s}}}}, gpusPerNode: 2"
    lines = [f"    {name}: {{{common % name}, {fields}}}" for name, fields in pools.items()]
    head = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: tests}\nspec:\n  pools:\n"
    return head + "\n".join(lines) + "\n"


NOTEBOOKS = "card: t4, sharing: {mode: time-slicing, replicas: 4}, enforcement: {grace: 2s}"
TRAINING = "card: a100-sxm4-40gb, sharing: {mode: mig, layout: {1g.5gb: 7}, replicas: {1g.5gb: 2}}, enforcement: {grace: 2s}"
SHARED, SLICE = "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb.shared"


class ClusterFixture:
    """A cluster of nodes with two GPUs each, and one release."""

    def __init__(self, name: str, nodes: int = 2) -> None:
        # No cluster's folder: a name has no dot. By the name it is found again after a killed run.
        self.folder = ROOT / f"{name}.files"
        self.fleet = Fleet(self.folder / "fleet", A100)
        self.cluster = Cluster(name, nodes)
        self.cluster.describe = self.describe
        self.release = Release(self.cluster)
        self.bundle: Path | None = None

    def up(self) -> None:
        """Cluster, images and plugins, from nothing; what a crash left goes first."""
        self.down()
        self.folder.mkdir(parents=True)
        self.cluster.up(self.fleet.driver)
        archives = (images.runtime(self.folder), images.tenant(self.folder))
        for node in self.cluster.nodes:
            for archive in archives:
                node.load(archive)
            self.fleet.start_plugin(self.cluster, node)
        namespace(self.cluster, NAMESPACE, **{"pod-security.kubernetes.io/enforce": "privileged"})
        namespace(self.cluster, COURSE)

    def down(self) -> None:
        """Leave nothing."""
        self.cluster.down()
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def clear(self) -> None:
        """No release, no tenant, no mark on a node, as hard as it takes: what must be left behind is for tests to say."""
        cluster = self.cluster
        cluster.empty(f"/api/v1/namespaces/{COURSE}/pods")
        for fake_nvml in self.fleet.fake_nvml.values():
            fake_nvml.heal()
        # Where Helm keeps what it knows of the release, in either major.
        known = {"labelSelector": f"owner=helm,name={NAME}"}
        if cluster.read(f"/api/v1/namespaces/{NAMESPACE}/secrets", **known)["items"]:
            Release(cluster).helm("uninstall", NAME, "--no-hooks", "--wait", "--timeout", "60s")
        cluster.kubectl("delete", KEPT_KINDS, "--all-namespaces", "--selector", "app.kubernetes.io/name=gpushare")
        cluster.empty(
            *(f"{group}/namespaces/{NAMESPACE}/{plural}" for group, plural in (("/apis/batch/v1", "jobs"), ("/api/v1", "pods")))
        )
        # Not before: a runtime that ends may still take its slot again.
        cluster.empty(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")
        for node in cluster.nodes:
            self._clear_node(node)
        # What is compiled next is of no former generation.
        shutil.rmtree(self.folder / "bundle", ignore_errors=True)

    def _clear_node(self, node: Node) -> None:
        path, metadata = f"/api/v1/nodes/{node.name}", self.state(node.name)["metadata"]
        ours = ("gpushare.dev/", "nvidia.com/", "dcm.amd.com/", POOL)
        marks = {part: metadata.get(part, {}) for part in ("labels", "annotations")}
        gone: Object = {part: {key: None for key in found if key.startswith(ours)} for part, found in marks.items()}
        gone["labels"][GPU_CLIENTS] = "true"
        self.cluster.write("PATCH", path, {"metadata": gone, "spec": {"taints": None}}, "application/merge-patch+json")
        if self.condition(node.name):
            body = {"status": {"conditions": [{"$patch": "delete", "type": CONDITION}]}}
            self.cluster.write("PATCH", f"{path}/status", body, "application/strategic-merge-patch+json")
        folder = node.path("/var/lib/gpushare")
        for file in folder.iterdir() if folder.is_dir() else ():
            file.unlink()

    # --- nodes ---

    def node(self, name: str) -> Node:
        """By name."""
        return next(node for node in self.cluster.nodes if node.name == name)

    def fake_nvml(self, name: str) -> FakeNvml:
        """A node's GPUs."""
        return self.fleet.fake_nvml[name]

    def equip(self, name: str, cards: tuple[str, ...]) -> FakeNvml:
        """Other GPUs, and the plugin anew. The node must not be in use.

        Neither kubelet nor the API server knows the resources of the former GPUs afterwards. By itself kubelet forgets those of
        a plugin that has gone after five minutes, and if it cannot write that at once, the node offers all of them for ever.
        """
        self.withdraw_plugin(name)
        node = self.node(name)
        fake_nvml = self.fleet.equip(node, cards)
        self.fleet.start_plugin(self.cluster, node)
        return fake_nvml

    def withdraw_plugin(self, name: str) -> None:
        """Have the node offer none of its fake GPUs, and kubelet know none."""
        node = self.node(name)
        node.stop_kubelet()
        self.fleet.stop_plugin(node)
        node.path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint").unlink(missing_ok=True)
        former = dict.fromkeys(key for key in self.state(name)["status"].get("capacity", ()) if key.startswith(_GPUS))
        self.cluster.kubectl(
            "patch",
            "node",
            name,
            "--subresource=status",
            "--type=merge",
            "--patch",
            json.dumps({"status": {"capacity": former, "allocatable": former}}),
        )
        node.start_kubelet()

    def reboot(self, name: str) -> None:
        """The node starts again: no process, no GPU instance and nothing of the plugin is left, and the boot is another.

        The machine's own boot id cannot be changed, so what the runtime remembers of the former boot is given another one.
        """
        node = self.node(name)
        node.stop_kubelet()
        self.fleet.stop_plugin(node)
        node.stop_pods()
        self.fake_nvml(name).reboot()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        for file in node.path("/var/lib/gpushare").glob("*.json"):
            file.write_text(file.read_text().replace(boot, "00000000-aaaa-4aaa-8aaa-000000000000"))
        node.start_kubelet()
        self.fleet.start_plugin(self.cluster, node)

    def choose(self, **pools: str | None) -> None:
        """Put nodes into pools: `node_1="notebooks"`; None takes the label away."""
        for name, pool in pools.items():
            label = f"{POOL}-" if pool is None else f"{POOL}={pool}"
            self.cluster.kubectl("label", "node", name.replace("_", "-"), label, "--overwrite")

    def state(self, name: str) -> Object:
        """The node as the API server has it."""
        return dict(self.cluster.read(f"/api/v1/nodes/{name}"))

    def states(self) -> dict[str, Object]:
        """All nodes by name, as the API server has them at one moment."""
        return {str(node["metadata"]["name"]): node for node in self.cluster.read("/api/v1/nodes")["items"]}

    def labels(self, name: str) -> Mapping[str, str]:
        """The node's labels."""
        return dict(self.state(name)["metadata"]["labels"])

    def offer(self, name: str) -> dict[str, int]:
        """The GPU resources of which the node offers any."""
        return offer_of(self.state(name))

    def await_no_former_resources(self, name: str) -> None:
        """Until kubelet has written that the resources of a plugin's former config are gone.

        It does so once, five minutes after they went: what an outage of the API server swallows is offered for ever.
        """

        def is_written() -> bool:
            node = self.state(name)
            return offer_of(node) == _counted(node["status"].get("capacity", {}))

        self.cluster.wait(is_written, f"kubelet has written that former resources of {name} are gone")

    def condition(self, name: str) -> Mapping[str, str]:
        """Our condition of the node; empty if there is none."""
        return _condition(self.state(name))

    def taints(self, name: str) -> set[str]:
        """Keys of the node's taints."""
        return taints_of(self.state(name))

    def await_reason(self, name: str, reason: str, seconds: float = PATIENCE) -> Mapping[str, str]:
        """Until the node's condition has this reason; the condition."""

        def said() -> Mapping[str, str]:
            found = self.condition(name)
            return found if found.get("reason") == reason else {}

        return dict(self.cluster.wait(said, f"{name} says {reason}", seconds))

    def await_offer(self, name: str, pool: str, seconds: float = PATIENCE) -> None:
        """Until the node is of the pool, and ready."""

        def is_there() -> bool:
            state = self.state(name)
            is_of_pool = state["metadata"]["labels"].get("gpushare.dev/pool") == pool
            return is_of_pool and _condition(state).get("reason") == "Ready" and not state["spec"].get("taints")

        self.cluster.wait(is_there, f"{name} is of pool {pool} and ready", seconds)

    def await_policy(self, name: str, pool: str) -> None:
        """Until the node has the pool's policy of the bundle that was compiled last, and is ready."""
        assert self.bundle is not None
        policy = (self.bundle / f"chart/files/policies/{pool}.yaml").read_text()
        file = self.node(name).path("/var/lib/gpushare/policy.json")

        def is_in_force() -> bool:
            return file.is_file() and bool(json.loads(file.read_text())["content"] == policy)

        self.cluster.wait(is_in_force, f"the policy of {pool} is in force on {name}")
        self.await_offer(name, pool)

    def describe(self) -> str:
        """The nodes and the pods on them, a line each; what is wrong where there is no answer."""
        try:
            nodes, pods = (self.cluster.read(f"/api/v1/{kind}")["items"] for kind in ("nodes", "pods"))
        except MachineError as error:
            return str(error)
        return "\n".join([*map(_describe_node, nodes), *map(_describe_pod, pods)])

    def shell(self, command: str, folder: Path = ROOT) -> "subprocess.CompletedProcess[str]":
        """Run a command that names kubectl, as a person does."""
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        if not (programs / "kubectl").exists():
            (programs / "kubectl").symlink_to(helm.kubectl())
        kubeconfig = self.cluster.control_plane.folder / "admin.kubeconfig"
        environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig)}
        line = [str(word) for word in self.cluster.network.command("sh", "-c", command)]
        return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    # --- the release ---

    def compile(self, text: str) -> Path:
        """The intent's bundle, beside the one before: so it knows the former generations."""
        self.bundle = compiled(text, self.folder / "bundle")
        return self.bundle

    def install(self, text: str, *arguments: str) -> None:
        """Compile the intent and install or upgrade to it."""
        self.release.install(self.compile(text), UNCHECKED, *arguments)

    def pod_of(self, node: str) -> Object | None:
        """The runtime's pod on the node: the youngest that is not ending."""
        found = self.runtime_pods(node)
        return found[-1] if found else None

    def runtime_pods(self, node: str) -> list[Object]:
        """All that are not ending, the oldest first."""
        chosen = {"labelSelector": "app.kubernetes.io/component=node", "fieldSelector": f"spec.nodeName={node}"}
        pods = self.cluster.read(f"/api/v1/namespaces/{NAMESPACE}/pods", **chosen)["items"]
        living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return sorted(living, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def is_ready(self, node: str) -> bool:
        """Whether the runtime's pod on the node is Ready."""
        pod = self.pod_of(node)
        conditions = pod["status"].get("conditions", ()) if pod else ()
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def log(self, node: str, container: str = "partition") -> str:
        """What the runtime on the node has printed."""
        pod = self.pod_of(node)
        assert pod is not None
        return self.cluster.kubectl("logs", pod["metadata"]["name"], "--namespace", NAMESPACE, "--container", container)

    def restarts(self, node: str) -> list[int]:
        """How often `partition` and `enforce` of the node's runtime were started again, as kubelet has told so far."""
        pod = self.pod_of(node)
        status = pod["status"] if pod else {}
        return [one["restartCount"] for kind in ("initContainerStatuses", "containerStatuses") for one in status.get(kind, ())]

    def slots(self) -> list[str]:
        """The nodes that have a slot."""
        items = self.cluster.read(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")["items"]
        return [str(one["spec"]["holderIdentity"]) for one in items if "holderIdentity" in one["spec"]]

    # --- tenants ---

    def tenant(self, name: str, node: str, resource: str, *arguments: str, where: str = COURSE, **spec: Any) -> None:
        """A pod with one share of the resource on the node; it holds GPU memory as the arguments say."""
        self.start(name, node, resource, *arguments, where=where, **spec)
        self.await_tenant(name, "ready", where=where)

    def start(self, name: str, node: str, resource: str, *arguments: str, where: str = COURSE, **spec: Any) -> None:
        """The same without waiting for it."""
        container = {
            "name": "work",
            "image": TENANT,
            "imagePullPolicy": "Never",
            "args": [*arguments],
            "resources": {"limits": {resource: 1}},
        }
        pod = {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
            "runtimeClassName": "nvidia",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            **spec,
        }
        self.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": where}, "spec": pod})

    def await_tenant(self, name: str, word: str, where: str = COURSE, seconds: float = PATIENCE) -> None:
        """Until it has said the word, `ready` or `grown`, and kubelet has told that it was started, which may be later."""
        self.cluster.wait(
            lambda: word in self.words(name, where) and self.phase(name, where) != "Pending", f"{name} is {word}", seconds
        )

    def let_grow(self, node: str) -> None:
        """Tell the tenants on the node that are to grow, and wait for it, to do so now."""
        for pid in self.node(node).processes("--grow-after"):
            os.kill(pid, signal.SIGUSR1)

    def words(self, name: str, where: str = COURSE) -> str:
        """What the pod has printed; nothing while it does not run."""
        try:
            text = self.cluster.control_plane.read(f"/api/v1/namespaces/{where}/pods/{name}/log")
        except MachineError:
            return ""
        return (text or b"").decode()

    def phase(self, name: str, where: str = COURSE) -> str:
        """The pod's phase; `Gone` where there is no such pod."""
        pod = self.cluster.read(f"/api/v1/namespaces/{where}/pods/{name}")
        return str(pod["status"].get("phase")) if pod else "Gone"

    def events(self, name: str, where: str = COURSE) -> list[tuple[str, str]]:
        """Reason and message of the Events on the pod (or on a node, whose Events are in `default`)."""
        chosen = {"fieldSelector": f"involvedObject.name={name}"}
        items = self.cluster.read(f"/api/v1/namespaces/{where}/events", **chosen)["items"]
        return [(str(one["reason"]), str(one["message"])) for one in items]

    def dismiss(self, *names: str, where: str = COURSE) -> None:
        """Take the pods away, and wait until they are gone."""
        paths = [f"/api/v1/namespaces/{where}/pods/{name}" for name in names]
        for path in paths:
            self.cluster.write("DELETE", path, gracePeriodSeconds="1")
        for path in paths:
            self.cluster.wait(lambda path=path: self.cluster.read(path) is None, f"{path} is gone")

    # --- what must be left ---

    def await_no_trace(self, *kept: str) -> None:
        """Until nothing else of ours is left. The pods of a hook end after the hook: the garbage collector takes them away."""
        try:
            self.cluster.wait(lambda: self.traces() == [*kept], "nothing else is left")
        except MachineError as error:
            raise MachineError(f"{error}\nleft: {self.traces()}") from error

    def traces(self) -> list[str]:
        """Everything of ours that is still to be found on nodes and in the cluster, in words."""
        found: list[str] = []
        for node in self.cluster.nodes:
            state = self.state(node.name)
            metadata = state["metadata"]
            marks = [*(metadata["labels"].keys() - {GPU_CLIENTS}), *metadata.get("annotations", {})]
            found += [
                f"{node.name}: {name}"
                for name in marks
                if "gpushare" in name or name.startswith(("nvidia.com/", "dcm.amd.com/"))
            ]
            found += [
                f"{node.name}: {one['manager']} owns {one['fieldsV1']}"
                for one in metadata["managedFields"]
                if one["manager"].startswith("gpushare")
            ]
            found += [f"{node.name}: taint {key}" for key in self.taints(node.name) if "gpushare" in key or key == "amd-dcm"]
            found += [f"{node.name}: condition {one['reason']}" for one in [self.condition(node.name)] if one]
            folder = node.path("/var/lib/gpushare")
            found += [f"{node.name}: {path}" for path in (folder.rglob("*") if folder.is_dir() else ())]
            fake_nvml = self.fake_nvml(node.name)
            found += [f"{node.name}: GPU {gpu} has MIG on" for gpu in range(len(self.fleet.cards)) if fake_nvml.mode(gpu)[0]]
        kinds = "daemonsets,pods,configmaps,serviceaccounts,roles,rolebindings,leases,jobs,resourcequotas,networkpolicies"
        wide = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
        for where in (("--all-namespaces", kinds), (wide,)):
            names = self.cluster.kubectl("get", *where, "--output", "name").split()
            found += [name for name in names if "gpushare" in name]
        return found


def _condition(node: Object) -> dict[str, str]:
    return next((one for one in node["status"].get("conditions", ()) if one["type"] == CONDITION), {})


def taints_of(node: Object) -> set[str]:
    """Keys of its taints."""
    return {taint["key"] for taint in node["spec"].get("taints", ())}


def offer_of(node: Object) -> dict[str, int]:
    """The GPU resources of which it offers any."""
    return _counted(node["status"].get("allocatable", {}))


def _counted(resources: Mapping[str, str]) -> dict[str, int]:
    counts = {key: quantity.whole(count) for key, count in resources.items() if key.startswith(_GPUS)}
    return {key: count for key, count in counts.items() if count}


def _describe_node(node: Object) -> str:
    told, pool = _condition(node), node["metadata"]["labels"].get("gpushare.dev/pool")
    taints = [f"{one['key']}:{one['effect']}" for one in node["spec"].get("taints", ())]
    words = f"{told.get('reason')} since {told.get('lastTransitionTime')} ({told.get('message')})"
    return f"{node['metadata']['name']}: of pool {pool}, {words}, offers {offer_of(node)}, taints {taints}"


def _describe_pod(pod: Object) -> str:
    metadata, status = pod["metadata"], pod["status"]
    untrue = [f"not {one['type']}: {one.get('message', '')}" for one in status.get("conditions", ()) if one["status"] != "True"]
    ends = ["is ending"] if "deletionTimestamp" in metadata else []
    words = [str(status.get("phase")), *ends, *untrue]
    return f"{metadata['namespace']}/{metadata['name']} on {pod['spec'].get('nodeName')}: {', '.join(words)}"
