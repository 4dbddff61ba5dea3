"""Settings before and after, in words: values cut where they begin to differ, windows of a rollout in full."""

import json
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any, assert_never

from gpushare.compare.effects import Effect
from gpushare.compare.files import FileDiff, FileKind, SettingChange
from gpushare.core.units import show_duration
from gpushare_node.contract.windows import DAYS

_MAX_LENGTH = 60
_CONTEXT = 15
_DERIVED = ("chart/files/", "nodes/", "gpushare.lock.yaml")
"""Files whose changes other parts of the output describe."""

MAX_SHOWN = 12
"""Most settings shown of one file; the JSON document has them all."""


def before_and_after(one: Effect | SettingChange) -> str:
    """Return the values before and after, from where they differ."""
    before, after = _text(one.before), _text(one.after)
    if _has_windows(one.before) or _has_windows(one.after):
        return f"{before} → {after}"
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    # If two long values begin with the same text, cutting at the end would show the same for both.
    start = same - _CONTEXT if same > _MAX_LENGTH - _CONTEXT else 0
    return f"{_cut(before, start)} → {_cut(after, start)}"


def format_file(one: FileDiff) -> Iterator[str]:
    """Yield a line for the file, and one for each of its settings that is not described elsewhere."""
    if one.kind is not FileKind.CHANGED:
        yield f"{one.path}  {one.kind.value}"
        return
    shown = [] if one.path.startswith(_DERIVED) else list(one.settings)
    yield one.path
    for change in shown[:MAX_SHOWN]:
        yield f"  {format_setting(change)}"
    rest = len(shown) + one.more - MAX_SHOWN
    if shown and rest > 0:
        yield f"  and {rest} more; --format json has them"


def format_setting(one: SettingChange) -> str:
    """Return one setting before and after."""
    path = ".".join(one.path)
    match one.kind:
        case FileKind.ADDED:
            return f"{path}: {format_value(one.after)} added"
        case FileKind.REMOVED:
            return f"{path}: {format_value(one.before)} removed"
        case FileKind.CHANGED:
            return f"{path}: {before_and_after(one)}"
        case _:
            assert_never(one.kind)


def format_value(data: Any) -> str:
    """Return a value as JSON, cut if it is long; text without quotes, and windows in words."""
    return _text(data) if _has_windows(data) else _cut(_text(data), 0)


def _text(data: Any) -> str:
    if data is None:
        return "none"
    if _is_windows(data):
        return "; ".join(map(_window, data))
    if _has_windows(data):
        data = {**data, "windows": _text(data["windows"])}
    return data if data and isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def _is_windows(data: Any) -> bool:
    """Whether these are windows of a rollout, as an intent or a policy has them."""
    return bool(data) and isinstance(data, list) and all(map(_is_window, data))


def _has_windows(data: Any) -> bool:
    """Whether these are windows, or a rollout with windows: such values are shown whole."""
    return _is_windows(data.get("windows") if isinstance(data, dict) else data)


def _is_window(data: Any) -> bool:
    if not isinstance(data, dict) or "start" not in data:
        return False
    days = data.get("days", DAYS)
    is_known = isinstance(days, list | tuple) and bool(days) and all(day in DAYS for day in days)
    return is_known and (isinstance(data.get("durationSeconds"), int) or "duration" in data)


def _window(data: Mapping[str, Any]) -> str:
    """Return a window such as `Mon-Fri 06:00 for 2h Europe/Zurich`."""
    days = [day for day in DAYS if day in data.get("days", DAYS)]
    first, last = DAYS.index(days[0]), DAYS.index(days[-1])
    is_run = len(days) > 2 and last - first + 1 == len(days)
    shown = "daily" if len(days) == len(DAYS) else f"{days[0]}-{days[-1]}" if is_run else ",".join(days)
    duration = show_duration(data["durationSeconds"]) if "durationSeconds" in data else data["duration"]
    return f"{shown} {data['start']} for {duration} {data.get('timezone', 'UTC')}"


def _cut(text: str, start: int) -> str:
    rest = f"…{text[start:]}" if start else text
    return rest if len(rest) <= _MAX_LENGTH else rest[: _MAX_LENGTH - 1] + "…"
