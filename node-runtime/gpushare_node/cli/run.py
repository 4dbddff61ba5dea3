"""Run: one run of the command: its arguments, clock and log, how signals stop it, its exit codes, and its policy."""

import os
import signal
import socket
import sys
from argparse import Namespace
from enum import IntEnum
from pathlib import Path
from types import FrameType

from gpushare_node.contract.policy import read
from gpushare_node.contract.strict_document import PolicyError
from gpushare_node.core.clock import SystemClock
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.reporting.log import begin, escape

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
