"""Rules on vendors, and on the partitions of AMD's GPUs: GS223, GS320 to GS324 and GS751 to GS754."""

from collections.abc import Iterator
from itertools import product as product_of

from gpushare import vendors
from gpushare.core.diagnostics import Path, Severity
from gpushare.core.wording import join_words
from gpushare.facts.catalog import card_search, upstream
from gpushare.facts.catalog.cards import Card
from gpushare.intent.stacks import VendorStack
from gpushare.intent.types import NvidiaStack, Pool
from gpushare.offering import modes
from gpushare.offering.modes import partition
from gpushare.offering.modes.traits import AnyTraits
from gpushare.rules.rule import Problem, RuleContext, a_card, of_pool, pool_path, product, rule
from gpushare.rules.versions import is_release
from gpushare.vendors.amd import AMD, CONFIG_MANAGER
from gpushare.vendors.vendor import GpuVendor
from gpushare_node.contract.vendors import Stack

PLATFORM = ("spec", "platform")


def _stack(context: RuleContext) -> VendorStack:
    return context.intent.platform.of_vendor(AMD.word)


def _partitions(context: RuleContext) -> Iterator[tuple[Pool, Card, AnyTraits]]:
    for pool, card in context.pools_with_mode():
        if (traits := modes.of(pool)).partition_modes:
            yield pool, card, traits


def _written(pool: Pool, traits: AnyTraits) -> Iterator[tuple[str, str, Path]]:
    """Yield every compute mode of the pool with its memory mode and its path."""
    for at, (compute, memory) in enumerate(traits.partition_modes):
        entry = ("layouts", at) if traits.groups else ()
        yield compute, memory, pool_path(pool, "sharing", *entry, "compute")


@rule("GS320")
def check_mode(context: RuleContext) -> Iterator[Problem]:
    """A mode that the vendor of the card does not have."""
    for pool, card in context.pools_with_card():
        traits, vendor = modes.of(pool), vendors.of(card)
        if card.vendor in traits.vendors:
            continue
        is_own = pool.card in context.catalog.own
        whose = "a card of spec.cards" if is_own else a_card(card)
        others = [mode.mode.value for mode in modes.MODES if card.vendor in mode.vendors and mode.missing(card) is None]
        yield Problem(
            message=f"{vendor.name} has no {traits.mode.value}, and {whose} is {vendor.name}'s",
            hints=(
                _instead(card) if vendor.compute_modes else f"write mode: {join_words(others, 'or')}",
                *((card_search.OF_NVIDIA_ONLY,) if is_own else ()),
            ),
            path=pool_path(pool, "sharing", "mode"),
            causes=(pool_path(pool, "card"),),
        )


def _instead(card: Card) -> str:
    if not card.partition_modes:
        whose = f"{vendors.of(card).name}'s"
        return f"write mode: exclusive: nothing divides this card, and {whose} device plugin offers no GPU twice"
    shared = partition.proposed(card)
    if shared is None:
        return f"write mode: exclusive: no source confirms the partitions that `gpushare cards {card.id}` lists"
    sharing = f"{{mode: partition, compute: {shared.compute}, memory: {shared.memory}}}"
    return f"write sharing: {sharing}, {shared.partitions} partitions of a GPU, or mode: exclusive; nothing else divides it"


@rule("GS321")
def check_pair(context: RuleContext) -> Iterator[Problem]:
    """A compute mode with a memory mode that the card does not have."""
    for pool, card, traits in _partitions(context):
        if not card.partition_modes:
            yield Problem(
                message=f"nothing divides {a_card(card)} into partitions",
                hints=("write mode: exclusive",),
                path=pool_path(pool, "sharing", "mode"),
                causes=(pool_path(pool, "card"),),
            )
            continue
        for compute, memory, path in _written(pool, traits):
            if partition.find(card, compute, memory) is None:
                yield Problem(
                    message=f"{a_card(card)} has no {compute} with {memory}",
                    hints=(f"{product(card)} has {_legal(card)}",),
                    path=path,
                    causes=(pool_path(pool, "sharing", "memory"),),
                )


def _legal(card: Card) -> str:
    """Return the pairs that exist: every memory mode of each compute mode."""
    memory: dict[str, list[str]] = {}
    for mode in card.partition_modes:
        memory.setdefault(mode.compute, []).append(mode.memory)
    return join_words([f"{compute} with {join_words(found, 'or')}" for compute, found in memory.items()])


