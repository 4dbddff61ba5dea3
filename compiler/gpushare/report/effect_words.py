"""The sentences on a comparison: what effects are, once for each kind, and the verdict on all of them. Pure.

The order of `EFFECTS` is that of the sentences on whom they concern, and of the summary: worst first.
"Nothing changes for running pods." is said only if no sentence concerns running pods.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum

from gpushare.compare.changes import CapChange, Change, Comparison, PoolChange
from gpushare.compare.effects import Effect, EffectKind
from gpushare.core.units import total
from gpushare.core.wording import gib, join_first, join_words, pluralize
from gpushare.intent.gitops import TOOLS, ToolFacts
from gpushare.report.setting_words import before_and_after
from gpushare.vendors import VENDORS
from gpushare_node.contract.struct import Struct, replace


class Of(StrEnum):
    """Whom a sentence of the verdict concerns: running pods at once or later, or new ones."""

    RUNNING = "running"
    LATER = "later"
    NEW = "new"


class Words(Struct):
    """What is said of a kind of effect.

    `line` follows the subject of one effect and, with `has_values`, its values before and after. `verdict` is the sentence on
    all effects of the kind, and `of` whom it concerns. `headline` says which new pods are refused, `also` in short what the
    numbers of nodes and pods do not count. `{vendor}` stands for the name of the vendor whose programs do it.
    """

    line: str = ""
    of: Of | None = None
    verdict: str = ""
    headline: str = ""
    also: str = ""
    has_values: bool = True

    def of_vendor(self, word: str) -> "Words":
        """Return the words with the vendor's name for `{vendor}`; the same where the effect is of none."""
        if not word:
            return self
        texts = {field: getattr(self, field).format(vendor=VENDORS[word].name) for field in _TEXTS}
        return replace(self, **texts)


_TEXTS = ("line", "verdict", "headline", "also")

