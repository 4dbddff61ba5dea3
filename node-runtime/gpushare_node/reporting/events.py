"""Events and log lines: the closed list of Event reasons beside the condition's, and the format of a log line. Sends nothing.

A log line is one JSON object: any text that a tenant puts into a name is data in it and never starts a line of its own.
"""

import json
from collections.abc import Mapping
from enum import StrEnum

Field = str | int | float | bool | None | tuple[str, ...] | tuple[int, ...]


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
