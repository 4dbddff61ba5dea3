"""Which cards a word that is no id may mean. Owns the rule that no hint proposes another memory size without saying so.

A word is a name that NVML or GFD returns, or it resembles an id. Where it states a size of memory, only cards of that size are
candidates; every candidate is shown with its memory unless its id states it.
"""

import re
from collections.abc import Iterable

from gpushare.core.wording import join_words, nearest
from gpushare.facts.catalog.cards import Card, Catalog, product_label
from gpushare.vendors import VENDORS

_SIZE = r"(?<![0-9a-z])([0-9]+) ?g(?:i?b)?(?![0-9a-z])"
_VENDOR = r"nvidia|tesla|geforce|quadro|generation|graphics|[ _-]gpu\b"
_PART = r"[a-z]*[0-9]+[a-z]*|[a-z]+"
_BETWEEN = r" *[,+/&|] *| +and +"
_LONGEST = 96
_MOST = 4

DESCRIBE = (
    "describe a card of your own under spec.cards, such as "
    'my-card: {name: NVIDIA X, computeCapability: "8.6", memoryMiB: 12288}, '
    "with what nvidia-smi --query-gpu=name,compute_cap,memory.total prints"
)
"""How a card that the catalogue lacks is described."""

_CATALOGUED = rf"(?i)(.*\b)?({'|'.join(vendor.known_as for vendor in VENDORS.values() if vendor.known_as)})"

OF_NVIDIA_ONLY = "cards under spec.cards are NVIDIA's: AMD's are those of the catalogue"


def describing(word: str) -> str:
    """Return how a card that the catalogue lacks is described, or for a word such as AMD's names that it cannot be."""
    return OF_NVIDIA_ONLY if re.match(_CATALOGUED, word) else DESCRIBE


def hints(word: str, catalog: Catalog) -> tuple[str, ...]:
    """Return hints on which cards of the catalogue the word may mean, and on cards of another size that it does not mean."""
    known = _known(catalog)
    several = re.split(_BETWEEN, word.lower()[:_LONGEST])
    if len(several) > 1 and all(catalog.get(part) or _of_name(part, known) for part in several):
        return ("a node has one card model: make a pool for each model, of different nodes",)
    named = _of_name(word, known)
    if named is not None:
        return (f"that is the product name: write {named.id}",)
    close, size = _close(word, known), _size(word)
    same = tuple(card for card in close if size is None or card.memory_gb_nominal in (size, None))
    if same:
        return (f"nearest: {join_words(map(_shown, same[:_MOST]), 'or')}",)
    others = join_words(map(_shown, close[:_MOST]), "or")
    return (f"no card of {size} GB is near; of another memory size: {others}",) if close else ()


def of_pool_or_card(word: str, pools: Iterable[str], catalog: Catalog) -> tuple[str, ...]:
    """Return hints on which pool or card the word may mean; on how to find a card if it resembles none."""
    close = nearest(word, pools)
    meant = (f"did you mean {join_words(close, 'or')}?",) if close else hints(word, catalog)
    return meant or ("`gpushare cards` lists all cards",)


def of_product(word: str, catalog: Catalog) -> Card | None:
    """Return the card that has the word as its product name."""
    return _of_name(word, _known(catalog))


def _known(catalog: Catalog) -> tuple[Card, ...]:
    return tuple(card for card_id in catalog.ids() if (card := catalog.get(card_id)))


def _of_name(word: str, known: Iterable[Card]) -> Card | None:
    """Return the card with that product name, as NVML or GFD writes it, with or without the vendor's words."""
    label = product_label(word).lower()
    wanted = {label, f"nvidia-{label}", f"tesla-{label}", f"nvidia-geforce-{label}"}
    return next((card for card in known if wanted & {product_label(name).lower() for name in _names(card)}), None)


def _names(card: Card) -> tuple[str, ...]:
    return (card.name, card.product, *card.name_aliases)


def _close(word: str, known: tuple[Card, ...]) -> tuple[Card, ...]:
    """Return the cards whose ids have every part of the word, else those of the same model number, else similar ids."""
    plain = re.sub(r"[ _-]+", "-", re.sub(_VENDOR, "", word.lower()[:_LONGEST])).strip("-")
    sizeless = re.sub(_SIZE, "", plain.replace("-", " "))
    for some in (re.findall(_PART, plain), re.findall(_PART, sizeless)):
        holding = tuple(card for card in known if some and all(part in card.id for part in some))
        if holding:
            return holding
    by_id = {card.id: card for card in known}
    return tuple(by_id[card_id] for card_id in nearest(plain, by_id))


def _size(word: str) -> int | None:
    found = re.search(_SIZE, word.lower().replace("_", "-"))
    return int(found[1]) if found else None


def _shown(card: Card) -> str:
    size = card.memory_gb_nominal
    return card.id if size is None or _size(card.id) is not None else f"{card.id} ({size} GB)"
