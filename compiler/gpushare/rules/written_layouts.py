"""Where the layouts of MIG pools are written in an intent. Makes no findings; the MIG and memory rules use it."""

from collections.abc import Iterator

from gpushare import modes
from gpushare.catalog.cards import Card, Geometry
from gpushare.core.diagnostics import Path
from gpushare.intent.types import Layout, LayoutGroup, Pool
from gpushare.rules.rule import RuleContext, pool_path


def mig_pools(context: RuleContext) -> Iterator[tuple[Pool, Card, Geometry]]:
    """Yield the MIG pools whose card has MIG; another rule reports the others."""
    for pool, card in context.pools_with_card():
        if modes.of(pool).is_partitioned and card.mig:
            yield pool, card, card.mig


def layout_groups(pool: Pool) -> tuple[LayoutGroup, ...]:
    """Return the entries of the pool's `layouts`; empty for `layout`, goals and other modes."""
    return modes.of(pool).written[0]


def written_layouts(pool: Pool) -> tuple[tuple[Path, Layout], ...]:
    """Return every layout that the user wrote for the pool, with its path; empty for goals, on demand and other modes."""
    mode = modes.of(pool)
    groups, alike = mode.written
    if groups:
        return tuple((pool_path(pool, "sharing", "layouts", at, "layout"), group.layout) for at, group in enumerate(groups))
    is_written = mode.is_partitioned and mode.goal is None and not mode.is_on_demand
    return ((pool_path(pool, "sharing", "layout"), alike),) if is_written else ()
