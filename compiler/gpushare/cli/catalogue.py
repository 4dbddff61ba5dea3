"""What gpushare knows without an intent: `cards`, with every layout that MIG can make of one, `schema` and `completion`."""

from copy import deepcopy
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from gpushare.cli import options, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.core import emit, resources
from gpushare.facts.catalog import card_search, cards
from gpushare.facts.catalog.cards import Card, Catalog
from gpushare.reading import schema
from gpushare.report import cards as report


def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the card ids that begin with the incomplete word."""
    return [CompletionItem(name) for name in cards.ids() if name.startswith(incomplete)]


@click.command(cls=options.Command)
@click.argument("card", required=False, shell_complete=complete)
@options.product_format()
def cards_command(card: str | None, style: str) -> ExitCode:
    """List the cards that gpushare knows, or show all facts of one CARD.

    One card is shown with its profiles and every valid MIG layout.

    A `?` marks what no source confirms. CARD is an id, as in an intent's `card`.

    For example:
      gpushare cards
      gpushare cards a100-sxm4-40gb
      gpushare cards h100-sxm5-80gb --format json

    Exit codes:
      0  done
      2  there is no such card
    """
    known = {name: chosen(name) for name in (cards.ids() if card is None else (card,))}
    found = report.overview(known) if card is None else report.report(known[card])
    streams.report(found, style, is_paged=True)
    return ExitCode.DONE


def chosen(card_id: str, catalog: Catalog | None = None, advice: str = "") -> Card:
    """Return the card. Raises CouldNotRunError, with what the id may mean, and the command's own advice."""
    catalog = catalog or Catalog()
    found = catalog.get(card_id)
    if found is None:
        hint = "; ".join(filter(None, (*card_search.hints(card_id, catalog), "`gpushare cards` lists all", advice)))
        raise CouldNotRunError(f"the catalogue has no card {card_id!r}", hint)
    return found


def names() -> tuple[str, ...]:
    """Return the schemas' names without their version, such as `intent` and `live-plan`."""
    return tuple(sorted(path.name.partition(".")[0] for path in resources.schema("intent.v1").parent.glob("*.v1.json")))


def _complete_schema(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names() if name.startswith(incomplete)]


@click.command(cls=options.Command)
@click.argument("name", default="intent", shell_complete=_complete_schema)
def schema_command(name: str) -> ExitCode:
    """Print the JSON Schema (draft-07) of the intent, or of the document NAME.

    NAME is intent, workload, card, amd-card, lock, or one of the
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
    found, card = deepcopy(schema.load("intent.v1")), schema.load("card.v1")["definitions"]
    named = found["definitions"]
    named["pool"]["properties"]["card"] |= {"anyOf": [{"enum": list(cards.ids())}, _form(card["id"])]}
    instances = {one.name for card_id in cards.ids() if (geometry := cards.load(card_id).mig) for one in geometry.profiles}
    profiles = {"anyOf": [{"enum": sorted(instances)}, _form(card["profile"]["properties"]["name"])]}
    sharing = named["sharing"]["properties"]
    for by_profile in (named["layout"], sharing["layout"], sharing["replicas"], named["memory"]["properties"]["cap"]):
        by_profile["propertyNames"] = profiles
    sharing["profiles"]["items"] |= profiles
    return found


def _form(field: schema.Schema) -> dict[str, Any]:
    """Return the form that a field has: beside a list, it permits names of `spec.cards`."""
    return {"pattern": field["pattern"]}


@click.command(cls=options.Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> ExitCode:
    """Print the completion script for SHELL.

    For example:
      source <(gpushare completion bash)        in ~/.bashrc
      source <(gpushare completion zsh)         in ~/.zshrc
      gpushare completion fish > ~/.config/fish/completions/gpushare.fish

    Exit codes:
      0  done
      2  unknown shell
    """
    form = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    script = form(context.find_root().command, {}, "gpushare", "_GPUSHARE_COMPLETE")
    # The base class's `source`, because that of the bash class starts a bash to find out its version.
    streams.product(ShellComplete.source(script) + "\n")
    return ExitCode.DONE
