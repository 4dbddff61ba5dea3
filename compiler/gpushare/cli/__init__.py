"""The command line: one module per command, imported only when it is called. Owns how every run ends.

A command module has one click command called `command`, which returns an ExitCode. Only `streams` uses stdin, stdout and
stderr; only this module turns exceptions into exit codes.
"""

import gc
import os
import sys
from pathlib import PurePath

from gpushare.cli import streams
from gpushare.cli.exits import BrokenOutputError, ExitCode, FindingsError

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
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as problem:
        return _failed(problem)


def _failed(problem: Exception) -> ExitCode:
    if isinstance(problem, OSError) and problem.filename is None:
        problem = streams.refused(problem)
    if isinstance(problem, BrokenOutputError):
        return ExitCode.READER_GONE
    found = streams.failure(problem)
    streams.warn(found.text)
    return found.code
