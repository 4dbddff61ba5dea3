"""Rules on pools whose nodes an autoscaler adds: GS217."""

from collections.abc import Iterator

from gpushare import modes
from gpushare.core.diagnostics import Finding
from gpushare.intent.types import Autoscaler, MigStrategy, Pool
from gpushare.nodes.selectors import region
from gpushare.rules.rule import Rule, RuleContext, warn_of_pool

_WHOLE = "nvidia.com/gpu"

_GPU_LABELS = {
    "cloud.google.com/gke-accelerator": "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-nodepool": "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator": "k8s.amazonaws.com/accelerator",
    "kubernetes.azure.com/accelerator": "kubernetes.azure.com/accelerator",
    "kubernetes.azure.com/agentpool": "kubernetes.azure.com/accelerator",
    "accelerator": "accelerator",
    "cluster-api/accelerator": "cluster-api/accelerator",
}
"""Label that a pool selects → the label by which Cluster Autoscaler knows a node with GPUs, which such a node has.

GKE and AKS set it on every node with a GPU, elsewhere the administrator does. `GPULabel` of each provider under
https://github.com/kubernetes/autoscaler/tree/master/cluster-autoscaler/cloudprovider; AKS: https://github.com/kubernetes/autoscaler/pull/7203.
"""


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
        if all(kind.resource != _WHOLE for kind in kinds):
            yield warn_of_pool("GS217", pool, _message(pool, label), _hint(pool, label), "nodes")


def _gpu_label(pool: Pool) -> str | None:
    """Return the label by which the autoscaler knows that the pool's nodes have GPUs; None if they need not have one."""
    asked = region(pool.nodes) or {}
    return next((label for key, label in _GPU_LABELS.items() if key in asked and not asked[key].absent), None)


def _message(pool: Pool, label: str) -> str:
    offers = f"nodes of pool {pool.name} have the label {label} and never offer {_WHOLE}"
    if pool.autoscaler is None:
        return f"{offers}: Cluster Autoscaler, which does not manage them, then adds no nodes to any pool"
    return f"{offers}: Cluster Autoscaler never counts them as ready"


def _hint(pool: Pool, label: str) -> str:
    is_partitioned = modes.of(pool).is_partitioned
    keep = f"write strategy: {MigStrategy.SINGLE.value} and no replicas" if is_partitioned else "write rename: false"
    return f"{keep}, so that they offer {_WHOLE}; or see that they do not have the label {label}"


RULES = (Rule(code="GS217", check=check_gpu_label),)
