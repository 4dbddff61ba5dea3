"""How findings name cards. Makes no findings."""

from gpushare import vendors
from gpushare.catalog.cards import Card

_READ_WITH_A_VOWEL = set("AEFHILMNORSX8")


def product(card: Card) -> str:
    """Return the card's product name without its vendor: `A100-SXM4-40GB`."""
    return card.name.removeprefix(f"{vendors.of(card).name} ")


def a_card(card: Card) -> str:
    """Return the product with its article, as it is pronounced: `an L40S`, `a Tesla T4`."""
    name = product(card)
    spelled_out = not name[1:2].islower()
    vowel = name[:1].upper() in (_READ_WITH_A_VOWEL if spelled_out else set("AEIO"))
    return f"{'an' if vowel else 'a'} {name}"
