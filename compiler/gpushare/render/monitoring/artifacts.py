"""`chart/files/monitoring/` and `monitoring/`: the objects for Prometheus and Grafana, and the same as plain files.

The chart renders the objects, with its own labels and namespace, so they come and go with the release. The plain files are for
those who configure Prometheus by files.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from gpushare.core import emit
from gpushare.intent.types import Intent, NvidiaStack
from gpushare.resolved.plan import Plan
from gpushare.vendors import VENDORS

Object = dict[str, Any]

_OPERATOR = "monitoring.coreos.com/v1"
_NODE_PODS = {"app.kubernetes.io/name": "gpushare", "app.kubernetes.io/component": "node"}
_NODE_LABELS = (
    ("__meta_kubernetes_pod_label_gpushare_dev_pool", "pool"),
    ("__meta_kubernetes_pod_node_name", "node"),
)
"""What service discovery knows of a pod, and the label that the rules use for it."""

NAME = "gpushare-dcgm-metrics"
"""The ConfigMap with the counters; its key `dcgm-metrics.csv` is the operator's."""

COUNTERS = (
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "Clock of the SMs in MHz."),
    ("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Clock of the memory in MHz."),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Temperature of the memory in degrees Celsius."),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature of the GPU in degrees Celsius."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw in watts."),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy since the driver was loaded in mJ."),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "PCIe retries."),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "Part of the time in which a kernel ran in percent."),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Part of the time in which memory was accessed in percent."),
    ("DCGM_FI_DEV_ENC_UTIL", "gauge", "Utilisation of the encoder in percent."),
    ("DCGM_FI_DEV_DEC_UTIL", "gauge", "Utilisation of the decoder in percent."),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Number of the last XID."),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "Free memory in MiB."),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Memory in use in MiB."),
    ("DCGM_FI_DEV_FB_RESERVED", "gauge", "Memory that the driver reserves in MiB."),
    ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter", "Traffic of all NVLinks."),
    ("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "gauge", "Status of the vGPU licence."),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for uncorrectable errors."),
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for correctable errors."),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "1 if a row could not be remapped."),
    ("DCGM_FI_DRIVER_VERSION", "label", "Version of the driver."),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Part of the time in which the graphics or compute engine was active."),
    ("DCGM_FI_PROF_SM_ACTIVE", "gauge", "Part of the cycles in which an SM had a warp."),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Part of the cycles in which the tensor cores were active."),
    ("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "gauge", "Part of the cycles in which the FP64 cores were active."),
    ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "gauge", "Part of the cycles in which the FP32 cores were active."),
    ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "gauge", "Part of the cycles in which the FP16 cores were active."),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Part of the cycles in which the memory was read or written."),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "Bytes sent over PCIe in a second."),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "Bytes received over PCIe in a second."),
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", "gauge", "Bytes sent over NVLink in a second."),
    ("DCGM_FI_PROF_NVLINK_RX_BYTES", "gauge", "Bytes received over NVLink in a second."),
)
"""The counters of NVIDIA's dcgm-exporter that the dashboard and the alerts use: field, Prometheus type, help.

Their file replaces the exporter's own, so it has the counters of that one, too. Source: github.com/NVIDIA/dcgm-exporter,
etc/default-counters.csv and etc/dcp-metrics-included.csv; DCGM's user guide, "Profiling Metrics". The exporter leaves profiling
counters (`DCGM_FI_PROF_`) out where the GPU has none.
"""


def is_wanted(plan: Plan) -> bool:
    """Return whether the intent asks for any object."""
    return any(plan.intent.monitoring.get(part) for part in ("serviceMonitor", "alerts", "dashboard"))


def objects(plan: Plan) -> Iterator[tuple[str, Object]]:
    """Yield the path in the bundle and the object of each file that the chart renders."""
    wanted = plan.intent.monitoring
    labels = dict(wanted.get("labels", {}))
    if wanted.get("dashboard"):
        # The label by which Grafana's sidecar finds dashboards.
        text = _dashboard(plan.intent.namespace)
        board = _object("ConfigMap", labels | {"grafana_dashboard": "1"}, version="v1", name="gpushare-dashboard")
        yield "chart/files/monitoring/dashboard.yaml", board | {"data": {"gpushare.json": text}}
    if wanted.get("operator", True):
        if wanted.get("serviceMonitor"):
            yield "chart/files/monitoring/podmonitor.yaml", _object("PodMonitor", labels) | {"spec": _pod_monitor()}
        if wanted.get("alerts"):
            yield "chart/files/monitoring/rules.yaml", _object("PrometheusRule", labels) | {"spec": _rules(plan)}


