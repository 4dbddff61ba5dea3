"""Run: one run of the command: its arguments, clock and log, how signals stop it, its exit codes, and its policy."""

import io
import json
import os
import signal
import socket
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from gpushare_node.contract.policy import read
from gpushare_node.contract.strict_document import PolicyError
from gpushare_node.core.clock import SystemClock
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.reporting.log import begin, escape
from gpushare_node.reporting.outcome import Status, StepResult

STDIN = "-"
MAX_BYTES = 1 << 20
"""The size limit of a ConfigMap."""

MEANINGS = """\
exit status:
  0    done; the node matches the policy
  1    a step failed, or the node does not match the policy
  2    invalid policy or command line, or (assert) the node's state cannot be read; nothing was changed
  69   the driver does not answer
  70   internal error; see the log
  75   another gpushare-node is running on this node; try again later
  130  interrupted by SIGINT
  143  interrupted by SIGTERM"""


class Exit(IntEnum):
    """Exit codes; 69, 70 and 75 are those of sysexits.h."""

    DONE = 0
    FAILED = 1
    WRONG = 2
    UNAVAILABLE = 69
    INTERNAL = 70
    LOCKED = 75


class Run:
    """What every command receives. `node` is the node's name in Kubernetes; outside a pod, the host's name."""

    def __init__(self, arguments: Namespace) -> None:
        self.arguments = arguments
        self.clock = SystemClock()
        self.node = os.environ.get("NODE_NAME") or socket.gethostname()
        self.log = begin(sys.stderr, node=self.node, is_terminal=sys.stderr.isatty())
        self.stopped_by = signal.SIGTERM

    def install_signal_handlers(self) -> None:
        """Let SIGTERM and SIGINT end the run at its next wait, so that no step is interrupted."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self.stopped_by = signal.Signals(number)
        self.clock.stop()


class PolicyFileError(Exception):
    """A policy that cannot be read; the message is `FILE: path.in.document: what is wrong`."""


def read_policy(name: str) -> DesiredPolicy:
    """Return the policy in the file of this name; `-` is standard input."""
    shown = "standard input" if name == STDIN else escape(name)
    try:
        if name == STDIN:
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        if len(content) <= MAX_BYTES:
            text = content.decode("utf-8")
            return DesiredPolicy(text=text, policy=read(text))
        message = f"is larger than {MAX_BYTES >> 20} MiB, the limit of a policy"
    except PolicyError as error:
        message = f"{error.path}: {error.message}"
    except UnicodeDecodeError as error:
        message = f"is not UTF-8: byte {error.start} is not the start of a character"
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    raise PolicyFileError(f"{shown}: {escape(message)}")


_COLOURS = {Status.OK: "32", Status.CHANGED: "33", Status.FAILED: "31", Status.SKIPPED: "36"}


class Printer:
    """Prints each step at once, and the recap at the end. With `as_json`, prints only one document at the end."""

    def __init__(self, out: TextIO, *, as_json: bool = False, with_diff: bool = False) -> None:
        self._out = out
        self._as_json = as_json
        self._with_diff = with_diff
        self._is_coloured = not as_json and out.isatty() and not os.environ.get("NO_COLOR")
        self._results: list[StepResult] = []

    @property
    def results(self) -> tuple[StepResult, ...]:
        """The steps so far."""
        return tuple(self._results)

    def step(self, result: StepResult) -> None:
        """Record and print a step."""
        self._results.append(result)
        if self._as_json:
            return
        detail = f": {result.detail}" if result.detail else ""
        self._say(f"{result.status.value:<8}{escape(result.target):<7} {escape(result.step + detail)}", result.status)
        if self._with_diff and result.before != result.after:
            from difflib import ndiff  # noqa: PLC0415 - needed only with --diff

            for line in ndiff(result.before, result.after):
                if not line.startswith("?"):
                    self._say(f"        {escape(line)}", _DIFF.get(line[0]))

    def end(self, host: str, command: str, facts: Mapping[str, Any]) -> None:
        """Print the recap. `facts` are for the JSON document; `message` among them is printed as text too."""
        counts = Counter(result.status for result in self._results)
        recap = {status.value: counts[status] for status in Status}
        if self._as_json:
            results = [_as_dict(one) for one in self._results]
            document = {"command": command, "host": host, **facts, "recap": recap, "results": results}
            self._out.write(json.dumps(document, indent=1) + "\n")
        else:
            worst = Status.FAILED if counts[Status.FAILED] else Status.CHANGED if counts[Status.CHANGED] else Status.OK
            numbers = " ".join(f"{name}={count}" for name, count in recap.items())
            self._say(f"{escape(host)} : {numbers}", worst)
            if facts.get("message"):
                self._say(escape(str(facts["message"])), None)
        self._out.flush()

    def _say(self, text: str, status: Status | None) -> None:
        coloured = f"\x1b[{_COLOURS[status]}m{text}\x1b[0m" if self._is_coloured and status is not None else text
        self._out.write(f"{coloured}\n")
        self._out.flush()


_DIFF = {"-": Status.FAILED, "+": Status.OK}


def _as_dict(result: StepResult) -> dict[str, Any]:
    return {
        "step": result.step,
        "target": result.target,
        "status": result.status.value,
        "detail": result.detail,
        "before": list(result.before),
        "after": list(result.after),
    }


def to_stdout(*, as_json: bool, with_diff: bool = False) -> Printer:
    """Return a printer to standard output; characters that its encoding lacks are escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Printer(sys.stdout, as_json=as_json, with_diff=with_diff)
