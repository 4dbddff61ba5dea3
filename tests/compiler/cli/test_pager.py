"""The pager on a pseudo-terminal: when there is one, which one, and that nothing is lost when it fails or is left early."""

import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpushare.cli import pager
from tests.support.waiting import PATIENCE, wait_for

ROWS, COLUMNS = 10, 80
MARK = "sed s/^/paged:/"
"""A pager that marks what it has read."""
ANOTHER = "sed s/^/another:/"
WAITS_FOR_AN_INTERRUPT = """\
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print("ready", flush=True)
signal.sigwait({signal.SIGINT})
print("interrupted")
"""
OURS = {"GPUSHARE_PAGER", "PAGER", "LESS", "LV", "CI", "GITHUB_ACTIONS", "NO_COLOR", "COLUMNS", "LINES", "TERM"}


class Terminal:
    """A pseudo-terminal of that many rows, and what it has shown."""

    def __init__(self, rows: int) -> None:
        self.ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.theirs, (rows, COLUMNS))
        self.heard = b""
        self.listener = threading.Thread(target=self._listen)
        self.listener.start()

    def _listen(self) -> None:
        try:
            while some := os.read(self.ours, 65536):
                self.heard += some
        except OSError:
            return  # The other side is closed.

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self.ours, keys.encode())

    def shown(self) -> str:
        """What was shown so far."""
        return self.heard.decode(errors="replace").replace("\r\n", "\n")

    def close(self) -> None:
        """Close both sides, when everything is read."""
        os.close(self.theirs)
        self.listener.join(PATIENCE)
        os.close(self.ours)


@contextmanager
def running(
    *arguments: str, cwd: Path, rows: int = ROWS, environment: dict[str, str] | None = None
) -> Iterator[tuple[Terminal, "subprocess.Popen[bytes]"]]:
    """Run gpushare on a terminal; the process leads a group, as one that a shell has started."""
    inherited = {name: value for name, value in os.environ.items() if name not in OURS}
    surroundings = {**inherited, "PYTHONUTF8": "1", "TERM": "xterm", **(environment or {})}
    terminal = Terminal(rows)
    command = [sys.executable, "-m", "gpushare", *arguments]
    try:
        with subprocess.Popen(command, cwd=cwd, env=surroundings, stdin=terminal.theirs, stdout=terminal.theirs,
                              stderr=terminal.theirs, start_new_session=True) as process:
            try:
                yield terminal, process
                process.wait(PATIENCE)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
    finally:
        terminal.close()


