"""Changing the hardware, when there is room: by this runtime's own hand, or by mig-manager's under its eyes."""

from collections.abc import Callable

from gpushare_node.core.policy import Partitioner
from gpushare_node.gpus.hardware import PartitionResult
from gpushare_node.gpus.view import GpuView
from gpushare_node.reconcile import node_labels
from gpushare_node.reconcile.client_pause import paused
from gpushare_node.reconcile.drain import Drain
from gpushare_node.reconcile.gpu_clients import must_pause
from gpushare_node.reconcile.mps_servers import await_servers
from gpushare_node.reporting.outcome import Blocked, Unmet
from gpushare_node.reporting.reasons import ConditionReason
from gpushare_node.reporting.results import Status

_MIG_STATE = "nvidia.com/mig.config.state"
_FAILED = "failed"
_SUCCESS = "success"

_MIG_MANAGER_SECONDS = 1200.0
"""Its own waits add up to this: four times five minutes for clients."""

_STALE_SECONDS = 30.0
"""For so long the state may still be the one of the config before."""


def change_hardware(
    room: Drain, sight: GpuView, digest: str, *, announce: Callable[[], None], publish: Callable[[], None]
) -> PartitionResult:
    """Carry the plan out for every GPU that is free. `publish` comes after it and before GPU clients are back.

    So a plugin that starts again finds its label. Where the plan is empty nothing is called that changes anything. MPS servers
    must end first: `announce` has their daemons learn that they are not wanted any more.
    """
    visit, policy = room.visit, room.wish.policy
    sight = await_servers(room, sight, digest, announce)
    if policy.partitioner is Partitioner.MIG_MANAGER and (sight.plan.operations or not sight.compute_modes):
        change = _supervise(room, sight)
        if change.reason is None:
            publish()
        return change
    pauses = visit.site.cluster is not None and must_pause(policy, sight.plan)
    with paused(visit, digest, is_needed=pauses):
        if sight.plan.operations or sight.compute_modes:
            sight = room.settle()
        visit.rest()
        visit.is_touched = True
        change = room.hardware.change(policy, sight, room.find_allocated, visit.take)
        publish()
    return change


def _supervise(room: Drain, sight: GpuView) -> PartitionResult:
    """Let mig-manager do it. Its word is not taken for it: the hardware is looked at afterwards."""
    visit = room.visit
    if not sight.plan.operations:
        visit.note("layout", "node", Status.OK, "as mig-manager partitioned it")
        return PartitionResult(results=(), reason=None, message="")
    if visit.site.cluster is None:
        raise Blocked(ConditionReason.PARTITION_FAILED, "mig-manager partitions this pool's nodes, by a label", is_kept=True)
    visit.rest()
    visit.is_touched = True
    # Our own handles would block it, those of enforcement too; the tenants have gone.
    room.hardware.close()
    visit.enforced = None
    _ask(room)
    lack = visit.wait(_Supervision(room).find, _MIG_MANAGER_SECONDS)
    if lack is not None:
        return PartitionResult(results=(), reason=lack.reason, message=lack.message)
    visit.await_driver(room.hardware)
    left = room.hardware.look(room.wish.policy, room.allocated)
    if left.plan.operations:
        message = "mig-manager reports success, but the GPUs do not have the layout"
        return PartitionResult(results=(), reason=ConditionReason.PARTITION_FAILED, message=message)
    visit.note("layout", "node", Status.CHANGED, "by mig-manager")
    return PartitionResult(results=(), reason=None, message="")


def _ask(room: Drain) -> None:
    node = room.visit.cluster.node()
    wanted = node_labels.mig_label(room.wish.policy)
    if node_labels.standing(node.labels, node.owners) | wanted != node_labels.standing(node.labels, node.owners):
        room.visit.cluster.apply_labels(node_labels.standing(node.labels, node.owners) | wanted)
        room.visit.note("ask mig-manager", "node", Status.CHANGED, ", ".join(wanted.values()))


class _Supervision:
    """mig-manager at work, as its state label tells. It can hang in `pending` for ever, and says nothing of why it failed."""

    def __init__(self, room: Drain) -> None:
        self._room = room
        self._began_at = room.visit.site.clock.now()
        self._is_fresh = False

    def find(self) -> Unmet | None:
        state = self._room.visit.cluster.node().labels.get(_MIG_STATE, "")
        is_old = self._room.visit.site.clock.now() - self._began_at < _STALE_SECONDS
        self._is_fresh = self._is_fresh or state not in (_SUCCESS, _FAILED) or not is_old
        if state == _SUCCESS and self._is_fresh:
            return None
        is_failed = state == _FAILED and self._is_fresh
        text = f"{_MIG_STATE} is {state or 'absent'}"
        return Unmet(reason=ConditionReason.PARTITION_FAILED if is_failed else ConditionReason.PARTITIONING, message=text)
