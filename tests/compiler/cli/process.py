"""Running gpushare as users do: a process of its own, with its own streams and environment."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import forked
from tests.support.waiting import PATIENCE

SET_BY_CI = {"GITHUB_ACTIONS", "NO_COLOR", "COLUMNS", "CI"}
PROGRAM = "import sys\nfrom gpushare.cli import main\nsys.exit(main())"
PRELOADED = (
    "gpushare.cli",
    "gpushare.cli.commands",
    "gpushare.pipeline",
    "gpushare.cluster.live.connection",
    "kubernetes.client",
    "kubernetes.config",
    "tests.compiler.cli.warmed",
)
"""What most calls import: the modules of the commands, and the library that takes half a second."""


def gpushare(
    *arguments: object, stdin: bytes = b"", cwd: Path | None = None, environment: dict[str, str] | None = None, **streams: Any
) -> subprocess.CompletedProcess[str]:
    """Run it; stdout and stderr as text. The process is forked from one that has imported the program.

    `streams` replaces what subprocess does with them. With these, or with a variable that Python itself reads, it is `cold`.
    """
    if streams or any(name.startswith(("PYTHON", "LC_", "LANG")) for name in environment or {}):
        return cold(*arguments, stdin=stdin, cwd=cwd, environment=environment, **streams)
    return _forked(PRELOADED, arguments, stdin=stdin, cwd=cwd, environment=environment)


def importing(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it where nothing of it is imported yet, only what every call imports of others."""
    return _forked(("click",), arguments, cwd=cwd)


def _forked(
    preloaded: tuple[str, ...],
    arguments: tuple[object, ...],
    *,
    cwd: Path | None,
    stdin: bytes = b"",
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    words = [str(argument) for argument in arguments]
    surroundings = _inherited() | (environment or {})
    process = forked.Process(PROGRAM, words, preloaded, environment=surroundings, cwd=cwd, stdin=stdin)
    out, errors = process.communicate(PATIENCE)
    return subprocess.CompletedProcess(["gpushare", *words], process.wait(), out, errors)


def cold(
    *arguments: object, stdin: bytes = b"", cwd: Path | None = None, environment: dict[str, str] | None = None, **streams: Any
) -> subprocess.CompletedProcess[str]:
    """Run it in a Python that is started for it."""
    command = [sys.executable, "-m", "gpushare", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    surroundings = _inherited() | {"PYTHONUTF8": "1"} | (environment or {})
    done = subprocess.run(command, input=stdin, cwd=cwd, env=surroundings, check=False, timeout=PATIENCE, **pipes)
    return subprocess.CompletedProcess(done.args, done.returncode, (done.stdout or b"").decode(), (done.stderr or b"").decode())


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in SET_BY_CI}
