"""The queries of usage reports, in the words of docs/showback.md: `gpushare usage` asks Prometheus these.

Requested shares are metrics of kube-state-metrics, used memory is a metric of the node runtime.
"""

import json
from collections.abc import Mapping

from gpushare import vendors

PERIOD, STEP_SECONDS = "30d", 300
_RESOURCES = f'resource=~"{"|".join(vendor.exported for vendor in vendors.VENDORS.values())}"'

BY_NAMESPACE = "Share-hours by namespace"
BY_POOL = "Share-hours by pool and namespace"
MEMORY = "GiB-hours by pool and namespace"
OFFERED = "Share-hours offered by pool"


def queries(cluster: str = "") -> Mapping[str, str]:
    """Return title → query over PERIOD. `cluster`: of the series that have this label `cluster`."""
    own = (f"cluster={json.dumps(cluster, ensure_ascii=False)}",) if cluster else ()
    requested = _series("kube_pod_container_resource_requests", _RESOURCES, *own)
    phases = _series("kube_pod_status_phase", 'phase="Running"', *own)
    running = f"{requested}\n  * on (namespace, pod) group_left () max by (namespace, pod) ({phases} == 1)"
    of_pool = f"* on (node) group_left (pool) max by (node, pool) ({_series('gpushare_build_info', *own)})"
    used = _series("gpushare_container_gpu_memory_used_bytes", *own)
    offered = _series("gpushare:pool_shares:sum", *own)
    over = f"[{PERIOD}:5m]"
    return {
        BY_NAMESPACE: f"sum by (namespace, resource) (sum_over_time((\n  {running}\n){over})) / 12\n",
        BY_POOL: f"sum by (pool, namespace, resource) (sum_over_time((\n  {running}\n  {of_pool}\n){over})) / 12\n",
        MEMORY: f"sum by (pool, namespace) (sum_over_time({used}{over})) / 12 / 2^30\n",
        OFFERED: f"sum by (pool, resource) (sum_over_time({offered}{over})) / 12\n",
    }


def over(query: str, seconds: int) -> str:
    """Return one of the `queries` over another period."""
    return query.replace(f"[{PERIOD}:", f"[{seconds}s:")


def scraped(cluster: str = "") -> tuple[str, str]:
    """Return how many steps of the last hour have samples: of kube-state-metrics, and of the runtimes of each pool."""
    own = (f"cluster={json.dumps(cluster, ensure_ascii=False)}",) if cluster else ()
    nodes = _series("kube_node_status_condition", 'condition="Ready"', 'status="true"', *own)
    runtimes = _series("gpushare_build_info", *own)
    return f"count_over_time(group({nodes})[1h:5m])", f"count_over_time(group by (pool) ({runtimes})[1h:5m])"


CLUSTERS = "group by (cluster) (last_over_time(gpushare_build_info[1d]))"
"""The clusters of which Prometheus has series in the last day."""

_OF_TENANTS = "kube_pod_container_resource_requests|gpushare_container_gpu_memory_used_bytes"
RENAMED = f'group by (__name__) (last_over_time({{__name__=~"{_OF_TENANTS}",exported_namespace!=""}}[1d]))'
"""The metrics whose tenants' labels were renamed while they were scraped."""


def _series(name: str, *matchers: str) -> str:
    return f"{name}{{{','.join(matchers)}}}" if matchers else name
