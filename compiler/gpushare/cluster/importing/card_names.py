"""Which card a node has: by GFD's product name, by the labels of clouds, by the names of machine types.

A name that several cards share is decided by the memory, if that is given.
"""

import re
from collections.abc import Mapping
from functools import cache

from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card
from gpushare.facts.nodes.clouds import CLOUDS, MACHINE_LABEL, card_of_machine

_SUFFIXES = re.compile(r"(?:-MIG-[0-9a-zA-Z.+-]+?)?(?:-SHARED)?\Z")
_INSTANCE = re.compile(r"-MIG-([0-9]+g\.[0-9]+gb[a-z.+-]*?|INVALID)(?:-SHARED)?\Z")


@cache
def _products() -> dict[str, str]:
    """Return the ids of the catalogue's cards by the names that GFD gives them, in lower case."""
    found: dict[str, str] = {}
    for card in map(cards.load, cards.ids()):
        for name in (card.product, card.name, *card.name_aliases):
            found.setdefault(cards.product_label(name).lower(), card.id)
    return found


def of_product(label: str) -> str | None:
    """Return the id of the card with that value of nvidia.com/gpu.product, whatever sharing has added to it."""
    plain = _SUFFIXES.sub("", label).lower().removeprefix("mock-")
    return _products().get(plain) or _products().get(f"nvidia-{plain}")


def instance_of(label: str) -> str:
    """Return the MIG profile that strategy `single` adds to the product, `INVALID` if GFD found none; else empty."""
    found = _INSTANCE.search(label)
    return found[1] if found else ""


def of_config_name(name: str) -> str | None:
    """Return the card that a config is named after (`tesla-t4`, `a100-sxm4-40gb`)."""
    plain = name.lower().removeprefix("nvidia-")
    return plain if plain in cards.ids() else of_product(plain) or of_product(f"tesla-{plain}")


def of_labels(labels: Mapping[str, str], memory_mib: int | None) -> tuple[tuple[str, ...], str]:
    """Return the cards that the clouds' labels allow, and the label that says so; empty if there is none."""
    for cloud in CLOUDS:
        if cloud.accelerators and cloud.gpu_label in labels:
            name = labels[cloud.gpu_label].lower().removeprefix("nvidia-").removeprefix("tesla-")
            return _by_memory(cloud.accelerators.get(name, ()), memory_mib), cloud.gpu_label
    card = card_of_machine(labels.get(MACHINE_LABEL, ""))
    return ((card,), MACHINE_LABEL) if card else ((), "")


def _by_memory(known: tuple[str, ...], memory_mib: int | None) -> tuple[str, ...]:
    if len(known) < 2 or memory_mib is None:
        return known
    return tuple(one for one in known if fits_memory(cards.load(one), memory_mib))


def fits_memory(card: Card, memory_mib: int) -> bool:
    """Whether a card may report so much memory: drivers and ECC take up to an eighth of it."""
    return card.memory_mib is None or abs(card.memory_mib - memory_mib) * 8 <= card.memory_mib