EFFECTS = {
    EffectKind.RELEASED: Words(
        of=Of.RUNNING,
        verdict="Every node is released: running pods lose their GPUs, until the nodes are set up again.",
        also="a GitOps tool releases every node",
    ),
    EffectKind.DRIVERLESS: Words(
        line="the operator removes the driver, and nothing replaces it: a node without a driver of its own loses its GPUs",
        of=Of.RUNNING,
        verdict="The driver is removed, nothing replaces it: nodes without a driver of their own lose their GPUs.",
        also="the driver is removed",
    ),
    EffectKind.REINSTALLED: Words(
        line="another release; uninstall the one that is installed first",
        of=Of.RUNNING,
        verdict="The installed release must be uninstalled first, which releases every node.",
        also="the installed release must be uninstalled first",
    ),
    EffectKind.DRIVER: Words(
        line="the driver restarts node by node: pods that use a GPU there must end first",
        of=Of.RUNNING,
        verdict="The driver restarts node by node: running pods with a GPU must end first.",
        also="the driver restarts",
    ),
    EffectKind.HANDED_OVER: Words(
        of=Of.RUNNING,
        verdict="The former GitOps tool must be detached first: deleting its objects releases every node.",
        also="the former GitOps tool must be detached first",
    ),
    EffectKind.ADOPTED: Words(
        line="this is the first change of hardware: every pool's nodes are changed, labelled and held to their caps",
        of=Of.RUNNING,
        verdict="The adoption changes, for every node.",
        also="the adoption changes",
    ),
    EffectKind.BEGINS: Words(
        also="changes that nodes still hold back may begin",
    ),
    EffectKind.ENDED: Words(
        line="running containers that are over their cap are killed from then on",
        of=Of.RUNNING,
        verdict="Running containers over their cap are killed from then on.",
        also="containers may be killed",
    ),
    EffectKind.VMS: Words(
        line="a person must shut down the virtual machines of the pool's nodes, then label these: see README.md",
        of=Of.RUNNING,
        verdict="Nodes of virtual machines must be labelled by hand, when these are shut down.",
        also="nodes of virtual machines must be labelled by hand",
    ),
    EffectKind.BACKEND: Words(
        line="the pool's nodes change hands one after the other: each is drained, and offers nothing until the former back end "
        "has left it",
        of=Of.RUNNING,
        verdict="Nodes change hands between device plugin and DRA driver: each is drained first.",
        also="nodes change hands between device plugin and DRA driver",
    ),
    EffectKind.TAINTED: Words(
        line="while a node's GPUs are divided, this taint ends every pod on it that does not tolerate it, pods without a GPU "
        "too: see README.md",
        of=Of.RUNNING,
        verdict="While a node's GPUs are divided, every pod on it that does not tolerate {vendor}'s taint ends.",
        also="pods that do not tolerate a taint of {vendor}'s end",
        has_values=False,
    ),
    EffectKind.ENFORCED: Words(
        line="holds for running containers too",
        of=Of.LATER,
        verdict="Caps are enforced differently, for running containers too.",
        also="caps are enforced differently",
    ),
    EffectKind.SPARED: Words(
        line="containers over their cap are no longer killed",
        of=Of.LATER,
        verdict="Running containers over their cap are no longer killed.",
    ),
    EffectKind.NOTICED: Words(
        line="containers that run already are warned, and held to it when enforcement.notice is over; "
        "later ones are held to it at once",
        of=Of.LATER,
        verdict="Running containers without a cap are warned, and held to the new one after the notice.",
        also="running containers get a notice",
    ),
    EffectKind.RAISED: Words(
        line="running containers may use it at once",
        of=Of.LATER,
        verdict="Running containers may use a raised cap at once.",
    ),
    EffectKind.CLASS_KEPT: Words(
        line="no pool has this device class any more; it stays until gpushare is uninstalled, because pods are placed by it on "
        "nodes that wait for their turn",
        of=Of.NEW,
        verdict="Device classes stay for the nodes that wait for their turn.",
        also="device classes stay",
        has_values=False,
    ),
    EffectKind.CLASSES: Words(
        line="the device class is edited in place; running pods keep their devices",
        of=Of.NEW,
        verdict="Device classes are edited in place, for new claims.",
        also="device classes are edited",
    ),
    EffectKind.INTERVAL: Words(
        line="new pods do not start on a GPU until those with the former interval have ended there; running pods keep it",
        of=Of.NEW,
        verdict="New pods do not start on a GPU until the pods with its former interval have ended there.",
        headline="new pods may wait for running ones to end",
        also="new pods may wait for running ones to end",
    ),
    EffectKind.VENDOR_REINSTALLED: Words(
        line="{vendor}'s programs leave every node with {vendor}'s GPUs, which offers none until a device plugin runs there "
        "again; running pods go on; uninstall the former release",
        of=Of.NEW,
        verdict="Nodes with {vendor}'s GPUs offer none until a device plugin runs there again.",
        headline="new pods find none of {vendor}'s GPUs",
        also="{vendor}'s former release must be uninstalled",
    ),
    EffectKind.WITHDRAWN: Words(
        line="{vendor}'s device plugin leaves these nodes, which offer no GPU until it runs there again; running pods go on",
        of=Of.NEW,
        verdict="{vendor}'s device plugin leaves nodes, which offer no GPU until it runs there again.",
        also="nodes offer none of {vendor}'s GPUs",
        has_values=False,
    ),
    EffectKind.RENAMED: Words(
        line="{vendor}'s operator renames the devices of all nodes of the pool at once, so that a node that waits for its turn "
        "offers what it has, of the former size, under names of the new kind. Instead make a new pool of other nodes, or "
        "keep strategy: single where every node has one mode",
        of=Of.NEW,
        verdict="Nodes that wait for their turn offer devices of the former size under names of the new kind.",
        headline="new pods may get devices of the former size",
        also="nodes that wait offer devices under other names",
    ),
    EffectKind.REFUSED: Words(
        line="pods that were admitted before may be refused from then on; running pods go on",
        of=Of.NEW,
        verdict="New pods that were admitted before may be refused.",
        headline="new pods may be refused",
        also="pods may be refused",
    ),
    EffectKind.UNPLACED: Words(
        line="new pods that select the pool by its former name find no node; running pods go on",
        of=Of.NEW,
        verdict="New pods that select a removed pool find no node.",
        headline="new pods that select a removed pool find no node",
        also="pods that select a removed pool find no node",
    ),
    EffectKind.ROUTED: Words(
        line="new pods that name no pool may be sent to other nodes, or be refused; running pods go on",
        of=Of.NEW,
        verdict="New pods that name no pool may be sent to other nodes.",
        headline="new pods that name no pool may be refused",
        also="new pods may go elsewhere",
    ),
    EffectKind.RESTARTS: Words(
        line="the runtime's pods restart; running pods continue",
        also="the runtime's pods restart",
    ),
    EffectKind.UPSTREAM: Words(
        line="NVIDIA's components that read it restart on every node",
        of=Of.LATER,
        verdict="NVIDIA's components restart on every node.",
        also="NVIDIA's components restart",
    ),
    EffectKind.VENDOR_UPSTREAM: Words(
        line="{vendor}'s programs that read it restart on all their nodes at once; running pods go on",
        of=Of.LATER,
        verdict="{vendor}'s programs restart on their nodes.",
        also="{vendor}'s programs restart",
    ),
    EffectKind.DRA_UPSTREAM: Words(
        line="the DRA driver restarts node by node; running pods go on, starting and ending ones wait for it",
        of=Of.LATER,
        verdict="The DRA driver restarts node by node.",
        also="the DRA driver restarts",
    ),
    EffectKind.APPLIED: Words(
        line="no tool syncs it: apply it again by hand",
        of=Of.NEW,
        verdict="Files that no GitOps tool syncs must be applied again.",
        also="files must be applied by hand",
        has_values=False,
    ),
    EffectKind.UNINSTALLED: Words(
        line="the bundle no longer has this chart: uninstall its release after this change",
        of=Of.NEW,
        verdict="The release of a chart that the bundle no longer has must be uninstalled afterwards.",
        also="a release must be uninstalled afterwards",
    ),
    EffectKind.KEEPS_CAP: Words(
        line="running containers keep their old cap; new ones get the new cap",
    ),
    EffectKind.FIRST_CAP: Words(
        line="containers that run already are only warned, later ones are held to it",
    ),
    EffectKind.ADMITTED: Words(
        line="no pod is refused that was admitted before",
    ),
    EffectKind.ROLLOUT: Words(
        line="the pace of later changes",
    ),
}

