"""The page docs/rights.md: what pods and tokens of charts may, as Helm renders them; each with why, and the harm of a theft."""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from tests.support import helm

ROOT = Path(__file__).parent.parent
NAMESPACE = "gpu-system"

_POOLS = """
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: rights}
spec:
  pools:
    exclusive: {card: v100-pcie-32gb, nodes: {matchLabels: {pool: a}}, gpusPerNode: 1, sharing: {mode: exclusive}}
    time-slicing: {card: t4, nodes: {matchLabels: {pool: b}}, gpusPerNode: 1, sharing: {mode: time-slicing, replicas: 2}}
    time-slicing-evict: {card: t4, nodes: {matchLabels: {pool: c}}, gpusPerNode: 1,
      sharing: {mode: time-slicing, replicas: 2}, enforcement: {action: evict}}
    mps: {card: l4, nodes: {matchLabels: {pool: d}}, gpusPerNode: 1, sharing: {mode: mps, replicas: 2}}
    mig: {card: a100-sxm4-40gb, nodes: {matchLabels: {pool: e}}, gpusPerNode: 1, sharing: {mode: mig, layout: {1g.5gb: 7}}}
"""
BUNDLES: Mapping[str, str] = {
    "device plugin": _POOLS,
    "observe": _POOLS.replace("spec:\n", "spec:\n  adoption: observe\n", 1),
    "AMD": (ROOT / "examples/19-amd/intent.yaml").read_text(),
    "DRA": (ROOT / "examples/20-dra/intent.yaml").read_text(),
}

WHY = {
    "privileged": (
        "switches MIG and creates instances, or reads AMD's GPUs, whose driver shows them to such containers only",
        "everything on the node",
    ),
    "KILL": ("ends processes of containers over their cap", "end every process of the node"),
    "SYS_PTRACE": (
        "reaches the host's cgroups, with which the kernel ends a whole container, and reads which process has a GPU open",
        "read and write the memory of every process of the node, and its files by /proc/PID/root",
    ),
    "SYS_ADMIN": (
        "the driver lists MIG's processes and puts the compute mode right only with it",
        "mount, enter namespaces, and with the host's process ids leave the container",
    ),
    "/dev/null": ("asks the container runtime for all GPUs", "nothing more than the GPUs"),
    "/var/lib/gpushare": (
        "keeps the journal of changes, and caps for the next pod",
        "make the runtime forget them, and change its next steps",
    ),
    "/var/lib/kubelet": (
        "reads what kubelet's plugins and claims gave to pods; read-only, and `pods/` is covered",
        "read kubelet's configuration and, in `pki/`, its credentials; not the volumes of pods",
    ),
    "/run/nvidia/mps": ("talks to the MPS daemon", "end the work of every MPS client"),
    "/run/nvidia/mps/shm": ("the MPS daemon's shared memory", "read and change what clients share with their server"),
    "/sys": ("reads AMD's GPUs, their partitions and processes; read-only", "read the hardware's state"),
    "nodes": (
        "labels, taints and annotations of its own node; the runtime reads its own node only",
        "read all nodes; take its own node out of its pool, or into another",
    ),
    "nodes/status": ("the condition GPUShareReady of its own node", "say that its node is ready when it is not"),
    "pods": (
        "lists the pods of its own node; deletes its own pod and, where a pool evicts, tenants' pods of its node",
        "list the pods of all nodes; delete tenants' pods of its own node",
    ),
    "pods/eviction": ("asks a pod's budget by a dry run", "learn which budgets allow an eviction"),
    "pods/status": ("says on a pod that it is moved", "make tenants' pods of its own node look moved"),
    "events": ("tells users what happens to their pods", "write false Events in the runtime's name"),
    "daemonsets": ("reads whether its pool still selects the node; the uninstall Job deletes the chart's", "stop the runtime"),
    "daemonsets/status": ("says on which node a policy fails", "report its own node as failing"),
    "leases": ("takes a rollout slot of its own pool", "hold all slots of its own pool, which stops that pool's changes"),
    "resourceslices": ("reads what a DRA driver offers; deletes what a driver has left on its node", "the same"),
    "resourceclaims": ("reads the claims of its node's pods", "read all claims"),
    "deviceclasses": ("reads the classes of its pool", "the same"),
    "resourceclaimtemplates": ("the uninstall Job deletes the chart's", "delete the chart's"),
}
"""Of each capability, folder of the host and resource: why the runtime has it, and what a thief can do with it."""


