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
    drain: Drain, view: GpuView, digest: str, *, announce: Callable[[], None], publish: Callable[[], None]
) -> PartitionResult:
    """Carry the plan out for every GPU that is free. `publish` comes after it and before GPU clients are back.

    So a plugin that starts again finds its label. Where the plan is empty nothing is called that changes anything. MPS servers
    must end first: `announce` has their daemons learn that they are not wanted any more.
    """
    context, policy = drain.context, drain.request.policy
    view = await_servers(drain, view, digest, announce)
    if policy.partitioner is Partitioner.MIG_MANAGER and (view.plan.operations or not view.compute_modes):
        change = _supervise(drain, view)
        if change.reason is None:
            publish()
        return change
    pauses = context.deps.cluster is not None and must_pause(policy, view.plan)
    with paused(context, digest, is_needed=pauses):
        if view.plan.operations or view.compute_modes:
            view = drain.settle()
        context.close_driver()
        context.is_touched = True
        change = drain.hardware.change(policy, view, drain.find_allocated, context.record_result)
        publish()
    return change


def _supervise(drain: Drain, view: GpuView) -> PartitionResult:
    """Let mig-manager do it. Its word is not taken for it: the hardware is looked at afterwards."""
    context = drain.context
    if not view.plan.operations:
        context.record_step("layout", "node", Status.OK, "as mig-manager partitioned it")
        return PartitionResult(results=(), reason=None, message="")
    if context.deps.cluster is None:
        raise Blocked(
            ConditionReason.PARTITION_FAILED, "mig-manager partitions this pool's nodes, by a label", is_unchanged=True
        )
    context.close_driver()
    context.is_touched = True
    # Our own handles would block it, those of enforcement too; the tenants have gone.
    drain.hardware.close()
    context.enforced = None
    _ask(drain)
    mismatch = context.wait(_Supervision(drain).find, _MIG_MANAGER_SECONDS)
    if mismatch is not None:
        return PartitionResult(results=(), reason=mismatch.reason, message=mismatch.message)
    context.await_driver(drain.hardware)
    left = drain.hardware.look(drain.request.policy, drain.allocated)
    if left.plan.operations:
        message = "mig-manager reports success, but the GPUs do not have the layout"
        return PartitionResult(results=(), reason=ConditionReason.PARTITION_FAILED, message=message)
    context.record_step("layout", "node", Status.CHANGED, "by mig-manager")
    return PartitionResult(results=(), reason=None, message="")


def _ask(drain: Drain) -> None:
    node = drain.context.cluster.node()
    wanted = node_labels.mig_label(drain.request.policy)
    if node_labels.standing(node.labels, node.owners) | wanted != node_labels.standing(node.labels, node.owners):
        drain.context.cluster.apply_labels(node_labels.standing(node.labels, node.owners) | wanted)
        drain.context.record_step("ask mig-manager", "node", Status.CHANGED, ", ".join(wanted.values()))


class _Supervision:
    """mig-manager at work, as its state label tells. It can hang in `pending` for ever, and says nothing of why it failed."""

    def __init__(self, drain: Drain) -> None:
        self._room = drain
        self._began_at = drain.context.deps.clock.now()
        self._is_fresh = False

    def find(self) -> Unmet | None:
        state = self._room.context.cluster.node().labels.get(_MIG_STATE, "")
        is_old = self._room.context.deps.clock.now() - self._began_at < _STALE_SECONDS
        self._is_fresh = self._is_fresh or state not in (_SUCCESS, _FAILED) or not is_old
        if state == _SUCCESS and self._is_fresh:
            return None
        is_failed = state == _FAILED and self._is_fresh
        text = f"{_MIG_STATE} is {state or 'absent'}"
        return Unmet(reason=ConditionReason.PARTITION_FAILED if is_failed else ConditionReason.PARTITIONING, message=text)
