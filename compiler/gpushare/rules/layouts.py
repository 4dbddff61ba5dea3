"""Where the layouts of MIG pools are written in an intent. Makes no findings; the MIG and memory rules use it."""

from collections.abc import Iterator

from gpushare.catalog.cards import Card, Geometry
from gpushare.core.diagnostics import Path
from gpushare.intent.types import Layout, LayoutGroup, Mig, Pool
from gpushare.rules.rule import RuleContext, pool_path
from gpushare.sharing.shares import split_wanted


def mig_pools(context: RuleContext) -> Iterator[tuple[Pool, Mig, Card, Geometry]]:
    """Yield the MIG pools whose card has MIG; another rule reports the others."""
    for pool, card in context.pools_with_card():
        if isinstance(pool.sharing, Mig) and card.mig:
            yield pool, pool.sharing, card, card.mig


def layout_groups(pool: Pool) -> tuple[LayoutGroup, ...]:
    """Return the entries of the pool's `layouts`; empty for `layout`, goals and other modes."""
    wanted = pool.sharing.wanted if isinstance(pool.sharing, Mig) else ()
    return split_wanted(wanted)[0] if isinstance(wanted, tuple) else ()


def written_layouts(pool: Pool) -> tuple[tuple[Path, Layout], ...]:
    """Return every layout that the user wrote for the pool, with its path; empty for goals and other modes."""
    groups = layout_groups(pool)
    if groups:
        return tuple((pool_path(pool, "sharing", "layouts", at, "layout"), group.layout) for at, group in enumerate(groups))
    wanted = pool.sharing.wanted if isinstance(pool.sharing, Mig) else None
    return ((pool_path(pool, "sharing", "layout"), split_wanted(wanted)[1]),) if isinstance(wanted, tuple) else ()