_SIZES = {"capMiB": "memory cap", "toleranceMiB": "tolerance"}
"""Fields of a policy that are sizes in MiB, and what they are."""

_OBSERVED = "every node keeps its layout and labels; nothing repairs it or enforces a cap"
_FOREIGN_USE = "running containers of tenants may be killed where they use a GPU that is not allocated to them"


def format_effect(one: Effect) -> str:
    """Return what happens, and to what."""
    said = EFFECTS[one.kind].of_vendor(one.vendor)
    if one.kind is EffectKind.RESTARTS and one.subject == "policy":
        return "the runtime's pods of the pool restart and check the layout; running pods continue"
    if one.kind is EffectKind.ADOPTED and one.after == "observe":
        return f"{one.subject} {before_and_after(one)}: {_OBSERVED}"
    if not said.has_values or (one.kind is EffectKind.VENDOR_UPSTREAM and one.pool is not None):
        return f"{one.subject}: {said.line}"
    if one.kind is EffectKind.UNINSTALLED:
        return f"{one.before}: {said.line}"
    if one.kind is EffectKind.RELEASED:
        return f"{before_and_after(one)}: {_released(one.subject)}"
    if one.kind is EffectKind.BEGINS:
        when = "at once" if one.after is None else f"when the next window opens, {one.after}"
        return f"changes that nodes still hold back may begin {when}; see gpushare status or plan --live"
    if one.kind is EffectKind.HANDED_OVER:
        return f"{one.subject} → {one.after or 'no tool'}: {_handed_over(TOOLS[one.subject])}"
    what = _FOREIGN_USE if one.kind is EffectKind.ENDED and one.pool is None else said.line
    return f"{_changed(one)}: {what}"


def _released(key: str) -> str:
    tool = TOOLS[key]
    return (
        f"{tool.title} deletes these {tool.installs}s and releases every node: pods lose their GPUs. Keep the former name with "
        f"gitops.{key}.name; or first {tool.detach}, then apply {join_words(tool.named)}"
    )


def _handed_over(tool: ToolFacts) -> str:
    return (
        f"{tool.title}'s {tool.objects} stay and keep syncing. First {tool.detach}; deleting them otherwise releases every node"
    )


def _changed(one: Effect) -> str:
    """Return the subject with its value before and after; a size of a share in words, with its unit."""
    share, _, field = one.subject.rpartition(" ")
    if field not in _SIZES:
        return f"{one.subject} {before_and_after(one)}"
    before, after = ("none" if size is None else str(size) for size in (one.before, one.after))
    if one.after is None:
        return f"{share} {_SIZES[field]} {before} MiB → none"
    return f"{share} {_SIZES[field]} {before} → {after} MiB"


CHANGES = {
    Change.NEW: "new",
    Change.GONE: "gone",
    Change.REPARTITION: "repartitioned",
    Change.RELABEL: "relabelled",
    Change.POLICY: "policy only",
}
"""What happens to a pool, in a word."""

UNCHANGED = "Nothing changes for running pods."
_ABOVE = {"kill": "killed", "evict": "evicted", "warn": "reported", "none": "left alone"}
_BEGINS = "Changes that nodes still hold back may begin"


