"""Which pool a node belongs to: its own label, and the pods of our DaemonSets that are on it. Pure."""

from collections.abc import Iterable, Mapping

from gpushare_node.adapters.kube.cluster import POOL_LABEL, RELEASE_ANNOTATION, NodeView, PodView

_NAME = "app.kubernetes.io/name"
_COMPONENT = "app.kubernetes.io/component"


def pools_present(pods: Iterable[PodView]) -> frozenset[str]:
    """The pools whose runtime has a pod on the node. One that is on its way out still counts: it may be at work."""
    return frozenset(
        pod.labels[POOL_LABEL]
        for pod in pods
        if pod.labels.get(_NAME) == "gpushare" and pod.labels.get(_COMPONENT) == "node" and POOL_LABEL in pod.labels
        and not pod.has_ended
    )


def find_owner(labels: Mapping[str, str], pods: Iterable[PodView], pool: str) -> str | None:
    """The other pool that has the node still: its label is there and so is its pod. None: the node is to be had.

    So of two pools that both select the node by mistake, the one whose label is there keeps it, and they never fight.
    """
    owner = labels.get(POOL_LABEL)
    return owner if owner not in (None, pool) and owner in pools_present(pods) else None


def find_successor(pods: Iterable[PodView], pool: str | None) -> str | None:
    """A pool whose pod waits for the node that `pool` leaves."""
    return min(pools_present(pods) - {pool}, default=None)


def is_requested(node: NodeView) -> bool:
    """Whether the uninstall Job has asked the node to release."""
    return RELEASE_ANNOTATION in node.annotations


def is_leaving(node: NodeView, *, is_selected: bool) -> bool:
    """Whether the node must go back to what it was: asked to, or no longer selected by the pool."""
    return is_requested(node) or not is_selected
