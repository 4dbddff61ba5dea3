"""A pseudo-terminal, and what programs show on it."""

import os
import pty
import threading
from collections.abc import Callable
from typing import TypeVar

from tests.support.waiting import PATIENCE

T = TypeVar("T")


def on_terminal(run: Callable[[int], T]) -> tuple[T, str]:
    """What `run` returns, which gets a terminal's descriptor, and all that was shown there: it does not come in one piece."""
    ours, theirs = pty.openpty()
    heard: list[bytes] = []

    def listen() -> None:
        try:
            while some := os.read(ours, 4096):
                heard.append(some)
        except OSError:
            return  # The other side is closed.

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        value = run(theirs)
    finally:
        os.close(theirs)
        listener.join(PATIENCE)
        os.close(ours)
    return value, b"".join(heard).decode(errors="replace")
