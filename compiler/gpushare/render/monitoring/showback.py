"""The queries of usage reports, in the words of docs/showback.md: `gpushare usage` asks Prometheus these.

Requested shares are metrics of kube-state-metrics, used memory is a metric of the node runtime.
"""

import json
from collections.abc import Mapping, Sequence

from gpushare import vendors

PERIOD, STEP_SECONDS = "30d", 300
_RESOURCES = f'resource=~"{"|".join(vendor.exported for vendor in vendors.VENDORS.values())}"'

BY_NAMESPACE = "Share-hours by namespace"
BY_POOL = "Share-hours by pool and namespace"
MEMORY = "GiB-hours by pool and namespace"
OFFERED = "Share-hours offered by pool"

NODES, RUNTIMES, SHARES = "kube_node_status_condition", "gpushare_build_info", "gpushare:pool_shares:sum"
"""The metrics whose steps are counted: of kube-state-metrics, of the runtimes, and of the recording rules."""
USED, CAPS = "gpushare_container_gpu_memory_used_bytes", "gpushare_container_gpu_memory_cap_bytes"
_REQUESTED = "kube_pod_container_resource_requests"
# Two kube-state-metrics, or two Prometheus in one store, have each series twice.
_ONE_REQUEST = "max by (namespace, pod, container, node, resource)"
_ONE_USE = "max by (node, pool, namespace, pod, container, gpu)"


def queries(cluster: str = "") -> Mapping[str, str]:
    """Return title → query over PERIOD. `cluster`: of the series that have this label `cluster`."""
    own = of_cluster(cluster)
    requested = f"{_ONE_REQUEST} ({series(_REQUESTED, _RESOURCES, *own)})"
    phases = series("kube_pod_status_phase", 'phase="Running"', *own)
    running = f"{requested}\n  * on (namespace, pod) group_left () max by (namespace, pod) ({phases} == 1)"
    # A node that has just changed pools has series of both.
    of_pool = f"* on (node) group_left (pool) topk by (node) (1, max by (node, pool) ({series(RUNTIMES, *own)}))"
    used = f"{_ONE_USE} ({series(USED, *own)})"
    offered = f"max by (pool, resource) ({series(SHARES, *own)})"
    over = f"[{PERIOD}:5m]"
    return {
        BY_NAMESPACE: f"sum by (namespace, resource) (sum_over_time((\n  {running}\n){over})) / 12\n",
        BY_POOL: f"sum by (pool, namespace, resource) (sum_over_time((\n  {running}\n  {of_pool}\n){over})) / 12\n",
        MEMORY: f"sum by (pool, namespace) (sum_over_time((\n  {used}\n){over})) / 12 / 2^30\n",
        OFFERED: f"sum by (pool, resource) (sum_over_time((\n  {offered}\n){over})) / 12\n",
    }


def over(query: str, seconds: int) -> str:
    """Return one of the `queries` over another period."""
    return query.replace(f"[{PERIOD}:", f"[{seconds}s:")


def scraped(cluster: str = "") -> Mapping[str, str]:
    """Return metric → query of how many steps of the last hour have samples: NODES, and RUNTIMES and SHARES by pool."""
    own = of_cluster(cluster)
    nodes = series(NODES, 'condition="Ready"', 'status="true"', *own)
    by_pool = {metric: f"count_over_time(group by (pool) ({series(metric, *own)})[1h:5m])" for metric in (RUNTIMES, SHARES)}
    return {NODES: f"count_over_time(group({nodes})[1h:5m])", **by_pool}


CLUSTERS = f"group by (cluster) (last_over_time({RUNTIMES}[1d]) or last_over_time({_REQUESTED}{{{_RESOURCES}}}[1d]))"
"""The clusters of which Prometheus has series in the last day."""


def renamed(cluster: str = "", metrics: Sequence[str] = (_REQUESTED, USED)) -> str:
    """Return a query of the metrics whose tenants' labels were renamed while they were scraped."""
    matchers = (f'__name__=~"{"|".join(metrics)}"', 'exported_namespace!=""', *of_cluster(cluster))
    return f"group by (__name__) (last_over_time({series('', *matchers)}[1d]))"


def of_cluster(cluster: str) -> tuple[str, ...]:
    """Return the matcher of the series of one cluster; none if no cluster is named."""
    return (f"cluster={json.dumps(cluster, ensure_ascii=False)}",) if cluster else ()


def series(name: str, *matchers: str) -> str:
    """Return a selector of the series of a metric that have these labels."""
    return f"{name}{{{','.join(matchers)}}}" if matchers else name
