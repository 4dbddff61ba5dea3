"""Pages of dcgm-exporter, which needs real GPUs, with given figures: in the form of each of its generations.

The labels are those of github.com/NVIDIA/dcgm-exporter, internal/pkg/rendermetrics/render_metrics.go (3.x: pkg/dcgmexporter):
`gpu`, `UUID`, `pci_bus_id`, `device`, `modelName`, on MIG `GPU_I_PROFILE` and `GPU_I_ID`, then the node's name, what
etc/default-counters.csv calls a label (DCGM_FI_DRIVER_VERSION), and the pod. The node's name is `Hostname` up to 4.5.3-4.8.2
and `hostname` after it: commit d5e5f51. Where pods share a GPU, KUBERNETES_VIRTUAL_GPUS repeats its series for each of them, in
4.x with the label `vgpu`, beside the series of the GPU itself, and with the pod's own part of some of the figures:
internal/pkg/transformation/kubernetes.go.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.support.fake_nvml.cards import gpu_uuid

GPU_FIGURES: Mapping[str, float] = {
    "DCGM_FI_DEV_GPU_UTIL": 40,
    "DCGM_FI_DEV_FB_USED": 3524,
    "DCGM_FI_DEV_POWER_USAGE": 62.5,
    "DCGM_FI_DEV_GPU_TEMP": 51,
    "DCGM_FI_DEV_SM_CLOCK": 1410,
    "DCGM_FI_DEV_MEM_CLOCK": 1215,
    "DCGM_FI_PROF_SM_ACTIVE": 0.5,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.25,
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": 0.125,
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": 0.375,
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": 0.625,
    "DCGM_FI_PROF_NVLINK_TX_BYTES": 3e9,
    "DCGM_FI_PROF_NVLINK_RX_BYTES": 2e9,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 4e8,
    "DCGM_FI_PROF_PCIE_RX_BYTES": 5e8,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 1,
}
"""The counters that rules and dashboard use, each with its value on the first GPU of a page."""
_OF_A_POD = frozenset({"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"})
"""Those of which 4.x knows what a pod has of them."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU of a page. Pods of namespace `course` share it; a MIG instance has its profile and number."""

    uuid: str
    pods: tuple[str, ...] = ()
    instance: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Exporter:
    """dcgm-exporter on one node. Where its labels are not honoured, Prometheus calls them `exported_pod` and so on."""

    generation: int
    node: str
    honoured: bool
    gpus: tuple[Gpu, ...]

    @property
    def job(self) -> str:
        """The name of its page, and of Prometheus' job."""
        return f"dcgm-exporter-{self.generation}{'-honoured' if self.honoured else ''}"

    @property
    def target(self) -> dict[str, str]:
        """The labels of the target, as a ServiceMonitor gives them: three of them are those of the metrics, too."""
        return {"namespace": "gpu-operator", "pod": f"nvidia-dcgm-exporter-{self.node}", "container": "nvidia-dcgm-exporter"}

    def figures(self, counter: str) -> dict[str, float]:
        """The value of each GPU; a failure is either there or not."""
        first = GPU_FIGURES[counter]
        return {gpu.uuid: first if first == 1 else first + number for number, gpu in enumerate(self.gpus)}

    def page(self) -> Iterator[str]:
        """The lines of the page."""
        for counter in GPU_FIGURES:
            yield f"# HELP {counter} As in etc/default-counters.csv."
            yield f"# TYPE {counter} gauge"
            for number, gpu in enumerate(self.gpus):
                whole = self.figures(counter)[gpu.uuid]
                for found in self._series(number, gpu):
                    pairs = ",".join(f'{name}="{text}"' for name, text in found.items())
                    yield f"{counter}{{{pairs}}} {whole / 4 if 'vgpu' in found and counter in _OF_A_POD else whole:f}"

    def _series(self, number: int, gpu: Gpu) -> Iterator[Mapping[str, str]]:
        """The labels of each series of a GPU."""
        common = {
            "gpu": str(number),
            "UUID": gpu.uuid,
            "pci_bus_id": f"00000000:0{number + 1}:00.0",
            "device": f"nvidia{number}",
            "modelName": "NVIDIA A100-SXM4-40GB",
        }
        if gpu.instance is not None:
            common |= dict(zip(("GPU_I_PROFILE", "GPU_I_ID"), gpu.instance, strict=True))
        common |= {"Hostname" if self.generation == 3 else "hostname": self.node, "DCGM_FI_DRIVER_VERSION": "570.172.08"}
        if not gpu.pods or self.generation == 4:
            yield common
        for share, pod in enumerate(gpu.pods):
            named = {**common, "container": "work", "namespace": "course", "pod": pod}
            yield named if self.generation == 3 else {**named, "vgpu": str(share)}


NODES: Mapping[str, str] = {gpu_uuid(index, node=number): f"node-{number}" for number in (1, 2) for index in (0, 1)}
"""The GPUs that a runtime knows, with their nodes: one in each page, as a shared GPU or as an instance."""


def _gpus(number: int) -> tuple[Gpu, ...]:
    """One that two pods share, one that is a MIG instance, and one that no pod has. One of the first two is in a pool."""
    uuids = [f"GPU-other-{number}-{index}" for index in range(3)]
    uuids[(number - 1) % 2] = tuple(NODES)[number - 1]
    return (
        Gpu(uuid=uuids[0], pods=("neighbour", "offender")),
        Gpu(uuid=uuids[1], pods=("greedy",), instance=("1g.5gb", "7")),
        Gpu(uuid=uuids[2]),
    )


EXPORTERS = tuple(
    Exporter(generation=generation, node=f"node-{number}", honoured=honoured, gpus=_gpus(number))
    for number, (generation, honoured) in enumerate(itertools.product((3, 4), (False, True)), 1)
)
"""Both generations, each as the labels of its metrics are honoured or not."""
