"""DeviceView: the processes of one device in one cycle, grouped by container, and those that could not be identified.

A sample is the sum over a container's processes. Owns the grouping and the three answers to "over its cap?"; keeps no
history.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from gpushare_node.contract.struct import Struct
from gpushare_node.guard.inputs import Cap, ContainerId, GuardInput, Process, ProcessKind
from gpushare_node.guard.process_list import Device, Mps, ProcessUsage, RejectReason, Uses, validate


class Unit(NamedTuple):
    """The subject of a cap: one container on one device."""

    container: ContainerId
    device: str


class Sample(NamedTuple):
    """How much of a device a container's identified processes use; if not `is_whole`, a lower bound."""

    used_bytes: int
    is_whole: bool
    processes: tuple[tuple[Process, int], ...]

    @property
    def members(self) -> tuple[Process, ...]:
        """The processes without their usage."""
        return tuple([process for process, _ in self.processes])


class DeviceView(Struct):
    """A device whose rows are plausible.

    `unrecognised` are the pids of no known container, with their start times if known. Three kinds: `orphans` are identified
    processes; of the rows in `doubtful` the containers are known that may hold the memory; all others, which together use
    `unidentified_bytes`, may be any container's. `is_cut` as in ProcessUsage.
    """

    device: str
    mps: Mps
    uses: Uses
    clients: frozenset[int]
    samples: Mapping[ContainerId, Sample]
    unrecognised: Mapping[int, int | None]
    orphans: tuple[Process, ...]
    doubtful: Mapping[int, tuple[ContainerId, ...]]
    unidentified_bytes: float = 0
    is_cut: bool = False

    def has_own_server(self, process: Process) -> bool:
        """Whether it is a client of its tenant's own MPS server, not of the platform's: a kill then harms only that tenant."""
        return self.mps is Mps.OFF and process.pid in self.clients

    def may_hide(self, members: Iterable[Process]) -> bool:
        """Whether one of these may be among the unrecognised. A known start time distinguishes a reused pid."""
        return bool(self.unrecognised) and any(
            process.pid in self.unrecognised and self.unrecognised[process.pid] in (None, process.start_time)
            for process in members
        )

    def hidden_bytes(self, container: ContainerId, members: Iterable[Process]) -> float:
        """Return how much of what is not recognised may be this container's; infinity if a usage among it is unknown.

        `members` are its processes when they were last seen.
        """
        if not self.unrecognised:
            return 0
        started = {process.pid: process.start_time for process in members}
        doubtful = [pid for pid, candidates in self.doubtful.items() if container in candidates or pid in started]
        orphans = [
            orphan.pid
            for orphan in self.orphans
            if orphan.container == container or started.get(orphan.pid) == orphan.start_time
        ]
        return self.unidentified_bytes + _total([self.uses[pid] for pid in (*doubtful, *orphans)])


class Level(Enum):
    """Whether a container is over its cap; UNKNOWN if the cycle's data cannot decide it."""

    OVER = "over"
    WITHIN = "within"
    UNKNOWN = "unknown"


_WITHIN, _TENANT = Level.WITHIN, ProcessKind.TENANT
"""Looked up once: they are used for every process or container, and the lookup of an enum member is slow."""


def view_device(device: Device, inputs: GuardInput) -> tuple[DeviceView, ...] | RejectReason:
    """Return the view of the GPU, or of each of its MIG instances; the reason if one of its rows cannot be true."""
    sifted = validate(device)
    if isinstance(sifted, RejectReason):
        return sifted
    return tuple(_view(place, device, sifted, inputs) for place in sifted.uses)


def level(sample: Sample, cap: Cap, hidden_bytes: float = 0) -> Level:
    """Return the level of one sample; a partial sum above the cap already proves OVER.

    `hidden_bytes`: how much more the container may use. If that would put it over its cap, the level is UNKNOWN.
    """
    if sample.used_bytes > cap.limit_bytes:
        return Level.OVER
    return _WITHIN if sample.is_whole and sample.used_bytes + hidden_bytes <= cap.limit_bytes else Level.UNKNOWN


def _view(place: str, device: Device, sifted: ProcessUsage, inputs: GuardInput) -> DeviceView:
    identities, uses = inputs.identities, sifted.uses[place]
    samples: dict[ContainerId, Sample] = {}
    unrecognised: dict[int, int | None] = {}
    orphans: list[Process] = []
    doubtful: dict[int, tuple[ContainerId, ...]] = {}
    unidentified: list[int | None] = []
    candidates: tuple[ContainerId, ...] = ()
    for pid, used in uses.items():
        process = identities.get(pid)
        if pid in inputs.unseen and used != 0:
            unrecognised[pid] = None
            candidates = candidates or tuple(sorted(one for one, grant in inputs.grants.items() if place in grant.devices))
            doubtful[pid] = candidates
        elif process is None or process.pid != pid:
            unrecognised[pid] = None
            unidentified.append(used)
        elif process.kind is _TENANT and process.container is not None:
            samples[process.container] = _add(samples.get(process.container, NO_SAMPLE), process, used)
            if pid in sifted.partial:
                samples[process.container] = samples[process.container]._replace(is_whole=False)
        elif process.kind in (ProcessKind.TENANT, ProcessKind.UNKNOWN):
            unrecognised[pid] = process.start_time
            orphans.append(process)
    if sifted.is_cut:
        samples = {container: sample._replace(is_whole=False) for container, sample in samples.items()}
    return DeviceView(
        device=place,
        mps=device.mps,
        uses=uses,
        clients=sifted.clients,
        samples=samples,
        unrecognised=unrecognised,
        orphans=tuple(orphans),
        doubtful=doubtful,
        unidentified_bytes=_total(unidentified),
        is_cut=sifted.is_cut,
    )


def _total(uses: Collection[int | None]) -> float:
    """Return the sum; infinity if one of them is unknown."""
    return math.inf if None in uses else sum(filter(None, uses))


NO_SAMPLE = Sample(used_bytes=0, is_whole=True, processes=())


def _add(sample: Sample, process: Process, used_bytes: int | None) -> Sample:
    """Return the sample with one more process."""
    if used_bytes is None:
        return Sample(sample.used_bytes, False, sample.processes)
    return Sample(sample.used_bytes + used_bytes, sample.is_whole, (*sample.processes, (process, used_bytes)))
