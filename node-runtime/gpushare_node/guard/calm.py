"""Calm: what the guard says where nobody is over a cap and nothing but uses has changed since it was asked. Pure.

On a full node uses change all the time, and mostly nobody is over a cap. Whose row is whose, and which cap holds there, is
found out once; from then on sums are enough. Whatever is not as plain as that is left to `judge`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpushare_node.guard.identity import ProcessKind
from gpushare_node.guard.reading import Reading, Settings
from gpushare_node.guard.reports import find_gap
from gpushare_node.guard.rows import Device, Distrust, sift
from gpushare_node.guard.sight import Unit
from gpushare_node.guard.verdicts import Observe, Reason, Report, State, Verdict

_UNMOVED = frozenset({Reason.ORPHAN, Reason.UNRESOLVED})
"""Reports in which no use plays a part."""


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """A device apart from its uses. `places`: the pids of each, and the number of the sum to which each of them counts."""

    device: Device
    places: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]


class Calm:
    """A judgement that may be repeated with other uses. `verdicts` are what `judge` has said of this reading.

    `reports` are what it says besides observations, again and again.
    """

    def __init__(self, reading: Reading, verdicts: tuple[Verdict, ...]) -> None:
        observed = [one for one in verdicts if isinstance(one, Observe) and one.state is State.OK]
        self.reports = verdicts[len(observed) :]
        self._units = [one.unit for one in observed]
        self._caps = [one.cap for one in observed]
        self._limits = [float("inf") if cap is None else cap.limit_bytes for cap in self._caps]
        self._frames: list[_Frame] | None = None
        if all(isinstance(one, Report) and one.reason in _UNMOVED for one in self.reports):
            numbers = {unit: number for number, unit in enumerate(self._units)}
            self._frames = [_frame(device, reading, numbers) for device in reading.devices]

    def add_up(self, reading: Reading, settings: Settings) -> list[int] | None:
        """What everybody uses in a later reading with the same identities and grants; None: `judge` must be asked."""
        if self._frames is None or len(self._frames) != len(reading.devices):
            return None
        # The last is the sum of those who are in no container, and is not looked at.
        sums = [0] * (len(self._units) + 1)
        if not all(_add(device, frame, sums, settings) for device, frame in zip(reading.devices, self._frames, strict=True)):
            return None
        return None if any(used > limit for used, limit in zip(sums, self._limits, strict=False)) else sums

    def observe(self, sums: list[int]) -> list[Observe]:
        """The observations that `judge` would make of these."""
        observed = zip(self._units, sums, self._caps, strict=False)
        return [Observe(unit, State.OK, used, cap, 0.0) for unit, used, cap in observed]


def _frame(device: Device, reading: Reading, numbers: Mapping[Unit, int]) -> _Frame:
    sifted = sift(device)
    uses = {} if isinstance(sifted, Distrust) else sifted.uses
    places = {place: (tuple(own), tuple([_number(pid, place, reading, numbers) for pid in own])) for place, own in uses.items()}
    return _Frame(device=device, places=places)


def _number(pid: int, place: str, reading: Reading, numbers: Mapping[Unit, int]) -> int:
    process = reading.identities.get(pid)
    if process is None or process.container is None or process.kind is not ProcessKind.TENANT:
        return -1
    return numbers.get(Unit(process.container, place), -1)


def _add(device: Device, frame: _Frame, sums: list[int], settings: Settings) -> bool:
    """Count the uses of a device; False where it is not what it was but for these."""
    sifted, former = sift(device), frame.device
    is_other = (device.uuid, device.total_bytes, device.instances, device.mps) != (
        former.uuid, former.total_bytes, former.instances, former.mps)  # fmt: skip
    if is_other or isinstance(sifted, Distrust) or sifted.partial:
        return False
    for place, uses in sifted.uses.items():
        pids, numbers = frame.places[place]
        if tuple(uses) != pids or None in uses.values():
            return False
        for number, used in zip(numbers, uses.values(), strict=True):
            sums[number] += used or 0
    return find_gap(device, sifted.uses, settings) is None
