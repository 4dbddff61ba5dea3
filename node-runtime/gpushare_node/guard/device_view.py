"""One cycle's view of one device: its processes gathered by container, and those that could not be recognised.

A sample is a container's sum over its processes. Owns the gathering and the three answers to "over its cap?"; keeps no
history.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from gpushare_node.core.structs import Struct
from gpushare_node.guard.identity import ContainerId, Process, ProcessKind
from gpushare_node.guard.inputs import Cap
from gpushare_node.guard.process_list import Device, Mps, ProcessUsage, RejectReason, Uses, validate


class Unit(NamedTuple):
    """What a cap is about: one container on one device."""

    container: ContainerId
    device: str


class Sample(NamedTuple):
    """What a container's recognised processes use of a device. With `is_whole` False they use more than that, or as much."""

    used_bytes: int
    is_whole: bool
    processes: tuple[tuple[Process, int], ...]


class DeviceView(Struct):
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

    def has_own_server(self, process: Process) -> bool:
        """Whether it is a client of a server that is not the platform's: its tenant's own, whose harm is the tenant's."""
        return self.mps is Mps.OFF and process.pid in self.clients

    def may_hide(self, members: Iterable[Process]) -> bool:
        """Whether one of these may be among the unrecognised. A known start time tells a reused pid apart."""
        return bool(self.unrecognised) and any(
            process.pid in self.unrecognised and self.unrecognised[process.pid] in (None, process.start_time)
            for process in members
        )


class Level(Enum):
    """Whether a container is over its cap. UNKNOWN is neither yes nor no."""

    OVER = "over"
    WITHIN = "calm"
    UNKNOWN = "unknown"


_WITHIN, _TENANT = Level.WITHIN, ProcessKind.TENANT
"""Found once, for they are asked about each process or container: an enumeration's members are slow to find."""


def view_device(device: Device, identities: Mapping[int, Process]) -> tuple[DeviceView, ...] | RejectReason:
    """The device, or each of its MIG instances; why not, when one of its rows cannot be true."""
    sifted = validate(device)
    if isinstance(sifted, RejectReason):
        return sifted
    return tuple(_view(place, device, sifted, identities) for place in sifted.uses)


def level(sample: Sample, cap: Cap, members: tuple[Process, ...], view: DeviceView) -> Level:
    """The answer for one sample; a part above the cap is proof enough.

    `members` are the container's when it was last over: one of them hidden now leaves it open.
    """
    if sample.used_bytes > cap.limit_bytes:
        return Level.OVER
    if not sample.is_whole:
        return Level.UNKNOWN
    return Level.UNKNOWN if members and view.may_hide(members) else _WITHIN


def _view(place: str, device: Device, sifted: ProcessUsage, identities: Mapping[int, Process]) -> DeviceView:
    uses = sifted.uses[place]
    samples: dict[ContainerId, Sample] = {}
    unrecognised: dict[int, int | None] = {}
    orphans: list[Process] = []
    for pid, used in uses.items():
        process = identities.get(pid)
        if process is None or process.pid != pid:
            unrecognised[pid] = None
        elif process.kind is _TENANT and process.container is not None:
            samples[process.container] = _add(samples.get(process.container, _NOTHING), process, used)
            if pid in sifted.partial:
                samples[process.container] = samples[process.container]._replace(is_whole=False)
        elif process.kind in (ProcessKind.TENANT, ProcessKind.UNKNOWN):
            unrecognised[pid] = process.start_time
            orphans.append(process)
    return DeviceView(
        device=place,
        mps=device.mps,
        uses=uses,
        clients=sifted.clients,
        samples=samples,
        unrecognised=unrecognised,
        orphans=tuple(orphans),
    )


_NOTHING = Sample(used_bytes=0, is_whole=True, processes=())


def _add(sample: Sample, process: Process, used_bytes: int | None) -> Sample:
    """The sample with one process more."""
    if used_bytes is None:
        return Sample(sample.used_bytes, False, sample.processes)
    return Sample(sample.used_bytes + used_bytes, sample.is_whole, (*sample.processes, (process, used_bytes)))
