"""The result of a run on a node and of each of its steps, and the exception of a step that cannot continue. Values only."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct


class Status(StrEnum):
    """OK: no change was needed. CHANGED: changed; with `--check`, it would be. SKIPPED: not done; `detail` has the reason."""

    OK = "ok"
    CHANGED = "changed"
    FAILED = "failed"
    SKIPPED = "skipped"


class StepResult(Struct):
    """One step. `target` is `GPU 3` or `node`; `before` and `after` are for `--diff`, lines of text."""

    step: str
    target: str
    status: Status
    detail: str = ""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def is_failed(results: Iterable[StepResult]) -> bool:
    """Whether any step failed."""
    return any(result.status is Status.FAILED for result in results)


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


def join_first(names: Sequence[str], limit: int) -> str:
    """Return `a, b`, or `a, b and 7 more` if there are more than `limit`; empty for no names."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
