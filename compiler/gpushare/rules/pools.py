"""Rules on a pool's name and card, the number of pools, and prices: GS201, GS205, GS208 to GS210, GS218, GS221 and GS222."""

from collections.abc import Iterator

from gpushare import vendors
from gpushare.core import prices
from gpushare.core.diagnostics import Path, Severity
from gpushare.core.units import MIB, is_dns_label, show_bytes
from gpushare.core.wording import join_first, shorten
from gpushare.facts.catalog import card_search
from gpushare.facts.catalog.cards import Card, NvLink, PartitionMode
from gpushare.intent.types import CapWord, Pool
from gpushare.offering import modes, shares
from gpushare.offering.partitioners import config_manager
from gpushare.offering.shares import ShareKind
from gpushare.rules.rule import Problem, RuleContext, a_card, pool_path, product, rule
from gpushare.vendors import OTHERS

MOST_POOLS = 300
"""The tests compile this many."""

NAME_LENGTH = 48
"""A pool's name is part of object names and labels of at most 63 characters, between `gpushare-` and a suffix."""

RESERVED_NAMES = frozenset({"release", "uninstall"})
"""DaemonSet `gpushare-release` serves pools which no longer exist; `gpushare-uninstall` releases nodes for Argo CD."""


_MEASURED = "the node runtime measures again and reports differences"


@rule("GS201")
def check_card(context: RuleContext) -> Iterator[Problem]:
    """A card that neither the catalogue nor the intent knows."""
    for pool in context.intent.pools:
        if context.card(pool) is None:
            is_certain = card_search.of_product(pool.card, context.catalog) is not None
            others = () if is_certain else (f"`gpushare cards` lists all cards; {card_search.describing(pool.card)}",)
            yield Problem(
                message=f"unknown card {pool.card}",
                hints=(*card_search.hints(pool.card, context.catalog), *others),
                path=pool_path(pool, "card"),
            )


@rule("GS205")
def check_name(context: RuleContext) -> Iterator[Problem]:
    """A name that is invalid for Kubernetes objects or labels, or that gpushare uses itself."""
    for pool in context.intent.pools:
        card = context.card(pool)
        stack = context.intent.platform.of_vendor(card.vendor) if card and card.vendor in OTHERS else None
        most = (stack and stack.longest_pool_name) or NAME_LENGTH
        if pool.name in RESERVED_NAMES:
            message = f"pool name {pool.name} is reserved: gpushare-{pool.name} is an object of gpushare's own"
            yield _bad_name(pool, message, most)
        elif len(pool.name) > most:
            whose = "" if most == NAME_LENGTH or card is None else f" with {vendors.of(card).name}'s operator"
            yield _bad_name(pool, f"the pool's name has {len(pool.name)} characters; {most} is the limit{whose}", most)
        elif not is_dns_label(pool.name):
            yield _bad_name(pool, f"invalid pool name {pool.name!r}", most)


def _bad_name(pool: Pool, message: str, most: int) -> Problem:
    hint = f"write lower-case letters, digits and inner hyphens, at most {most} of them, such as h100-dense"
    return Problem(message=message, hints=(hint,), path=pool_path(pool), on_key=True)


@rule("GS208")
def check_requirements(context: RuleContext) -> Iterator[Problem]:
    """A card that lacks what the pool requires, or for which it is unknown."""
    for pool, card in context.pools_with_card():
        require = pool.require
        has_nvlink = None if card.nvlink is None else card.nvlink is not NvLink.NO
        for field, name, wanted, has in (
            ("nvlink", "NVLink", require.nvlink, has_nvlink),
            ("ecc", "ECC memory", require.ecc, card.ecc),
        ):
            if wanted is not None and wanted is not has:
                yield _unmet(pool, field, _about(card, name, has), f"leave {field} out, or name another card")
        if require.memory_bytes is not None and (card.memory_mib or 0) * MIB < require.memory_bytes:
            size = f"reports {card.memory_mib} MiB, less than {show_bytes(require.memory_bytes)}"
            text = f"{a_card(card)} {size}" if card.memory_mib else f"the memory of {a_card(card)} has not been measured"
            hint = f"write memory: {card.memory_mib}Mi or less" if card.memory_mib else "leave memory out, or name another card"
            yield _unmet(pool, "memory", text, hint)


def _about(card: Card, name: str, has: bool | None) -> str:
    if has is None:
        return f"no source confirms that {a_card(card)} has {name}"
    return f"{a_card(card)} has {name}" if has else f"{a_card(card)} has no {name}"


def _unmet(pool: Pool, field: str, message: str, hint: str) -> Problem:
    return Problem(message=message, hints=(hint,), path=pool_path(pool, "require", field))


@rule("GS209", Severity.WARNING)
def check_confirmed(context: RuleContext) -> Iterator[Problem]:
    """A number of the catalogue that no source confirms and that this pool uses."""
    for pool, card in context.pools_with_card():
        kinds = context.kinds(pool) or ()
        of_modes = _mode_facts(context, pool, card, kinds)
        facts = [*_board_facts(pool, card, kinds), *_profile_facts(pool, card, kinds), *of_modes]
        if facts:
            relied = ", ".join(dict.fromkeys(facts))
            yield Problem(
                message=f"pool {pool.name} relies on unconfirmed facts about {a_card(card)}: {relied}",
                hints=(f"compare with {vendors.of(card).tool} on such a node; {_MEASURED}",),
                path=pool_path(pool, "card"),
            )


