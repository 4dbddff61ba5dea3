"""The log: one line each on stderr, JSON for machines and plain for a terminal. Owns their form; decides nothing.

Nothing that a tenant or a driver puts into a text can start a line of its own or steer a terminal: JSON is ASCII, and plain
lines have their control characters escaped.
"""

import json
import logging
import time
import traceback
from typing import Any, TextIO

_EVENT = '{"event": '
"""How every line of `reporting.events.line` begins."""


class Lines(logging.Formatter):
    """The form of a line. `pool` becomes known with the policy, after the first lines."""

    def __init__(self, *, is_terminal: bool, node: str) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self._node = node
        self.pool = ""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        told = _told(record.getMessage())
        if record.exc_info and record.exc_info[0] is not None:
            told["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        head = {"time": _time(record.created), "level": record.levelname.lower(), "message": told.pop("message")}
        if self._is_terminal:
            rest = "".join(f" {name}={value}" for name, value in told.items() if value is not None)
            return escape(f"{head['time']} {head['level']:<7} {head['message']}{rest}")
        place = {"node": self._node, **({"pool": self.pool} if self.pool else {})}
        # The line's own fields go last in the sum: nothing that is told can pass for them.
        return json.dumps(head | told | head | place, default=str)


def begin(stream: TextIO, *, node: str, is_terminal: bool) -> Lines:
    """Send everything that is logged in this process to the stream."""
    lines = Lines(is_terminal=is_terminal, node=node)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(lines)
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    return lines


def escape(text: str) -> str:
    """The text in one line of printable characters."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _told(message: str) -> dict[str, Any]:
    """The fields of what is told; a text without fields is a message alone."""
    if message.startswith(_EVENT):
        try:
            fields = json.loads(message)
        except ValueError:
            return {"message": message}
        return {**fields, "message": fields.get("message") or fields["event"]}
    return {"message": message}


def _time(seconds: float) -> str:
    """RFC 3339, UTC, in milliseconds."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03}Z"
