"""`gpushare show`: what every pool and every GPU becomes, as tables and memory maps, or as the Offer document."""

import sys

import click

from gpushare.cli import options
from gpushare.cli.exits import ExitCode


@click.command(cls=options.Command, short_help="Draw what every pool and GPU becomes.")
@options.intent_argument()
@options.product_format()
@options.strict()
def command(intent: str, style: str, strict: bool) -> ExitCode:
    """Show what INTENT makes of the cluster.

    That is: pools, nodes, resources with their counts and caps, and the memory
    map of each GPU.

    A `?` is a number that nobody knows: a pool without `expected` and without
    node names has no total. Goals are resolved as the lock file of the bundle
    beside INTENT remembers them.

    For example:
      gpushare show intent.yaml
      gpushare show --format json intent.yaml   the Offer document, for programs

    Exit codes:
      0  done
      1  INTENT has errors
      2  INTENT could not be read
    """
    from gpushare.cli import inputs, report, streams, terminal  # noqa: PLC0415 - `--help` and completion need none of it

    read = inputs.compiled(intent, inputs.bundle_of(intent))
    report.report(read.findings, read.text, report.chosen(None), as_product=False)
    code = report.verdict(read.findings, strict=strict)
    if code is not ExitCode.DONE:
        return code
    if style == "json":
        from gpushare import emit  # noqa: PLC0415 - as above
        from gpushare.render import offer  # noqa: PLC0415 - as above

        streams.product(emit.json_text(offer.offer(read.plan)))
    else:
        from gpushare.cli import plan_sheet  # noqa: PLC0415 - as above

        streams.say(plan_sheet.sheet(read.plan, terminal.look(sys.stdout)))
    return ExitCode.DONE
