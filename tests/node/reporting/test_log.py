"""The log's lines: one each, whatever is in them, and nothing told can pass for what the runtime says itself."""

import io
import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare_node.reporting.log import LineFormatter, line

HOSTILE = 'a"b\\c\nd\r\x1b[31m\x00\u2028\u202e\ud83d\x85{"event": "kill"}'


def formatted(message: str, *, is_terminal: bool = False, pool: str = "dense", error: bool = False) -> str:
    lines = LineFormatter(is_terminal=is_terminal, node="node-1")
    lines.pool = pool
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        caught = sys.exc_info() if error else None
    record = logging.LogRecord("gpushare", logging.WARNING, "", 0, "%s", (message,), caught)
    record.created = 1_800_000_000.25
    return lines.format(record)


def test_a_line_has_time_level_message_node_and_pool() -> None:
    assert json.loads(formatted("hello")) == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "warning",
        "message": "hello",
        "node": "node-1",
        "pool": "dense",
    }
    assert "pool" not in json.loads(formatted("hello", pool=""))


def test_event_fields_cannot_override_the_log_fields() -> None:
    told = line("kill", {"comm": HOSTILE, "time": "never", "level": "debug", "node": "other", "pool": "other", "pid": 7})
    read = json.loads(formatted(told))
    assert (read["event"], read["comm"], read["pid"], read["message"]) == ("kill", HOSTILE, 7, "kill")
    ours = ("2027-01-15T08:00:00.250Z", "warning", "node-1", "dense")
    assert (read["time"], read["level"], read["node"], read["pool"]) == ours


@pytest.mark.failure_case(74)
@pytest.mark.parametrize("is_terminal", [True, False])
@given(text=st.text())
def test_every_line_is_one_line_of_printable_characters(text: str, is_terminal: bool) -> None:
    for message in (text, HOSTILE + text, line("kill", {"comm": text})):
        for error in (False, True):
            shown = formatted(message, is_terminal=is_terminal, error=error)
            assert shown.isprintable()
            assert is_terminal or (shown.isascii() and isinstance(json.loads(shown), dict))


def test_a_broken_event_is_a_message() -> None:
    assert json.loads(formatted('{"event": '))["message"] == '{"event": '


def test_a_traceback_is_a_field() -> None:
    assert "ValueError" in json.loads(formatted("it failed", error=True))["traceback"]


def test_log_setup_writes_each_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpushare_node.reporting import log

    root = logging.getLogger()
    before = root.handlers[:]
    monkeypatch.setattr(root, "handlers", [])
    stream = io.StringIO()
    log.begin(stream, node="node-1", is_terminal=False)
    logging.getLogger("anything").warning("one")
    assert json.loads(stream.getvalue())["message"] == "one"
    root.handlers[:] = before