def ended(*arguments: str, cwd: Path, rows: int = ROWS, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Run gpushare on a terminal to its end; its exit code and what the terminal showed."""
    with running(*arguments, cwd=cwd, rows=rows, environment=environment) as (terminal, process):
        process.wait(PATIENCE)
    return process.returncode, terminal.shown()


@pytest.mark.parametrize("arguments", [
    ["show", "good.yaml"], ["plan", "good.yaml", "warning.yaml"], ["cards"], ["cards", "t4"], ["explain"], ["explain", "GS402"],
], ids=" ".join)
def test_a_text_longer_than_the_screen_goes_to_the_pager(arguments: list[str], intents: Path) -> None:
    code, shown = ended(*arguments, cwd=intents, rows=4, environment={"GPUSHARE_PAGER": MARK})
    assert code == 0
    assert shown.count("\npaged:") >= 3


def test_a_text_that_fits_does_not(intents: Path) -> None:
    code, shown = ended("show", "good.yaml", cwd=intents, rows=200, environment={"GPUSHARE_PAGER": MARK})
    assert (code, "paged:" in shown) == (0, False)
    assert "nvidia.com/gpu.shared" in shown


def test_our_variable_comes_before_the_common_one(intents: Path) -> None:
    assert "another:" in ended("cards", cwd=intents, environment={"PAGER": ANOTHER})[1]
    _, shown = ended("cards", cwd=intents, environment={"PAGER": ANOTHER, "GPUSHARE_PAGER": MARK})
    assert "paged:" in shown
    assert "another:" not in shown


@pytest.mark.parametrize("off", [
    {"GPUSHARE_PAGER": "", "PAGER": MARK}, {"GPUSHARE_PAGER": "cat", "PAGER": MARK}, {"PAGER": ""},
    {"PAGER": MARK, "CI": "true"}, {"PAGER": MARK, "TERM": "dumb"}, {"PAGER": MARK, "TERM": ""},
], ids=str)
def test_no_pager_where_none_is_wanted(off: dict[str, str], intents: Path) -> None:
    code, shown = ended("cards", cwd=intents, environment=off)
    assert code == 0
    assert "a100-sxm4-40gb" in shown
    assert "paged:" not in shown


@pytest.mark.parametrize("arguments", [
    ["show", "--format", "json", "good.yaml"], ["show", "--html", "good.yaml"], ["cards", "--format", "json"],
    ["plan", "--format", "markdown", "good.yaml", "warning.yaml"], ["check", "good.yaml"], ["schema"],
], ids=" ".join)
def test_products_for_programs_are_never_paged(arguments: list[str], intents: Path) -> None:
    code, shown = ended(*arguments, cwd=intents, rows=2, environment={"GPUSHARE_PAGER": MARK})
    assert (code, "paged:" in shown) == (0, False)


def test_a_pipe_has_no_pager(intents: Path) -> None:
    command = [sys.executable, "-m", "gpushare", "cards"]
    done = subprocess.run(command, env=os.environ | {"TERM": "xterm", "CI": "", "GPUSHARE_PAGER": MARK}, capture_output=True,
                          text=True, check=True)
    assert "paged:" not in done.stdout


@pytest.mark.parametrize(("command", "reason"), [
    ("no-such-pager --fast", "cannot start: no such file or directory"),
    ("'", "cannot start: no closing quotation"),
    ("/", "cannot start: permission denied"),
    ("false", "ended with exit code 1"),
    ("sh -c 'kill -9 $$'", "ended with exit code -9"),
])
def test_nothing_is_lost_if_the_pager_fails(command: str, reason: str, intents: Path) -> None:
    call = ["plan", "--exit-code", "good.yaml", "warning.yaml"]
    code, shown = ended(*call, cwd=intents, rows=4, environment={"GPUSHARE_PAGER": command})
    _, plain = ended(*call, cwd=intents, environment={"GPUSHARE_PAGER": ""})
    assert code == 3
    assert shown == plain + f"gpushare: the pager {command!r} {reason}\n"


def test_a_pager_that_is_left_early_is_no_error(intents: Path) -> None:
    call = ["plan", "--exit-code", "good.yaml", "warning.yaml"]
    code, shown = ended(*call, cwd=intents, rows=4, environment={"GPUSHARE_PAGER": "head -n 1"})
    assert code == 3
    assert "New pods get 256Mi" in shown
    assert "~ notebooks" not in shown
    assert pager._run("true", b"x" * 10_000_000) == 0


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
@pytest.mark.parametrize("environment", [{}, {"PAGER": "less"}], ids=["usual", "named"])
def test_less_shows_a_screen_with_colours_until_q(environment: dict[str, str], intents: Path) -> None:
    with running("explain", cwd=intents, environment=environment) as (terminal, process):
        wait_for(lambda: "GS002" in terminal.shown())
        assert process.poll() is None
        terminal.press("q")
        process.wait(PATIENCE)
    assert process.returncode == 0
    assert "\x1b[1m" in terminal.shown()
    assert "GS301" not in terminal.shown()
    assert "Traceback" not in terminal.shown()


def test_an_interrupt_is_the_pagers_own(intents: Path) -> None:
    (intents / "waits.py").write_text(WAITS_FOR_AN_INTERRUPT)
    with running("cards", cwd=intents, environment={"GPUSHARE_PAGER": f"{sys.executable} waits.py"}) as (terminal, process):
        wait_for(lambda: "ready\n" in terminal.shown())
        os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE)
    assert (process.returncode, terminal.shown()) == (0, "ready\ninterrupted\n")


def test_a_pager_that_an_interrupt_ends_was_ended_by_its_user(intents: Path) -> None:
    with running("cards", cwd=intents, environment={"GPUSHARE_PAGER": "sh -c 'echo ready; exec sleep 600'"}) as started:
        terminal, process = started
        wait_for(lambda: "ready\n" in terminal.shown())
        os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE)
    assert (process.returncode, terminal.shown()) == (0, "ready\n")


def test_lines_are_counted_as_the_terminal_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((20, 5)))
    wide = {"a\n" * 4: False, "a\n" * 5: True, "x" * 80 + "\n": False, "x" * 81: True, "値" * 41: True, "\n" * 5: True,
            "\x1b[1;31m" * 40 + "a\x1b[0m\n": False}
    assert {text: pager._is_long(text, sys.stdout) for text in wide} == wide
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((0, 0)))
    assert not pager._is_long("a\n" * 1000, sys.stdout)
