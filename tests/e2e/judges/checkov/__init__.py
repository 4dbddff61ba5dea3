"""checkov, which judges Kubernetes objects by rules on security: in a virtual environment of its own in the tests' cache.

It has a hundred dependencies, some with other versions than ours. requirements.txt pins all of them.
`python -m tests.e2e.judges.checkov` installs it.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import cache

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def program() -> Path:
    """The Python that has checkov. Installs it if it is missing. CalledProcessError if that fails."""
    digest = hashlib.sha256(_REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    return cache.folder(f"checkov-{digest}", _install) / "bin" / "python"


def failures(folder: Path) -> list[dict[str, Any]]:
    """The checks that objects in the YAML files of a folder fail. It asks no server, and reads no settings of the user."""
    asked = ("--directory", folder, "--framework", "kubernetes", "--skip-download", "--output", "json", "--compact", "--quiet")
    command: list[str | Path] = [program(), "-m", "checkov.main", *asked, "--soft-fail"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LOG_LEVEL": "WARNING"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    if done.stderr:
        raise ValueError(done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    if report["summary"]["parsing_errors"] or not report["summary"]["passed"]:
        raise ValueError(f"checkov has not read all files: {report['summary']}")
    found: list[dict[str, Any]] = report["results"]["failed_checks"]
    return found


def _install(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--requirement", _REQUIREMENTS)
    subprocess.run([folder / "bin" / "python", *pip], check=True)
