"""The Grafana dashboard: what each pool has left, who uses what, who was warned or killed, and how the GPUs are.

Panels on shares use the recording rules of `alerts`; those on the hardware use NVIDIA's dcgm-exporter. It repeats a series for
each pod that shares a GPU, so they take the maximum for each GPU and never a sum. The memory of a MIG GPU is that of its
instances. The node and the pool of a GPU are those of the runtime that has a GPU of this UUID: the exporter knows no pool, and
the name of its label for the node depends on its version.
"""

from typing import Any

from gpushare.render.monitoring.alerts import NAMESPACE, OF_A_POOL, began, of_namespace
from gpushare_node.contract.struct import Struct

UID = "gpushare"
_WIDTH = 12
_HEIGHT = 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Query(Struct):
    """An expression, and the legend of its series."""

    expr: str
    legend: str


class Panel(Struct):
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


_GPUS = (
    # The newest, where a UUID is of two pools: a node has just changed its pool.
    "topk by (cluster, UUID) (1, max by (cluster, UUID, node, pool) (label_replace("
    f'timestamp(gpushare_gpu_memory_total_bytes{{{_POOL}}}), "UUID", "$1", "gpu", "(.+)"))) > bool 0'
)
"""1 for each GPU of the chosen pools."""


def _of_gpus(figure: str) -> str:
    """Return an expression for a figure of dcgm-exporter, one for each GPU of the chosen pools."""
    return f"{figure} * on (cluster, UUID) group_left (node, pool) ({_GPUS})"


def _each(counter: str) -> str:
    """Return an expression with one value for each GPU: the highest of the counter's series, one per pod or MIG instance."""
    return _of_gpus(f"max by (cluster, UUID, gpu) ({counter})")


_GPU = "{{node}} GPU {{gpu}}"
"""dcgm-exporter's label `gpu` is the index."""

_WAITING = (
    "count by (pool) (label_replace(max by (cluster, node, created_by_name)"
    f' (kube_pod_info{{{OF_A_POOL},created_by_name=~"gpushare-($pool)"}}), "pool", "$1", "created_by_name", "gpushare-(.+)")'
    ' and on (cluster, node) kube_node_status_condition{condition="GPUShareReady",status!="true"} == 1'
    " unless on (cluster, node) gpushare_node_condition == 1)"
)
"""Nodes that are not ready and serve no metrics: the container that does has not started."""

