"""The verdict of a comparison: what running pods, new pods, quotas and nodes meet, worst first, in whole sentences. Pure.

"Nothing changes for running pods." is shown only if no statement concerns running pods.
"""

from collections.abc import Collection, Iterator

from gpushare.compare.changes import CapChange, Change, Comparison, PoolChange
from gpushare.compare.effects import EffectKind
from gpushare.core.units import total
from gpushare.core.wording import gib, join_first, join_words, pluralize
from gpushare.report.effect_words import EFFECTS, Of

UNCHANGED = "Nothing changes for running pods."
_ABOVE = {"kill": "killed", "evict": "evicted", "warn": "reported", "none": "left alone"}
_BEGINS = "Changes that nodes still hold back may begin"


def headline(comparison: Comparison) -> str:
    """Return one sentence: which running pods are disturbed, and what is refused."""
    kinds = {one.kind for one in comparison.effects}
    running = next((said.verdict for kind, said in EFFECTS.items() if kind in kinds and _is_harm(kind)), "")
    disturbed = _counted(comparison)
    if disturbed and not comparison.disrupts_all:
        number = pluralize(disturbed, "running pod")
        running = f"At most {number} {'is' if disturbed == 1 else 'are'} disturbed"
    elif disturbed is None and not comparison.disrupts_all:
        running = "Running pods are disturbed; how many is not known"
    if comparison.begun:
        running = "; ".join(filter(None, (running.rstrip("."), _BEGINS if not running else _BEGINS[0].lower() + _BEGINS[1:])))
    broken = sum(one.problem is not None for one in comparison.quotas)
    refused = [said.headline for kind, said in EFFECTS.items() if kind in kinds and said.headline]
    if broken:
        refused.append(f"{pluralize(broken, 'quota')} no longer fit{'s' if broken == 1 else ''}")
    return f"{running.rstrip('.') or 'No running pod is disturbed'}; {join_words(refused) or 'no new pod is refused'}."


def verdict(comparison: Comparison) -> list[str]:
    """Return the sentences; none if nothing changes."""
    if comparison.is_empty:
        return []
    kinds = {one.kind for one in comparison.effects}
    running = _sentences(kinds, Of.RUNNING)
    running += list(_disturbed(comparison))
    running += list(_beginning(comparison))
    running += list(_mixed(comparison))
    running += _sentences(kinds, Of.LATER)
    if comparison.changes_mig_strategy:
        running.append("The operator restarts the device plugin of every node at once.")
    new = [*_caps(comparison), *_sentences(kinds, Of.NEW), *_quotas(comparison)]
    return [*running, *new, *_nodes(comparison), *([] if running else [UNCHANGED])]


def _sentences(kinds: Collection[EffectKind], of: Of) -> list[str]:
    return [said.verdict for kind, said in EFFECTS.items() if kind in kinds and said.of is of]


def _is_harm(kind: EffectKind) -> bool:
    return EFFECTS[kind].of is Of.RUNNING or kind in {EffectKind.ENFORCED, EffectKind.NOTICED}


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
