"""Files that options of several commands name: prices of GPU-hours, and a workload."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gpushare.cli import streams
from gpushare.cli.exits import CouldNotRunError
from gpushare.core import prices
from gpushare.core.prices import Price
from gpushare.core.wording import shorten, visible
from gpushare.facts.catalog import card_search
from gpushare.facts.catalog.cards import Catalog
from gpushare.reading import source

if TYPE_CHECKING:
    from gpushare.resolved.plan import Plan
    from gpushare.study.workload.requests import Workload


def prices_of_pools(plan: "Plan", file: str | None) -> Mapping[str, Price]:
    """Return the price of each pool that has one, of the file or else of the intent; the pool's own before its card's.

    Raises CouldNotRunError.
    """
    cards = {pool.name: pool.card for pool in plan.every_pool}
    own = {card.id: card for card in cards.values()}
    known = plan.intent.prices if file is None else read_prices(file, cards, Catalog(own=own))
    return prices.of_pools(known, {pool: card.id for pool, card in cards.items()})


def read_prices(file: str, pools: Iterable[str], catalog: Catalog) -> Mapping[str, Price]:
    """Return the prices of a file, by pool or card as it has them. Raises CouldNotRunError, also for an unknown name."""
    found = source.read(*streams.read(file, source.MAX_BYTES, prices.FORM))
    shown = visible(file)
    if found.findings or not isinstance(found.data, dict):
        why = f": {found.findings[0].message}" if found.findings else ""
        raise CouldNotRunError(f"{shown} is not a mapping from pools or cards to prices{why}", prices.FORM)
    named = list(pools)
    each = {key: _price(shown, key, value, named, catalog) for key, value in found.data.items()}
    if which := prices.disagreement(each.values()):
        raise CouldNotRunError(f"{shown}: {which}", prices.AGREE)
    return each


def _price(file: str, name: str, value: object, pools: Sequence[str], catalog: Catalog) -> Price:
    if name not in pools and catalog.get(name) is None:
        absent = "there is no pool and no card" if pools else "there is no card"
        hint = "; ".join(card_search.of_pool_or_card(name, pools, catalog))
        raise CouldNotRunError(f"{file}: {absent} {shorten(name)!r}", hint)
    price = prices.parse(value)
    if price is None:
        shown = "no price" if value is None else f"the price {shorten(str(value))!r}"
        raise CouldNotRunError(f"{file}: {name} has {shown}", prices.FORM)
    return price


def read_workload(name: str) -> "Workload":
    """Return the workload of a file, or of stdin if the name is `-`. Raises HintedError."""
    from gpushare.study import workload  # noqa: PLC0415 - most commands with prices have no workload

    data, file = streams.read(name, workload.MAX_BYTES, workload.FORMS)
    with streams.Progress(f"reading {visible(file)}"):
        return workload.load(data, file)
