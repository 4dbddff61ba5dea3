"""Containers for tests: podman on runc as root, with limits that a container of a container may set. Ends what it started."""

import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.image.building import Built

# crun cannot work on hybrid cgroups; the rest are what a host may refuse to give: limits above its own, a network of its own.
_COMMON = ("--network=host", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--log-driver=k8s-file")
_PODMAN = ("podman", "--runtime=runc", "--cgroup-manager=cgroupfs")


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container that runs, or ran. `pid` is the host's."""

    id: str
    pid: int

    def is_running(self) -> bool:
        return podman("inspect", "--format={{.State.Running}}", self.id).strip() == "true"

    def exit_code(self) -> int:
        """Waits for the end."""
        return int(podman("wait", self.id))

    def logs(self) -> str:
        done = subprocess.run([*_PODMAN, "logs", self.id], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr


def podman(*arguments: str) -> str:
    """What podman prints; its complaint, if it fails, is the test's."""
    done = subprocess.run([*_PODMAN, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"podman {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def run(image: str, *command: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run a container to its end."""
    argv = [*_PODMAN, "run", "--rm", "--pull=never", *_COMMON, *options, image, *command]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@contextmanager
def running(image: str, *command: str, options: Sequence[str] = ()) -> Iterator[Container]:
    """A container in the background, taken away at the end."""
    identity = podman("run", "--detach", "--pull=never", *_COMMON, *options, image, *command).strip()
    try:
        yield Container(id=identity, pid=int(podman("inspect", "--format={{.State.Pid}}", identity)))
    finally:
        podman("rm", "--force", "--time=0", identity)


@contextmanager
def loaded(image: Built) -> Iterator[str]:
    """The image in podman's storage, under a name of its own."""
    name = f"localhost/gpushare-test-{secrets.token_hex(6)}:latest"
    argv = ["skopeo", "copy", "--quiet", f"oci:{image.layout}", f"containers-storage:{name}"]
    subprocess.run(argv, check=True, capture_output=True)
    try:
        yield name
    finally:
        podman("rmi", "--force", name)


@contextmanager
def of_one_program(program: Path) -> Iterator[str]:
    """An image that holds one static program, `/program`, and nothing else."""
    name = f"localhost/gpushare-test-{secrets.token_hex(6)}:latest"
    identity = _buildah("from", "scratch")
    try:
        _buildah("copy", "--quiet", identity, str(program), "/program")
        _buildah("commit", "--quiet", identity, name)
        yield name
    finally:
        _buildah("rm", identity)
        podman("rmi", "--force", name)


def mounts(places: Mapping[str, Path], mode: str = "rw") -> list[str]:
    """Options that mount the host's paths at these places."""
    return [f"--volume={path}:{place}:{mode}" for place, path in places.items()]


def _buildah(*arguments: str) -> str:
    return subprocess.run(["buildah", *arguments], capture_output=True, text=True, check=True).stdout.strip()
