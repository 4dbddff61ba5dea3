"""What GPUs that we leave alone mean for the node: the worst reason, which are missing, whether the others match. Pure."""

from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.gpus.view import GpuView
from gpushare_node.partition.fitness import UnfitReason
from gpushare_node.partition.plan import Unfit

_FAULTS_WORST_FIRST = (
    UnfitReason.CARD_MISMATCH,
    UnfitReason.INVALID_LAYOUT,
    UnfitReason.PARTITION_MISMATCH,
    UnfitReason.GPU_COUNT_MISMATCH,
    UnfitReason.PENDING_FOREIGN_CHANGE,
    UnfitReason.GPU_LOST,
    UnfitReason.GPU_UNREADABLE,
)
"""Mistakes in the intent before hardware faults: only a person can fix them."""


def worst(view: GpuView) -> tuple[ConditionReason, str]:
    """Return the reason for the node, and a sentence that names every such GPU. There must be at least one."""
    unfit = sorted(view.plan.unfit, key=lambda one: (_FAULTS_WORST_FIRST.index(one.reason), one.index))
    reason = next(one for one in ConditionReason if one.word == unfit[0].reason.value)
    return reason, "; ".join(f"GPU {unfit_gpu.index}: {unfit_gpu.detail}" for unfit_gpu in unfit)


def missing_gpus(view: GpuView) -> frozenset[int]:
    """Return the indexes of GPUs that offer nothing because they are dead or gone: the node may be used without them."""
    there = {survey.index for survey in view.surveys}
    return frozenset(unfit_gpu.index for unfit_gpu in view.plan.unfit if _is_dead(unfit_gpu, is_there=unfit_gpu.index in there))


def is_converged(view: GpuView) -> bool:
    """Whether the GPUs that answer match the policy. One that is unfit without being dead or gone does not match."""
    is_done = not view.plan.operations and not view.compute_modes and bool(view.plan.gpus)
    return is_done and {unfit_gpu.index for unfit_gpu in view.plan.unfit} == missing_gpus(view)


def _is_dead(unfit: Unfit, *, is_there: bool) -> bool:
    gone = unfit.reason is UnfitReason.GPU_COUNT_MISMATCH and not is_there
    return gone or unfit.reason in (UnfitReason.GPU_LOST, UnfitReason.GPU_UNREADABLE)
