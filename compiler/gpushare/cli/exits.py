"""How a command ends: the only definition of the exit codes, and the exceptions that lead to them."""

from enum import IntEnum

from gpushare.core.diagnostics import HintedError


class ExitCode(IntEnum):
    """Part of the public contract; the last two are what shells expect after an interrupt and after a closed pipe."""

    DONE = 0
    FINDINGS = 1
    COULD_NOT_RUN = 2
    CHANGES = 3
    BUG = 70
    INTERRUPTED = 130
    READER_GONE = 141


EXIT_CODES = (
    "Exit codes: 0 done, 1 findings with errors, 2 could not run, 3 a difference (of `compile --check`, `plan --exit-code`,"
    " `images --verify`, `drift`), 70 a bug in gpushare."
)


class CouldNotRunError(HintedError):
    """The command cannot do what the call asks."""


class FindingsError(Exception):
    """Findings that end the run, and are reported already; `code` is what they mean, `summary` says how many there are."""

    def __init__(self, code: ExitCode, summary: str = "") -> None:
        super().__init__()
        self.code = code
        self.summary = summary


class BrokenOutputError(Exception):
    """The reader of our output closed it (`gpushare cards | head`): no message is written."""
