"""What the pods of the device plugin on the node say about an offer that is missing. Pure."""

from collections.abc import Iterable

from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.contract.policy import Policy, Stack
from gpushare_node.reporting.outcome import join_first
from gpushare_node.vendors import of

_APP, _NAME = "app", "app.kubernetes.io/name"
_PROFILES = "gpushare-profiles"
_OURS, _PLUGIN = "gpushare-", "-device-plugin"
_MAX_NAMED = 3


def explain(pods: Iterable[PodView], policy: Policy) -> str:
    """Return a clause on the plugin's pods, to follow a message; empty if nothing is known to be wrong with them.

    A plugin of the stack `existing` may have any labels, so that none is missed.
    """
    vendor = of(policy.vendor)
    if vendor.restarted:
        found = [pod for pod in restartable(pods, policy) if pod.controller.endswith(_PLUGIN)]
    else:
        found = [pod for pod in pods if not vendor.plugin_apps.isdisjoint({pod.labels.get(_APP), pod.labels.get(_NAME)})]
    if not found:
        return "" if policy.stack in (Stack.EXISTING, Stack.AMD_DEVICE_PLUGIN) else "; the device plugin has no pod on the node"
    waiting = [pod for pod in found if pod.phase == "Pending"]
    if not waiting:
        return ""
    names = join_first([f"{pod.namespace}/{pod.name}" for pod in waiting], _MAX_NAMED)
    if not vendor.plugin_label:
        return f"; {names} has not started"
    spaces = join_first(sorted({pod.namespace for pod in waiting}), _MAX_NAMED)
    return f"; {names} has not started: it needs the ConfigMap {_PROFILES} in its namespace, {spaces}"


def restartable(pods: Iterable[PodView], policy: Policy) -> tuple[PodView, ...]:
    """Return the pods of the bundle's device plugin that read the GPUs once, when they start. One that is ending is none.

    Of the pods that AMD's operator makes of a DeviceConfig, only device plugin and labeller have no name of a program.
    """
    label = of(policy.vendor).restarted
    if not label:
        return ()
    return tuple(
        pod
        for pod in pods
        if pod.labels.get(label, "").startswith(_OURS) and _NAME not in pod.labels and not pod.is_terminating
    )
