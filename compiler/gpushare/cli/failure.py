"""What an exception that ends a command means: its exit code, and what is said about it."""

import os
from traceback import format_exception

from gpushare import __version__
from gpushare.cli import streams
from gpushare.cli.exits import ExitCode
from gpushare.core.diagnostics import HintedError
from gpushare.core.wording import visible
from gpushare_node.contract.struct import Struct


class Failure(Struct):
    """The exit code, the line that says why, the text before it (of a bug its traceback), and the hint. All safe to print."""

    code: ExitCode
    line: str
    before: str
    hint: str

    @property
    def text(self) -> str:
        """The whole message."""
        return f"{self.before}{self.line}\n{streams.hint(self.hint)}"


def of(problem: Exception) -> Failure:
    """Return what an exception means: the environment's fault or the call's, or any other, which is a bug."""
    message = str(problem)
    if isinstance(problem, OSError):
        file = "" if problem.filename is None else f"{os.fsdecode(problem.filename)}: "
        message = file + streams.reason(problem)
    if isinstance(problem, (HintedError, OSError)):
        hint = problem.hint if isinstance(problem, HintedError) else ""
        return Failure(code=ExitCode.COULD_NOT_RUN, line=f"gpushare: {visible(message)}", before="", hint=visible(hint))
    return Failure(
        code=ExitCode.BUG,
        line=f"gpushare: this is a bug in gpushare {__version__}, not in your input ({type(problem).__name__})",
        before="".join(format_exception(problem)),
        hint="please report it with the text above and the intent that shows it",
    )
