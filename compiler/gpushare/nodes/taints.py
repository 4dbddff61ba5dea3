"""The keys of our taints: on nodes whose GPUs are not what their pool promises, with effect NoSchedule.

The node runtime and the chart have the same keys; a test of the contract compares them. An autoscaler simulates the nodes that
it would add. Cluster Autoscaler copies the taints of a node of the group into that simulation, except those with its own
prefixes: `startup-taint`, for a node that is not ready before the taint goes, and `status-taint`, for a state that passes. It
knows both since 1.29 (https://github.com/kubernetes/autoscaler/releases/tag/cluster-autoscaler-1.29.0). Karpenter reads the key
of the start-up taint in its NodePool (https://karpenter.sh/docs/concepts/nodepools/#cilium-startup-taint).
"""

from gpushare.intent.types import Autoscaler
from gpushare_node.contract.struct import Struct


class Taints(Struct):
    """The keys of one pool: from a node's start until its layout is verified, and while its GPUs are changed."""

    not_ready: str = "gpushare.dev/not-ready"
    repartitioning: str = "gpushare.dev/repartitioning"


_DEFAULT = Taints()
_CLUSTER_AUTOSCALER = Taints(
    not_ready="startup-taint.cluster-autoscaler.kubernetes.io/gpushare-not-ready",
    repartitioning="status-taint.cluster-autoscaler.kubernetes.io/gpushare-repartitioning",
)

OUR_TAINTS = tuple(key for taints in (_DEFAULT, _CLUSTER_AUTOSCALER) for key in (taints.not_ready, taints.repartitioning))
"""The keys of all pools. Whatever runs on a node before it is ready tolerates all of them: a pool may change its autoscaler."""


_WORDS = {
    key: word
    for taints in (_DEFAULT, _CLUSTER_AUTOSCALER)
    for key, word in ((taints.not_ready, "not-ready"), (taints.repartitioning, "repartitioning"))
}


def word(taint: str) -> str:
    """Return what a taint of ours, such as `KEY:NoSchedule`, says of its node, whichever autoscaler it is for; else ""."""
    return _WORDS.get(taint.partition(":")[0], "")


def of(autoscaler: Autoscaler | None) -> Taints:
    """Return the keys for nodes that this autoscaler adds; None: no autoscaler."""
    return _CLUSTER_AUTOSCALER if autoscaler is Autoscaler.CLUSTER_AUTOSCALER else _DEFAULT
