"""The user's pager: whether a text needs one, which program it is, and what its end means. Chosen as git chooses.

A program reads the text on its standard input and has the terminal for itself until it ends. If it fails, the caller still has
the text, and writes it.
"""

import os
import re
from typing import TextIO

from gpushare.cli.exits import CouldNotRunError
from gpushare.cli.terminal import width

_VARIABLES = ("GPUSHARE_PAGER", "PAGER")
_OFF = {"", "cat"}
_USUAL = "less -FRX"
_FOR_THE_PAGER = {"LESS": "FRX", "LV": "-c"}
"""Where the user has set nothing: a pager that is only called `less` prints colours, too, and quits if all of it fits."""
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def show(text: str, stream: TextIO) -> bool:
    """Show the text in the pager if it is longer than the terminal behind the stream; return whether that was done.

    Raises CouldNotRunError if the pager cannot start or fails.
    """
    if not _is_wanted() or not _is_long(text, stream):
        return False
    command = _command()
    if not command:
        return False
    code = _run(command, text.encode(stream.encoding or "utf-8", "backslashreplace"))
    if code:
        raise CouldNotRunError(f"the pager {command!r} ended with exit code {code}")
    return True


def _is_wanted() -> bool:
    """Whether a person can be at the terminal, and the terminal can do what a pager needs."""
    return os.environ.get("TERM", "") not in {"", "dumb"} and os.environ.get("CI", "").lower() in {"", "0", "false"}


def _is_long(text: str, stream: TextIO) -> bool:
    """Whether the text and a prompt below it need more lines than the terminal has; not if its size is unknown."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return False
    if not columns or not lines:
        return False
    rows = _STYLE.sub("", text).removesuffix("\n").split("\n")
    return sum(max(1, -(-width(row) // columns)) for row in rows) >= lines


def _command() -> str:
    """Return the pager's command line; empty if there is none or the user wants none."""
    for name in _VARIABLES:
        asked = os.environ.get(name)
        if asked is not None:
            return "" if asked.strip() in _OFF else asked
    from shutil import which  # noqa: PLC0415 - only a long text needs a pager

    return _USUAL if which("less") else ""


def _run(command: str, content: bytes) -> int:
    """Run the pager until it ends and return its exit code; 0 if the user ended it. Raises CouldNotRunError if it cannot start.

    An interrupt goes to the pager alone: otherwise we would end while it still has the terminal.
    """
    import signal  # noqa: PLC0415 - as above
    import subprocess  # noqa: PLC0415 - as above
    from shlex import split  # noqa: PLC0415 - as above

    environment = {**_FOR_THE_PAGER, **os.environ}
    # A handler: the pager would inherit that a signal is ignored. Set before it starts: it may be interrupted at once.
    former = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        running = subprocess.Popen(split(command), stdin=subprocess.PIPE, env=environment)  # noqa: S603 - the user's own
        running.communicate(content)  # A pager that quits before it has read everything is not an error.
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise CouldNotRunError(f"the pager {command!r} cannot start: {reason.lower()}") from problem
    finally:
        signal.signal(signal.SIGINT, former)
    return 0 if running.returncode == -signal.SIGINT else running.returncode