@rule("GS322")
def check_single(context: RuleContext) -> Iterator[Problem]:
    """Several compute modes on a node whose resources all have one name: AMD's device plugin exits."""
    for pool, _, traits in _partitions(context):
        computes = dict.fromkeys(compute for compute, _ in traits.partition_modes)
        if not traits.is_named_by_mode and len(computes) > 1:
            yield Problem(
                message=f"with strategy: single AMD's device plugin exits on a node with {join_words(computes)}",
                hints=("write strategy: mixed, which names each mode, or one compute mode",),
                path=pool_path(pool, "sharing", "strategy"),
            )


@rule("GS323")
def check_manager(context: RuleContext) -> Iterator[Problem]:
    """A compute mode that the vendor's config manager refuses."""
    for pool, card, traits in _partitions(context):
        vendor = vendors.of(card)
        if card.vendor not in vendors.OTHERS or not context.intent.platform.of_vendor(card.vendor).has_operator:
            continue
        for compute, memory, path in _written(pool, traits):
            if compute not in vendor.compute_modes and partition.find(card, compute, memory):
                every = dict.fromkeys(mode.compute for mode in card.partition_modes)
                others = [one for one in every if one in vendor.compute_modes]
                yield Problem(
                    message=f"{vendor.name}'s config manager refuses {compute}, in every release that was read",
                    hints=(
                        f"write {join_words(others, 'or')}",
                        f"or divide the GPUs yourself, and write stack: {list(vendor.charts)[-1]} and strategy: single",
                    ),
                    path=path,
                )


@rule("GS324", Severity.WARNING)
def check_several(context: RuleContext) -> Iterator[Problem]:
    """Several compute modes on a node, which AMD does not recommend."""
    for pool, _, traits in _partitions(context):
        computes = dict.fromkeys(compute for compute, _ in traits.partition_modes)
        if len(computes) > 1:
            message = f"AMD does not recommend several compute modes on a node, and pool {pool.name} has {join_words(computes)}"
            yield of_pool(pool, message, "make a pool for each mode, with nodes of its own", "sharing", "layouts")


@rule("GS223")
def check_tolerations(context: RuleContext) -> Iterator[Problem]:
    """A toleration with which the vendor's device plugin stays on a node while its GPUs are divided."""
    for pool, card in context.pools_with_card():
        vendor = vendors.of(card)
        taint = vendor.layout_taint.key if vendor.layout_taint else ""
        for number, toleration in enumerate(pool.tolerations if taint else ()):
            is_of_manager = toleration.get("key", taint) == taint
            if is_of_manager and toleration.get("effect", "NoExecute") == "NoExecute":
                whose = f"{vendor.name}'s programs and pods of pool {pool.name}"
                yield Problem(
                    message=f"{whose} would stay on a node while its GPUs are divided",
                    hints=(f"name the key of the taint that is meant, but not {taint}",),
                    path=pool_path(pool, "tolerations", number),
                )


@rule("GS751")
def check_stack(context: RuleContext) -> Iterator[Problem]:
    """A stack of a vendor whose cards no pool has, or pools without a stack of their vendor."""
    platform = context.intent.platform
    found = [(pool, card.vendor) for pool, card in context.pools_with_card()]
    first = {vendor: pool for pool, vendor in reversed(found)}
    of_nvidia, stack = first.get(vendors.DEFAULT.word), (*PLATFORM, "stack")
    is_complete = len(found) == len(context.intent.pools)
    for word, vendor in vendors.OTHERS.items():
        whose = f"{vendor.name}'s"
        own, written = first.get(word), context.intent.platform.of_vendor(word).stack.value
        choice = f"{next(iter(vendor.charts))}}}" + "".join(f", or {one}" for one in [*list(vendor.charts)[1:], "existing"])
        if context.writes((*PLATFORM, word)) and context.stack_path(word) == PLATFORM:
            yield Problem(
                message=f"stack {written} is {whose}, so platform.{word} has no effect",
                hints=("write version, namespace and values beside stack", "or write the stack of NVIDIA's cards as stack"),
                path=(*PLATFORM, word),
                on_key=True,
            )
        if platform.stack is NvidiaStack.NONE and of_nvidia and word in platform.others:
            yield Problem(
                message=f"pool {of_nvidia.name} has NVIDIA's cards, which stack {written} does not serve",
                hints=("write stack: gpu-operator" + (f" and {word}: {{stack: {written}}}" if own else ""),),
                path=stack,
            )
        if own and platform.stack in (NvidiaStack.GPU_OPERATOR, NvidiaStack.DEVICE_PLUGIN):
            if len(first) == 1 and is_complete:
                yield Problem(
                    message=f"stack {platform.stack.value} is NVIDIA's, and no pool has NVIDIA's cards",
                    hints=(f"write platform: {{stack: {choice}",),
                    path=stack if "stack" in context.document.get("spec", {}).get("platform", {}) else PLATFORM,
                )
            elif word not in platform.others:
                yield Problem(
                    message=f"stack {platform.stack.value} does not serve pool {own.name}, which has {whose} cards",
                    hints=(f"add platform.{word}: {{stack: {choice}",),
                    path=pool_path(own, "card"),
                )
        if own is None and word in platform.others and platform.stack is not NvidiaStack.NONE and is_complete:
            message = f"no pool has {whose} cards, so that no node needs {whose} stack"
            yield Problem(message=message, hints=(f"leave {word} out",), path=(*PLATFORM, word), on_key=True)


