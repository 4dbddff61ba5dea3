"""The verdict of a comparison: what running pods, new pods, quotas and nodes meet, worst first, in whole sentences. Pure.

"Nothing changes for running pods." is shown only if no statement concerns running pods.
"""

from collections.abc import Iterator

from gpushare.compare.changes import CapChange, Change, Comparison, PoolChange
from gpushare.compare.effects import EffectKind
from gpushare.core.units import total
from gpushare.core.wording import gib, join_first, join_words, pluralize

_REFUSED = {
    EffectKind.AMD_REINSTALLED: "new pods find none of AMD's GPUs",
    EffectKind.RENAMED: "new pods may get devices of the former size",
    EffectKind.REFUSED: "new pods may be refused",
    EffectKind.ROUTED: "new pods that name no pool may be refused",
    EffectKind.UNPLACED: "new pods that select a removed pool find no node",
    EffectKind.INTERVAL: "new pods may wait for running ones to end",
}
UNCHANGED = "Nothing changes for running pods."
_ABOVE = {"kill": "killed", "evict": "evicted", "warn": "reported", "none": "left alone"}
_RUNNING = {
    EffectKind.RELEASED: "Every node is released: running pods lose their GPUs, until the nodes are set up again.",
    EffectKind.DRIVERLESS: "The driver is removed, nothing replaces it: nodes without a driver of their own lose their GPUs.",
    EffectKind.REINSTALLED: "The installed release must be uninstalled first, which releases every node.",
    EffectKind.DRIVER: "The driver restarts node by node: running pods with a GPU must end first.",
    EffectKind.HANDED_OVER: "The former GitOps tool must be detached first: deleting its objects releases every node.",
    EffectKind.ADOPTED: "The adoption changes, for every node.",
    EffectKind.ENDED: "Running containers over their cap are killed from then on.",
    EffectKind.VMS: "Nodes of virtual machines must be labelled by hand, when these are shut down.",
    EffectKind.BACKEND: "Nodes change hands between device plugin and DRA driver: each is drained first.",
    EffectKind.TAINTED: "While a node's GPUs are divided, every pod on it that does not tolerate AMD's taint ends.",
}
_LATER = {
    EffectKind.ENFORCED: "Caps are enforced differently, for running containers too.",
    EffectKind.SPARED: "Running containers over their cap are no longer killed.",
    EffectKind.NOTICED: "Running containers without a cap are warned, and held to the new one after the notice.",
    EffectKind.RAISED: "Running containers may use a raised cap at once.",
    EffectKind.UPSTREAM: "NVIDIA's components restart on every node.",
    EffectKind.AMD_UPSTREAM: "AMD's programs restart on their nodes.",
    EffectKind.DRA_UPSTREAM: "The DRA driver restarts node by node.",
}
_NEW = {
    EffectKind.CLASS_KEPT: "Device classes stay for the nodes that wait for their turn.",
    EffectKind.CLASSES: "Device classes are edited in place, for new claims.",
    EffectKind.INTERVAL: "New pods do not start on a GPU until the pods with its former interval have ended there.",
    EffectKind.AMD_REINSTALLED: "Nodes with AMD's GPUs offer none until a device plugin runs there again.",
    EffectKind.WITHDRAWN: "AMD's device plugin leaves nodes, which offer no GPU until it runs there again.",
    EffectKind.RENAMED: "Nodes that wait for their turn offer devices of the former size under names of the new kind.",
    EffectKind.REFUSED: "New pods that were admitted before may be refused.",
    EffectKind.UNPLACED: "New pods that select a removed pool find no node.",
    EffectKind.ROUTED: "New pods that name no pool may be sent to other nodes.",
    EffectKind.APPLIED: "Files that no GitOps tool syncs must be applied again.",
    EffectKind.UNINSTALLED: "The release of a chart that the bundle no longer has must be uninstalled afterwards.",
}


_BEGINS = "Changes that nodes still hold back may begin"


def headline(comparison: Comparison) -> str:
    """Return one sentence: which running pods are disturbed, and what is refused."""
    kinds = {one.kind for one in comparison.effects}
    harms = {**_RUNNING, **{kind: _LATER[kind] for kind in (EffectKind.ENFORCED, EffectKind.NOTICED)}}
    running = next((text for kind, text in harms.items() if kind in kinds), "")
    disturbed = _counted(comparison)
    if disturbed and not comparison.disrupts_all:
        number = pluralize(disturbed, "running pod")
        running = f"At most {number} {'is' if disturbed == 1 else 'are'} disturbed"
    elif disturbed is None and not comparison.disrupts_all:
        running = "Running pods are disturbed; how many is not known"
    if comparison.begun:
        running = "; ".join(filter(None, (running.rstrip("."), _BEGINS if not running else _BEGINS[0].lower() + _BEGINS[1:])))
    broken = sum(one.problem is not None for one in comparison.quotas)
    refused = [text for kind, text in _REFUSED.items() if kind in kinds]
    if broken:
        refused.append(f"{pluralize(broken, 'quota')} no longer fit{'s' if broken == 1 else ''}")
    return f"{running.rstrip('.') or 'No running pod is disturbed'}; {join_words(refused) or 'no new pod is refused'}."


