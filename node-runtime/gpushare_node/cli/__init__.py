"""The command `gpushare-node`. Wires the parts and prints; makes no decisions."""

import json
import logging
import os
import signal
import sys
from collections.abc import Sequence

from gpushare_node.adapters.host.state_dir import StateDirError, StateDirLockedError
from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.cli.options import parse
from gpushare_node.cli.run import Exit, PolicyFileError, Run
from gpushare_node.core.clock import Stopped
from gpushare_node.reporting.log import escape
from gpushare_node.vendors.driver import DriverError

__all__ = ["main"]

_LOG = logging.getLogger("gpushare")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. Raises only SystemExit (argparse)."""
    run = Run(parse(argv))
    try:
        return _perform(run)
    except PolicyFileError as error:
        return _refuse(run, str(error), Exit.WRONG)
    except DriverError as error:
        return _refuse(run, f"the driver does not answer: {error}", Exit.UNAVAILABLE)
    except ClusterError as error:
        return _refuse(run, f"{error}; --standalone works without an API server", Exit.WRONG)
    except StateDirLockedError as error:
        return _refuse(run, str(error), Exit.LOCKED)
    except StateDirError as error:
        return _refuse(run, str(error), Exit.FAILED)
    except Stopped:
        return _refuse(run, f"stopped by {run.stopped_by.name}", 128 + run.stopped_by)
    except KeyboardInterrupt:
        return _refuse(run, "stopped by SIGINT", 128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader of our output is gone; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    except Exception as error:
        _LOG.exception("internal error")
        return _refuse(run, f"internal error: {type(error).__name__}: {error}", Exit.INTERNAL)


def _perform(run: Run) -> int:
    """Run the command. Each imports only what it needs, because starting a pod is slow enough."""
    # ruff: noqa: PLC0415 - for that reason
    match run.arguments.command:
        case "apply":
            from gpushare_node.cli.apply import apply

            return apply(run)
        case "assert":
            from gpushare_node.cli.assert_state import compare

            return compare(run)
        case "export":
            from gpushare_node.cli.export import export

            return export(run)
        case "enforce":
            from gpushare_node.cli.enforce import enforce

            return enforce(run)
        case _:
            from gpushare_node.cli.apply import release

            return release(run)


def _refuse(run: Run, message: str, code: int) -> int:
    """Print one line on stderr and, if the format is JSON, a document with the error; return the exit code."""
    sys.stderr.write(f"gpushare-node: {escape(message)}\n")
    if getattr(run.arguments, "format", "") == "json":
        document = {"command": run.arguments.command, "host": run.node, "error": message, "exit": int(code)}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    return int(code)
