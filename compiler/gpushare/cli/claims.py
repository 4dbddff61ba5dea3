"""`gpushare claims`: the claim templates of the pools of DRA for a namespace."""

import click

from gpushare.cli import inputs, options, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.core import emit
from gpushare.render.stacks import dra


@click.command(cls=options.Command)
@options.intent_argument()
@click.argument("namespace")
@options.overlays()
@inputs.only_pools()
def command(intent: str, namespace: str, overlays: tuple[str, ...], pools: tuple[str, ...]) -> ExitCode:
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
