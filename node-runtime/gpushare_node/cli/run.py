"""Run: one run of the command: its arguments, its clock, its log, and how signals stop it."""

import os
import signal
import socket
import sys
from argparse import Namespace
from types import FrameType

from gpushare_node.core.clock import SystemClock
from gpushare_node.reporting.log import begin


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
