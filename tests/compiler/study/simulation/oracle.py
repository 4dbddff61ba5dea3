"""What a simulation must find, by the plain definition: second after second, over lists of all nodes and of all pods that wait.

Slow, and nothing of the engine in it. The definition:

- A pod that asks for memory, a part or whole GPUs requests the smallest kind that it may use and that provides it, and names
  every pool that offers the same kind. A pod that asks for a resource gets what admission makes of that.
- At a second, first all pods end that end then. After that each pod that waits is tried, in the order of arrival, and then each
  that arrives. A pod without time ends at once, which frees its shares for another try at the same second.
- A pod takes its namespace's quota as soon as there is enough, and keeps it until it ends.
- It runs on the node with most of the resource free, as a part of what the node has, or with least; of equals on the first. A
  pool without a number of nodes has those that were needed so far, and gets one if no node of any pool has room.
- Of the node it takes the devices with the fewest holders, or with the most; of equals the first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from gpushare.core.units import MIB
from gpushare.intent.types import SharePlacement
from gpushare.study.simulation.engine import Scoring
from gpushare.study.simulation.supply import DeviceSupply, PoolSupply, Supply
from gpushare.study.workload.requests import PodRequest

UNKNOWN = 1 << 80


@dataclass
class Node:
    pool: PoolSupply
    index: int
    holders: list[list[int]]

    def free(self, resource: str) -> int:
        pairs = zip(self.pool.devices, self.holders, strict=True)
        return sum(device.slots - len(held) for device, held in pairs if device.resource == resource)

    def has(self, resource: str) -> int:
        return sum(device.slots for device in self.pool.devices if device.resource == resource)


@dataclass
class Fate:
    """What became of a pod. `requested`: names of pools, resource and number; None: no pool can ever serve it."""

    requested: tuple[list[str], str, int] | None
    has_quota: bool = False
    node: Node | None = None
    devices: tuple[int, ...] = ()
    start: int | None = None
    end: int | None = None


@dataclass
class State:
    """A pool at the end of a second."""

    shares: int
    asked_mib: int
    granted_mib: int | None
    nodes: int
    gpus: int
    pending: int


@dataclass
class Oracle:
    supply: Supply
    pods: tuple[PodRequest, ...]
    scoring: Scoring
    fates: list[Fate] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    states: dict[str, list[State]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fates = [Fate(requested=self.requested(pod)) for pod in self.pods]
        for pool in self.supply.pools:
            self.nodes += [self.new_node(pool, index) for index in range(pool.nodes or 0)]
            self.states[pool.name] = []
        waiting: list[int] = []
        last = max((pod.arrival for pod in self.pods), default=0) + sum(pod.duration or 0 for pod in self.pods)
        for second in range(last + 1):
            arriving = [
                number for number, pod in enumerate(self.pods) if pod.arrival == second and self.fates[number].requested
            ]
            while True:
                for node in self.nodes:
                    node.holders = [[pod for pod in held if self.fates[pod].end != second] for held in node.holders]
                waiting = [pod for pod in waiting if not self.tries(pod, second)]
                waiting += [pod for pod in arriving if not self.tries(pod, second)]
                arriving = []
                if not any(fate.start == second == fate.end and fate.node and self.holds(fate) for fate in self.fates):
                    break
            for pool in self.supply.pools:
                self.states[pool.name].append(self.state(pool, waiting))

    @staticmethod
    def new_node(pool: PoolSupply, index: int) -> Node:
        return Node(pool=pool, index=index, holders=[[] for _ in pool.devices])

    def holds(self, fate: Fate) -> bool:
        assert fate.node
        return any(self.fates[pod] is fate for held in fate.node.holders for pod in held)

    def tries(self, pod: int, second: int) -> bool:
        fate, asked = self.fates[pod], self.pods[pod]
        assert fate.requested
        pools, resource, number = fate.requested
        if not fate.has_quota:
            used = sum(
                other.requested[2]
                for other, of in zip(self.fates, self.pods, strict=True)
                if other.requested and other.has_quota and other.requested[1] == resource and of.namespace == asked.namespace
                if other.end is None or other.end > second or (other.end == second == other.start and self.holds(other))
            )
            if used + number > self.supply.quotas.get((asked.namespace, resource), UNKNOWN):
                return False
            fate.has_quota = True
        roomy = [node for node in self.nodes if node.pool.name in pools and node.free(resource) >= number]
        if not roomy:
            opened = [pool for pool in self.supply.pools if pool.name in pools and pool.nodes is None]
            if not opened:
                return False
            roomy = [self.new_node(opened[0], sum(node.pool is opened[0] for node in self.nodes))]
            self.nodes += roomy
        order = [pool.name for pool in self.supply.pools]
        sign = -1 if self.scoring is Scoring.LEAST_ALLOCATED else 1

        def score(node: Node) -> tuple[Fraction, int, int]:
            return sign * Fraction(node.free(resource), node.has(resource)), order.index(node.pool.name), node.index

        def after(node: Node) -> tuple[Fraction, int, int]:
            left, pool, index = score(node)
            return left - sign * Fraction(number, node.has(resource)), pool, index

        node = min(roomy, key=after)
        for _ in range(number):
            offered = [one for one, device in enumerate(node.pool.devices) if device.resource == resource]
            offered = [one for one in offered if len(node.holders[one]) < node.pool.devices[one].slots]
            most = node.pool.placement is SharePlacement.PACK
            chosen = min(offered, key=lambda one: (-len(node.holders[one]) if most else len(node.holders[one]), one))
            node.holders[chosen].append(pod)
            fate.devices += (chosen,)
        fate.node, fate.start = node, second
        fate.end = None if asked.duration is None else second + asked.duration
        return True

    def state(self, pool: PoolSupply, waiting: list[int]) -> State:
        nodes = [node for node in self.nodes if node.pool is pool]
        held = [(node, device, pod) for node in nodes for device, pods in enumerate(node.holders) for pod in pods]
        granted = [pool.devices[device].provides_bytes for _, device, _ in held]
        waits = [requested for pod in waiting if (requested := self.fates[pod].requested)]
        return State(
            shares=len(held),
            asked_mib=-(-sum(self.asked(pod) for pod in {pod for _, _, pod in held}) // MIB),
            granted_mib=None if None in granted else sum(size or 0 for size in granted) // MIB,
            nodes=len({node.index for node, _, _ in held}),
            gpus=len({(node.index, pool.devices[device].gpu) for node, device, _ in held}),
            pending=sum(pools[0] == pool.name for pools, _, _ in waits),
        )

    def asked(self, pod: int) -> int:
        asked, fate = self.pods[pod], self.fates[pod]
        assert fate.node
        gpu = (fate.node.pool.gpu_mib or 0) * MIB
        if asked.memory_bytes is not None:
            return asked.memory_bytes
        if asked.milli is not None:
            return -(-gpu * asked.milli // 1000)
        devices = [fate.node.pool.devices[device] for device in fate.devices]
        return sum(gpu if device.is_whole else device.provides_bytes or 0 for device in devices)

    # What a pod requests.

    def offers(self) -> Iterator[tuple[PoolSupply, str, list[DeviceSupply]]]:
        for pool in self.supply.pools:
            for resource in dict.fromkeys(device.resource for device in pool.devices):
                yield pool, resource, [device for device in pool.devices if device.resource == resource]

    def requested(self, pod: PodRequest) -> tuple[list[str], str, int] | None:
        if pod.resource is not None:
            return self.admitted(pod, pod.resource)
        usable = []
        for pool, resource, devices in self.offers():
            if pod.pool not in ("", pool.name) or (pod.cards and pool.card not in pod.cards) or pool.nodes == 0:
                continue
            if pool.namespaces and pod.namespace not in pool.namespaces:
                continue
            provided = [device.provides_bytes for device in devices]
            memory = UNKNOWN if None in provided else min(size or 0 for size in provided)
            part = min(device.milli for device in devices)
            if pod.memory_bytes is not None and (memory == UNKNOWN or memory < pod.memory_bytes):
                continue
            if pod.milli is not None and part < pod.milli:
                continue
            if pod.gpus is not None and (len(devices) < pod.gpus or not all(device.is_whole for device in devices)):
                continue
            size = (part, memory) if pod.milli is not None else (memory, part)
            usable.append((size, pool, resource))
        if not usable:
            return None
        size, pool, resource = min(usable, key=lambda one: (one[0], one[1].name))
        pools = [other.name for of, other, same in usable if (of, other.card, same) == (size, pool.card, resource)]
        return pools, resource, 1 if pod.gpus is None else pod.gpus

    def admitted(self, pod: PodRequest, resource: str) -> tuple[list[str], str, int] | None:
        offering = [(pool, devices) for pool, name, devices in self.offers() if name == resource]
        mine = [pool for pool, _ in offering if pod.namespace in pool.namespaces]
        name = pod.pool
        if not name and resource in self.supply.ambiguous and self.supply.assigns:
            defaults = [pool for pool, _ in offering if pool.is_default and (pool in mine or not pool.namespaces)]
            name = mine[0].name if len(mine) == 1 else defaults[0].name if defaults else ""
        if not name and resource in self.supply.ambiguous and self.supply.denies:
            return None
        chosen = [(pool, devices) for pool, devices in offering if name in ("", pool.name)]
        if self.supply.denies and any(pool.namespaces and pool not in mine for pool, _ in chosen):
            return None
        if (pod.per_container or pod.count) > 1 and any(device.slots > 1 for _, devices in chosen for device in devices):
            return None
        pools = [
            pool.name
            for pool, devices in chosen
            if (not pod.cards or pool.card in pod.cards) and pool.nodes != 0 and sum(one.slots for one in devices) >= pod.count
        ]
        return (pools, resource, pod.count) if pools else None