def page(note: str) -> str:
    """Return the page. KeyError for a right without an entry in WHY."""
    text = (ROOT / "docs/rights.txt").read_text(encoding="utf-8")
    found = {name: list(_rendered(intent)) for name, intent in BUNDLES.items()}
    parts = {"pods": "\n".join(_pods(found)), "why": "\n".join(_why(found)), "rules": "\n".join(_rules(found))}
    return f"{note}\n\n" + re.sub(r"<!-- (pods|why|rules) -->", lambda match: parts[match[1]], text)


def _rendered(intent: str) -> Iterator[dict[str, Any]]:
    compilation = pipeline.compile_intent(intent.encode(), "intent.yaml", lock.EMPTY)
    with tempfile.TemporaryDirectory() as folder:
        for artifact in compilation.artifacts:
            path = Path(folder) / artifact.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(artifact.text, encoding="utf-8")
        command = (str(helm.helm()), "template", "gpushare", f"{folder}/chart", "--namespace", NAMESPACE, "--skip-tests")
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own chart
    yield from (one for one in yaml.safe_load_all(text) if one)


def _containers(objects: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    for one in objects:
        if one["kind"] in {"DaemonSet", "Job"}:
            pod = one["spec"]["template"]["spec"]
            for container in (*pod.get("initContainers", ()), *pod["containers"]):
                yield one["metadata"]["name"], container["name"], container, pod


def _rights(container: dict[str, Any], pod: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the capabilities of a container and the folders of the host that it sees."""
    security = container.get("securityContext", {})
    added = ["privileged"] if security.get("privileged") else security.get("capabilities", {}).get("add", [])
    folders = {one["name"]: one["hostPath"]["path"] for one in pod.get("volumes", ()) if "hostPath" in one}
    return added, [folders[one["name"]] for one in container.get("volumeMounts", ()) if one["name"] in folders]


def _code(words: list[str]) -> str:
    return ", ".join(f"`{one}`" for one in words) or "none"


def _pods(found: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    yield "| bundle | pod | container | user | capabilities | host's process ids | folders of the host |"
    yield "|---|---|---|---|---|---|---|"
    for bundle, objects in found.items():
        for name, container, spec, pod in _containers(objects):
            added, folders = _rights(spec, pod)
            user = {**pod.get("securityContext", {}), **spec.get("securityContext", {})}.get("runAsUser", "image's")
            host = "yes" if pod.get("hostPID") else "no"
            yield f"| {bundle} | `{name}` | `{container}` | {user} | {_code(added)} | {host} | {_code(folders)} |"


def _roles(objects: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, list[str]]]:
    for one in objects:
        if one["kind"] in {"ClusterRole", "Role"}:
            where = one["metadata"].get("namespace", "everywhere")
            for rule in one["rules"]:
                yield from ((one["metadata"]["name"], where, resource, rule["verbs"]) for resource in rule["resources"])


def _rules(found: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    yield "| bundle | account | where | resource | verbs |"
    yield "|---|---|---|---|---|"
    for bundle, objects in found.items():
        for account, where, resource, verbs in _roles(objects):
            yield f"| {bundle} | `{account}` | {where} | `{resource}` | {', '.join(sorted(verbs))} |"


def _why(found: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    used: dict[str, None] = {}
    for objects in found.values():
        for _, _, spec, pod in _containers(objects):
            added, folders = _rights(spec, pod)
            used |= dict.fromkeys((*added, *folders))
        used |= dict.fromkeys(resource for _, _, resource, _ in _roles(objects))
    yield "| right | why | a thief can |"
    yield "|---|---|---|"
    yield from (f"| `{right}` | {WHY[right][0]} | {WHY[right][1]} |" for right in used)
