"""`gpushare schema`: the JSON Schemas of what gpushare reads and writes."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import click
from click.shell_completion import CompletionItem

from gpushare.cli import options, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.core import emit, resources
from gpushare.facts.catalog import cards
from gpushare.reading import schema

_CARD = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_PROFILE = r"^[1-9]g\.[0-9]{1,4}gb([+-][a-z]+(\.[a-z]+)*)?$"
"""As the schema of cards has them. Beside each list in the schema for editors they permit names of `spec.cards`."""


def names() -> tuple[str, ...]:
    """Return the schemas' names without their version, such as `intent` and `live-plan`."""
    return tuple(sorted(path.name.partition(".")[0] for path in resources.schema("intent.v1").parent.glob("*.v1.json")))


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names() if name.startswith(incomplete)]


@click.command(cls=options.Command)
@click.argument("name", default="intent", shell_complete=_complete)
def command(name: str) -> ExitCode:
    """Print the JSON Schema (draft-07) of the intent, or of the document NAME.

    NAME is intent, workload, card, lock, pools, or one of the
    machine-readable outputs findings, offer, cards, plan, size,
    size-comparison, simulation, images, status, usage, advice, drift,
    live-plan, or fleet, fleet-result and fleet-plan of --fleet.

    For example:
      gpushare schema > intent.v1.json
      gpushare schema findings

    Editors complete and check an intent whose first line is
      # yaml-language-server: $schema=./intent.v1.json
    They offer the ids of the catalogue's cards and the MIG profiles, too.

    Exit codes:
      0  done
      2  there is no such schema
    """
    if name not in names():
        hint = options.did_you_mean(name, names()) or f"there are {', '.join(names())}"
        raise CouldNotRunError(f"there is no schema {name!r}", hint)
    streams.product(
        emit.json_text(editors_intent()) if name == "intent" else resources.schema(f"{name}.v1").read_text(encoding="utf-8")
    )
    return ExitCode.DONE


def editors_intent() -> dict[str, Any]:
    """Return the intent's schema for editors, who choose there what `check` judges by the catalogue: cards and MIG profiles."""
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
