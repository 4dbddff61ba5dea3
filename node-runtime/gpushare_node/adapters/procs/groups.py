"""Kills everything in a container's cgroup with one write to `cgroup.kill` (cgroup v2, Linux 5.14).

The host's cgroups are reached through the root folder of its first process, as far as our rights allow.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from gpushare_node.adapters.procs.cgroup import locate
from gpushare_node.guard.identity import ContainerId

_DEPTH = 12
"""Container runtimes nest cgroups less deeply, also on nodes that are containers themselves."""


def kill_group(proc: Path, container: ContainerId) -> bool:
    """Kill every process in the cgroup of this container or pod, and below. Return whether the kernel accepted it."""
    try:
        mounts = (proc / "1/mounts").read_text().splitlines()
    except OSError:
        return False
    roots = [str(proc / "1/root" / line.split()[1].lstrip("/")) for line in mounts if line.split()[2] == "cgroup2"]
    return any(_kill(folder) for root in roots for folder in _find(root, "", container, _DEPTH))


def _find(root: str, path: str, container: ContainerId, depth: int) -> Iterator[str]:
    """Yield the cgroup of exactly this container. What a tenant creates below a container's cgroup is not searched."""
    try:
        names = [entry.name for entry in os.scandir(root + path) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for name in names:
        below = f"{path}/{name}"
        where = locate(f"0::{below}")
        if where.candidates == (container,) and where.cgroup == below:
            yield root + below
        elif depth and not (where.candidates and where.candidates[0].container):
            yield from _find(root, below, container, depth - 1)


def _kill(folder: str) -> bool:
    try:
        with open(f"{folder}/cgroup.kill", "w") as file:  # noqa: PTH123 - a name that was just listed
            file.write("1")
    except OSError:
        return False
    return True
