"""Rules on pools whose nodes an autoscaler adds: GS217."""

from collections.abc import Iterator

from gpushare import modes, vendors
from gpushare.core.diagnostics import Finding
from gpushare.intent.types import Autoscaler, Backend, MigStrategy, Pool
from gpushare.nodes.clouds import CLOUDS, Cloud
from gpushare.nodes.selectors import region
from gpushare.rules.rule import Rule, RuleContext, warn_of_pool


def _gpu_labels(cloud: Cloud) -> dict[str, str]:
    """Return labels that a pool may select, each with the label of Cluster Autoscaler that its nodes then have."""
    label, former = cloud.autoscaler_label, cloud.former_gpu_label
    pools = {cloud.pool_label: label} if cloud.labels_every_gpu_node else {}
    return ({label: label} if label else {}) | pools | ({former: former} if former else {})


_GPU_LABELS = {selected: label for cloud in CLOUDS for selected, label in _gpu_labels(cloud).items()}


def check_gpu_label(context: RuleContext) -> Iterator[Finding]:
    """GS217: nodes that Cluster Autoscaler never counts as ready.

    With the label it waits for nvidia.com/gpu (https://github.com/kubernetes/autoscaler/issues/8095,
    https://github.com/Azure/AKS/issues/5161). A node that is in none of its groups makes every scale-up fail, for any pods
    (https://github.com/kubernetes/autoscaler/issues/10301).
    """
    pools = context.intent.pools
    if not any(pool.autoscaler is Autoscaler.CLUSTER_AUTOSCALER for pool in pools):
        return
    for pool in pools:
        kinds, label = context.kinds(pool), _gpu_label(pool)
        if pool.autoscaler is Autoscaler.KARPENTER or label is None or kinds is None:
            continue
        if pool.backend is Backend.DRA and _is_in_slices(pool):
            continue
        offered = set() if pool.backend is Backend.DRA else {kind.resource for kind in kinds}
        whole = vendors.of_resources(offered).whole_gpu
        if whole not in offered:
            yield warn_of_pool("GS217", pool, _message(pool, label, whole), _hint(pool, label, whole), "nodes")


def _gpu_label(pool: Pool) -> str | None:
    """Return the label by which the autoscaler knows that the pool's nodes have GPUs; None if they need not have one."""
    required = region(pool.nodes) or {}
    return next((label for key, label in _GPU_LABELS.items() if key in required and not required[key].absent), None)


def _is_in_slices(pool: Pool) -> bool:
    """Whether the autoscaler knows of all nodes of the pool that a driver of DRA has their GPUs."""
    required = region(pool.nodes) or {}
    of_dra = [required[cloud.dra_label] for cloud in CLOUDS if cloud.dra_label in required]
    return any(not one.absent and not one.others and one.listed == {"true"} for one in of_dra)


def _message(pool: Pool, label: str, whole: str) -> str:
    offers = f"nodes of pool {pool.name} have the label {label} and never offer {whole}"
    if pool.autoscaler is None:
        return f"{offers}: Cluster Autoscaler, which does not manage them, then adds no nodes to any pool"
    return f"{offers}: Cluster Autoscaler never counts them as ready"


def _hint(pool: Pool, label: str, whole: str) -> str:
    if pool.backend is Backend.DRA:
        of_dra = next((cloud.dra_label for cloud in CLOUDS if label in _gpu_labels(cloud).values() and cloud.dra_label), "")
        select = f'select nodes with {of_dra}: "true" as well, or ' if of_dra else ""
        return f"{select}make sure that they lack the label {label}"
    is_partitioned = modes.of(pool).is_partitioned
    keep = f"write strategy: {MigStrategy.SINGLE.value} and no replicas" if is_partitioned else "write rename: false"
    return f"{keep}, so that they offer {whole}; or make sure that they lack the label {label}"


RULES = (Rule(code="GS217", check=check_gpu_label),)
