"""The plan for people: a table of the pools, and per pool its resources and the memory map of each distinct GPU."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from gpushare.core.prices import Price, amount, exact
from gpushare.core.wording import join_first, layout_text, mib, pluralize
from gpushare.facts import mig
from gpushare.offering import backends, modes
from gpushare.report import folding, memory_map
from gpushare.report.card_view import left_over
from gpushare.report.terminal import BOLD, DIM, Style, table, wrapped
from gpushare.resolved import claim_plan, costs
from gpushare.resolved.costs import Costs, of_plan
from gpushare.resolved.plan import DevicePlan, GpuLayout, Plan, PoolPlan, VmPool
from gpushare_node.contract.struct import NOTHING

WHOLE = 8
"""The number of slices of most cards: whole GPUs are drawn as wide as partitioned ones."""


def render(plan: Plan, style: Style, prices: Mapping[str, Price] = NOTHING) -> str:
    """Return the whole plan. `prices` are by pool."""
    platform = plan.intent.platform
    shown = (
        style.paint(plan.intent.name, BOLD)
        + f"  {pluralize(len(plan.pools) + len(plan.vm_pools), 'pool')}, stack {' and '.join(platform.stacks)}, "
    )
    shown += f"namespace {plan.intent.namespace}\n\n"
    if plan.intent.observes:
        shown += "adoption: observe. This is what enforce would do; the bundle changes no node and no pod.\n\n"
    costs = of_plan(plan, prices)
    cost = (f"{costs.currency or 'COST'}/H",) if costs.pools else ()
    listed = sorted([*map(_row, plan.pools), *map(_vm_row, plan.vm_pools)])
    rows = [(*row, *((amount(costs.of(row[0]), ""),) if cost else ())) for row in listed]
    numbers = ("NODES", "GPUS/NODE", *cost)
    shown += table((*_HEADERS, *cost), rows, style, numbers=numbers, dropped=("PROFILE",), uncut=("CARD", "MODE"))
    shown += "".join(wrapped(line, style) for line in cost_lines(costs))
    shown += "".join(_drawn(plan, prices, style)) + "".join(_machines(pool, style) for pool in plan.vm_pools)
    return shown + (_quotas(plan, style) if plan.quotas else "")


def known(number: int | None) -> str:
    """Return the number, `?` if unknown."""
    return "?" if number is None else str(number)


def cost_lines(costs: Costs) -> Iterator[str]:
    """Yield what an hour of all pools costs, and of which pools it is not known; nothing without prices."""
    if costs.pools:
        unknown = [name for name, cost in costs.pools if cost is None]
        without = f", without {join_first(unknown)}: price or number of nodes not known" if unknown else ""
        yield f"cost: {amount(costs.known, costs.currency)} an hour{without}"


_HEADERS = ("POOL", "CARD", "MODE", "NODES", "GPUS/NODE", "PROFILE")


def _row(pool: PoolPlan) -> tuple[str, ...]:
    return pool.name, pool.card.id, pool.mode.value, known(pool.nodes), str(len(pool.gpus)), pool.profile.key


def _vm_row(pool: VmPool) -> tuple[str, ...]:
    return pool.name, pool.card.id, pool.mode.value, known(pool.nodes), str(pool.pool.gpus_per_node), pool.config.name


def _machines(pool: VmPool, style: Style) -> str:
    """Return what a pool for virtual machines gives them."""
    title = f"\n{style.paint(pool.name, BOLD)}  {pool.card.name}, {pool.mode.value}, for virtual machines\n"
    return title + table(VM_HEADERS, [vm_cells(pool)], style, numbers=VM_HEADERS[2:], indent=2)


VM_HEADERS = ("RESOURCE", "VGPU", "PER GPU", "PER NODE", "TOTAL")


def vm_cells(pool: VmPool) -> tuple[str, ...]:
    """Return what virtual machines request, the type, and how many vGPUs a GPU, a node and all nodes have."""
    return pool.resource, pool.kind.name, str(pool.kind.max_count), str(pool.per_node), known(pool.total)


def _drawn(plan: Plan, prices: Mapping[str, Price], style: Style) -> Iterator[str]:
    """Yield what each pool offers, once for all pools of which it is the same."""
    texts = [(pool.name, _pool(plan, pool, prices.get(pool.name), style)) for pool in plan.pools]
    for names, text in folding.alike((name, text, text) for name, text in texts):
        yield "\n" + style.paint(join_first(names), BOLD) + text


def _pool(plan: Plan, pool: PoolPlan, price: Price | None, style: Style) -> str:
    """Return what follows the pool's name."""
    shown = f"  {pool.card.name}, {pool.mode.value}\n"
    if pool.layout_of_goal is not None:
        shown += f"  goal resolved to {layout_text(pool.layout_of_goal)}\n"
    shown += _resources(pool, price, style)
    if rows := claim_rows(plan, pool):
        shown += "\n" + table(CLAIM_HEADERS, rows, style, numbers=CLAIM_HEADERS[1:], indent=2)
    return shown + "".join(_gpu(pool, gpus, style) for gpus in alike(pool))


