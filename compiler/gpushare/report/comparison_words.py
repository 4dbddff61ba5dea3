"""Sentences and table rows of a comparison: the same in a terminal, in Markdown and on a page."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any, assert_never

from gpushare import vendors
from gpushare.compare.changes import Change, Comparison, GpuChange, Move, Outage, PoolChange, Problem, QuotaChange, Start
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileDiff, FileKind, SettingChange
from gpushare.core import prices
from gpushare.core.units import show_duration
from gpushare.core.wording import join_words, pluralize
from gpushare.intent.gitops import TOOLS, Tool
from gpushare.report.plan_view import known, ranges
from gpushare_node.contract.windows import DAYS

_MAX_LENGTH = 60
_CONTEXT = 15
_DERIVED = ("chart/files/", "nodes/", "gpushare.lock.yaml")
"""Files whose changes other parts of the output describe."""

MAX_SHOWN = 12
"""Most settings shown of one file; the JSON document has them all."""

_EFFECTS = {
    EffectKind.KEEPS_CAP: "running containers keep their old cap; new ones get the new cap",
    EffectKind.ENDED: "running containers that are over their cap are killed from then on",
    EffectKind.SPARED: "containers over their cap are no longer killed",
    EffectKind.ENFORCED: "holds for running containers too",
    EffectKind.REFUSED: "pods that were admitted before may be refused from then on; running pods go on",
    EffectKind.ADMITTED: "no pod is refused that was admitted before",
    EffectKind.RESTARTS: "the runtime's pods restart; running pods continue",
    EffectKind.REINSTALLED: "another release; uninstall the one that is installed first",
    EffectKind.ROLLOUT: "the pace of later changes",
    EffectKind.UPSTREAM: "NVIDIA's components that read it restart on every node",
    EffectKind.DRIVER: "the driver restarts node by node: pods that use a GPU there must end first",
    EffectKind.ROUTED: "new pods that name no pool may be sent to other nodes, or be refused; running pods go on",
    EffectKind.ADOPTED: "this is the first change of hardware: every pool's nodes are changed, labelled and held to their caps",
    EffectKind.UNPLACED: "new pods that select the pool by its former name find no node; running pods go on",
    EffectKind.RAISED: "running containers may use it at once",
    EffectKind.FIRST_CAP: "containers that run already are only warned, later ones are held to it",
    EffectKind.NOTICED: "containers that run already are warned, and held to it when enforcement.notice is over; "
    "later ones are held to it at once",
    EffectKind.DRIVERLESS: "the operator removes the driver, and nothing replaces it: "
    "a node without a driver of its own loses its GPUs",
    EffectKind.APPLIED: "no tool syncs it: apply it again by hand",
    EffectKind.VMS: "a person must shut down the virtual machines of the pool's nodes, then label these: see README.md",
    EffectKind.TAINTED: "while a node's GPUs are divided, this taint ends every pod on it that does not tolerate it, "
    "pods without a GPU too: see README.md",
    EffectKind.RENAMED: "AMD's operator renames the devices of all nodes of the pool at once, so that a node that waits for "
    "its turn offers what it has, of the former size, under names of the new kind. Instead make a new pool of other nodes, or "
    "keep strategy: single where every node has one mode",
    EffectKind.WITHDRAWN: "AMD's device plugin leaves these nodes, which offer no GPU until it runs there again; running pods "
    "go on",
    EffectKind.AMD_UPSTREAM: "AMD's programs that read it restart on all their nodes at once; running pods go on",
    EffectKind.AMD_REINSTALLED: "AMD's programs leave every node with AMD's GPUs, which offers none until a device plugin runs "
    "there again; running pods go on; uninstall the former release",
    EffectKind.UNINSTALLED: "the bundle no longer has this chart: uninstall its release after this change",
    EffectKind.BACKEND: "the pool's nodes change hands one after the other: each is drained, and offers nothing until "
    "the former back end has left it",
    EffectKind.CLASSES: "the device class is edited in place; running pods keep their devices",
    EffectKind.CLASS_KEPT: "no pool has this device class any more; it stays until gpushare is uninstalled, because pods are "
    "placed by it on nodes that wait for their turn",
    EffectKind.DRA_UPSTREAM: "the DRA driver restarts node by node; running pods go on, starting and ending ones wait for it",
    EffectKind.INTERVAL: "new pods do not start on a GPU until those with the former interval have ended there; running pods "
    "keep it",
}
_OF_SUBJECT = frozenset({EffectKind.APPLIED, EffectKind.TAINTED, EffectKind.WITHDRAWN, EffectKind.CLASS_KEPT})
"""Effects without values before and after."""

_ALSO = {
    EffectKind.RELEASED: "a GitOps tool releases every node",
    EffectKind.DRIVERLESS: "the driver is removed",
    EffectKind.HANDED_OVER: "the former GitOps tool must be detached first",
    EffectKind.APPLIED: "files must be applied by hand",
    EffectKind.VMS: "nodes of virtual machines must be labelled by hand",
    EffectKind.TAINTED: "pods that do not tolerate a taint of AMD's end",
    EffectKind.AMD_REINSTALLED: "AMD's former release must be uninstalled",
    EffectKind.UNINSTALLED: "a release must be uninstalled afterwards",
    EffectKind.WITHDRAWN: "nodes offer none of AMD's GPUs",
    EffectKind.BACKEND: "nodes change hands between device plugin and DRA driver",
    EffectKind.DRA_UPSTREAM: "the DRA driver restarts",
    EffectKind.CLASSES: "device classes are edited",
    EffectKind.INTERVAL: "new pods may wait for running ones to end",
    EffectKind.CLASS_KEPT: "device classes stay",
    EffectKind.RENAMED: "nodes that wait offer devices under other names",
    EffectKind.AMD_UPSTREAM: "AMD's programs restart",
    EffectKind.ADOPTED: "the adoption changes",
    EffectKind.BEGINS: "changes that nodes still hold back may begin",
    EffectKind.ENDED: "containers may be killed",
    EffectKind.NOTICED: "running containers get a notice",
    EffectKind.ENFORCED: "caps are enforced differently",
    EffectKind.REFUSED: "pods may be refused",
    EffectKind.UNPLACED: "pods that select a removed pool find no node",
    EffectKind.ROUTED: "new pods may go elsewhere",
    EffectKind.RESTARTS: "the runtime's pods restart",
    EffectKind.UPSTREAM: "NVIDIA's components restart",
    EffectKind.DRIVER: "the driver restarts",
    EffectKind.REINSTALLED: "the installed release must be uninstalled first",
}
_CHANGES = {
    Change.NEW: "new",
    Change.GONE: "gone",
    Change.REPARTITION: "repartitioned",
    Change.RELABEL: "relabelled",
    Change.POLICY: "policy only",
}
_SIZES = {"capMiB": "memory cap", "toleranceMiB": "tolerance"}
"""Fields of a policy that are sizes in MiB, and what they are."""

_OBSERVED = "every node keeps its layout and labels; nothing repairs it or enforces a cap"
_FOREIGN_USE = "running containers of tenants may be killed where they use a GPU that is not allocated to them"


def format_effect(one: Effect, arrow: str) -> str:
    """Return what happens, and to what."""
    if one.kind is EffectKind.RESTARTS and one.subject == "policy":
        return "the runtime's pods of the pool restart and check the layout; running pods continue"
    if one.kind is EffectKind.ADOPTED and one.after == "observe":
        return f"{one.subject} {_before_and_after(one, arrow)}: {_OBSERVED}"
    if one.kind in _OF_SUBJECT or (one.kind is EffectKind.AMD_UPSTREAM and one.pool is not None):
        return f"{one.subject}: {_EFFECTS[one.kind]}"
    if one.kind is EffectKind.UNINSTALLED:
        return f"{one.before}: {_EFFECTS[one.kind]}"
    if one.kind is EffectKind.RELEASED:
        return f"{_before_and_after(one, arrow)}: {_released(one.subject)}"
    if one.kind is EffectKind.BEGINS:
        when = "at once" if one.after is None else f"when the next window opens, {one.after}"
        return f"changes that nodes still hold back may begin {when}; see gpushare status or plan --live"
    if one.kind is EffectKind.HANDED_OVER:
        return f"{one.subject} {arrow} {one.after or 'no tool'}: {_handed_over(TOOLS[one.subject])}"
    what = _FOREIGN_USE if one.kind is EffectKind.ENDED and one.pool is None else _EFFECTS[one.kind]
    return f"{_changed(one, arrow)}: {what}"


def _released(key: str) -> str:
    tool = TOOLS[key]
    return (
        f"{tool.title} deletes these {tool.installs}s and releases every node: pods lose their GPUs. Keep the former name with "
        f"gitops.{key}.name; or first {tool.detach}, then apply {join_words(tool.named)}"
    )


def _handed_over(tool: Tool) -> str:
    return (
        f"{tool.title}'s {tool.objects} stay and keep syncing. First {tool.detach}; deleting them otherwise releases every node"
    )


def _changed(one: Effect, arrow: str) -> str:
    """Return the subject with its value before and after; a size of a share in words, with its unit."""
    share, _, field = one.subject.rpartition(" ")
    if field not in _SIZES:
        return f"{one.subject} {_before_and_after(one, arrow)}"
    before, after = ("none" if size is None else str(size) for size in (one.before, one.after))
    if one.after is None:
        return f"{share} {_SIZES[field]} {before} MiB {arrow} none"
    return f"{share} {_SIZES[field]} {before} {arrow} {after} MiB"


def _side_effects(comparison: Comparison) -> str:
    """Return in short what is not counted in nodes and disturbed pods; empty if there is nothing."""
    kinds = {one.kind for one in comparison.effects if not one.is_harmless}
    effects = [words for kind, words in _ALSO.items() if kind in kinds]
    return f" Also: {', '.join(effects)}." if effects else ""


def _before_and_after(one: Effect | SettingChange, arrow: str) -> str:
    before, after = _text(one.before), _text(one.after)
    if _has_windows(one.before) or _has_windows(one.after):
        return f"{before} {arrow} {after}"
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    # If two long values begin with the same text, cutting at the end would show the same for both.
    start = same - _CONTEXT if same > _MAX_LENGTH - _CONTEXT else 0
    return f"{_cut(before, start)} {arrow} {_cut(after, start)}"


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


def format_file(one: FileDiff, arrow: str) -> Iterator[str]:
    """Yield a line for the file, and one for each of its settings that is not described elsewhere."""
    if one.kind is not FileKind.CHANGED:
        yield f"{one.path}  {one.kind.value}"
        return
    shown = [] if one.path.startswith(_DERIVED) else list(one.settings)
    yield one.path
    for change in shown[:MAX_SHOWN]:
        yield f"  {format_setting(change, arrow)}"
    rest = len(shown) + one.more - MAX_SHOWN
    if shown and rest > 0:
        yield f"  and {rest} more; --format json has them"


def format_setting(one: SettingChange, arrow: str) -> str:
    """Return one setting before and after."""
    path = ".".join(one.path)
    match one.kind:
        case FileKind.ADDED:
            return f"{path}: {format_value(one.after)} added"
        case FileKind.REMOVED:
            return f"{path}: {format_value(one.before)} removed"
        case FileKind.CHANGED:
            return f"{path}: {_before_and_after(one, arrow)}"
        case _:
            assert_never(one.kind)


def format_value(data: Any) -> str:
    """Return a value as JSON, cut if it is long; text without quotes, and windows in words."""
    return _text(data) if _has_windows(data) else _cut(_text(data), 0)


def _text(data: Any) -> str:
    if data is None:
        return "none"
    if _is_windows(data):
        return "; ".join(map(_window, data))
    if _has_windows(data):
        data = {**data, "windows": _text(data["windows"])}
    return data if data and isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def _is_windows(data: Any) -> bool:
    """Whether these are windows of a rollout, as an intent or a policy has them."""
    return bool(data) and isinstance(data, list) and all(map(_is_window, data))


def _has_windows(data: Any) -> bool:
    """Whether these are windows, or a rollout with windows: such values are shown whole."""
    return _is_windows(data.get("windows") if isinstance(data, dict) else data)


def _is_window(data: Any) -> bool:
    if not isinstance(data, dict) or "start" not in data:
        return False
    days = data.get("days", DAYS)
    is_known = isinstance(days, list | tuple) and bool(days) and all(day in DAYS for day in days)
    return is_known and (isinstance(data.get("durationSeconds"), int) or "duration" in data)


def _window(data: Mapping[str, Any]) -> str:
    """Return a window such as `Mon-Fri 06:00 for 2h Europe/Zurich`."""
    days = [day for day in DAYS if day in data.get("days", DAYS)]
    first, last = DAYS.index(days[0]), DAYS.index(days[-1])
    is_run = len(days) > 2 and last - first + 1 == len(days)
    shown = "daily" if len(days) == len(DAYS) else f"{days[0]}-{days[-1]}" if is_run else ",".join(days)
    duration = show_duration(data["durationSeconds"]) if "durationSeconds" in data else data["duration"]
    return f"{shown} {data['start']} for {duration} {data.get('timezone', 'UTC')}"


def _cut(text: str, start: int) -> str:
    rest = f"…{text[start:]}" if start else text
    return rest if len(rest) <= _MAX_LENGTH else rest[: _MAX_LENGTH - 1] + "…"
