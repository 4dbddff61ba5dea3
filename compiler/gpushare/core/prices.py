"""Prices of GPU-hours: `0.35/h`, `0.35 EUR/h`. One file has one currency, or none."""

import re
from collections.abc import Iterable, Mapping

from gpushare_node.contract.struct import Struct

_PRICE = r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(?: ([A-Z]{3}))?/h\Z"
FORM = "a price is what an hour of one GPU costs: t4: 0.35/h, or with a currency 0.35 EUR/h"

AGREE = "write all in one currency, or none with one"


class Price(Struct):
    """What an hour of one GPU costs, in `currency`; empty: not named."""

    per_hour: float
    currency: str = ""


def parse(text: object) -> Price | None:
    """Return the price that a text such as `0.35 EUR/h` says; None if it is no price."""
    found = re.match(_PRICE, text) if isinstance(text, str) else None
    return Price(per_hour=float(found[1]), currency=found[2] or "") if found else None


def disagreement(prices: Iterable[Price]) -> str | None:
    """Return why the prices cannot be added; None if they can."""
    currencies = {price.currency for price in prices}
    if len(currencies) < 2:
        return None
    return "not all prices name a currency" if len(currencies - {""}) == 1 else "the prices have several currencies"


def of_pools(prices: Mapping[str, Price], cards: Mapping[str, str]) -> dict[str, Price]:
    """Return the price of each pool that has one. `prices` are by pool or card, that of the pool counts; `cards` by pool."""
    each = {pool: prices.get(pool) or prices.get(card) for pool, card in cards.items()}
    return {pool: price for pool, price in each.items() if price is not None}


def show(price: Price) -> str:
    """Return the price as `parse` reads it: `0.35 EUR/h`."""
    number = f"{price.per_hour:.6f}".rstrip("0").rstrip(".")
    return f"{number} {price.currency}/h" if price.currency else f"{number}/h"


def amount(money: float | None, currency: str) -> str:
    """Return an amount of money such as `1,250.40 EUR`; `?` if it is not known."""
    return "?" if money is None else f"{money:,.2f} {currency}".rstrip()


def exact(money: float | None) -> str:
    """Return an amount of money that may be small, with four digits: `0.0875`; `?` if it is not known."""
    return "?" if money is None else f"{money:.4g}"
