"""Sentences and table rows of a comparison: the same in a terminal, in Markdown and on a page."""

from collections import Counter
from collections.abc import Iterable, Iterator

from gpushare.compare.changes import Change, Comparison, GpuChange, Move, Outage, PoolChange, Problem, QuotaChange, Start
from gpushare.compare.effects import EffectKind
from gpushare.core import prices
from gpushare.core.wording import pluralize
from gpushare.facts import vendors
from gpushare.report.effect_words import EFFECTS
from gpushare.report.plan_view import known, ranges

_CHANGES = {
    Change.NEW: "new",
    Change.GONE: "gone",
    Change.REPARTITION: "repartitioned",
    Change.RELABEL: "relabelled",
    Change.POLICY: "policy only",
}


def _side_effects(comparison: Comparison) -> str:
    """Return in short what is not counted in nodes and disturbed pods; empty if there is nothing."""
    kinds = {one.kind for one in comparison.effects if not one.is_harmless}
    effects = [said.also for kind, said in EFFECTS.items() if kind in kinds and said.also]
    return f" Also: {', '.join(effects)}." if effects else ""


OPERATOR_RESTART = (
    "the operator restarts the device plugin of every node at once, whatever the rollout of a pool says: "
    "upgrade it when no MPS or MIG pod starts"
)


_CLIENT_SIDE = ", with client-side apply (its chart renders mig: null): helm upgrade --server-side=false"


def format_mig_strategy(comparison: Comparison, arrow: str) -> str:
    """Return the operator's mig.strategy before and after."""
    before, after = (strategy or "each profile's own" for strategy in comparison.mig_strategies)
    return f"mig.strategy {before} {arrow} {after}"


def affected(comparison: Comparison) -> list[PoolChange]:
    """Return the pools that change, and those that have another effect."""
    others = {one.pool for one in comparison.effects} | {one.pool for one in comparison.outages}
    return [pool for pool in comparison.pools if pool.change is not Change.NONE or pool.name in others]


def format_change(pool: PoolChange) -> str:
    """Return what happens to the pool in a word, and its card."""
    return f"{change_word(pool)}, {format_cards(pool)}"


def change_word(pool: PoolChange) -> str:
    """Return what happens to the pool in a word."""
    return _CHANGES.get(pool.change, "the same")


def format_cards(pool: PoolChange) -> str:
    """Return the pool's card, or both if it changes."""
    before, after = pool.cards
    return f"{before} becomes {after}" if before is not None and after is not None and before != after else f"{after or before}"


def format_disturbance(pool: PoolChange) -> str:
    """Return how many nodes and pods the pool's change costs; empty for a new pool without nodes."""
    if pool.change in {Change.POLICY, Change.NONE} and not pool.selector_changes and pool.touched == 0:
        return "no GPU and no label of a node changes"
    nodes = "an unknown number of nodes" if pool.touched is None else pluralize(pool.touched, "node")
    if pool.change is Change.NEW:
        pods = f", {_pods(None)}" if pool.disturbed is None else ""
        return "" if pool.touched == 0 else f"{nodes} set up{pods}"
    return f"{nodes} touched, {_pods(pool.disturbed)}" + _per_node(pool)


def _per_node(pool: PoolChange) -> str:
    return f", {pool.disturbed_per_node} on each" if pool.disturbed_per_node else ""


def _pods(number: int | None) -> str:
    if number is None:
        return "an unknown number of pods disturbed"
    return f"at most {pluralize(number, 'pod')} disturbed" if number else "no pod disturbed"


def format_consequences(pool: PoolChange, arrow: str) -> Iterator[str]:
    """Yield what happens to the pool's nodes, GPUs and resources."""
    if pool.change is Change.GONE and not pool.successor:
        vendor = vendors.of_resources(one.name for one in pool.resources)
        stay = f"offers its whole GPUs again, as {vendor.whole_gpu}" if vendor.is_made_whole else "keeps its GPUs as they are"
        yield f"a node that gpushare releases {stay}"
    if pool.successor:
        yield f"its nodes go to the new pool {pool.successor}"
    if pool.selector_changes:
        yield "its selector changes: nodes that leave the pool become available to other pools"
    if pool.change is Change.REPARTITION:
        yield from _gpus(pool.gpus)
    for one in pool.resources:
        if one.per_node.before != one.per_node.after:
            yield f"{one.name}: {one.per_node.before} {arrow} {one.per_node.after} per node"


def _gpus(gpus: Iterable[GpuChange]) -> list[str]:
    """Return what happens to the instances, with GPUs of equal changes together."""
    fates: dict[str, list[int]] = {}
    for gpu in gpus:
        parts = (("kept", gpu.kept), ("destroyed", gpu.destroyed), ("created", gpu.created))
        fate = ", ".join(f"{_instances(instances)} {word}" for word, instances in parts if instances)
        fates.setdefault(fate, []).append(gpu.index)
    return [f"GPU {ranges(indexes)}: {fate}" for fate, indexes in fates.items()]


def _instances(instances: tuple[tuple[str, int], ...]) -> str:
    counts = Counter(profile for profile, _ in instances)
    return " + ".join(f"{count} x {profile}" for profile, count in counts.items())


