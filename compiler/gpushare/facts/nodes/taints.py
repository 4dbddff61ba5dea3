"""Our taints, by the autoscaler of a pool: why there are several keys says `gpushare_node.contract.names`."""

from gpushare.intent.types import Autoscaler
from gpushare_node.contract.names import NOT_READY_TAINTS, REPARTITIONING_TAINTS
from gpushare_node.contract.struct import Struct


class Taints(Struct):
    """The keys of one pool: from a node's start until its layout is verified, and while its GPUs are changed."""

    not_ready: str
    repartitioning: str


_DEFAULT, _CLUSTER_AUTOSCALER = (
    Taints(not_ready=start, repartitioning=change)
    for start, change in zip(NOT_READY_TAINTS, REPARTITIONING_TAINTS, strict=True)
)

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
