"""The recording and alert rules, each with its runbook, from metrics of the runtime, kube-state-metrics and dcgm-exporter.

docs/alerts.md is generated from them. docs/metrics.md has the metrics of the runtime; dcgm-exporter is NVIDIA's. The scrape
configuration, which `render.monitoring` writes, sets the labels `node` and `pool`. Where one ruler evaluates the series of
several clusters, the label `cluster` keeps nodes and pools of equal names apart; elsewhere no series has it.
"""

import math
from collections.abc import Iterable
from typing import Any

from gpushare import vendors
from gpushare.vendors.nvidia import NVIDIA
from gpushare.vendors.vendor import GpuVendor
from gpushare_node.contract import xids
from gpushare_node.contract.reasons import REASONS
from gpushare_node.contract.struct import Struct

NAMESPACE = "gpu-system"
"""The release's namespace in the rules; `groups` replaces it. Other products have DaemonSets whose names begin like ours."""

_HERE = f'namespace="{NAMESPACE}"'
_POOL_PODS = f'{_HERE},daemonset=~"gpushare-.+",daemonset!="gpushare-release"'
OF_A_POOL = f'{_HERE},created_by_kind="DaemonSet",created_by_name=~"gpushare-.+",created_by_name!="gpushare-release"'
_PODS_OF_POOLS = (
    f'max by (cluster, namespace, pod, node) (kube_pod_status_ready{{{_HERE},condition="true"}}'
    f" * on (cluster, namespace, pod) group_left (node) kube_pod_info{{{OF_A_POOL}}})"
)
"""1 for each pod of a pool's DaemonSet that is ready, 0 for the others."""
# A node that has just changed pools has series of both.
_OF_NODES = "topk by (cluster, node) (1, max by (cluster, node, pool) (gpushare_build_info))"
_GPUS = "|".join(vendor.exported for vendor in vendors.VENDORS.values())
"""The resources of every vendor, in kube-state-metrics."""
_OVER_CAP_MINUTES = 10
_XIDS = f'gpushare_xid_total{{xid=~"{"|".join(map(str, xids.FAULTS))}"}}'
"""Faults of the hardware or the driver, without what an application causes and what may be ignored."""
_ENDED = 'gpushare_kills_total{outcome=~"exited|exited_term|exited_kill|stuck|lost"}'
"""Processes that got a signal: not those that were refused to us, or that had ended or were spared before."""
_BLIND = "|".join(word for word, one in REASONS.items() if one.caps_unenforced)
_FENCES = 'policy=~"gpushare-fence.*"'
_DENIALS = f'apiserver_validating_admission_policy_check_total{{{_FENCES},enforcement_action="deny"}}'
_DENIED = f"gpushare_api_denials_total{{{_FENCES}}}"
_GPU_FAULTS = "|".join(word for word, one in REASONS.items() if one.is_gpu_fault)


class Recording(Struct):
    """A recording rule."""

    name: str
    expr: str


class Alert(Struct):
    """An alert. `hold` is how long the expression must be true; `means` and `remedy` are its runbook."""

    name: str
    severity: str
    expr: str
    hold: str
    summary: str
    means: str
    remedy: str


RECORDINGS = (
    Recording(
        # By resource: shares of different sizes do not replace each other. Kubelet keeps those of an earlier layout, as 0.
        name="gpushare:pool_shares:sum",
        # Two kube-state-metrics have each series twice.
        expr="sum by (cluster, pool, resource) ((max by (cluster, node, resource) "
        '(kube_node_status_allocatable{resource=~"' + _GPUS + '"}) > 0)'
        f" * on (cluster, node) group_left (pool) {_OF_NODES})",
    ),
    Recording(
        # Pods that have ended still have requests in kube-state-metrics.
        name="gpushare:pool_shares_requested:sum",
        expr="sum by (cluster, pool, resource) (max by (cluster, namespace, pod, container, node, resource) "
        '(kube_pod_container_resource_requests{resource=~"' + _GPUS + '"})'
        " * on (cluster, namespace, pod) group_left ()"
        ' max by (cluster, namespace, pod) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)'
        f" * on (cluster, node) group_left (pool) {_OF_NODES})"
        " or gpushare:pool_shares:sum * 0",
    ),
    Recording(
        # One series for each pool: a week of every GPU's samples would exceed the limits of a query in a large cluster.
        name="gpushare:pool_gpu_processes:max5m",
        expr="max by (cluster, pool) (max_over_time(gpushare_gpu_processes[5m]))",
    ),
)


