"""What a command did, step by step, as Ansible reports it. Values only; `cli.recap` prints them."""

from collections.abc import Iterable
from enum import StrEnum

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