def plain(plan: Plan) -> Iterator[tuple[str, Object]]:
    """Yield the path in the bundle and the document of each file that Prometheus itself reads."""
    wanted = plan.intent.monitoring
    if wanted.get("serviceMonitor"):
        yield "monitoring/scrape.yaml", {"scrape_configs": [_scrape(plan.intent.namespace)]}
    if wanted.get("alerts"):
        yield "monitoring/rules.yaml", _rules(plan)


def dashboard_text(plan: Plan) -> str:
    """Return `monitoring/dashboard.json`; empty if the intent does not ask for it."""
    return _dashboard(plan.intent.namespace) if plan.intent.monitoring.get("dashboard") else ""


@cache
def _dashboard(namespace: str) -> str:
    """Return the dashboard as JSON: four parts of a bundle ask for it, and the text takes a twentieth of a compile."""
    from gpushare.render.monitoring import dashboard  # noqa: PLC0415 - few bundles have one

    return emit.json_text(dashboard.document(namespace))


def is_for_operator(intent: Intent) -> bool:
    """Return whether gpu-operator's values set the file: not where the intent's own values name another, or no exporter."""
    own = intent.platform.values.get("dcgmExporter") or {}
    is_free = "config" not in own and own.get("enabled", True) is True
    return is_free and intent.platform.stack is NvidiaStack.GPU_OPERATOR and bool(intent.monitoring.get("dashboard"))


def csv_text() -> str:
    """Return the file. A help text has no comma: the exporter would take the rest for a fourth column."""
    return "".join(f"{field}, {kind}, {text}\n" for field, kind, text in COUNTERS)


def counters_text(plan: Plan) -> str:
    """Return `monitoring/dcgm-metrics.csv`; empty without dashboard or NVIDIA's cards, and where gpu-operator's values do."""
    is_wanted = plan.has_nvidia and plan.intent.monitoring.get("dashboard") and not is_for_operator(plan.intent)
    return csv_text() if is_wanted else ""


def section(plan: Plan) -> Iterator[str]:
    """Yield the lines of the bundle's README.md on monitoring."""
    if not is_wanted(plan):
        return
    yield from ("## Monitoring", "")
    inside = [kind for _, one in objects(plan) for kind in (one["kind"],)]
    if inside:
        yield f"The chart installs {', '.join(inside)}."
    outside = [path for path, _ in plain(plan)]
    if plan.intent.monitoring.get("dashboard"):
        yield "Grafana without a sidecar imports `monitoring/dashboard.json`."
        if is_for_operator(plan.intent):
            yield "The values of gpu-operator set the counters of dcgm-exporter that its panels show."
        elif plan.has_nvidia:
            yield "Its panels on the hardware need the counters of `monitoring/dcgm-metrics.csv` in your dcgm-exporter."
    if outside:
        yield f"For a Prometheus that is configured by files: {' and '.join(f'`{path}`' for path in outside)}."
    if plan.intent.monitoring.get("operator", True) and any(kind in ("PodMonitor", "PrometheusRule") for kind in inside):
        yield "The Prometheus operator must be there before the chart: without it, Helm refuses the release."
    yield ""


def _rules(plan: Plan) -> Object:
    from gpushare.render.monitoring import alerts  # noqa: PLC0415 - few bundles have them

    graces = [pool.pool.enforcement.grace_seconds for pool in plan.pools]
    made_by = [vendor for vendor in VENDORS.values() if any(pool.vendor is vendor for pool in plan.every_pool)]
    return alerts.groups(plan.intent.monitoring.get("runbooks", ""), plan.intent.namespace, max(graces, default=0), made_by)


def _object(kind: str, labels: Mapping[str, str], *, version: str = _OPERATOR, name: str = "gpushare") -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": dict(labels)}}


def _pod_monitor() -> Object:
    """Return the spec of a PodMonitor. The runtime's labels win: they name the tenant's pod."""
    relabelings = [{"sourceLabels": [source], "targetLabel": target} for source, target in _NODE_LABELS]
    endpoint = {"port": "metrics", "path": "/metrics", "honorLabels": True, "relabelings": relabelings}
    return {"selector": {"matchLabels": dict(_NODE_PODS)}, "podMetricsEndpoints": [endpoint]}


def _scrape(namespace: str) -> Object:
    """Return an entry of Prometheus' `scrape_configs` that scrapes the pods of `_pod_monitor`, with the same labels."""
    selector = ",".join(f"{key}={value}" for key, value in _NODE_PODS.items())
    port = {"source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": "metrics", "action": "keep"}
    relabelings = [{"source_labels": [source], "target_label": target} for source, target in _NODE_LABELS]
    return {
        "job_name": "gpushare",
        "honor_labels": True,
        "kubernetes_sd_configs": [
            {"role": "pod", "namespaces": {"names": [namespace]}, "selectors": [{"role": "pod", "label": selector}]},
        ],
        "relabel_configs": [port, *relabelings],
    }