def began(metric: str) -> str:
    """Return an expression for the counters of a metric that began in the last 15 minutes: `increase` does not count that.

    The runtime was scraped before, or has itself begun since: otherwise the series is only new to this Prometheus.
    """
    was_there = "gpushare_build_info offset 15m or gpushare_start_time_seconds > time() - 900"
    return f"({metric} unless {metric} offset 15m) > 0 and on (cluster, node) ({was_there})"


def _recent(metric: str) -> str:
    """Return an expression for counters that have grown in the last 15 minutes, or began in them."""
    return f"increase({metric}[15m]) > 0 or ({began(metric)})"


ALERTS = (
    Alert(
        name="GPUShareNodeNotReady",
        severity="warning",
        expr='kube_node_status_condition{condition="GPUShareReady",status="true"} == 0'
        f" and on (cluster, node) kube_pod_info{{{OF_A_POOL}}}"
        ' unless on (cluster, node) gpushare_node_condition{reason="Observing"} == 1',
        hold="30m",
        summary="Node {{ $labels.node }} has not matched its pool's policy for 30 minutes.",
        means="The node condition GPUShareReady is not True. Its reason says whether the node offers no shares, other shares "
        "than the plan says, or the right ones that are not enforced as they should be.",
        remedy="`kubectl describe node NODE` shows the condition's reason and message; reasons.md says what to do for each "
        "reason. `GPUBusy` waits for tenants to end; `WaitingForWindow` and `RolloutPaused` wait as the pool's `rollout` says.",
    ),
    Alert(
        name="GPUShareRolloutStuck",
        severity="warning",
        expr=f"kube_daemonset_status_number_ready{{{_POOL_PODS}}}"
        f" < kube_daemonset_status_desired_number_scheduled{{{_POOL_PODS}}}",
        hold="2h",
        summary="DaemonSet {{ $labels.daemonset }} has had pods that are not ready for two hours.",
        means="At least one node of the pool has not reached its layout, so a change does not end. A pod of the node runtime "
        "is ready only when the node's layout is verified.",
        remedy="`kubectl get pods -A -o wide -l app.kubernetes.io/component=node,gpushare.dev/pool=POOL` shows the pods that "
        "are not ready and their nodes; the condition GPUShareReady of each node says what it waits for. Where tenants hold "
        "GPUs, drain the node or set `rollout.onBusy: evict`.",
    ),
    Alert(
        name="GPUShareMetricsMissing",
        severity="warning",
        expr=f"count by (cluster) ({_PODS_OF_POOLS} == 1 unless on (cluster, node) gpushare_build_info)",
        hold="30m",
        summary="Prometheus does not scrape {{ $value }} pods of the node runtime, which are ready.",
        means="Pods of the node runtime are ready and Prometheus does not scrape all of them, so the alerts that use their "
        "metrics cannot fire for these nodes.",
        remedy="List the namespace of Prometheus in `platform.namespaces`: the NetworkPolicy gpushare-metrics refuses others. "
        "Then check that Prometheus selects the PodMonitor by its labels.",
    ),
    Alert(
        name="GPUShareRuntimeNotReady",
        severity="critical",
        expr=f"{_PODS_OF_POOLS} == 0 and on (cluster, node)"
        ' kube_node_status_condition{condition="GPUShareReady",status="true"} == 1',
        hold="15m",
        summary="Caps are not enforced on node {{ $labels.node }}: pod {{ $labels.pod }} is not ready.",
        means="The node has its layout and its pods use the GPUs, but the pod of the node runtime does not run, or has not "
        "read the GPUs since it started.",
        remedy="`kubectl describe pod` and the log of its container `enforce` say why: an image that cannot be pulled, a "
        "driver that does not answer, or memory that ran out.",
    ),
    Alert(
        name="GPUShareContainerOverCap",
        severity="warning",
        expr="gpushare_container_over_cap == 1",
        hold=f"{_OVER_CAP_MINUTES}m",
        summary="Container {{ $labels.namespace }}/{{ $labels.pod }}/{{ $labels.container }} is still over its memory cap.",
        means="The container uses more GPU memory than its share has, longer than any grace that ends in a kill. The pool's "
        "action is `warn` or `none`, or enforcement cannot act.",
        remedy="Look at the pod's events and at gpushare_kills_suppressed_total. Ask the owner to use less, or give the pool "
        "fewer shares with a larger cap.",
    ),
    Alert(
        name="GPUShareKills",
        severity="info",
        expr=f"sum by (cluster, node, pool) ({_recent(_ENDED)}) > 0",
        hold="0m",
        summary="Processes over their memory cap were ended on node {{ $labels.node }}.",
        means="The node runtime sent a signal to processes of a container that stayed over its cap.",
        remedy="Events on the pods name them. If one tenant is hit again and again, its model does not fit the share: "
        "`gpushare size`.",
    ),
    Alert(
        name="GPUShareKillBreakerOpen",
        severity="critical",
        expr="gpushare_kill_breaker_open == 1",
        hold="5m",
        summary="Node {{ $labels.node }}: kill breaker open; containers over their caps are not ended.",
        means="The driver's process lists give several namespaces more memory than their GPUs have in use, and no further "
        "container is ended on the node; or more than sixteen pods with a share of a GPU, of which four of a namespace count, "
        "and most containers with a cap there, are over at once, and none is ended there. An Event on the node says which.",
        remedy="Compare `nvidia-smi` on the node with gpushare_container_gpu_memory_used_bytes, and read the runtime's log. If "
        "the lists are right, delete pods until fewer are over their caps.",
    ),
    Alert(
        name="GPUShareEnforcementBlind",
        severity="critical",
        # Where the driver hangs, the runtime ends and starts again with longer and longer pauses, five minutes at most: it is
        # looked for over more than that, and less than `hold`.
        expr=f'max_over_time(gpushare_node_condition{{reason=~"{_BLIND}"}}[8m]) == 1',
        hold="10m",
        summary="Caps are not enforced on node {{ $labels.node }}: {{ $labels.reason }}.",
        means="The runtime cannot see the processes on the GPUs, or cannot end them, so a tenant can take the memory of "
        "others.",
        remedy="reasons.md says what to do for the reason.",
    ),
    Alert(
        name="GPUShareGpuLost",
        severity="critical",
        expr=f'gpushare_node_condition{{reason=~"{_GPU_FAULTS}"}} == 1',
        hold="5m",
        summary="A GPU of node {{ $labels.node }} cannot be used: {{ $labels.reason }}.",
        means="A GPU has fallen off the bus, returns errors, or needs a reset after a fault. The other GPUs keep their layout.",
        remedy="The message of the condition GPUShareReady names the GPU. Drain the node and reboot it; if it recurs, replace "
        "the GPU.",
    ),
    Alert(
        name="GPUShareXid",
        severity="critical",
        expr=f"sum by (cluster, node, pool, xid) ({_recent(_XIDS)}) > 0",
        hold="0m",
        summary="The driver of node {{ $labels.node }} reports XID {{ $labels.xid }}.",
        means="The XID is one that a fault of the hardware or the driver causes, and not an application.",
        remedy="The node's Event GPUXid says what is to be done. After an XID that needs a reset the condition is GpuFaulty, "
        "and the runtime does not bring the GPU back: drain the node, reset or reboot it, and run NVIDIA's diagnosis.",
    ),
    Alert(
        name="GPUShareRowRemapFailure",
        severity="critical",
        # The exporter's label for the node began with a capital letter up to its version 3.
        expr="max by (cluster, Hostname, hostname, UUID) (DCGM_FI_DEV_ROW_REMAP_FAILURE) > 0",
        hold="5m",
        summary="GPU {{ $labels.UUID }} of node {{ or $labels.Hostname $labels.hostname }} could not remap a faulty "
        "row of its memory.",
        means="dcgm-exporter reports that the GPU has no spare rows left for a fault. Results of tenants may be wrong, or "
        "their processes end.",
        remedy="Drain the node and have the GPU replaced.",
    ),
    Alert(
        name="GPUShareMemoryUnattributed",
        severity="warning",
        expr="gpushare_gpu_memory_unattributed_bytes > 0",
        hold="15m",
        summary="GPU {{ $labels.gpu }} of node {{ $labels.node }} has {{ $value | humanize1024 }}B in use that no process "
        "accounts for.",
        means="Memory of the GPU is in use and the driver lists no process that has it, so it counts against no tenant.",
        remedy="A process that ended while the GPU hung can leave memory behind. Drain the node and reset the GPU; if "
        "`nvidia-smi` lists a process after all, report it.",
    ),
    Alert(
        name="GPUShareStrayContainer",
        severity="warning",
        expr="gpushare_gpu_stray_containers > 0",
        hold="5m",
        summary="GPU {{ $labels.gpu }} of node {{ $labels.node }} is used by {{ $value }} containers that did not get it.",
        means="Containers have memory on a device that neither a device plugin nor a claim gave to them. Their cap there is "
        "zero, which is enforced with `admission.enforce: deny` alone.",
        remedy="Events GPUNotAllocated on the pods name them. Images with `ENV NVIDIA_VISIBLE_DEVICES=all`, privileged "
        "containers and folders of the host reach all GPUs: remove what gives the access, or list the namespace in "
        "`platform.namespaces` if it is the platform's.",
    ),
    Alert(
        name="GPUShareOrphanMemory",
        severity="warning",
        expr="gpushare_gpu_orphan_processes > 0",
        hold="15m",
        summary="GPU {{ $labels.gpu }} of node {{ $labels.node }} has {{ $value }} processes of no known container.",
        means="Processes on the GPU belong to no container that the runtime knows: programs of the host, or what is left of "
        "ended containers. Their memory counts against no tenant, and tenants lack it.",
        remedy="`nvidia-smi` on the node lists the processes, `cat /proc/PID/cgroup` says where one belongs. End what the host "
        "runs, or drain the node and reset the GPU if no process is left.",
    ),
    Alert(
        name="GPUShareFenceDenied",
        severity="critical",
        # The API server counts the denials of every client, where it is scraped; the runtime those of its own requests.
        expr=f"sum by (cluster, policy) ({_recent(_DENIED)}"
        f" or increase({_DENIALS}[15m]) > 0 or ({_DENIALS} unless {_DENIALS} offset 15m) > 0) > 0",
        hold="0m",
        summary="Policy {{ $labels.policy }} has denied a write with a token of gpushare.",
        means="A token of the node runtime or of the uninstall Job was used for a write that the runtime never makes, or the "
        "chart's policies are older than the runtime. A person with root on a node has its token.",
        remedy="The API server's audit log names the client's node and pod (`user.extra`) and the object. If the address is "
        "not the node's, or the runtime's own log has no refusal, treat the node as taken over: drain it and replace it. "
        "Otherwise install the chart of the runtime's release again.",
    ),
    Alert(
        name="GPUShareCapsUnknown",
        severity="warning",
        expr="gpushare_caps_unknown > 0",
        hold="15m",
        summary="Node {{ $labels.node }} has {{ $value }} allocations without a known cap.",
        means="Kubelet has allocated devices that the policy does not describe. The containers that have them are not held to "
        "a cap.",
        remedy="The device plugin's configuration and the policy differ: install the bundle's charts again, in the order of "
        "its README.",
    ),
    Alert(
        name="GPUShareMpsLimitMismatch",
        severity="warning",
        expr="gpushare_mps_limit_mismatch == 1",
        hold="15m",
        summary="The MPS daemon of GPU {{ $labels.gpu }} on node {{ $labels.node }} has another memory limit than the policy.",
        means="MPS lets a client allocate another amount than its cap.",
        remedy=f"The device plugin runs with another configuration: compare its label {NVIDIA.plugin_label} with the bundle.",
    ),
    Alert(
        # The container of the DaemonSet in the chart nvidia-device-plugin 0.20.0.
        name="GPUShareMpsDaemonRestarts",
        severity="warning",
        expr="max by (cluster, namespace, pod, node) (increase(kube_pod_container_status_restarts_total"
        '{container="mps-control-daemon-ctr"}[15m]) * on (cluster, namespace, pod) group_left (node) kube_pod_info) > 0',
        hold="0m",
        summary="The MPS daemon of node {{ $labels.node }} has started again: pod {{ $labels.namespace }}/{{ $labels.pod }}.",
        means="When the daemon exits, its MPS servers exit, and with them all clients: pods on that node's GPUs lost their "
        "work. A server that the daemon itself replaces is not counted.",
        remedy="Read the log of the container's last run: `kubectl logs POD --previous`. A fatal fault of one client ends all "
        "clients of its GPU; tenants that must not share a failure need MIG.",
    ),
    Alert(
        name="GPUSharePoolExhausted",
        severity="info",
        expr="gpushare:pool_shares_requested:sum >= gpushare:pool_shares:sum and gpushare:pool_shares:sum > 0",
        hold="1h",
        summary="All {{ $value }} shares of pool {{ $labels.pool }} have been taken for an hour: {{ $labels.resource }}.",
        means="Every share of this resource that the pool's nodes offer is requested. Further pods wait.",
        remedy="Look at pending pods. If that is usual, add nodes or shares: `gpushare size` compares the modes.",
    ),
    Alert(
        name="GPUShareQuotaExhausted",
        severity="info",
        expr='kube_resourcequota{resourcequota="gpushare",type="used"} >= ignoring (type)'
        ' (kube_resourcequota{resourcequota="gpushare",type="hard"} > 0)',
        hold="1h",
        summary="Namespace {{ $labels.namespace }} has used up its quota of {{ $labels.resource }} for an hour.",
        means="Further pods of the namespace that ask for this resource are refused.",
        remedy="`kubectl describe quota gpushare -n NAMESPACE` lists use and limit. Raise it in the intent's `quotas`, or end "
        "what is idle.",
    ),
    Alert(
        name="GPUSharePoolIdle",
        severity="info",
        expr="max_over_time(gpushare:pool_gpu_processes:max5m[7d:5m]) == 0"
        " and gpushare:pool_gpu_processes:max5m offset 7d >= 0",
        hold="1h",
        summary="No process has used a GPU of pool {{ $labels.pool }} for a week.",
        means="At no scrape of the last seven days was a process on a GPU of the pool, requested shares included. The server "
        "of MPS does not count.",
        remedy="Give the nodes to another pool, or return them. Shares that are requested and idle show in the dashboard.",
    ),
)


