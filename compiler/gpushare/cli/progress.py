"""What a command is doing, for a person who waits: shown on a terminal after a second, and removed at the end."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from gpushare.cli import streams

if TYPE_CHECKING:
    import threading

SECONDS = 1.0
"""How long nothing is shown, and how often it is shown again."""


class Progress:
    """A context in which a line on stderr says what is done and for how many seconds; nothing else may write there."""

    def __init__(self, what: str) -> None:
        """`what` is safe to print."""
        self.what = what
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        if sys.stderr is None or not sys.stderr.isatty():
            return
        import threading  # noqa: PLC0415 - only a terminal needs it

        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()

    def _show(self) -> None:
        waited = 0.0
        while not self._ended.wait(SECONDS):
            waited += SECONDS
            streams.progress(f"{self.what}, {waited:.0f} s")
        if waited:
            streams.progress("")
