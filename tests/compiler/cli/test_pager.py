"""The pager on a pseudo-terminal: when there is one, and which."""

import os
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.support.terminal import on_terminal

ROWS, COLUMNS = 10, 80
MARK = "sed s/^/paged:/"
"""A pager that marks what it has read."""
SET_BY_USERS = {"PAGER", "LESS", "CI", "GITHUB_ACTIONS", "NO_COLOR", "COLUMNS", "LINES"}


def ended(
    *arguments: str, cwd: Path, rows: int = ROWS, environment: dict[str, str], stdin: int | None = None
) -> tuple[int, str]:
    """Run gpushare on a terminal to its end; its exit code and what the terminal showed."""
    inherited = {name: value for name, value in os.environ.items() if name not in SET_BY_USERS}
    surroundings = {**inherited, "PYTHONUTF8": "1", "TERM": "xterm", **environment}

    def run(at: int) -> int:
        termios.tcsetwinsize(at, (rows, COLUMNS))
        command = [sys.executable, "-m", "gpushare", *arguments]
        own = at if stdin is None else stdin
        done = subprocess.run(
            command, cwd=cwd, env=surroundings, stdin=own, stdout=at, stderr=at, start_new_session=True, check=False
        )
        return done.returncode

    code, shown = on_terminal(run)
    return code, shown.replace("\r\n", "\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "good.yaml"],
        ["plan", "good.yaml", "warning.yaml"],
        ["cards"],
        ["cards", "t4"],
        ["explain"],
        ["explain", "GS402"],
    ],
    ids=" ".join,
)
def test_a_text_longer_than_the_screen_goes_to_the_pager(arguments: list[str], intents: Path) -> None:
    code, shown = ended(*arguments, cwd=intents, rows=4, environment={"PAGER": MARK})
    assert code == 0
    assert shown.count("\npaged:") >= 3


def test_text_that_fits_the_screen_is_not_paged(intents: Path) -> None:
    code, shown = ended("show", "good.yaml", cwd=intents, rows=200, environment={"PAGER": MARK})
    assert (code, "paged:" in shown) == (0, False)
    assert "nvidia.com/gpu.shared" in shown


def test_pager_can_be_disabled(intents: Path) -> None:
    code, shown = ended("cards", cwd=intents, environment={"PAGER": "cat"})
    assert code == 0
    assert "a100-sxm4-40gb" in shown


def test_no_pager_without_a_terminal_for_input(intents: Path) -> None:
    code, shown = ended("cards", cwd=intents, environment={"PAGER": MARK}, stdin=subprocess.DEVNULL)
    assert (code, "paged:" in shown) == (0, False)
    assert "\x1b[1m" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "--format", "json", "good.yaml"],
        ["show", "--html", "good.yaml"],
        ["cards", "--format", "json"],
        ["plan", "--format", "markdown", "good.yaml", "warning.yaml"],
        ["check", "good.yaml"],
        ["schema"],
    ],
    ids=" ".join,
)
def test_machine_readable_output_is_never_paged(arguments: list[str], intents: Path) -> None:
    code, shown = ended(*arguments, cwd=intents, rows=2, environment={"PAGER": MARK})
    assert (code, "paged:" in shown) == (0, False)


def test_a_pipe_has_no_pager(intents: Path) -> None:
    command = [sys.executable, "-m", "gpushare", "cards"]
    done = subprocess.run(
        command, env=os.environ | {"TERM": "xterm", "CI": "", "PAGER": MARK}, capture_output=True, text=True, check=True
    )
    assert "paged:" not in done.stdout
