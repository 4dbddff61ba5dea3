"""FastPath: GPUs on which no container is over its cap and only usage has changed since `evaluate` last saw them. Pure.

On a full node usage changes all the time, and mostly no container is over its cap. Which row belongs to which container, and
which cap applies to it, is determined once; after that, sums are enough. Every other case is left to `evaluate`.
"""

from collections.abc import Collection, Iterable, Mapping
from operator import gt
from typing import NamedTuple

from gpushare_node.core.structs import Struct
from gpushare_node.guard.anomalies import find_gap
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.identity import ProcessKind
from gpushare_node.guard.inputs import Cap, GuardInput, Settings
from gpushare_node.guard.process_list import Device, RejectReason, validate
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind, CapState, ContainerStatus, Verdict

_UNMOVED = frozenset({AnomalyKind.ORPHAN, AnomalyKind.UNRESOLVED})
"""Anomalies that do not depend on usage."""


class _Frame(Struct):
    """A GPU without its usage. `places`: for each device, its pids, and for each pid the index of the sum that it counts to.

    `reports` are the anomalies that `evaluate` reports for it in every cycle.
    """

    device: Device
    places: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    units: tuple[Unit, ...]
    caps: tuple[Cap | None, ...]
    limits: tuple[float, ...]
    reports: tuple[Anomaly, ...]


class Within(NamedTuple):
    """A GPU on which every container is within its cap in this cycle."""

    frame: _Frame
    sums: list[int]

    def observe(self) -> list[ContainerStatus]:
        """Return the statuses that `evaluate` would return for it."""
        observed = zip(self.frame.units, self.sums, self.frame.caps, strict=False)
        return [ContainerStatus(unit, CapState.OK, used, cap, 0.0) for unit, used, cap in observed]


class FastPath:
    """The GPUs whose last evaluation stays valid when only usage changes, while identities and grants are the same."""

    def __init__(self) -> None:
        self._frames: dict[str, _Frame] = {}

    def learn(self, inputs: GuardInput, verdicts: Iterable[Verdict], within: Collection[str]) -> None:
        """Store the results of `evaluate` for all GPUs but those in `within`."""
        observed: dict[str, list[ContainerStatus]] = {}
        reports: dict[str, list[Anomaly]] = {}
        for one in verdicts:
            # Every other verdict is on a container that also has a status, and that status is not OK.
            if isinstance(one, ContainerStatus):
                observed.setdefault(one.unit.device, []).append(one)
            elif isinstance(one, Anomaly):
                reports.setdefault(one.device, []).append(one)
        for device in inputs.devices:
            if device.uuid not in within:
                self._frames.pop(device.uuid, None)
                names = dict.fromkeys((device.uuid, *device.places()))
                seen = [one for name in names for one in observed.get(name, ())]
                told = tuple([one for name in names for one in reports.get(name, ())])
                if all(one.state is CapState.OK for one in seen) and all(one.reason in _UNMOVED for one in told):
                    self._frames[device.uuid] = _frame(device, inputs, seen, told)

    def add_up(self, inputs: GuardInput, settings: Settings) -> dict[str, Within]:
        """Return the GPUs on which every container is within its cap; the caller must pass the others to `evaluate`."""
        found: dict[str, Within] = {}
        for device in inputs.devices:
            frame = self._frames.get(device.uuid)
            sums = None if frame is None else _add_up(device, frame, settings)
            if frame is not None and sums is not None:
                found[device.uuid] = Within(frame, sums)
        return found


def container_status(inputs: GuardInput, verdicts: Iterable[Verdict], within: Mapping[str, Within]) -> list[ContainerStatus]:
    """Return the statuses of all GPUs in order: from `verdicts`, the results of `evaluate`, or else from `within`."""
    judged: dict[str, list[ContainerStatus]] = {}
    for one in verdicts:
        if isinstance(one, ContainerStatus):
            judged.setdefault(one.unit.device, []).append(one)
    found: list[ContainerStatus] = []
    for device in inputs.devices:
        sums = within.get(device.uuid)
        found += [one for place in device.places() for one in judged.get(place, ())] if sums is None else sums.observe()
    return found


def _frame(device: Device, inputs: GuardInput, observed: list[ContainerStatus], reports: tuple[Anomaly, ...]) -> _Frame:
    sifted = validate(device)
    uses = {} if isinstance(sifted, RejectReason) else sifted.uses
    numbers = {one.unit: number for number, one in enumerate(observed)}
    caps = tuple([one.cap for one in observed])
    return _Frame(
        device=device,
        places={
            place: (tuple(own), tuple([_number(pid, place, inputs, numbers) for pid in own])) for place, own in uses.items()
        },
        units=tuple(numbers),
        caps=caps,
        limits=tuple([float("inf") if cap is None else cap.limit_bytes for cap in caps]),
        reports=reports,
    )


def _number(pid: int, place: str, inputs: GuardInput, numbers: Mapping[Unit, int]) -> int:
    process = inputs.identities.get(pid)
    if process is None or process.container is None or process.kind is not ProcessKind.TENANT:
        return -1
    return numbers.get(Unit(process.container, place), -1)


def _add_up(device: Device, frame: _Frame, settings: Settings) -> list[int] | None:
    """Return what each container uses of a GPU; None if more than usage has changed, or if a container is over its cap."""
    sifted, former = validate(device), frame.device
    is_other = (device.uuid, device.total_bytes, device.instances, device.mps) != (
        former.uuid, former.total_bytes, former.instances, former.mps)
    if is_other or isinstance(sifted, RejectReason) or sifted.partial:
        return None
    # The last element sums the processes in no container, and is not used.
    sums = [0] * (len(frame.units) + 1)
    for place, uses in sifted.uses.items():
        pids, numbers = frame.places[place]
        if tuple(uses) != pids or None in uses.values():
            return None
        for number, used in zip(numbers, uses.values(), strict=True):
            sums[number] += used or 0
    if find_gap(device, sifted.uses, settings) is not None or any(map(gt, sums, frame.limits)):
        return None
    return sums
