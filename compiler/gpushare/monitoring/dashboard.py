"""The Grafana dashboard: what each pool has left, who uses what, who was warned or killed, and how the GPUs are.

Panels on shares use the recording rules of `alerts`; those on the hardware use NVIDIA's dcgm-exporter. It repeats a series for
each pod that shares a GPU, so they take the maximum for each GPU and never a sum. The memory of a MIG GPU is that of its
instances.
"""

from typing import Any

from gpushare.core.record import Record
from gpushare.monitoring.alerts import began

UID = "gpushare"
_WIDTH = 12
_HEIGHT = 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Query(Record):
    """An expression, and the legend of its series."""

    expr: str
    legend: str


class Panel(Record):
    """A panel of time series. `unit` is Grafana's name of it."""

    title: str
    unit: str
    queries: tuple[Query, ...]


_CONTAINER = "{{namespace}}/{{pod}}/{{container}}"
_POOL = 'pool=~"$pool"'


def _lately(counter: str) -> str:
    """Return an expression for the growth in 15 minutes; of a series that began in them, its value: `increase` omits it."""
    metric = f"{counter}{{{_POOL}}}"
    return f"({began(metric)}) or increase({metric}[15m])"


PANELS = (
    Panel(title="Shares of each pool", unit="short", queries=(
        Query(expr=f"gpushare:pool_shares_requested:sum{{{_POOL}}}", legend="{{pool}} {{resource}} used"),
        Query(
            expr=f"gpushare:pool_shares:sum{{{_POOL}}} - gpushare:pool_shares_requested:sum{{{_POOL}}}",
            legend="{{pool}} {{resource}} free"),
    )),
    Panel(title="Nodes by reason", unit="short", queries=(
        Query(expr=f"count by (pool, reason) (gpushare_node_condition{{{_POOL}}} == 1)", legend="{{pool}} {{reason}}"),
    )),
    Panel(title="Memory of containers, part of their cap", unit="percentunit", queries=(
        Query(
            expr=f"gpushare_container_gpu_memory_used_bytes{{{_POOL}}} / gpushare_container_gpu_memory_cap_bytes{{{_POOL}}}",
            legend=_CONTAINER),
    )),
    Panel(title="Memory of containers", unit="bytes", queries=(
        Query(expr=f"gpushare_container_gpu_memory_used_bytes{{{_POOL}}}", legend=_CONTAINER),
    )),
    Panel(title="Warnings and kills in 15 minutes", unit="short", queries=(
        Query(expr=f"sum by (pool) ({_lately('gpushare_over_cap_total')})", legend="{{pool}} warned"),
        Query(expr=f"sum by (pool, outcome) ({_lately('gpushare_kills_total')})", legend="{{pool}} killed: {{outcome}}"),
    )),
    Panel(title="Memory of GPUs in use", unit="percentunit", queries=(
        Query(
            expr=f"gpushare_gpu_memory_used_bytes{{{_POOL}}} / gpushare_gpu_memory_total_bytes{{{_POOL}}}",
            legend="{{node}} {{gpu}}"),
    )),
    Panel(title="Utilisation (DCGM)", unit="percent", queries=(
        Query(expr="max by (UUID) (DCGM_FI_DEV_GPU_UTIL)", legend="{{UUID}}"),
    )),
    Panel(title="Memory in use (DCGM)", unit="mbytes", queries=(
        Query(expr="sum by (UUID) (max by (UUID, GPU_I_ID) (DCGM_FI_DEV_FB_USED))", legend="{{UUID}}"),
    )),
    Panel(title="Power (DCGM)", unit="watt", queries=(
        Query(expr="max by (UUID) (DCGM_FI_DEV_POWER_USAGE)", legend="{{UUID}}"),
    )),
    Panel(title="Temperature (DCGM)", unit="celsius", queries=(
        Query(expr="max by (UUID) (DCGM_FI_DEV_GPU_TEMP)", legend="{{UUID}}"),
    )),
)


def document() -> dict[str, Any]:
    """Return the dashboard as Grafana reads it."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    pool = {
        "name": "pool", "label": "Pool", "type": "query", "datasource": _SOURCE, "includeAll": True, "multi": True,
        "query": "label_values(gpushare_build_info, pool)", "refresh": 2, "sort": 1, "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "uid": UID, "title": "Shared GPUs", "tags": ["gpushare"], "schemaVersion": 39, "editable": True, "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"}, "timezone": "",
        "templating": {"list": [source, pool]},
        # Grafana's schema requires the list, empty or not.
        "annotations": {"list": []},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    place = {"x": number % 2 * _WIDTH, "y": number // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
    targets = [
        {"refId": "ABCDEFGH"[index], "expr": query.expr, "legendFormat": query.legend, "datasource": _SOURCE}
        for index, query in enumerate(panel.queries)
    ]
    return {
        "id": number + 1, "type": "timeseries", "title": panel.title, "datasource": _SOURCE, "gridPos": place,
        "targets": targets, "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
    }
