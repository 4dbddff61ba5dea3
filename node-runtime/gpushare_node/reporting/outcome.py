"""How a run on a node ends, and how a step says that it cannot go on. Values only."""


from gpushare_node.core.structs import Struct
from gpushare_node.reporting.reasons import ConditionReason
from gpushare_node.reporting.results import StepResult


class Unmet(Struct):
    """Why something is not so yet. `is_stale`: the device plugin must enumerate again."""

    reason: ConditionReason
    message: str
    is_stale: bool = False


class Outcome(Struct):
    """The end of a run. `is_usable`: the node offers what it can and caps may be enforced under the new policy.

    A node without one of its GPUs is usable, and its reason says what is missing.
    """

    reason: ConditionReason
    message: str
    results: tuple[StepResult, ...] = ()
    is_usable: bool = False


class Blocked(Exception):  # noqa: N818 - no error: a state of the node that may pass
    """The run cannot go on now. `is_unchanged`: nothing was changed; what stood before stands."""

    def __init__(self, reason: ConditionReason, message: str, *, is_unchanged: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.is_unchanged = is_unchanged
