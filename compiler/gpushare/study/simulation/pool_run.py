"""One pool while pods come and go: what they hold of its nodes and ask for, and what that amounts to in the end.

`PoolNodes` knows which node the scheduler takes, and which devices kubelet takes. A node that no pod was ever on costs nothing:
untouched nodes are the last ones, and alike.
"""

from collections import Counter
from fractions import Fraction
from heapq import heappop, heappush

from gpushare.core.units import MIB
from gpushare.intent.types import SharePlacement
from gpushare.study.simulation.outcome import Point, PoolOutcome
from gpushare.study.simulation.supply import PoolSupply
from gpushare.study.workload.requests import PodRequest

_Devices = tuple[int, ...]
"""Positions in the pool's `devices`: one for each share."""


class PoolNodes:
    """The nodes of one pool. A node is an index; `touched` are those that ever had a pod, the first ones.

    `shares`, `nodes` and `gpus` are those in use, `granted_bytes` is the memory of these shares and `unknown` the number
    of those of which it is not known.
    """

    def __init__(self, pool: PoolSupply, *, is_packing: bool) -> None:
        positions: dict[str, list[int]] = {}
        for position, device in enumerate(pool.devices):
            positions.setdefault(device.resource, []).append(position)
        self._pool, self._is_packing = pool, is_packing
        self._positions = positions
        self._free = {name: _Free(sum(pool.devices[one].slots for one in where)) for name, where in positions.items()}
        self._held: list[list[int]] = []
        self._on_gpu: list[list[int]] = []
        self._on_node: list[int] = []
        self._rows = {gpu: row for row, gpu in enumerate(sorted({device.gpu for device in pool.devices}))}
        self.touched = self.shares = self.nodes = self.gpus = self.granted_bytes = self.unknown = 0

    def find(self, resource: str, count: int) -> tuple[int, int] | None:
        """Return how much of the resource is free on the node that scores best, and the node; None if none has room.

        Nodes of a pool are alike, so that the node with most of it free scores best, or with least. Ties: the first.
        """
        free = self._free[resource]
        is_left = self._pool.nodes is not None and self.touched < self._pool.nodes
        levels = (free.levels | is_left << free.per_node) >> count
        if not levels:
            return None
        level = count + (levels & -levels if self._is_packing else levels).bit_length() - 1
        return level, free.first(level) if free.levels >> level & 1 else self.touched

    def per_node(self, resource: str) -> int:
        """Return how much of the resource a node has."""
        return self._free[resource].per_node

    @property
    def can_grow(self) -> bool:
        """Whether a node can be added."""
        return self._pool.nodes is None

    def hold(self, node: int, resource: str, count: int) -> _Devices:
        """Give so many shares of the node to a pod, `touched` being the next new node, and return their devices."""
        if node == self.touched:
            self._touch()
        held, devices = self._held[node], self._pool.devices
        taken = []
        for _ in range(count):
            position = self._preferred(held, self._positions[resource])
            held[position] += 1
            taken.append(position)
            provides = devices[position].provides_bytes
            self.granted_bytes += provides or 0
            self.unknown += provides is None
            row = self._rows[devices[position].gpu]
            self.gpus += self._on_gpu[node][row] == 0
            self._on_gpu[node][row] += 1
        self.shares += count
        self.nodes += self._on_node[node] == 0
        self._on_node[node] += 1
        self._free[resource].change(node, -count)
        return tuple(taken)

    def release(self, node: int, resource: str, taken: _Devices) -> None:
        """Take back what a pod held."""
        devices = self._pool.devices
        for position in taken:
            self._held[node][position] -= 1
            provides = devices[position].provides_bytes
            self.granted_bytes -= provides or 0
            self.unknown -= provides is None
            row = self._rows[devices[position].gpu]
            self._on_gpu[node][row] -= 1
            self.gpus -= self._on_gpu[node][row] == 0
        self.shares -= len(taken)
        self._on_node[node] -= 1
        self.nodes -= self._on_node[node] == 0
        self._free[resource].change(node, len(taken))

    def _preferred(self, held: list[int], positions: list[int]) -> int:
        """Return the device that the plugin prefers: with fewest shares in use, or with most. Ties: kubelet's order."""
        devices = self._pool.devices
        roomy = (position for position in positions if held[position] < devices[position].slots)
        if self._pool.placement is SharePlacement.PACK:
            return max(roomy, key=lambda position: held[position])
        return min(roomy, key=lambda position: held[position])

    def _touch(self) -> None:
        self._held.append([0] * len(self._pool.devices))
        self._on_gpu.append([0] * len(self._rows))
        self._on_node.append(0)
        for free in self._free.values():
            free.add(self.touched)
        self.touched += 1


class _Free:
    """How much of one resource each touched node has free. `levels` has a bit for each amount that a node has."""

    def __init__(self, per_node: int) -> None:
        self.per_node, self.levels = per_node, 0
        self._of_node: list[int] = []
        self._nodes: dict[int, int] = {}
        self._first: dict[int, list[int]] = {}

    def first(self, level: int) -> int:
        """Return the first node with so much free. There is one."""
        heap = self._first[level]
        while self._of_node[heap[0]] != level:
            heappop(heap)
        return heap[0]

    def add(self, node: int) -> None:
        """Add a node with everything free."""
        self._of_node.append(self.per_node)
        self._enter(node, self.per_node)

    def change(self, node: int, by: int) -> None:
        """Add to what the node has free."""
        former = self._of_node[node]
        self._of_node[node] = former + by
        self._nodes[former] -= 1
        if not self._nodes[former]:
            self.levels ^= 1 << former
            del self._nodes[former], self._first[former]
        self._enter(node, former + by)

    def _enter(self, node: int, level: int) -> None:
        """Nodes stay in the heaps of their former levels until they come first there."""
        if level not in self._nodes:
            self._nodes[level], self._first[level] = 0, []
            self.levels |= 1 << level
        self._nodes[level] += 1
        heappush(self._first[level], node)


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
