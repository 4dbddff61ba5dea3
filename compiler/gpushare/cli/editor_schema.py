"""The intent's schema for editors: what `check` judges by the catalogue, cards and MIG profiles, is there to choose from.

The pattern beside each list permits cards of `spec.cards`; whether a name exists is for `check` to say.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from gpushare.catalog import cards
from gpushare.reading import schema

_CARD = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_PROFILE = r"^[1-9]g\.[0-9]{1,4}gb([+-][a-z]+(\.[a-z]+)*)?$"
"""As the schema of cards has them."""


def intent() -> dict[str, Any]:
    """Return the schema of the intent with the ids of the catalogue's cards and the names of their MIG profiles."""
    found = deepcopy(schema.load("intent.v1"))
    named = found["definitions"]
    named["pool"]["properties"]["card"] |= {"anyOf": [{"enum": list(cards.ids())}, {"pattern": _CARD}]}
    profiles = {"anyOf": [{"enum": sorted(set(_profiles()))}, {"pattern": _PROFILE}]}
    sharing = named["sharing"]["properties"]
    for by_profile in (named["layout"], sharing["layout"], sharing["replicas"], named["memory"]["properties"]["cap"]):
        by_profile["propertyNames"] = profiles
    sharing["profiles"]["items"] |= profiles
    return found


def _profiles() -> Iterator[str]:
    for mig in (cards.load(card_id).mig for card_id in cards.ids()):
        yield from (profile.name for profile in mig.profiles) if mig is not None else ()
