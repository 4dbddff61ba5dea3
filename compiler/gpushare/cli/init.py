"""`gpushare init`: a commented starter intent that compiles as it is."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpushare.cli import cards, options, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.core.wording import layout_text

if TYPE_CHECKING:
    from gpushare.catalog.cards import Card

MODES = ("exclusive", "time-slicing", "mps", "mig")
_POOLS = {"exclusive": "whole", "time-slicing": "shared", "mps": "serving", "mig": "partitions"}
_CARDS = {"exclusive": "h100-sxm5-80gb", "time-slicing": "t4", "mps": "l40s", "mig": "a100-sxm4-40gb"}


@click.command(cls=options.Command, short_help="Write a commented starter intent.")
@click.option("--name", default="my-cluster", help="The cluster's name, a DNS label. Default: my-cluster.")
@click.option("--mode", type=click.Choice(MODES), default="time-slicing",
              help="How the GPUs are shared. Default: time-slicing.")
@click.option("--card", "card_id", metavar="ID", shell_complete=cards.complete,
              help="The pool's card, see `gpushare cards`. Default: a usual one for the mode.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Default: stdout.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def command(name: str, mode: str, card_id: str | None, output: Path | None, force: bool) -> ExitCode:
    """Write a commented starter intent.

    It has one pool, explains every usual field and compiles as it is.

    For example:
      gpushare init -o intent.yaml
      gpushare init --name physics --mode mig --card h100-sxm5-80gb > intent.yaml

    Exit codes:
      0  done
      2  FILE exists or cannot be written, or CARD cannot do MODE
    """
    from gpushare.core import units  # noqa: PLC0415 - `--help` does not need it

    if not units.is_dns_label(name):
        raise CouldNotRunError(f"{name!r} is no name for a cluster", "a DNS label: a-z, 0-9 and -, at most 63 characters")
    text = _text(name, mode, _card(card_id or _CARDS[mode], mode))
    if output is None:
        streams.product(text)
    else:
        streams.create(output, text, overwrite=force)
        streams.say(f"{output} written; next: gpushare check {output}\n")
    return ExitCode.DONE


def _card(card_id: str, mode: str) -> "Card":
    """Return the card, if it supports the mode."""
    from gpushare.catalog import cards  # noqa: PLC0415 - as above

    if card_id not in cards.ids():
        hint = options.did_you_mean(card_id, cards.ids()) or "`gpushare cards` lists all"
        raise CouldNotRunError(f"the catalogue has no card {card_id!r}", hint)
    card = cards.load(card_id)
    if mode == "mig" and card.mig is None:
        hint = "take --mode time-slicing or mps, or another card"
        raise CouldNotRunError(f"{card.name} has no MIG that the catalogue knows", hint)
    if mode == "mps" and not card.mps_supported:
        raise CouldNotRunError(f"{card.name} has no MPS", "take --mode time-slicing")
    return card


def _text(name: str, mode: str, card: "Card") -> str:
    """Return the starter intent. The template gets only checked words, so nothing needs quoting."""
    import jinja2  # noqa: PLC0415 - expensive, and only needed here

    from gpushare.core import resources  # noqa: PLC0415 - as above

    loader = jinja2.FileSystemLoader(resources.templates())
    environment = jinja2.Environment(  # noqa: S701 - YAML, not HTML
        loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    facts = {"name": name, "mode": mode, "card": card, "pool": _POOLS[mode], "layout": _layout(card)}
    return environment.get_template("intent.yaml.j2").render(facts)


def _layout(card: "Card") -> str:
    """Return the layout with the most instances, as written in an intent; empty for a card without MIG."""
    from gpushare import mig  # noqa: PLC0415 - as above
    from gpushare.intent.types import MostInstances  # noqa: PLC0415 - as above

    layout = None if card.mig is None else mig.resolve_goal(card.mig, MostInstances(), lambda profile: profile.memory_mib)
    return layout_text(layout) if layout else ""
