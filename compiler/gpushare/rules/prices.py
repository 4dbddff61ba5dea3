"""Rules on `spec.prices`: GS221 and GS222."""

from collections.abc import Iterator

from gpushare.catalog import card_search
from gpushare.core import prices
from gpushare.core.diagnostics import Finding
from gpushare.core.wording import shorten
from gpushare.rules.rule import Rule, RuleContext

HERE = ("spec", "prices")


def check_names(context: RuleContext) -> Iterator[Finding]:
    """GS221: a price of what is neither a pool nor a card. A card that no pool has is none: clusters share lists of prices."""
    pools = [pool.name for pool in context.intent.pools]
    for name in context.intent.prices:
        if name not in pools and context.catalog.get(name) is None:
            hints = card_search.of_pool_or_card(name, pools, context.catalog)
            message = f"there is no pool and no card {shorten(name)!r}"
            yield Finding(code="GS221", message=message, hints=hints, path=(*HERE, name), on_key=True)


def check_currencies(context: RuleContext) -> Iterator[Finding]:
    """GS222: prices in several currencies, or only some with one."""
    if which := prices.disagreement(context.intent.prices.values()):
        yield Finding(code="GS222", message=which, hints=(prices.AGREE,), path=HERE)


RULES = (Rule(code="GS221", check=check_names), Rule(code="GS222", check=check_currencies))