def _resources(pool: PoolPlan, price: Price | None, style: Style) -> str:
    headers = ("RESOURCE", "PER NODE", "TOTAL", "DEVICE", "CAP", *share_header(price))
    return table(headers, resource_rows(pool, price), style, numbers=headers[1:], indent=2)


def share_header(price: Price | None) -> tuple[str, ...]:
    """Return the header of the column with the price of a share, empty without a price."""
    return (f"{price.currency or 'COST'}/SHARE-H",) if price else ()


def resource_rows(pool: PoolPlan, price: Price | None = None) -> list[tuple[str, ...]]:
    """Return for each resource its name, the numbers per node and in all, the memory and cap of its devices, and its price.

    The price is that of one share for an hour, if that of a GPU is known.
    """
    rows: list[tuple[str, ...]] = []
    parts = costs.parts_of_resources(pool) if price else {}
    for resource in pool.resources:
        devices = [device for device in pool.devices if device.resource == resource.name]
        memories = _distinct(mib(device.memory_mib) for device in devices)
        caps = _distinct("-" if device.cap_mib is None else mib(device.cap_mib) for device in devices)
        part = parts.get(resource.name)
        money = (exact(None if part is None else part * price.per_hour),) if price else ()
        rows.append((resource.name, str(resource.per_node), known(resource.total), memories, caps, *money))
    return rows


CLAIM_HEADERS = ("CLAIM", "ASKS FOR", "PER DEVICE", "CAP")


def claim_rows(plan: Plan, pool: PoolPlan) -> list[tuple[str, ...]]:
    """Return for each template of claims what it asks of a device, how many fit on one, and what containers may use of it."""
    return [
        (
            one.template,
            "1 share" if one.memory_mib is None and one.per_device > 1 else mib(one.memory_mib),
            str(one.per_device),
            "-" if one.cap_mib is None else mib(one.cap_mib),
        )
        for one in claim_plan.of_pool(plan, pool)
    ]


def _distinct(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def alike(pool: PoolPlan) -> list[list[GpuLayout]]:
    """Return the node's GPUs, grouped by equal plans, in the order of the first of each group."""
    groups: dict[object, list[GpuLayout]] = {}
    for gpu in pool.gpus:
        devices = tuple((one.resource, one.start, one.size, one.replicas, one.cap_mib) for one in devices_of(pool, gpu))
        groups.setdefault((gpu.mig_enabled, devices), []).append(gpu)
    return list(groups.values())


def devices_of(pool: PoolPlan, gpu: GpuLayout) -> list[DevicePlan]:
    """Return the devices of one GPU."""
    return [device for device in pool.devices if device.gpu == gpu.index]


def _gpu(pool: PoolPlan, gpus: Sequence[GpuLayout], style: Style) -> str:
    """Return the memory map of equal GPUs."""
    gpu, geometry = gpus[0], pool.card.mig
    devices = devices_of(pool, gpu)
    title = f"GPU {ranges([one.index for one in gpus])}"
    if not gpu.mig_enabled or geometry is None:
        size = max(WHOLE // len(devices), 1)
        cells = [_cell(device, device.start * size, size, style) for device in devices]
        return f"\n  {title}\n" + memory_map.bar(cells, size * len(devices), style)
    if not gpu.instances:
        return f"\n  {title}  " + wrapped(on_demand(pool), style, indent=4)
    cells = [_cell(device, device.start, device.size, style) for device in devices]
    left = left_over(gpu.instances, geometry)
    return f"\n  {title}  {style.paint(left, DIM)}".rstrip() + "\n" + memory_map.bar(cells, geometry.units, style)


def on_demand(pool: PoolPlan) -> str:
    """Return which instances a GPU can have at once that are made for claims; empty for other pools."""
    if pool.card.mig is None or not modes.of(pool.pool).is_on_demand:
        return ""
    full = mig.at_once(pool.card.mig, [one.profile for one in pool.samples if one.profile])
    listed = join_first([layout_text(layout) for layout in full], 6)
    return f"an instance for each claim; all of a GPU: {listed}"


def _cell(device: DevicePlan, start: int, size: int, style: Style) -> memory_map.Cell:
    return memory_map.Cell(
        start=start,
        size=size,
        labels=labels(device, style),
        profile=device.profile,
        replicas=device.replicas,
    )


def labels(device: DevicePlan, style: Style) -> tuple[str, ...]:
    """Return name and replicas, and the memory, or the cap if one container may use less than all of it."""
    times, at_most = ("×", "≤") if style.boxes else ("x", "<=")
    name = (device.profile or "whole GPU") + (f"{times}{device.replicas}" if device.replicas > 1 else "")
    return name, mib(device.memory_mib) if device.cap_mib is None else f"{at_most}{device.cap_mib}Mi"


def ranges(numbers: Sequence[int]) -> str:
    """Return `0-3, 6` for 0, 1, 2, 3, 6."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _quotas(plan: Plan, style: Style) -> str:
    rows = [(one.namespace, backends.quota_resource(key), str(number)) for one in plan.quotas for key, number in one.hard]
    return "\n" + table(("NAMESPACE", "RESOURCE", "QUOTA"), rows, style, numbers=("QUOTA",))
