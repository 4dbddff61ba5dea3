"""The counters of NVIDIA's dcgm-exporter that the dashboard and the alerts use, as the CSV file that it reads.

The file replaces the exporter's own, so it has the counters of that one, too: field, Prometheus type, help.
Source: github.com/NVIDIA/dcgm-exporter, etc/default-counters.csv and etc/dcp-metrics-included.csv; DCGM's user guide,
"Profiling Metrics". The exporter leaves profiling counters (`DCGM_FI_PROF_`) out where the GPU has none.
"""

from gpushare.intent.types import Intent, NvidiaStack

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


def is_for_operator(intent: Intent) -> bool:
    """Return whether gpu-operator's values set the file: not where the intent's own values name another, or no exporter."""
    own = intent.platform.values.get("dcgmExporter") or {}
    is_free = "config" not in own and own.get("enabled", True) is True
    return is_free and intent.platform.stack is NvidiaStack.GPU_OPERATOR and bool(intent.monitoring.get("dashboard"))


def csv_text() -> str:
    """Return the file. A help text has no comma: the exporter would take the rest for a fourth column."""
    return "".join(f"{field}, {kind}, {text}\n" for field, kind, text in COUNTERS)
