"""`make upload`: uploads the wheel and the sources of dist/ to PyPI with twine, or to the package index INDEX.

One name is uploaded, `gpushare-compiler`: a name that our texts used and we had not registered could be registered by anyone.
A version is published once: a file that is there must be the same, and is left out. On GitHub twine logs in to PyPI as a
trusted publisher; elsewhere it reads TWINE_USERNAME and TWINE_PASSWORD.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from publish import DIST, PublishError, released

PROJECT = "gpushare-compiler"

_SIMPLE = "application/vnd.pypi.simple.v1+json"


def main() -> int:
    """Upload; return 0, or 1 with the reason."""
    parser = argparse.ArgumentParser(description="Upload the wheel and the sources of dist/ to a package index.")
    parser.add_argument("--index", default="", help="its address, with the paths simple/ and legacy/; PyPI, if empty")
    index = parser.parse_args().index.rstrip("/")
    try:
        released()
        files = missing(f"{index or 'https://pypi.org'}/simple", distributions(DIST))
        if files:
            # Without `--repository-url` twine knows PyPI, and logs in there as a trusted publisher.
            upload(files, ["--repository-url", f"{index}/legacy/"] if index else [])
    except PublishError as problem:
        print(f"upload: {problem}", file=sys.stderr)
        return 1
    print(f"uploaded {len(files)} files to {index or 'PyPI'}")
    return 0


def distributions(folder: Path) -> list[Path]:
    """Return the wheel and the sources in the folder. PublishError if one is of another project."""
    files = sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])
    others = [file.name for file in files if file.name.partition("-")[0] != PROJECT.replace("-", "_")]
    if others:
        raise PublishError(f"dist/ has {', '.join(others)}: nothing but {PROJECT} is uploaded")
    return files


def missing(simple: str, files: Sequence[Path]) -> list[Path]:
    """Return the files that the index lacks. PublishError if it has another file of that name, or does not answer."""
    published: dict[str, str] = {}
    request = urllib.request.Request(f"{simple}/{PROJECT}/", headers={"Accept": _SIMPLE})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            published |= {file["filename"]: file["hashes"]["sha256"] for file in json.load(answer)["files"]}
    except urllib.error.HTTPError as problem:
        if problem.code != 404:
            raise PublishError(f"{simple} cannot be asked: {problem}") from problem
    except OSError as problem:
        raise PublishError(f"{simple} cannot be asked: {problem}") from problem
    for file in files:
        if published.get(file.name, digest := hashlib.sha256(file.read_bytes()).hexdigest()) != digest:
            raise PublishError(f"{simple} has another {file.name}: a version is published once")
    return [file for file in files if file.name not in published]


def upload(files: Sequence[Path], options: Sequence[str]) -> None:
    """Check and upload the files; PublishError if twine refuses them or the index does."""
    command = [sys.executable, "-m", "twine"]
    for arguments in (["check", "--strict"], ["upload", "--non-interactive", "--disable-progress-bar", *options]):
        done = subprocess.run(
            [*command, *arguments, *files], stdout=sys.stderr, env=os.environ | {"NO_COLOR": "1"}, check=False
        )
        if done.returncode:
            raise PublishError(f"twine {arguments[0]} failed, as it says above")


if __name__ == "__main__":
    sys.exit(main())