def verdict(comparison: Comparison) -> list[str]:
    """Return the sentences; none if nothing changes."""
    if comparison.is_empty:
        return []
    kinds = {one.kind for one in comparison.effects}
    running = [text for kind, text in _RUNNING.items() if kind in kinds]
    running += list(_disturbed(comparison))
    running += list(_beginning(comparison))
    running += list(_mixed(comparison))
    running += [text for kind, text in _LATER.items() if kind in kinds]
    if comparison.changes_mig_strategy:
        running.append("The operator restarts the device plugin of every node at once.")
    new = [*_caps(comparison), *(text for kind, text in _NEW.items() if kind in kinds), *_quotas(comparison)]
    return [*running, *new, *_nodes(comparison), *([] if running else [UNCHANGED])]


def _disturbed(comparison: Comparison) -> Iterator[str]:
    """Yield how many running pods lose their shares, by what their nodes do about them."""
    disturbed = _counted(comparison)
    if comparison.disrupts_all or disturbed == 0:
        return
    most = "Running pods lose" if disturbed is None else f"At most {_pods(disturbed)}"
    modes = {one.on_busy for one in comparison.outages}
    ways = (("evict", "they are evicted"), ("wait", "their nodes wait for them"), ("fail", "their nodes keep their layout"))
    how = ", or ".join(words for mode, words in ways if mode in modes)
    number = " (how many is not known)" if disturbed is None else ""
    yield f"{most} their shares of GPUs{number}{': ' + how if how else ''}."


def _counted(comparison: Comparison) -> int | None:
    """Return how many running pods this change itself disturbs, without what nodes hold back already."""
    return total(0 if _only_begins(pool, comparison) else pool.disturbed for pool in comparison.pools)


def _only_begins(pool: PoolChange, comparison: Comparison) -> bool:
    """Whether the pool's number of pods is not known only because its nodes may begin what they hold back."""
    return bool(comparison.begun & {pool.name, pool.successor or pool.name})


def _beginning(comparison: Comparison) -> Iterator[str]:
    """Yield when changes that nodes hold back may begin, once for all pools of which it is the same."""
    same: dict[str, list[str]] = {}
    for one in comparison.effects:
        if one.kind is EffectKind.BEGINS and one.pool is not None:
            same.setdefault("at once" if one.after is None else f"when the next window opens, {one.after}", []).append(one.pool)
    for when, pools in same.items():
        yield f"{_BEGINS} {when} (pool{'s' if len(pools) > 1 else ''} {join_first(pools)}): see gpushare status or plan --live."


def _pods(number: int) -> str:
    return f"{pluralize(number, 'running pod')} {'loses' if number == 1 else 'lose'}"


def _mixed(comparison: Comparison) -> Iterator[str]:
    """Yield where containers of before and new ones together may use more than the device has, once for all alike pools."""
    same: dict[tuple[str, str], list[str]] = {}
    for pool in comparison.pools:
        for text in dict.fromkeys(_mixture(cap) for cap in pool.caps):
            if text is not None:
                same.setdefault(text, []).append(pool.name)
    yield from (
        f"On the way, {who} may share one device of {join_first(pools)}: {what}." for (who, what), pools in same.items()
    )


def _mixture(cap: CapChange) -> tuple[str, str] | None:
    """Return which containers meet, and with what result; None if the device has enough for them."""
    if cap.mixed is None or cap.memory_mib is None:
        return None
    before, after = f"{cap.cap_mib.before}Mi", f"{cap.cap_mib.after}Mi"
    who = f"{pluralize(cap.mixed.before or 0, 'container')} with {before} and {cap.mixed.after} with {after}"
    return who, f"{gib(cap.mixed_mib)} on {gib(cap.memory_mib)}, where an allocation may fail"


def _caps(comparison: Comparison) -> Iterator[str]:
    """Yield what new pods get, once for all pools of which it is the same."""
    same: dict[str, list[str]] = {}
    for pool in comparison.pools:
        lowered = pool.change not in {Change.NEW, Change.GONE}
        for cap in pool.caps if lowered else ():
            if text := _cap(cap, pool):
                same.setdefault(text, []).append(pool.name)
    yield from (f"{text} (pool{'s' if len(pools) > 1 else ''} {join_first(pools)})." for text, pools in same.items())


def _cap(cap: CapChange, pool: PoolChange) -> str:
    before, after = cap.cap_mib.before, cap.cap_mib.after
    if after is None or before == after or not cap.is_offered_twice or (before is not None and after > before):
        return ""
    fate = _ABOVE.get(pool.actions[1] or "", "held to it")
    than = "no cap" if before is None else f"{before}Mi"
    return f"New pods get {after}Mi instead of {than}: programs that need more are {fate} after their next start"


def _quotas(comparison: Comparison) -> Iterator[str]:
    broken = [f"{one.namespace} {one.resource}" for one in comparison.quotas if one.problem]
    if broken:
        yield f"{pluralize(len(broken), 'quota')} can no longer be used in full: {join_first(broken)}."


def _nodes(comparison: Comparison) -> Iterator[str]:
    quiet = {Change.NONE, Change.POLICY}
    touched = total(0 if _only_begins(one, comparison) and one.change in quiet else one.touched for one in comparison.pools)
    if touched != 0 and not comparison.disrupts_all:
        number = "An unknown number of nodes" if touched is None else pluralize(touched, "node")
        yield f"{number} {'is' if touched == 1 else 'are'} changed."
