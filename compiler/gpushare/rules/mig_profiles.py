"""Rules on the names of MIG profiles: the card has them, and `replicas` names those of the layout (GS403, GS407)."""

import re
from collections.abc import Iterator, Mapping

from gpushare import modes, vendors
from gpushare.catalog.cards import Card, MigProfile
from gpushare.core.diagnostics import Finding, Path
from gpushare.core.wording import join_words
from gpushare.intent.types import Pool
from gpushare.rules.card_names import a_card
from gpushare.rules.rule import Rule, RuleContext, pool_path
from gpushare.rules.written_layouts import mig_pools, written_layouts

_COMPUTE_INSTANCE = re.compile(r"[0-9]+c\.(?=[0-9]+g\.)")
_SLICES = re.compile(r"([0-9]+)g\b")


def check_names(context: RuleContext) -> Iterator[Finding]:
    """GS403: a profile that the card does not have, in any field that names profiles."""
    for pool, card, _ in mig_pools(context):
        known = card.profiles
        for path, name in _named(pool):
            if name not in known:
                yield Finding(
                    code="GS403",
                    message=f"{a_card(card)} has no MIG profile {name}",
                    hints=tuple(_instead(name, card, known)),
                    path=path,
                    on_key=path[-1] == name,
                )


def _named(pool: Pool) -> Iterator[tuple[Path, str]]:
    """Yield every path at which the pool names a profile."""
    for path, layout in written_layouts(pool):
        for name, _ in layout:
            yield (*path, name), name
    for at, name in enumerate(modes.of(pool).profiles):
        yield pool_path(pool, "sharing", "profiles", at), name
    for name in _replicated(pool):
        yield pool_path(pool, "sharing", "replicas", name), name
    if isinstance(pool.memory.cap, tuple):
        for name, _ in pool.memory.cap:
            yield pool_path(pool, "memory", "cap", name), name


def _replicated(pool: Pool) -> tuple[str, ...]:
    replicas = getattr(pool.sharing, "replicas", ())
    return tuple(name for name, _ in replicas) if isinstance(replicas, tuple) else ()


def _instead(name: str, card: Card, known: Mapping[str, MigProfile]) -> Iterator[str]:
    """Yield hints with the card's nearest names: the same name in NVML's spelling, the same slices, then all profiles."""
    if _COMPUTE_INSTANCE.search(name):
        yield "compute instances inside a GPU instance cannot be offered by the device plugin; name the whole instance"
    if name in ("gpu", vendors.of(card).whole_gpu):
        yield "whole GPUs beside MIG are never shared: name a profile, or write a number for all of them, such as replicas: 2"
        return
    meant = _respell(name)
    if meant in known:
        yield f"write {meant}"
        return
    plain = [profile.name for profile in known.values() if not profile.has_attributes]
    slices = _SLICES.match(meant)
    alike = [other for other in known if slices and other.startswith(slices[0] + ".")]
    if alike:
        yield f"with as many slices it has {join_words(alike)}"
    else:
        yield f"it has {join_words(plain or known)}; gpushare cards {card.id} shows every layout"


def _respell(name: str) -> str:
    """Return the name in NVML's spelling, from spellings that tools and people use: `MIG-1g.5gb.me`, `all-1G.5GB`."""
    short = vendors.short(name.strip().lower())
    short = re.sub(r"^(mig|all)[-. ]", "", short).removesuffix(".shared")
    short = _COMPUTE_INSTANCE.sub("", short)
    return re.sub(r"gb[.+ ]+(?=[a-z])", "gb+", short)


def check_replicas(context: RuleContext) -> Iterator[Finding]:
    """GS407: replicas for a profile that no GPU of the pool has; the device plugin would silently ignore them."""
    for pool, card, _ in mig_pools(context):
        present = _present(context, pool)
        for name in _replicated(pool):
            if name in card.profiles and present is not None and name not in present:
                yield Finding(
                    code="GS407",
                    message=f"replicas names {name}, which no GPU of pool {pool.name} has",
                    hints=(
                        f"its GPUs have {join_words(present)}" if present else "all its GPUs are whole: leave replicas out",
                    ),
                    path=pool_path(pool, "sharing", "replicas", name),
                    on_key=True,
                )


def _present(context: RuleContext, pool: Pool) -> tuple[str, ...] | None:
    """Return the profiles on the pool's GPUs, in the user's order; None for a goal that cannot be reached."""
    written = [layout for _, layout in written_layouts(pool)] or context.layouts(pool)
    return None if written is None else tuple(dict.fromkeys(name for layout in written for name, _ in layout))


RULES = (Rule(code="GS403", check=check_names), Rule(code="GS407", check=check_replicas))
