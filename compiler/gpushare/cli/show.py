"""`gpushare show`: what every pool and every GPU becomes, as tables and memory maps, or as the Offer document."""

import sys

import click

from gpushare.cli import inputs, option_files, options, streams
from gpushare.cli.exits import ExitCode
from gpushare.core import emit
from gpushare.core.diagnostics import is_error
from gpushare.render import offer
from gpushare.report import plan_view, terminal


@click.command(cls=options.Command)
@options.intent_argument()
@options.overlays()
@inputs.only_pools()
@options.prices()
@options.product_format("text", "json", "html")
@options.strict()
def command(  # noqa: PLR0913, PLR0917 - one for each option
    intent: str, overlays: tuple[str, ...], pools: tuple[str, ...], prices: str | None, style: str, strict: bool
) -> ExitCode:
    """Show the pools and GPUs that INTENT describes.

    That is: pools, nodes, resources with their counts and caps, and the memory
    map of each GPU; and with spec.prices what the GPUs and a share cost.

    A `?` is an unknown number: a pool without `expected` and without
    node names has no total. Goals are resolved as the lock file of the bundle
    beside INTENT records them.

    For example:
      gpushare show intent.yaml
      gpushare show intent.yaml --pool training
      gpushare show --format json intent.yaml   the Offer document, for programs
      gpushare show --html intent.yaml > gpus.html     one page, for a browser

    Exit codes:
      0  done
      1  INTENT has errors
      2  INTENT or FILE could not be read, or INTENT has no such pool
    """
    read = inputs.valid(intent, overlays, strict=strict)
    priced = option_files.prices_of_pools(read.plan, prices)
    plan = inputs.only(read.plan, pools) if pools else read.plan
    if style == "json":
        streams.product(emit.json_text(offer.offer(plan, priced)))
    elif style == "html":
        from gpushare.report import show_page  # noqa: PLC0415 - as above

        warnings = [one for one in read.findings if not is_error(one)]
        streams.product(show_page.page(plan, warnings, streams.time_of_output(), priced))
    else:
        streams.page(plan_view.render(plan, terminal.detect_style(sys.stdout), priced))
    return ExitCode.DONE