def groups(
    runbooks: str = "",
    namespace: str = NAMESPACE,
    longest_grace: float = 0,
    made_by: Iterable[GpuVendor] = tuple(vendors.VENDORS.values()),
) -> dict[str, Any]:
    """Return the rules as Prometheus reads them.

    `runbooks` is the address of a page with docs/alerts.md; empty: no address. `namespace` is the release's, `longest_grace`
    the seconds that a pool gives a container above its cap, during which no alert fires. `made_by`: whose GPUs there are.
    """
    exported = "|".join(vendor.exported for vendor in made_by)
    recordings = [{"record": one.name, "expr": one.expr.replace(_GPUS, exported)} for one in RECORDINGS]
    alerts = [_alert(one, runbooks, namespace) for one in ALERTS]
    minutes = max(_OVER_CAP_MINUTES, math.ceil(longest_grace / 60) + 5)
    for alert in alerts:
        if alert["alert"] == "GPUShareContainerOverCap":
            alert["for"] = f"{minutes}m"
    return {"groups": [{"name": "gpushare-pools", "rules": recordings}, {"name": "gpushare", "rules": alerts}]}


def of_namespace(expr: str, namespace: str) -> str:
    """Return an expression of this package with the release's namespace."""
    return expr.replace(_HERE, f'namespace="{namespace}"')


def anchor(alert: Alert) -> str:
    """Return the anchor of its heading in docs/alerts.md."""
    return alert.name.lower()


def _alert(alert: Alert, runbooks: str, namespace: str) -> dict[str, Any]:
    annotations = {"summary": alert.summary, "description": f"{alert.means} {alert.remedy}"}
    if runbooks:
        annotations["runbook_url"] = f"{runbooks}#{anchor(alert)}"
    expr = of_namespace(alert.expr, namespace)
    rule = {"alert": alert.name, "expr": expr, "for": alert.hold, "labels": {"severity": alert.severity}}
    return rule | {"annotations": annotations}
