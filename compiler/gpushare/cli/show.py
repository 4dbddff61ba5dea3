"""`gpushare show`: what every pool and every GPU becomes, as tables and memory maps, or as the Offer document.

`gpushare claims`: the claim templates of the pools of DRA for a namespace.
"""

import click

from gpushare.cli import inputs, option_files, options, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.core import emit
from gpushare.core.diagnostics import is_error
from gpushare.render.stacks import dra
from gpushare.report import show as report


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
    warnings = [one for one in read.findings if not is_error(one)]
    streams.report(report.report(plan, warnings, priced), style, is_paged=True)
    return ExitCode.DONE


@click.command(cls=options.Command)
@options.intent_argument()
@click.argument("namespace")
@options.overlays()
@inputs.only_pools()
def claims(intent: str, namespace: str, overlays: tuple[str, ...], pools: tuple[str, ...]) -> ExitCode:
    """Print the ResourceClaimTemplates for NAMESPACE.

    They are those of each pool of INTENT that has backend dra, and that
    NAMESPACE may use. The bundle puts them into the namespaces of pools and
    quotas; this is for other ones.

    For example:
      gpushare claims intent.yaml team-b | kubectl replace --force -f -
      gpushare claims intent.yaml team-b --pool notebooks

    Exit codes:
      0  done
      1  INTENT has errors
      2  INTENT could not be read, or has no pool of DRA for NAMESPACE
    """
    read = inputs.valid(intent, overlays)
    plan = inputs.only(read.plan, pools) if pools else read.plan
    found = list(dra.templates(plan, namespace))
    if not found:
        raise CouldNotRunError(f"no pool with backend dra is for namespace {namespace!r}", "gpushare show lists the pools")
    streams.product("---\n".join(emit.yaml_text(one) for one in found))
    return ExitCode.DONE
