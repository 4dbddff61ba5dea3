"""The command line: one module per command, imported only when it is called. Owns how every run ends.

A command module has one click command called `command`, which returns an ExitCode. Only `streams` uses stdin, stdout and
stderr; only this module turns exceptions into exit codes.
"""

import gc
import os
import sys
from pathlib import PurePath

from gpushare import __version__
from gpushare.cli import streams
from gpushare.cli.exits import BrokenOutputError, CouldNotRunError, ExitCode, FindingsError
from gpushare.core.errors import HintedError

COMPLETE_VARIABLE = "_GPUSHARE_COMPLETE"


def main() -> int:
    """Run `call` and end the process at once: freeing every object would take longer than writing the bundle."""
    code = call()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # closed: the interpreter handles it at exit
        return code
    os._exit(code)


def call() -> int:
    """Run the command that the process was called with, and return the exit code."""
    # A run lasts a fraction of a second and leaves hardly any cycles: garbage collection would take a fifth of it.
    gc.disable()
    program = "kubectl gpushare" if PurePath(sys.argv[0]).stem == "kubectl-gpushare" else "gpushare"
    try:
        from gpushare.cli import commands  # noqa: PLC0415 - an interrupt during the import ends the run without a traceback, too

        return commands.run(program, sys.argv[1:] or ["--help"], COMPLETE_VARIABLE, os.environ.get(COMPLETE_VARIABLE))
    except FindingsError as found:
        return found.code
    except (HintedError, BrokenOutputError, OSError) as problem:
        return _environment_error(problem)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as problem:
        return _internal_error(problem)


def _environment_error(problem: HintedError | BrokenOutputError | OSError) -> ExitCode:
    if isinstance(problem, OSError):
        if problem.filename is None:
            return _environment_error(streams.refused(problem))
        problem = CouldNotRunError(f"{os.fsdecode(problem.filename)}: {streams.reason(problem)}")
    if isinstance(problem, BrokenOutputError):
        return ExitCode.READER_GONE
    from gpushare.core.printable import visible  # noqa: PLC0415 - a name in a message may contain any character

    streams.warn(f"gpushare: {visible(str(problem))}\n" + streams.hint(visible(problem.hint)))
    return ExitCode.COULD_NOT_RUN


def _internal_error(problem: Exception) -> ExitCode:
    from traceback import format_exception  # noqa: PLC0415 - only an internal error needs it

    streams.warn("".join(format_exception(problem)))
    streams.warn(
        f"gpushare: this is a bug in gpushare {__version__}, not in your input ({type(problem).__name__})\n"
        + streams.hint("please report it with the text above and the intent that shows it")
    )
    return ExitCode.BUG
