"""The result of a run on a node, and the exception of a step that cannot continue. Values only."""

from gpushare_node.contract.struct import Struct
from gpushare_node.reporting.reasons import ConditionReason
from gpushare_node.reporting.results import StepResult


class Unmet(Struct):
    """Why a condition that the run waits for is not met yet. `is_stale`: the device plugin must enumerate its devices again."""

    reason: ConditionReason
    message: str
    is_stale: bool = False


class Outcome(Struct):
    """The result of a run. `is_usable`: the node offers what it can, and caps may be enforced under the new policy.

    A node that lacks one of its GPUs is usable, and its reason states what is missing.
    """

    reason: ConditionReason
    message: str
    results: tuple[StepResult, ...] = ()
    is_usable: bool = False


class Blocked(Exception):  # noqa: N818 - not an error: a state of the node that may be temporary
    """The run cannot continue now. `is_unchanged`: nothing was changed; the previous layout is in force."""

    def __init__(self, reason: ConditionReason, message: str, *, is_unchanged: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.is_unchanged = is_unchanged
