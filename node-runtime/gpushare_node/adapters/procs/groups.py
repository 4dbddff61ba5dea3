"""Kills everything in a container's cgroup with one write to `cgroup.kill` (cgroup v2, Linux 5.14).

The host's cgroups are reached through the root folder of its first process, as far as our rights allow, or where they are
mounted for us. Our own container's mount shows no other container.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpushare_node.adapters.procs.cgroup import locate
from gpushare_node.guard.identity import ContainerId

_DEPTH = 12
"""Container runtimes nest cgroups less deeply, also on nodes that are containers themselves."""


def kill_group(proc: Path, container: ContainerId) -> bool:
    """Kill every process in the cgroup of this container or pod, and below. Return whether the kernel accepted it."""
    roots = (*_mounts(proc / "1/mounts", proc / "1/root"), *_mounts(proc / "self/mounts", Path("/")))
    return any(_kill(folder) for root in roots for folder in _find(root, "", container, _DEPTH))


def _mounts(table: Path, root: Path) -> Iterator[str]:
    """Yield where cgroup v2 is mounted, by this table, seen from this root folder."""
    with suppress(OSError):
        for fields in map(str.split, table.read_text().splitlines()):
            if fields[2] == "cgroup2":
                yield str(root / fields[1].lstrip("/"))


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
