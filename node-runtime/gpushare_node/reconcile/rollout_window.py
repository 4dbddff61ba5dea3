"""When a change of a node may begin: which changes the pool's `paused` and `windows` hold back, and whether they do so now.

Held back is what takes a layout, or the plugin's config, from a node that has one of ours. Not held back:

- a node that never had a layout of ours: neither the folder has a policy nor the node our profile label;
- a repair: the policy in force and the desired one give the same layout and resources, also if caps or names differ;
- a node that lost its layout, as in a reboot: no GPU that should be divided is. If only some GPUs lost theirs, the
  others still serve tenants, and another layout waits;
- a node on which neither back end may offer GPUs: the label says that a change has begun;
- what is left of a change that has begun, after a restart or a failed attempt, whatever the policy is at that time: the node is
  out of service. The journal has that; mig-manager's label, where it partitions; or the hardware, if only labels are missing;
- a node that leaves its pool for none. Another pool's windows count for a node that it takes over.

What the plugin offers at the moment does not count: while it restarts it offers nothing, and tenants run on.
"""

from gpushare_node.adapters.host.state_dir import Journal
from gpushare_node.adapters.kube.cluster import NodeView
from gpushare_node.contract.names import PROFILE_LABEL, VENDOR_LABEL
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct
from gpushare_node.contract.windows import locate
from gpushare_node.gpus.view import GpuView
from gpushare_node.membership import layout_request
from gpushare_node.partition.operations import CreateInstance
from gpushare_node.partition.state import Gpu
from gpushare_node.reporting.outcome import Blocked
from gpushare_node.vendors import of


class PolicyChange(Struct):
    """A change of a node from the policy in force, `former`, to `policy`. `view` and `former_view` are the GPUs by each.

    Where the back end changes, the node's label says whose offer the change takes away.
    """

    policy: Policy
    former: Policy | None
    view: GpuView
    former_view: GpuView | None
    node: NodeView
    journal: Journal | None

    @property
    def is_disruptive(self) -> bool:
        """Whether the pool's rollout settings hold it back."""
        labels, backend = self.node.labels, self.node.backend
        if backend is None:
            return False
        if self.journal is not None and self.journal.is_changing and self.journal.is_new_layout:
            return False
        if self.former is None or self.former_view is None:
            is_known = PROFILE_LABEL in labels or VENDOR_LABEL in labels or self.node.has_claims
            return is_known and not (backend is self.policy.backend and self._restores_published())
        if self.former.is_alike(self.policy):
            return False
        if self.former.backend is not self.policy.backend:
            return backend is not self.policy.backend
        requested = layout_request(self.policy).items() - layout_request(self.former).items()
        is_requested = bool(requested) and requested <= labels.items()
        return not (is_requested or self._is_changed(self.former_view) or _is_lost(self.former, self.former_view))

    def _restores_published(self) -> bool:
        """Without the former policy: whether nothing goes, and what the node's label names stays."""
        published = {PROFILE_LABEL: self.policy.profile} if self.policy.profile else layout_request(self.policy)
        creates_only = all(isinstance(operation, CreateInstance) for operation in self.view.plan.operations)
        return creates_only and not self.view.compute_modes and published.items() <= self.node.labels.items()

    def _is_changed(self, former_view: GpuView) -> bool:
        """Whether the hardware has the desired layout already, which is not the former one."""
        return not self.view.plan.operations and not self.view.compute_modes and bool(former_view.plan.operations)


def _is_lost(former: Policy, view: GpuView) -> bool:
    """Whether no GPU that should be divided by the former policy is. What a faulty one has is not known."""
    divided = {gpu.index for gpu in former.gpus if gpu.instances or (gpu.partition is not None and gpu.partition.devices > 1)}
    known = [gpu for gpu in view.state.gpus if gpu.index in divided and gpu.fault is None]
    return bool(known) and not any(_is_divided(gpu) for gpu in known)


def _is_divided(gpu: Gpu) -> bool:
    has_instances = gpu.mig is not None and gpu.mig.current and bool(gpu.mig.instances)
    return has_instances or (gpu.modes is not None and gpu.modes.devices > 1)


def change_seconds(policy: Policy) -> float:
    """Return what must be left of a window in addition to the drain's time."""
    return of(policy.vendor).window_seconds


def check(policy: Policy, now: float, seconds: float) -> None:
    """Raise Blocked if a disruptive change that takes so long may not begin at `now`, in seconds since 1970."""
    rollout = policy.rollout
    if rollout.is_paused:
        raise Blocked(ConditionReason.ROLLOUT_PAUSED, f"the rollout of pool {policy.pool} is paused", is_unchanged=True)
    if not rollout.windows:
        return
    position = locate(rollout.windows, now)
    if position.left_seconds and position.left_seconds >= seconds:
        return
    unknown = f"the time zone database has no {', '.join(position.unknown_zones)}" if position.unknown_zones else ""
    if position.opens_at is None:
        raise Blocked(ConditionReason.TIME_ZONE_UNKNOWN, unknown or "no window ever opens", is_unchanged=True)
    text = f"the next window of pool {policy.pool} opens {position.opening}"
    if position.left_seconds:
        text = f"the open window closes before drain and change could end; {text}"
    raise Blocked(ConditionReason.WAITING_FOR_WINDOW, "; ".join(filter(None, (text, unknown))), is_unchanged=True)