PANELS = (
    Panel(
        title="Shares of each pool",
        unit="short",
        queries=(
            Query(expr=f"gpushare:pool_shares_requested:sum{{{_POOL}}}", legend="{{pool}} {{resource}} used"),
            Query(
                expr=f"gpushare:pool_shares:sum{{{_POOL}}} - gpushare:pool_shares_requested:sum{{{_POOL}}}",
                legend="{{pool}} {{resource}} free",
            ),
        ),
    ),
    Panel(
        title="Nodes by reason",
        unit="short",
        queries=(
            Query(expr=f"count by (pool, reason) (gpushare_node_condition{{{_POOL}}} == 1)", legend="{{pool}} {{reason}}"),
            Query(expr=_WAITING, legend="{{pool}} waits (kubectl describe node)"),
        ),
    ),
    Panel(
        title="Memory of containers, part of their cap",
        unit="percentunit",
        queries=(
            Query(
                expr=f"gpushare_container_gpu_memory_used_bytes{{{_POOL}}} "
                f"/ gpushare_container_gpu_memory_cap_bytes{{{_POOL}}}",
                legend=_CONTAINER,
            ),
        ),
    ),
    Panel(
        title="Memory of containers",
        unit="bytes",
        queries=(Query(expr=f"gpushare_container_gpu_memory_used_bytes{{{_POOL}}}", legend=_CONTAINER),),
    ),
    Panel(
        title="Memory of namespaces",
        unit="bytes",
        queries=(
            Query(
                expr=f"sum by (namespace, pool) (gpushare_container_gpu_memory_used_bytes{{{_POOL}}})",
                legend="{{namespace}} {{pool}}",
            ),
        ),
    ),
    Panel(
        title="Warnings and kills in 15 minutes",
        unit="short",
        queries=(
            Query(expr=f"sum by (pool) ({_lately('gpushare_over_cap_total')})", legend="{{pool}} warned"),
            Query(expr=f"sum by (pool, outcome) ({_lately('gpushare_kills_total')})", legend="{{pool}} killed: {{outcome}}"),
        ),
    ),
    Panel(
        title="Containers of which a process was ended last",
        unit="short",
        queries=(Query(expr=f"gpushare_last_kill_info{{{_POOL}}}", legend=f"{_CONTAINER} {{{{reason}}}}"),),
    ),
    Panel(
        title="Memory of GPUs in use",
        unit="percentunit",
        queries=(
            Query(
                expr=f"gpushare_gpu_memory_used_bytes{{{_POOL}}} / gpushare_gpu_memory_total_bytes{{{_POOL}}}",
                legend="{{node}} {{gpu}}",
            ),
        ),
    ),
    Panel(title="Utilisation (DCGM)", unit="percent", queries=(Query(expr=_each("DCGM_FI_DEV_GPU_UTIL"), legend=_GPU),)),
    Panel(
        title="Utilisation by type of core (DCGM)",
        unit="percentunit",
        queries=tuple(
            Query(expr=_each(f"DCGM_FI_PROF_{field}_ACTIVE"), legend=f"{_GPU} {name}")
            for name, field in (
                ("SM", "SM"),
                ("tensor", "PIPE_TENSOR"),
                ("FP64", "PIPE_FP64"),
                ("FP32", "PIPE_FP32"),
                ("FP16", "PIPE_FP16"),
            )
        ),
    ),
    Panel(
        title="Memory in use (DCGM)",
        unit="mbytes",
        queries=(
            Query(
                expr=_of_gpus("sum by (cluster, UUID, gpu) (max by (cluster, UUID, gpu, GPU_I_ID) (DCGM_FI_DEV_FB_USED))"),
                legend=_GPU,
            ),
        ),
    ),
    Panel(title="Power (DCGM)", unit="watt", queries=(Query(expr=_each("DCGM_FI_DEV_POWER_USAGE"), legend=_GPU),)),
    Panel(title="Temperature (DCGM)", unit="celsius", queries=(Query(expr=_each("DCGM_FI_DEV_GPU_TEMP"), legend=_GPU),)),
    Panel(
        title="Clocks (DCGM)",
        unit="hertz",
        queries=(
            Query(expr=f"1e6 * {_each('DCGM_FI_DEV_SM_CLOCK')}", legend=f"{_GPU} SM"),
            Query(expr=f"1e6 * {_each('DCGM_FI_DEV_MEM_CLOCK')}", legend=f"{_GPU} memory"),
        ),
    ),
    Panel(
        title="NVLink (DCGM)",
        unit="Bps",
        queries=(
            Query(expr=_each("DCGM_FI_PROF_NVLINK_TX_BYTES"), legend=f"{_GPU} sent"),
            Query(expr=_each("DCGM_FI_PROF_NVLINK_RX_BYTES"), legend=f"{_GPU} received"),
        ),
    ),
    Panel(
        title="PCIe (DCGM)",
        unit="Bps",
        queries=(
            Query(expr=_each("DCGM_FI_PROF_PCIE_TX_BYTES"), legend=f"{_GPU} sent"),
            Query(expr=_each("DCGM_FI_PROF_PCIE_RX_BYTES"), legend=f"{_GPU} received"),
        ),
    ),
)


def document(namespace: str = NAMESPACE) -> dict[str, Any]:
    """Return the dashboard as Grafana reads it. `namespace` is the release's."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    pool = {
        "name": "pool",
        "label": "Pool",
        "type": "query",
        "datasource": _SOURCE,
        "includeAll": True,
        "multi": True,
        "query": "label_values(gpushare_build_info, pool)",
        "refresh": 2,
        "sort": 1,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "uid": UID,
        "title": "Shared GPUs",
        "tags": ["gpushare"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "templating": {"list": [source, pool]},
        # Grafana's schema requires the list, empty or not.
        "annotations": {"list": []},
        "panels": [_panel(number, panel, namespace) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, panel: Panel, namespace: str) -> dict[str, Any]:
    place = {"x": number % 2 * _WIDTH, "y": number // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
    targets = [
        {
            "refId": "ABCDEFGH"[index],
            "expr": of_namespace(query.expr, namespace),
            "legendFormat": query.legend,
            "datasource": _SOURCE,
        }
        for index, query in enumerate(panel.queries)
    ]
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
    }
