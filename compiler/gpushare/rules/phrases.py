"""How findings name cards, layouts and sizes. Makes no findings."""

from collections.abc import Iterable

from gpushare.catalog.cards import Card
from gpushare.intent.types import Layout

_READ_WITH_A_VOWEL = set("AEFHILMNORSX8")


def product(card: Card) -> str:
    """Return the card's product name without its vendor: `A100-SXM4-40GB`."""
    return card.name.removeprefix("NVIDIA ")


def a_card(card: Card) -> str:
    """Return the product with its article, as it is pronounced: `an L40S`, `a Tesla T4`."""
    name = product(card)
    spelled_out = not name[1:2].islower()
    vowel = name[:1].upper() in (_READ_WITH_A_VOWEL if spelled_out else set("AEIO"))
    return f"{'an' if vowel else 'a'} {name}"


def show_layout(layout: Layout) -> str:
    """Return a layout as it is written in an intent."""
    return "{" + ", ".join(f"{name}: {count}" for name, count in layout) + "}" if layout else "none"


def listing(words: Iterable[object], last: str = "and") -> str:
    """`a, b and c`."""
    *first, end = [str(word) for word in words] or [""]
    return f"{', '.join(first)} {last} {end}" if first else end


def counted(number: int, noun: str) -> str:
    """`1 replica`, `3 replicas`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