@rule("GS752")
def check_release(context: RuleContext) -> Iterator[Problem]:
    """A release of a vendor's chart that cannot do what a pool needs, or settings of a chart that is not installed."""
    for word, vendor in vendors.OTHERS.items():
        yield from _check_release(context, word, vendor)


def _check_release(context: RuleContext, word: str, vendor: GpuVendor) -> Iterator[Problem]:
    own = context.intent.platform.of_vendor(word)
    if not own.installs_chart:
        for field, given in (("version", own.version is not None), ("values", bool(own.values))):
            if given:
                message = f"stack existing installs no chart of {vendor.name}'s, so {field} has no effect"
                yield Problem(message=message, hints=(f"leave {field} out",), path=context.stack_path(word, field))
        return
    if own.version is None:
        return
    where, chart = context.stack_path(word, "version"), upstream.vendor_chart(own.stack.value)
    if not is_release(chart, own.version):
        message, hint = f"invalid version {own.version!r} of {chart.name}", f"write it as the chart does: {chart.version}"
        yield Problem(message=message, hints=(hint,), path=where)
        return
    if not own.has_operator:
        return
    for pool, card in context.pools_with_card():
        needed = (CONFIG_MANAGER,) if card.partition_modes else ()
        for part in (*needed, card.id) if card.vendor == word else ():
            if chart.lacks(part, own.version):
                lacks = "has no config manager" if part == CONFIG_MANAGER else f"does not know {a_card(card)}"
                yield Problem(
                    message=f"{vendor.name}'s operator {own.version} {lacks}",
                    hints=(f"pool {pool.name} needs {chart.firsts[part]} or newer: leave version out",),
                    path=where,
                )
                break


@rule("GS753")
def check_names(context: RuleContext) -> Iterator[Problem]:
    """Names by mode with the chart of AMD's device plugin alone, which gives the plugin no arguments."""
    if _stack(context).stack is not Stack.AMD_DEVICE_PLUGIN:
        return
    for pool, _, traits in _partitions(context):
        if traits.is_named_by_mode:
            single = "write strategy: single: partitions are then amd.com/gpu"
            if len(set(traits.partition_modes)) > 1:
                single = "write one compute mode and strategy: single: partitions are then amd.com/gpu"
            yield Problem(
                message="the chart amd-gpu starts AMD's device plugin with the strategy single, and has no value to change it",
                hints=(single, "or write stack: amd-gpu-operator"),
                path=pool_path(pool, "sharing"),
            )


@rule("GS754")
def check_gitops(context: RuleContext) -> Iterator[Problem]:
    """A chart of another vendor than NVIDIA in a bundle that a GitOps tool syncs."""
    intent = context.intent
    used = {card.vendor for _, card in context.pools_with_card()} & vendors.OTHERS.keys()
    charts = [] if intent.observes else [word for word in sorted(used) if intent.platform.of_vendor(word).installs_chart]
    for tool, word in product_of(intent.gitops, charts):
        yield Problem(
            message=f"gpushare writes no objects of {tool} for {vendors.OTHERS[word].name}'s stack yet",
            hints=(f"leave {tool} out: README.md of the bundle has the commands of Helm",),
            path=("spec", "gitops", tool),
            on_key=True,
        )
