"""What the DRA driver offers on each node, by its ResourceSlices, and how that differs from the plan. Pure.

As the scheduler reads them: of a pool of slices the newest generation counts, and no device of one that is incomplete.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpushare.cluster.live import devices
from gpushare.cluster.live.devices import Device, DeviceClass, Slice
from gpushare.cluster.live.live_pools import LivePool, LivePools
from gpushare.cluster.live.snapshot import Snapshot
from gpushare.core.wording import join_first
from gpushare_node.contract.struct import NOTHING, Struct


class Listed(Struct):
    """One device as it is offered: on which node, in which pool of slices. `is_offered`: the pool is complete."""

    node: str
    pool: str
    device: Device
    is_offered: bool


class NodeOffer(Struct):
    """What a node's slices have. `devices` are by class of the node's pool; `problem` is empty if they are as planned.

    `is_there`: whether the node has any slice.
    """

    devices: Mapping[str, tuple[Listed, ...]] = NOTHING
    problem: str = ""
    is_there: bool = False


def listed(slices: Iterable[Slice]) -> tuple[Listed, ...]:
    """Return the devices of all slices of the newest generation of each pool."""
    return tuple(
        Listed(node=one.node, pool=one.pool, device=device, is_offered=is_complete)
        for one, is_complete in _current(slices)
        for device in one.devices
    )


def _current(slices: Iterable[Slice]) -> list[tuple[Slice, bool]]:
    by_pool: dict[str, list[Slice]] = {}
    for one in slices:
        by_pool.setdefault(one.pool, []).append(one)
    found = []
    for group in by_pool.values():
        newest = max(one.generation for one in group)
        current = [one for one in group if one.generation == newest]
        found += [(one, all(each.count == len(current) for each in current)) for one in current]
    return found


def counters(slices: Iterable[Slice]) -> dict[str, dict[str, int]]:
    """Return how much of each counter there is in each pool of slices."""
    found: dict[str, dict[str, int]] = {}
    for one, _ in _current(slices):
        found.setdefault(one.pool, {}).update(one.counters)
    return found


def of_node(slices: Sequence[Slice], pool: LivePool, classes: Mapping[str, DeviceClass]) -> NodeOffer:
    """Return the offer of one node, as its pool of the driver wants it. `classes` are those that were read."""
    if not slices:
        return NodeOffer(problem="the DRA driver has published no ResourceSlice of this node")
    current = _current(slices)
    every = listed(slices)
    grouped: dict[str, list[Listed]] = {name: [] for name in pool.classes}
    for one in every:
        grouped.setdefault(_class_of(pool, one.device), []).append(one)
    problem = (
        _incomplete(current)
        or _repeated(every)
        or _numbers(pool, grouped)
        or _divided(pool, every)
        or _not_selected(grouped, classes)
    )
    known = {name: tuple(grouped[name]) for name in pool.classes}
    return NodeOffer(devices=known, problem=problem, is_there=True)


def _class_of(pool: LivePool, device: Device) -> str:
    """Return the class of the pool for which the device is meant; without one what it is, as text."""
    kind = f"{device.kind or 'unknown type'} {device.profile}".strip()
    return next((name for name, plan in pool.classes.items() if plan.is_of(device)), f"devices of {kind}")


def _incomplete(current: Iterable[tuple[Slice, bool]]) -> str:
    have = Counter(one.pool for one, _ in current)
    wrong = sorted(
        {f"pool {one.pool or '?'} has {have[one.pool]} of {one.count} slices" for one, whole in current if not whole}
    )
    return f"{join_first(wrong)}: the scheduler takes no device of it" if wrong else ""


def _repeated(every: Iterable[Listed]) -> str:
    names = Counter((one.pool, one.device.name) for one in every)
    wrong = sorted(name or "?" for (_, name), number in names.items() if number > 1)
    return f"{join_first(wrong)} listed more than once" if wrong else ""


def _numbers(pool: LivePool, grouped: Mapping[str, Sequence[Listed]]) -> str:
    wanted = {name: plan.devices for name, plan in pool.classes.items()}
    # On demand the driver lists every profile that a card has, and whole GPUs if they switch MIG mode by themselves.
    judged = wanted if pool.is_on_demand else grouped
    wrong = [name for name in sorted(judged) if wanted.get(name, 0) != len(grouped[name])]
    return ", ".join(f"{name}: {len(grouped[name])} instead of {wanted.get(name, 0)}" for name in wrong)


def _divided(pool: LivePool, every: Iterable[Listed]) -> str:
    """Return which devices claims share otherwise: the driver's value consumableShares, which its policies show."""
    wrong = sorted(f"{one.device.name} by {_word(one.device)}" for one in every if not _is_divided_as_planned(pool, one.device))
    return f"claims share {join_first(wrong)}, instead of by {pool.division or 'nothing'}" if wrong else ""


def _is_divided_as_planned(pool: LivePool, device: Device) -> bool:
    plan = next((plan for plan in pool.classes.values() if plan.is_of(device)), None)
    if device.division != pool.division:
        return False
    is_counted = pool.division == devices.BY_COUNT and plan is not None and plan.replicas > 1
    return not is_counted or plan is None or device.capacities[devices.SHARES].value == plan.replicas


def _word(device: Device) -> str:
    if device.division == devices.BY_COUNT:
        return f"{device.capacities[devices.SHARES].value} shares"
    return device.division or "nothing"


def _not_selected(grouped: Mapping[str, Sequence[Listed]], classes: Mapping[str, DeviceClass]) -> str:
    for name, group in sorted(grouped.items()):
        selection = classes[name].selection if name in classes else None
        wrong = sorted({one.device.product for one in group if selection is not None and not selection.accepts(one.device)})
        if wrong:
            return f"DeviceClass {name} selects {selection}, and the node has {join_first(wrong)}"
    return ""


def offers(snapshot: Snapshot, live: LivePools) -> Mapping[str, NodeOffer] | None:
    """Return the offer of each node that has slices or whose pool is the driver's; None if slices were not read."""
    if snapshot.dra is None:
        return {}
    if not snapshot.has_seen(devices.SLICES):
        return None
    classes = {one.name: one for one in snapshot.dra.classes}
    of_nodes: dict[str, list[Slice]] = {}
    for one in snapshot.dra.slices:
        of_nodes.setdefault(one.node, []).append(one)
    found = {}
    for name, pool_name in live.of_node.items():
        pool = live.pools.get(pool_name) or LivePool(name=pool_name)
        if name in of_nodes or pool.is_dra:
            found[name] = of_node(of_nodes.get(name, ()), pool, classes)
    return found