def _board_facts(pool: Pool, card: Card, kinds: tuple[ShareKind, ...]) -> Iterator[str]:
    capped = any(_is_capped(pool, kind) for kind in kinds if kind.profile is None)
    relied = {
        "memoryMiB": ("memory", capped or pool.require.memory_bytes is not None),
        **{fact: (text, True) for fact, text in reversed(modes.of(pool).card_facts)},
        "nvlink": ("NVLink", pool.require.nvlink is not None),
        "ecc": ("ECC", pool.require.ecc is not None),
    }
    unknown = {"memoryMiB": card.memory_mib is None, "nvlink": card.nvlink is None, "ecc": card.ecc is None}
    yield from (text for fact, (text, used) in relied.items() if used and fact in card.unconfirmed and not unknown.get(fact))


def _profile_facts(pool: Pool, card: Card, kinds: tuple[ShareKind, ...]) -> Iterator[str]:
    for kind in kinds:
        profile = kind.profile
        if profile is None or profile.name not in card.profiles:
            continue
        of_all = card.mig.unconfirmed if card.mig else ()
        unconfirmed = {*profile.unconfirmed, *(fact.removeprefix("profiles.") for fact in of_all)}
        relied = {"placements": "placements", "profileId": "profile id"}
        if _is_capped(pool, kind) and profile.memory_mib:
            relied["memoryMiB"] = "memory"
        yield from (f"{text} of {profile.name}" for fact, text in relied.items() if fact in unconfirmed)


def _mode_facts(context: RuleContext, pool: Pool, card: Card, kinds: tuple[ShareKind, ...]) -> Iterator[str]:
    """Yield the modes of AMD's cards that no source confirms, that of whole GPUs too, and their memory where it decides."""
    decides = any(quota.pool == pool.name and quota.memory_bytes is not None for quota in context.intent.quotas)
    decides = decides or pool.require.memory_bytes is not None
    for kind in kinds:
        mode = kind.profile or config_manager.whole(card)
        if isinstance(mode, PartitionMode):
            of_memory = f"memory of {mode.name}" if decides and kind.profile else ""
            relied = {"mode": f"{mode.compute} with {mode.memory}", "memoryMiB": of_memory}
            yield from (text for fact, text in relied.items() if text and fact in mode.unconfirmed)


def _is_capped(pool: Pool, kind: ShareKind) -> bool:
    return kind.shared and shares.wanted_cap(pool, kind.profile) is not CapWord.NONE


@rule("GS210", Severity.WARNING)
def check_same_resource(context: RuleContext) -> Iterator[Problem]:
    """One resource name for different shares: a pod that requests it cannot know which it gets."""
    offers: dict[str, list[tuple[Pool, ShareKind, str]]] = {}
    for pool, card in context.pools_with_card():
        for kind in context.kinds(pool) or ():
            if name := context.named(pool, kind):
                offers.setdefault(name, []).append((pool, kind, _share(pool, card, kind)))
    for resource, offered in sorted(offers.items()):
        # Another rule reports different shares within one pool.
        others = [offer for offer in offered if offer[2] != offered[0][2] and offer[0] is not offered[0][0]]
        if others:
            first = {text: f"{text} in {pool.name}" for pool, _, text in reversed(offered)}
            selector = f"{{gpushare.dev/pool: {others[0][0].name}}}"
            yield Problem(
                message=f"{resource} means different things: {join_first(list(reversed(first.values())), 4)}",
                hints=(f"pods that ask for it must select their pool, such as nodeSelector {selector}",),
                path=_difference(context, offered[0], others[0]),
            )


def _share(pool: Pool, card: Card, kind: ShareKind) -> str:
    device = product(card) if kind.profile is None else f"{kind.profile.name} of {a_card(card)}"
    if not kind.shared:
        return f"{'a whole ' if kind.profile is None else ''}{device}"
    cap = shares.cap_mib(pool, card, kind.profile, kind.replicas)
    return f"a share of {device} with {'no cap' if cap is None else f'{cap} MiB'}"


def _difference(context: RuleContext, first: tuple[Pool, ShareKind, str], other: tuple[Pool, ShareKind, str]) -> Path:
    (one, one_kind, _), (two, two_kind, _) = first, other
    if context.card(one) != context.card(two):
        return pool_path(two, "card")
    if one_kind.profile == two_kind.profile and two.memory.cap is not None:
        return pool_path(two, "memory", "cap")
    return pool_path(two, "sharing")


@rule("GS218", Severity.WARNING)
def check_number(context: RuleContext) -> Iterator[Problem]:
    """More pools than gpushare is tested with."""
    number = len(context.intent.pools)
    if number > MOST_POOLS:
        yield Problem(
            message=f"{number} pools are more than the {MOST_POOLS} that gpushare is tested with",
            hints=("describe nodes with the same sharing as one pool, or give each cluster an intent of its own",),
            path=("spec", "pools"),
            on_key=True,
        )


PRICES = ("spec", "prices")


@rule("GS221")
def check_price_names(context: RuleContext) -> Iterator[Problem]:
    """A price of what is neither a pool nor a card. A card that no pool has is none: clusters share lists of prices."""
    pools = [pool.name for pool in context.intent.pools]
    for name in context.intent.prices:
        if name not in pools and context.catalog.get(name) is None:
            hints = card_search.of_pool_or_card(name, pools, context.catalog)
            message = f"there is no pool and no card {shorten(name)!r}"
            yield Problem(message=message, hints=hints, path=(*PRICES, name), on_key=True)


@rule("GS222")
def check_currencies(context: RuleContext) -> Iterator[Problem]:
    """Prices in several currencies, or only some with one."""
    if which := prices.disagreement(context.intent.prices.values()):
        yield Problem(message=which, hints=(prices.AGREE,), path=PRICES)