def format_outage(one: Outage) -> str:
    """Return which nodes go out of service and for how long."""
    nodes = "an unknown number of nodes" if one.nodes is None else pluralize(one.nodes, "node")
    pace, each = ("", "") if one.nodes == 1 else (f", {_pace(one)} at a time", " each")
    rounds = "" if one.rounds is None or one.rounds < 2 else f", so about {_time(one.rounds * one.seconds)} for all"
    busy = {
        "wait": f"a node whose GPUs are in use waits up to {_time(one.drain_seconds)} for those pods to finish",
        "evict": f"pods that use its GPUs are evicted, and have {_time(one.drain_seconds)} to terminate",
        "fail": "a node whose GPUs are in use keeps its former layout",
    }[one.on_busy]
    how = "the bound: nothing was measured on AMD's GPUs" if one.is_bound else "measured on simulated GPUs"
    rounds = rounds.replace("about", "at most") if one.is_bound else rounds
    most = "at most" if one.is_bound else "about"
    shown = f"out of service: {nodes}{pace}, {most} {_time(one.seconds)}{each} ({how}){rounds}; {busy}"
    return shown + ("" if one.start is None else f"; {_begin(one.start)}")


def _begin(start: Start) -> str:
    """Return what the change waits for."""
    if start.is_paused:
        return "begins when rollout.paused is no longer true"
    return f"begins when the next window opens, {start.opening or 'whose time zone is unknown here'}"


def _pace(one: Outage) -> str:
    """Return how many nodes go out of service together."""
    if one.at_once is None:
        return "some"
    number = min(one.at_once, one.nodes or one.at_once)
    return "one" if number == 1 else str(number)


def _time(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def format_move(one: Move) -> tuple[str, str, str, str]:
    """Return the node, the pools that it leaves and joins, and how many pods that disturbs."""
    return one.node, one.source or "none", one.target or "none", f"at most {one.disturbed}" if one.disturbed else "none"


def format_capacity(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    """Yield each resource whose number changes: before, after, and the difference."""
    for name, amount in comparison.capacity:
        both = amount.before is not None and amount.after is not None
        difference = f"{(amount.after or 0) - (amount.before or 0):+d}" if both else "?"
        if difference != "+0":
            yield name, known(amount.before), known(amount.after), difference


def format_costs(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    """Yield each pool whose cost of an hour changes, and the sum of several pools, if known: before, after, the difference."""
    costs = comparison.costs
    if costs is None:
        return
    changed = [one for one in costs.pools if one.before != one.after]
    rows = [(one.pool, one.before, one.after) for one in changed]
    if changed and len(costs.pools) > 1 and costs.before is not None and costs.after is not None:
        rows.append(("all pools", costs.before, costs.after))
    for name, before, after in rows:
        difference = "?" if before is None or after is None else f"{after - before:+,.2f}"
        yield name, prices.amount(before, ""), prices.amount(after, ""), difference


def cost_header(comparison: Comparison) -> str:
    """Return the unit of costs, such as `EUR/H`."""
    return f"{comparison.costs.currency if comparison.costs and comparison.costs.currency else 'COST'}/H"


def format_quota(one: QuotaChange) -> tuple[str, str, str, str, str]:
    """Return the namespace, the resource, the number before and after, and what is wrong with it."""
    before, after = ("-" if number is None else str(number) for number in (one.before, one.after))
    return one.namespace, one.resource, before, after, _trouble(one)


def _trouble(quota: QuotaChange) -> str:
    match quota.problem:
        case Problem.EXCEEDS:
            return f"only {quota.capacity} in the cluster"
        case Problem.VANISHED:
            return "no pool offers it"
        case None:
            return ""


def format_summary(comparison: Comparison) -> str:
    """Return a summary in one line."""
    counts = Counter(pool.change for pool in comparison.pools)
    parts = [f"{counts[change]} {word}" for change, word in _CHANGES.items() if counts[change]]
    counted = sum(one.kind is EffectKind.VMS for one in comparison.effects)
    parts += [f"{counted} of virtual machines"] if counted else []
    shown = "Pools: " + (", ".join(parts) or "none changed")
    if comparison.is_configmap_only:
        return shown + ". ConfigMaps only: no node is touched, no pod disturbed."
    touched = "an unknown number of nodes" if comparison.touched is None else pluralize(comparison.touched, "node")
    broken = sum(quota.problem is not None for quota in comparison.quotas)
    quotas = f"; {pluralize(broken, 'quota')} no longer fit{'s' if broken == 1 else ''}" if broken else ""
    costs = f"{touched} touched, {_pods(comparison.disturbed)}"
    if comparison.touched == 0 and comparison.disturbed == 0:
        costs = "No GPU and no label of a node changes"
    return f"{shown}. {costs}{quotas}.".replace(". an", ". An") + _side_effects(comparison)


def format_order(comparison: Comparison) -> Iterator[str]:
    """Yield the steps, if their order matters."""
    if not comparison.changes_mig_strategy:
        return
    yield "upgrade gpu-operator first" + ("" if comparison.mig_strategies[1] else _CLIENT_SIDE)
    yield "then gpushare's chart: until a node changes, its profile works with the new strategy too"
