"""Determines the container of a process from the text of its cgroup file. Pure; reads nothing.

Knows the paths that kubelet and the container runtimes create: systemd and cgroupfs drivers, cgroup v1, v2 and both,
containerd, CRI-O, Docker, nodes that are containers, private cgroup namespaces. A path that does not match them exactly is not
a container: a tenant must gain nothing from the names of its cgroups.

A tenant that may create cgroups can do so only below its container's own. The first pod on a path is therefore trustworthy, and
the tenant may have forged every further one.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from gpushare_node.contract.struct import Struct
from gpushare_node.guard.inputs import ContainerId

# kubelet writes the uid with `_` under the systemd driver; a static pod's is the hash of its file.
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_ID = r"[0-9a-f]{64}"
_SLICE = r"(?:[^:]*-)?kubepods"
_ROOT = re.compile(rf"{_SLICE}(?:\.slice)?")
_QUALITY = re.compile(rf"(?:{_SLICE}-)?(?:burstable|besteffort)(?:\.slice)?")
# runc turns the systemd driver's name into `slice:runtime:id` under the cgroupfs driver.
_POD = re.compile(rf"(?:{_SLICE}-(?:burstable-|besteffort-)?)?pod(?P<uid>{_UID})(?:\.slice)?(?::[^:]+:(?P<id>{_ID}))?")
_CONTAINER = re.compile(rf"(?:(?P<maker>[A-Za-z0-9_.-]+)-)?(?P<id>{_ID})(?:\.scope)?")

# Cgroups below which users of the host can create their own, and so could name one `kubepods` too.
_RUNTIME = (
    r"(?:.*containerd|crio|docker|cri-docker|kubelet|k3s|k3s-agent|rke2-server|rke2-agent|k0sworker|k0scontroller|.*kubelite)"
    r"\.service"
)
_FOREIGN = re.compile(rf"(?!{_RUNTIME}$).*\.service|user(?:-.*)?\.slice|machine\.slice|libpod-.*")

_DELETED = " (deleted)"

_TEXTS, _LONGEST = 1024, 4096
"""So many results are kept, of texts of so many characters at most: tenants make cgroups, and long names, as they like."""


class CgroupLocation(Struct):
    """The cgroup of a process.

    `cgroup` ends at the container, so that a process keeps its identity while it moves between cgroups that its own container
    created; outside pods it is the whole path. `candidates` as in `processes.ProcessIdentity`.
    """

    cgroup: str
    candidates: tuple[ContainerId, ...]


class _Level(Struct):
    """One container on a path, and the path down to it."""

    container: ContainerId
    path: str


def locate(text: str, own: tuple[ContainerId, ...] = ()) -> CgroupLocation:
    """Return the location of the process with this /proc/PID/cgroup. `own` is `containers` of the reader's own text.

    The containers that the reader is in as well are skipped: if a whole cluster runs in a pod, they are the node that it
    observes. Of the others only the outermost counts. If lines name different containers, there is no candidate.
    """
    # The enforcement reads the texts of all processes in each cycle, and nearly all are as in the cycle before.
    return _located(text, own) if len(text) <= _LONGEST else _located.__wrapped__(text, own)


@lru_cache(_TEXTS)
def _located(text: str, own: tuple[ContainerId, ...]) -> CgroupLocation:
    paths = tuple(_paths(text))
    found: list[_Level] = []
    for path in paths:
        levels = _levels(path)
        if levels is None:
            return _outside(paths)
        found += _below(levels, own)[:1]
    if len({level.container for level in found}) != 1:
        return _outside(paths)
    return CgroupLocation(cgroup=found[0].path, candidates=(found[0].container,))


def containers(text: str) -> tuple[ContainerId, ...]:
    """Return every container on the path to the process, the outermost first: for our own text, which no tenant can forge."""
    chains = (_levels(path) or () for path in _paths(text))
    return tuple(level.container for level in max(chains, key=len, default=()))


def _outside(paths: tuple[str, ...]) -> CgroupLocation:
    """Return the location of a process in no container; of several hierarchies, the longest path is its cgroup."""
    return CgroupLocation(cgroup=max(paths, key=len, default=""), candidates=())


def _paths(text: str) -> Iterator[str]:
    """Yield the path of every line. Only a line feed ends a line: the kernel allows every other character in a name."""
    for line in text.split("\n"):
        _, _, rest = line.partition(":")
        _, colon, path = rest.partition(":")
        if colon and path.startswith("/"):
            yield path.removesuffix(_DELETED)


def _below(levels: tuple[_Level, ...], own: tuple[ContainerId, ...]) -> tuple[_Level, ...]:
    """Return the levels without those that the reader shares."""
    shared = 0
    for level, mine in zip(levels, own, strict=False):
        if level.container != mine:
            break
        shared += 1
    return levels[shared:]


def _levels(path: str) -> tuple[_Level, ...] | None:
    """Return the containers on a path, outermost first; None if it enters kubelet's cgroups without a container there."""
    parts = path.split("/")[1:]
    here = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    is_relative = here > 0
    # In a private cgroup namespace a neighbour's path begins where the two paths diverge, below kubelet's root.
    is_inside = is_relative and here < len(parts) and _is_below_root(parts[here])
    way = here if is_inside else _find_way_in(parts, here, is_relative=is_relative)
    levels: list[_Level] = []
    while way is not None:
        level, here = _step(parts, way)
        if level is None:
            return tuple(levels) or None
        levels.append(level)
        way = _find_way_in(parts, here)
    return tuple(levels)


def _is_below_root(part: str) -> bool:
    return _QUALITY.fullmatch(part) is not None or _POD.fullmatch(part) is not None


def _find_way_in(parts: list[str], start: int, *, is_relative: bool = False) -> int | None:
    """Return where kubelet's cgroups begin, ignoring those that a user of the host, or a container beside ours, can create."""
    for index in range(start, len(parts)):
        part = parts[index]
        pod = _POD.fullmatch(part)
        if _ROOT.fullmatch(part) or (pod and pod["id"]):
            return index
        if _FOREIGN.fullmatch(part) or (is_relative and _CONTAINER.fullmatch(part)):
            return None
    return None


def _step(parts: list[str], way: int) -> tuple[_Level | None, int]:
    """Return the container to which kubelet's cgroups lead from here, and where the container's own cgroups begin."""
    here = way + 1 if _ROOT.fullmatch(parts[way]) else way
    if here < len(parts) and _QUALITY.fullmatch(parts[here]):
        here += 1
    pod = _POD.fullmatch(parts[here]) if here < len(parts) else None
    if pod is None:
        return None, here
    here += 1
    container = pod["id"]
    if container is None:
        named = _CONTAINER.fullmatch(parts[here]) if here < len(parts) else None
        # CRI-O's monitor has a cgroup beside the container that it monitors, with the container's id in its name.
        if named is not None and (named["maker"] or "").endswith("conmon"):
            return None, here
        # Without a container's name it is the pod's: only the host creates cgroups there, for a sandbox (gVisor, Kata).
        here += named is not None
        container = "" if named is None else named["id"]
    found = ContainerId(pod_uid=pod["uid"].replace("_", "-"), container=container)
    return _Level(container=found, path="/" + "/".join(parts[:here])), here
