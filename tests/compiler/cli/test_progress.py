"""What a person who waits sees on a terminal, and that nothing of it stays. A command waits here until it was shown."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from gpushare import pipeline
from gpushare.cli import streams
from gpushare.cli.commands import commands
from tests.compiler.report.test_terminal import Stream
from tests.support.waiting import wait_for


def on_terminal(monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True) -> io.BytesIO:
    """What stderr will have been sent. Called in the test itself: pytest replaces stderr after the fixtures."""
    stream = Stream(terminal=terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(streams, "PROGRESS_SECONDS", 0.01)
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer


def test_slow_command_shows_and_clears_its_progress(intents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch)
    whole = pipeline.compile_intent

    def slow(*arguments: Any) -> pipeline.Compilation:
        wait_for(lambda: b"compiling good.yaml, " in shown.getvalue())
        return whole(*arguments)

    monkeypatch.setattr(pipeline, "compile_intent", slow)
    monkeypatch.chdir(intents)
    commands.main(["plan", "good.yaml", "good.yaml"], standalone_mode=False)
    assert shown.getvalue().endswith(b"\r\x1b[K")


def test_progress_is_cleared_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch)

    def fail() -> None:
        with streams.Progress("counting"):
            wait_for(lambda: b"counting, " in shown.getvalue())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert shown.getvalue().endswith(b"\r\x1b[K")


def test_progress_is_not_written_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch, terminal=False)
    with streams.Progress("counting") as nothing:
        assert nothing is None
    assert not shown.getvalue()
