"""One cycle's view of one device: its processes gathered by container, and those that could not be recognised.

A sample is a container's sum over its processes. Owns the gathering and the three answers to "over its cap?"; keeps no
history.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from gpushare_node.guard.identity import ContainerId, Process, ProcessKind
from gpushare_node.guard.reading import Cap
from gpushare_node.guard.rows import Device, Distrust, Mps, Sifted, Uses, sift


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What a cap is about: one container on one device."""

    container: ContainerId
    device: str


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a container's recognised processes use of a device. With `is_whole` False, one of them has no known use."""

    used_bytes: int
    is_whole: bool
    processes: tuple[tuple[Process, int], ...]


@dataclass(frozen=True, kw_only=True)
class Sight:
    """A device whose rows are plausible.

    `unrecognised` are pids that may belong to anybody, with their start times where known; `orphans` are
    recognised processes of no known container.
    """

    device: str
    mps: Mps
    uses: Uses
    clients: frozenset[int]
    samples: Mapping[ContainerId, Sample]
    unrecognised: Mapping[int, int | None]
    orphans: tuple[Process, ...]

    def is_mps_client(self, process: Process) -> bool:
        """Whether a signal to this process could harm other clients: on a device under MPS everyone is taken for a client."""
        return self.mps is not Mps.OFF or process.pid in self.clients

    def may_hide(self, members: Iterable[Process]) -> bool:
        """Whether one of these may be among the unrecognised. A known start time tells a reused pid apart."""
        return any(
            process.pid in self.unrecognised and self.unrecognised[process.pid] in (None, process.start_time)
            for process in members
        )


class Level(Enum):
    """Whether a container is over its cap. UNKNOWN is neither yes nor no."""

    OVER = "over"
    CALM = "calm"
    UNKNOWN = "unknown"


def look(device: Device, identities: Mapping[int, Process]) -> tuple[Sight, ...] | Distrust:
    """The device, or each of its MIG instances; why not, when one of its rows cannot be true."""
    sifted = sift(device)
    if isinstance(sifted, Distrust):
        return sifted
    return tuple(_sight(place, device, sifted, identities) for place in sifted.uses)


def level(sample: Sample, cap: Cap, members: Iterable[Process], sight: Sight) -> Level:
    """The answer for one sample. `members` are the container's when it was last over: one of them hidden now leaves it open."""
    if not sample.is_whole:
        return Level.UNKNOWN
    if sample.used_bytes > cap.limit_bytes:
        return Level.OVER
    return Level.UNKNOWN if sight.may_hide(members) else Level.CALM


def _sight(place: str, device: Device, sifted: Sifted, identities: Mapping[int, Process]) -> Sight:
    uses = sifted.uses[place]
    gathered: dict[ContainerId, list[tuple[Process, int | None]]] = {}
    unrecognised: dict[int, int | None] = {}
    orphans: list[Process] = []
    for pid, used in uses.items():
        process = identities.get(pid)
        if process is None or process.pid != pid:
            unrecognised[pid] = None
        elif process.kind is ProcessKind.TENANT and process.container is not None:
            gathered.setdefault(process.container, []).append((process, used))
        elif process.kind in (ProcessKind.TENANT, ProcessKind.UNKNOWN):
            unrecognised[pid] = process.start_time
            orphans.append(process)
    return Sight(
        device=place,
        mps=device.mps,
        uses=uses,
        clients=sifted.clients,
        samples={container: _sample(members) for container, members in gathered.items()},
        unrecognised=unrecognised,
        orphans=tuple(orphans),
    )


def _sample(members: list[tuple[Process, int | None]]) -> Sample:
    known = tuple((process, used) for process, used in members if used is not None)
    return Sample(used_bytes=sum(used for _, used in known), is_whole=len(known) == len(members), processes=known)
