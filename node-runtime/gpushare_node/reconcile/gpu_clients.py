"""gpu-operator's GPU clients on the node: which labels pause them, and back; and which of their pods still run. Pure.

A label under nvidia.com/gpu.deploy.* that is not "true" sends the client's pod away. The value is mig-manager's own word, so
gpu-operator knows it. Labels that are "false" or absent are an administrator's choice: untouched.
"""

from collections.abc import Iterable, Mapping

from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.core.policy import Policy, Stack
from gpushare_node.partition.operations import CreateInstance
from gpushare_node.partition.plan import PartitionPlan

PAUSED = "paused-for-mig-change"

_RUNNING = "true"
_DEPLOY = "nvidia.com/gpu.deploy."
_LABELS = tuple(_DEPLOY + client for client in ("device-plugin", "gpu-feature-discovery", "dcgm", "dcgm-exporter", "nvsm"))
_APPS = frozenset({
    "nvidia-device-plugin-daemonset", "nvidia-device-plugin-mps-control-daemon", "gpu-feature-discovery", "nvidia-dcgm",
    "nvidia-dcgm-exporter",
})
_MIG_MANAGER = "nvidia-mig-manager"


def must_pause(policy: Policy, plan: PartitionPlan) -> bool:
    """Whether clients must close the GPU: something is destroyed or a mode is changed, and gpu-operator runs them."""
    destructive = any(not isinstance(one, CreateInstance) for one in plan.operations)
    return policy.stack is Stack.GPU_OPERATOR and destructive


def to_pause(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels to be paused, with their values now: what is to be written down before the first is touched."""
    return {name: labels[name] for name in _LABELS if labels.get(name) == _RUNNING}


def to_restore(labels: Mapping[str, str], paused: Mapping[str, str]) -> dict[str, str]:
    """The labels to be written back: those that still say "paused". What somebody has changed since is theirs.

    A label that says so with nothing written down is a pause of ours whose note is lost, for nobody else pauses where no
    mig-manager runs; its value was the only one that is ever paused.
    """
    return {name: paused.get(name, _RUNNING) for name in _LABELS if labels.get(name) == PAUSED}


def running(pods: Iterable[PodView]) -> tuple[str, ...]:
    """The clients' pods that are still on the node, for people."""
    return tuple(f"{pod.namespace}/{pod.name}" for pod in pods if pod.labels.get("app") in _APPS and not pod.has_ended)


def mig_managers(pods: Iterable[PodView]) -> tuple[str, ...]:
    """The pods of mig-manager that are on the node, for people. Only they count: the operator sets `mig.config` itself."""
    return tuple(f"{pod.namespace}/{pod.name}" for pod in pods if pod.labels.get("app") == _MIG_MANAGER and not pod.has_ended)
