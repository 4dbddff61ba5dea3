"""The log: one line per record on stderr, JSON for machines and plain for a terminal; and the reasons of Events.

Nothing that a tenant or a driver puts into a text can start a line of its own or control a terminal: JSON is ASCII, and plain
lines have their control characters escaped.
"""

import json
import logging
import time
import traceback
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TextIO

Field = str | int | float | bool | None | tuple[str, ...] | tuple[int, ...]

_EVENT = '{"event": '
"""The start of every line of `line`."""


class EventReason(StrEnum):
    """Reasons of Events, beside those of the condition, whose Events have the condition's reason. None is reused."""

    OVER_CAP = "GPUMemoryOverCap"
    PROCESS_KILLED = "GPUProcessKilled"
    KILL_FAILED = "GPUProcessKillFailed"
    EVICTED = "GPUPodEvicted"
    EVICTION_FAILED = "GPUPodEvictionFailed"
    STRAY = "GPUNotAllocated"
    CAP_NOTICE = "GPUMemoryCapNotice"
    BREAKER_OPEN = "GPUKillsPaused"
    XID = "GPUXid"
    DRIFTED = "GPULayoutDrifted"
    PLUGIN_RESTARTED = "GPUPluginRestarted"
    LABEL_CONFLICT = "LabelConflict"
    TURN_EXPIRED = "GPUTurnExpired"


def line(event: str, fields: Mapping[str, Field]) -> str:
    """Return one line of the log: a JSON object, ASCII only, with the event first."""
    return json.dumps({"event": event, **fields}, ensure_ascii=True, default=str)


class LineFormatter(logging.Formatter):
    """Formats records as lines. `pool` is set when the policy is read, after the first lines."""

    def __init__(self, *, is_terminal: bool, node: str) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self._node = node
        self.pool = ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        fields = _parse(record.getMessage())
        if record.exc_info and record.exc_info[0] is not None:
            fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        head = {"time": _time(record.created), "level": record.levelname.lower(), "message": fields.pop("message")}
        if self._is_terminal:
            rest = "".join(f" {name}={value}" for name, value in fields.items() if value is not None)
            return escape(f"{head['time']} {head['level']:<7} {head['message']}{rest}")
        place = {"node": self._node, **({"pool": self.pool} if self.pool else {})}
        # The line's own fields are merged last: no field of the message can replace them.
        return json.dumps(head | fields | head | place, default=str)


def begin(stream: TextIO, *, node: str, is_terminal: bool) -> LineFormatter:
    """Send all log records of this process to the stream."""
    lines = LineFormatter(is_terminal=is_terminal, node=node)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(lines)
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    return lines


def escape(text: str) -> str:
    """Return the text as one line of printable characters."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _parse(message: str) -> dict[str, Any]:
    """Return the fields of a message; a text without fields becomes the field `message`."""
    if message.startswith(_EVENT):
        try:
            fields = json.loads(message)
        except ValueError:
            return {"message": message}
        return {**fields, "message": fields.get("message") or fields["event"]}
    return {"message": message}


def _time(seconds: float) -> str:
    """Return the time as RFC 3339, UTC, with milliseconds."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03}Z"
