"""`gpushare cards`: the catalogue, and everything about one card with every layout that MIG can make of it."""

import sys

import click
from click.shell_completion import CompletionItem

from gpushare.cli import options, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.core import emit
from gpushare.facts.catalog import card_search, cards
from gpushare.facts.catalog.cards import Card, Catalog
from gpushare.report import card_facts, card_view, terminal


def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the card ids that begin with the incomplete word."""
    return [CompletionItem(name) for name in cards.ids() if name.startswith(incomplete)]


@click.command(cls=options.Command)
@click.argument("card", required=False, shell_complete=complete)
@options.product_format()
def command(card: str | None, style: str) -> ExitCode:
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
    if style == "json":
        entries = {name: (one, None if card is None else card_view.layouts(one)) for name, one in known.items()}
        streams.product(emit.json_text(card_facts.DOCUMENT.write(entries)))
        return ExitCode.DONE
    text_style = terminal.detect_style(sys.stdout)
    streams.page(
        card_view.render(known[card], text_style) if card is not None else card_view.overview(known.values(), text_style)
    )
    return ExitCode.DONE


def chosen(card_id: str, catalog: Catalog | None = None, advice: str = "") -> Card:
    """Return the card. Raises CouldNotRunError, with what the id may mean, and the command's own advice."""
    catalog = catalog or Catalog()
    found = catalog.get(card_id)
    if found is None:
        hint = "; ".join(filter(None, (*card_search.hints(card_id, catalog), "`gpushare cards` lists all", advice)))
        raise CouldNotRunError(f"the catalogue has no card {card_id!r}", hint)
    return found
