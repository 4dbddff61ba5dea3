"""What the pods of NVIDIA's device plugin on the node say about an offer that is missing. Pure."""

from collections.abc import Iterable

from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.core.policy import Stack
from gpushare_node.reporting.wording import join_first

_APP, _NAME = "app", "app.kubernetes.io/name"
_PLUGINS = frozenset({"nvidia-device-plugin-daemonset", "nvidia-device-plugin"})
"""`app` of gpu-operator's DaemonSet, `app.kubernetes.io/name` of the plugin's own chart."""
_PROFILES = "gpushare-profiles"
_MAX_NAMED = 3


def explain(pods: Iterable[PodView], stack: Stack) -> str:
    """Return a clause on the plugin's pods, to follow a message; empty if nothing is known to be wrong with them.

    A plugin of the stack `existing` may have any labels, so that none is missed.
    """
    found = [pod for pod in pods if not _PLUGINS.isdisjoint({pod.labels.get(_APP), pod.labels.get(_NAME)})]
    if not found:
        return "" if stack is Stack.EXISTING else "; the device plugin has no pod on the node"
    waiting = [pod for pod in found if pod.phase == "Pending"]
    if not waiting:
        return ""
    names = join_first([f"{pod.namespace}/{pod.name}" for pod in waiting], _MAX_NAMED)
    spaces = join_first(sorted({pod.namespace for pod in waiting}), _MAX_NAMED)
    return f"; {names} has not started: it needs the ConfigMap {_PROFILES} in its namespace, {spaces}"
