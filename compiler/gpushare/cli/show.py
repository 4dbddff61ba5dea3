"""`gpushare show`: what every pool and every GPU becomes, as tables and memory maps, or as the Offer document."""

import click

from gpushare.cli import compile_commands, options
from gpushare.cli.exits import ExitCode


@click.command(cls=options.Command, short_help="Draw what every pool and GPU becomes.")
@options.intent_argument()
@options.overlays()
@options.only_pools()
@options.product_format("text", "json", "html")
@click.option("--html", "style", flag_value="html", help="The same as --format html.")
@options.strict()
def command(intent: str, overlays: tuple[str, ...], pools: tuple[str, ...], style: str, strict: bool) -> ExitCode:
    """Show what INTENT makes of the cluster.

    That is: pools, nodes, resources with their counts and caps, and the memory
    map of each GPU.

    A `?` is an unknown number: a pool without `expected` and without
    node names has no total. Goals are resolved as the lock file of the bundle
    beside INTENT remembers them.

    For example:
      gpushare show intent.yaml
      gpushare show intent.yaml --pool training
      gpushare show --format json intent.yaml   the Offer document, for programs
      gpushare show --html intent.yaml > gpus.html     one page, for a browser

    Exit codes:
      0  done
      1  INTENT has errors
      2  INTENT could not be read, or has no such pool
    """
    return compile_commands.show(intent=intent, overlays=overlays, style=style, strict=strict, pools=pools)
