"""The steps with which nodes are given to virtual machines with vGPUs, and with which these keep them without gpushare."""

from collections.abc import Iterator

from gpushare.resolved.plan import Plan, VmPool


def labels(plan: Plan) -> Iterator[str]:
    """Yield the step of the installation that gives the nodes to virtual machines."""
    if not plan.vm_pools:
        return
    manager = plan.intent.platform.vgpu_manager
    if manager:
        yield f"Nodes pull NVIDIA's vGPU manager as `{manager.repository}/{manager.image or 'vgpu-manager'}:{manager.version}`,"
        yield "with the node's system at the end of the tag, such as `-ubuntu22.04`. NVIDIA's licence keeps it private: build"
        yield "it from the licensed driver (NVIDIA's gpu-driver-container, `make build-vgpuhost-ubuntu22.04`)."
    yield "Each node must be bare metal, with IOMMU and SR-IOV enabled and a kernel older than 6.0. Wait until its label"
    yield "`gpushare.dev/pool` is gone, and shut down its virtual machines with vGPUs: nothing drains them. Then label it:"
    yield ""
    for pool in plan.vm_pools:
        pairs = " ".join(f"{key}={value}" for key, value in pool.labels.items())
        yield f"    kubectl label nodes NODE --overwrite {pairs}  # pool {pool.name}"
    yield ""
    yield from (_state(pool) for pool in plan.vm_pools[:1])
    yield ""
    yield "prints `success` for a node that has its vGPUs."


def _state(pool: VmPool) -> str:
    key = pool.vendor.vgpu_label
    return f"    kubectl get nodes --selector {key} --label-columns {key},{key}.state"


def leaving(plan: Plan) -> Iterator[str]:
    """Yield the commands after which the nodes have the same vGPUs by NVIDIA's own configs, which are named as the types."""
    for pool in plan.vm_pools:
        key = pool.vendor.vgpu_label
        yield f"kubectl label nodes --overwrite --selector {key}={pool.config.name} {key}={pool.kind.name}"
