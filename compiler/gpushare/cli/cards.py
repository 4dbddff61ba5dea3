"""`gpushare cards`: the catalogue, and everything about one card with every layout that MIG can make of it."""

import sys

import click
from click.shell_completion import CompletionItem

from gpushare.cli import options, streams
from gpushare.cli.exits import ExitCode
from gpushare.report import terminal


def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the card ids that begin with the incomplete word."""
    from gpushare.catalog import cards  # noqa: PLC0415 - `--help` needs no catalogue

    return [CompletionItem(name) for name in cards.ids() if name.startswith(incomplete)]


@click.command(cls=options.Command, short_help="List the cards, or the MIG layouts of one.")
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
    from gpushare.catalog import cards  # noqa: PLC0415 - `--help` needs no catalogue
    from gpushare.cli import card_choice  # noqa: PLC0415 - as above

    known = {name: card_choice.chosen(name) for name in (cards.ids() if card is None else (card,))}
    if style == "json":
        from gpushare.core import emit  # noqa: PLC0415 - as above
        from gpushare.report import card_facts  # noqa: PLC0415 - as above

        streams.product(emit.json_text(card_facts.document(known, card)))
        return ExitCode.DONE
    from gpushare.report import card_view  # noqa: PLC0415 - as above

    text_style = terminal.detect_style(sys.stdout)
    streams.page(
        card_view.render(known[card], text_style) if card is not None else card_view.overview(known.values(), text_style)
    )
    return ExitCode.DONE
