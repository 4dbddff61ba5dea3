"""Running gpushare as users do: a process of its own, with its own streams and environment."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE

SET_BY_CI = {"GITHUB_ACTIONS", "NO_COLOR", "COLUMNS", "CI"}


def gpushare(
    *arguments: object, stdin: bytes = b"", cwd: Path | None = None, environment: dict[str, str] | None = None, **streams: Any
) -> subprocess.CompletedProcess[str]:
    """Run it; stdout and stderr as text. `streams` replaces what subprocess does with them."""
    inherited = {name: value for name, value in os.environ.items() if name not in SET_BY_CI}
    command = [sys.executable, "-m", "gpushare", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    surroundings = inherited | {"PYTHONUTF8": "1"} | (environment or {})
    done = subprocess.run(command, input=stdin, cwd=cwd, env=surroundings, check=False, timeout=PATIENCE, **pipes)
    return subprocess.CompletedProcess(
        done.args, done.returncode, (done.stdout or b"").decode(), (done.stderr or b"").decode()
    )
