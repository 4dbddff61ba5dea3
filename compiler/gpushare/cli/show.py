"""`gpushare show`: what every pool and every GPU becomes, as tables and memory maps, or as the Offer document."""

import click
from click.shell_completion import CompletionItem

from gpushare.cli import options, streams, work
from gpushare.cli.exits import CouldNotRunError, ExitCode


def _complete_pool(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the pools of INTENT that begin with the incomplete word; none before INTENT is given."""
    from gpushare.reading import source  # noqa: PLC0415 - only for the shell's own calls

    # While --pool lacks its value click assigns no argument, and leaves them all in `args`.
    intent = context.params.get("intent") or next(iter(context.args), None)
    if not intent or intent == "-":
        return []
    try:
        document = source.read(*streams.read(intent, source.MAX_BYTES)).data
    except CouldNotRunError:
        return []
    spec = document.get("spec") if isinstance(document, dict) else None
    pools = spec.get("pools") if isinstance(spec, dict) else None
    return [CompletionItem(name) for name in (pools if isinstance(pools, dict) else ()) if name.startswith(incomplete)]


@click.command(cls=options.Command, short_help="Draw what every pool and GPU becomes.")
@options.intent_argument()
@options.overlays()
@click.option("--pool", "pools", multiple=True, metavar="NAME", shell_complete=_complete_pool,
              help="Only this pool; repeatable.")
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
    return work.show(intent=intent, overlays=overlays, style=style, strict=strict, pools=pools)
