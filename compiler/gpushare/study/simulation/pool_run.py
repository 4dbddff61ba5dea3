"""One pool while pods come and go: what they hold and ask for, and what that amounts to in the end."""

from collections import Counter
from fractions import Fraction

from gpushare.core.units import MIB
from gpushare.study.simulation.nodes import PoolNodes
from gpushare.study.simulation.outcome import Point, PoolOutcome
from gpushare.study.simulation.supply import PoolSupply
from gpushare.study.workload.requests import PodRequest


class PoolRun:
    """One pool while pods come and go."""

    def __init__(self, supply: PoolSupply, *, is_packing: bool) -> None:
        self.supply = supply
        self.nodes = PoolNodes(supply, is_packing=is_packing)
        self.asked_bytes = self.pending = self.placed = self.waited = 0
        self.seconds = Counter[int]()
        self.unplaced = Counter[str]()
        self.points = [self._point(0)]

    def note(self, time: int) -> None:
        """Record the state from `time` on."""
        point = self._point(time)
        if self.points[-1].time == time:
            self.points.pop()
        self.points.append(point)

    def _point(self, time: int) -> Point:
        return Point(
            time=time,
            shares=self.nodes.shares,
            asked_mib=-(-self.asked_bytes // MIB),
            granted_mib=None if self.nodes.unknown else self.nodes.granted_bytes // MIB,
            nodes=self.nodes.nodes,
            gpus=self.nodes.gpus,
            pending=self.pending,
        )

    def asks(self, pod: PodRequest, taken: tuple[int, ...]) -> int:
        """Return the memory that a pod asked for, in bytes: of a part its part, of a resource what it provides."""
        gpu = (self.supply.gpu_mib or 0) * MIB
        if pod.memory_bytes is not None:
            return pod.memory_bytes
        if pod.milli is not None:
            return -(-pod.milli * gpu // 1000)
        devices = [self.supply.devices[one] for one in taken]
        return sum(gpu if one.is_whole else one.provides_bytes or 0 for one in devices)

    def outcome(self, end: int | None, *, has_prices: bool) -> PoolOutcome:
        """Return what became of the pool's pods until the end; `has_prices`: some pool has one, so that no GPUs cost 0."""
        supply = self.supply
        nodes = self.nodes.touched if supply.nodes is None else supply.nodes
        gpus = nodes * supply.gpus_per_node
        hours = None if end is None else gpus * end / 3600
        peak = max(self.points, key=lambda point: point.shares)
        stranded = None if supply.gpu_mib is None else max(peak.gpus * supply.gpu_mib - peak.asked_mib, 0)
        charged = gpus if hours is None else hours
        return PoolOutcome(
            name=supply.name,
            card=supply.card,
            nodes=nodes,
            is_open=supply.nodes is None,
            shares=nodes * sum(device.slots for device in supply.devices),
            placed=self.placed,
            pending=dict(sorted(self.unplaced.items())),
            waited_seconds=self.waited,
            peak=peak,
            points=tuple(self.points),
            gpu_hours=hours,
            used_gpu_hours=None if end is None else self._used_hours(),
            stranded_mib=stranded,
            cost=charged * supply.price.per_hour if supply.price else 0.0 if has_prices and not gpus else None,
            is_hourly=hours is None,
        )

    def _used_hours(self) -> float:
        """Return the GPU-hours of the shares in use: all shares of a GPU are the whole of it, each as much as its milli."""
        devices = self.supply.devices
        parts = Counter[int]()
        for device in devices:
            parts[device.gpu] += device.slots * (device.milli or 1)
        used = (Fraction(number * (devices[one].milli or 1), parts[devices[one].gpu]) for one, number in self.seconds.items())
        return float(sum(used) / 3600)
