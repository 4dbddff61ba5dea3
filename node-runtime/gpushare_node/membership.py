"""Which pool has the node: the labels that say so, and whether the pool still selects it. Changes no hardware."""

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum

from gpushare_node.adapters.host.state_dir import Published, StateDir, UnselectedMark
from gpushare_node.adapters.kube.cluster import MIG_LABEL, PLUGIN_LABEL, Cluster, NodeView, PodView, pools_of
from gpushare_node.adapters.kube.views import FIELD_MANAGER
from gpushare_node.contract.names import POOL_LABEL, PROFILE_LABEL, RELEASE_ANNOTATION, RETRY_ANNOTATION, VENDOR_LABEL
from gpushare_node.contract.policy import Partitioner, Policy, Vendor
from gpushare_node.contract.struct import Struct
from gpushare_node.core.clock import Clock
from gpushare_node.vendors import of

_OWN = (POOL_LABEL, VENDOR_LABEL, PROFILE_LABEL, PLUGIN_LABEL, MIG_LABEL)

CLAIM = frozenset({POOL_LABEL, VENDOR_LABEL})
"""What says that a node is a pool's. It is removed last, at once."""

RELEASE_AFTER_SECONDS = 300.0
"""How long a node must be unselected before it leaves its pool."""


def find_owner(labels: Mapping[str, str], present: Collection[str], pool: str) -> str | None:
    """Return the other pool that still has the node: the node has its label and its pod. None: `pool` may take the node.

    So if two pools select a node by mistake, the one whose label is set keeps it, and they do not take turns. `present` are
    the pools with a pod on the node.
    """
    owner = labels.get(POOL_LABEL)
    return owner if owner not in (None, pool) and owner in present else None


def find_successor(present: frozenset[str], pool: str | None) -> str | None:
    """Return a pool whose pod waits for the node that `pool` leaves; `present` are those with a pod on the node."""
    return min(present - {pool}, default=None)


def is_requested(node: NodeView) -> bool:
    """Return whether the uninstall Job requests the node to leave its pool."""
    return RELEASE_ANNOTATION in node.annotations


def desired(policy: Policy, published: Published) -> dict[str, str]:
    """Return all labels that a node of the pool must have. Those that only a free node may get are `layout_request`."""
    names = {PROFILE_LABEL: policy.profile, PLUGIN_LABEL: published.key}
    return claim(policy) | {label: value for label, value in names.items() if value} | mig_label(policy)


def claim(policy: Policy) -> dict[str, str]:
    """Return the labels that say that a node is the pool's."""
    vendor = {} if policy.vendor is Vendor.NVIDIA else {VENDOR_LABEL: policy.vendor.value}
    return {POOL_LABEL: policy.pool} | vendor


def mig_label(policy: Policy) -> dict[str, str]:
    """Return the label that names the layout for mig-manager; nothing where this runtime partitions."""
    asks = policy.partitioner is Partitioner.MIG_MANAGER and policy.mig_config is not None
    return {MIG_LABEL: policy.mig_config} if asks and policy.mig_config else {}


def layout_request(policy: Policy) -> dict[str, str]:
    """Return the label that names the layout for the vendor's own program, whichever it is; nothing where none is asked."""
    asks = policy.partitioner is Partitioner.CONFIG_MANAGER and policy.manager_config is not None
    return {of(policy.vendor).layout_label: policy.manager_config or ""} if asks else mig_label(policy)


def own_labels(labels: Mapping[str, str], owners: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that this project has set on the node.

    Other programs may write those of nvidia.com/: they count only if our field manager owns them.
    """
    ours = {name for name in (POOL_LABEL, VENDOR_LABEL, PROFILE_LABEL) if name in labels}
    ours |= {name for name in (PLUGIN_LABEL, MIG_LABEL) if name in labels and owners.get(name) == FIELD_MANAGER}
    return {name: labels[name] for name in _OWN if name in ours}


def must_apply(desired: Mapping[str, str], labels: Mapping[str, str], owners: Mapping[str, str]) -> bool:
    """Return whether the labels differ from the desired ones. An equal value is enough, whichever program wrote it."""
    return any(labels.get(name) != value for name, value in desired.items()) or bool(
        own_labels(labels, owners).keys() - desired.keys()
    )


class Standing(Enum):
    """Whether the node stays in its pool. UNSELECTED: no selector matches it, and the wait is not over."""

    STAYS = "stays"
    UNSELECTED = "unselected"
    LEAVES = "leaves"


class PoolSelection(Struct):
    """Whether the pool `pool` still selects this node. `pods` returns the pods on the node. For one run and thread.

    An order releases the node at once; a selecting label that is gone, after a wait: the labels of node and GPU feature
    discovery vanish for up to a minute when their pods restart. Until the wait is over nothing is evicted, destroyed or
    released because of them. The time is in the node's folder, because it must outlive a pod; a reboot starts it again.
    """

    cluster: Cluster
    pods: Callable[[], Iterable[PodView]]
    folder: StateDir
    clock: Clock
    boot_id: str
    pool: str
    release_after_seconds: float = RELEASE_AFTER_SECONDS

    def find(self, node: NodeView) -> Standing:
        """Return the standing of the node as it was just read, requests aside. ClusterError, StateDirError."""
        mark = self.folder.unselected()
        if mark is not None and (mark.boot_id != self.boot_id or mark.at_seconds > self.clock.now()):
            mark = None  # Another boot's.
        if self.cluster.selects(node):
            if mark is not None:
                self.folder.mark_unselected(None)
            return Standing.STAYS
        if self._is_moved(node):
            return Standing.LEAVES
        is_ordered = RETRY_ANNOTATION in node.annotations
        if mark is None or (is_ordered and not mark.is_ordered):
            mark = UnselectedMark(boot_id=self.boot_id, at_seconds=int(self.clock.now()), is_ordered=is_ordered)
            self.folder.mark_unselected(mark)
        is_over = mark.is_ordered or self.clock.now() - mark.at_seconds >= self.release_after_seconds
        return Standing.LEAVES if is_over else Standing.UNSELECTED

    def _is_moved(self, node: NodeView) -> bool:
        """Return whether an unselected node has another pool's label or pod, or the pool's own DaemonSet is deleted."""
        if node.labels.get(POOL_LABEL, self.pool) != self.pool:
            return True
        present = pools_of(self.pods(), self.cluster.namespace)
        return find_successor(present, self.pool) is not None or not self.cluster.has_pool()