def headline(comparison: Comparison) -> str:
    """Return one sentence: which running pods are disturbed, and what is refused."""
    said = _said(comparison.effects)
    running = next((one.verdict for kind, one in said if _is_harm(kind)), "")
    disturbed = _counted(comparison)
    if disturbed and not comparison.disrupts_all:
        number = pluralize(disturbed, "running pod")
        running = f"At most {number} {'is' if disturbed == 1 else 'are'} disturbed"
    elif disturbed is None and not comparison.disrupts_all:
        running = "Running pods are disturbed; how many is not known"
    if comparison.begun:
        running = "; ".join(filter(None, (running.rstrip("."), _BEGINS if not running else _BEGINS[0].lower() + _BEGINS[1:])))
    broken = sum(one.problem is not None for one in comparison.quotas)
    refused = _each(one.headline for _, one in said)
    if broken:
        refused.append(f"{pluralize(broken, 'quota')} no longer fit{'s' if broken == 1 else ''}")
    return f"{running.rstrip('.') or 'No running pod is disturbed'}; {join_words(refused) or 'no new pod is refused'}."


def verdict(comparison: Comparison) -> list[str]:
    """Return the sentences; none if nothing changes."""
    if comparison.is_empty:
        return []
    said = _said(comparison.effects)
    running = _sentences(said, Of.RUNNING)
    running += list(_disturbed(comparison))
    running += list(_beginning(comparison))
    running += list(_mixed(comparison))
    running += _sentences(said, Of.LATER)
    if comparison.changes_mig_strategy:
        running.append("The operator restarts the device plugin of every node at once.")
    new = [*_caps(comparison), *_sentences(said, Of.NEW), *_quotas(comparison)]
    return [*running, *new, *_nodes(comparison), *([] if running else [UNCHANGED])]


def _said(effects: Iterable[Effect]) -> list[tuple[EffectKind, Words]]:
    """Return the words on each kind of these effects, and on each vendor of it, worst first."""
    found = dict.fromkeys((one.kind, one.vendor) for one in effects)
    return [(kind, words.of_vendor(vendor)) for kind, words in EFFECTS.items() for one, vendor in found if one is kind]


def _sentences(said: Iterable[tuple[EffectKind, Words]], of: Of) -> list[str]:
    return _each(one.verdict for _, one in said if one.of is of)


def _each(texts: Iterable[str]) -> list[str]:
    """Return the texts, each once: those that name no vendor are the same of several."""
    return list(dict.fromkeys(filter(None, texts)))


def _is_harm(kind: EffectKind) -> bool:
    return EFFECTS[kind].of is Of.RUNNING or kind in {EffectKind.ENFORCED, EffectKind.NOTICED}


def _disturbed(comparison: Comparison) -> Iterator[str]:
    """Yield how many running pods lose their shares, by what their nodes do about them."""
    disturbed = _counted(comparison)
    if comparison.disrupts_all or disturbed == 0:
        return
    pods = f"At most {pluralize(disturbed or 0, 'running pod')} {'loses' if disturbed == 1 else 'lose'}"
    most = "Running pods lose" if disturbed is None else pods
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


def summary(comparison: Comparison) -> str:
    """Return in one line what happens to how many pools, nodes and pods, and in short what these numbers do not count."""
    counts = Counter(pool.change for pool in comparison.pools)
    parts = [f"{counts[change]} {word}" for change, word in CHANGES.items() if counts[change]]
    counted = sum(one.kind is EffectKind.VMS for one in comparison.effects)
    parts += [f"{counted} of virtual machines"] if counted else []
    shown = "Pools: " + (", ".join(parts) or "none changed")
    if comparison.is_configmap_only:
        return shown + ". ConfigMaps only: no node is touched, no pod disturbed."
    touched = "an unknown number of nodes" if comparison.touched is None else pluralize(comparison.touched, "node")
    broken = sum(quota.problem is not None for quota in comparison.quotas)
    quotas = f"; {pluralize(broken, 'quota')} no longer fit{'s' if broken == 1 else ''}" if broken else ""
    costs = f"{touched} touched, {pods_disturbed(comparison.disturbed)}"
    if comparison.touched == 0 and comparison.disturbed == 0:
        costs = "No GPU and no label of a node changes"
    also = _each(one.also for _, one in _said(one for one in comparison.effects if not one.is_harmless))
    side_effects = f" Also: {', '.join(also)}." if also else ""
    return f"{shown}. {costs}{quotas}.".replace(". an", ". An") + side_effects


def pods_disturbed(number: int | None) -> str:
    """Return how many pods are disturbed at most."""
    if number is None:
        return "an unknown number of pods disturbed"
    return f"at most {pluralize(number, 'pod')} disturbed" if number else "no pod disturbed"
