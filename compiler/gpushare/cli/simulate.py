"""`gpushare simulate`: what becomes of a workload on the pools of an intent, and of other intents beside it."""

from collections.abc import Mapping, Sequence

import click

from gpushare.cli import inputs, option_files, options, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.cli.inputs import LoadedIntent
from gpushare.core import prices
from gpushare.core.prices import Price
from gpushare.core.wording import visible
from gpushare.offering import modes
from gpushare.report import simulation as report
from gpushare.study.simulation import engine, supply
from gpushare.study.simulation.outcome import Simulated, Simulations
from gpushare.study.workload.requests import Workload

_SCORINGS = ("least-allocated", "most-allocated")


@click.command(cls=options.Command)
@options.intent_argument()
@options.overlays()
@click.option(
    "--workload", required=True, type=options.INTENT, metavar="FILE", help="CSV, pods as JSON or YAML, or a generator's YAML."
)
@click.option(
    "--compare", "others", multiple=True, type=options.INTENT, metavar="OTHER", help="Another intent to compare; repeatable."
)
@options.prices()
@click.option(
    "--scoring",
    type=click.Choice(_SCORINGS),
    default=_SCORINGS[0],
    help="Which node the scheduler takes. Default: least-allocated, as Kubernetes.",
)
@options.product_format("text", "json", "html")
def command(  # noqa: PLR0913, PLR0917 - one for each option
    intent: str,
    overlays: tuple[str, ...],
    workload: str,
    others: tuple[str, ...],
    prices: str | None,
    scoring: str,
    style: str,
) -> ExitCode:
    """Simulate what becomes of the pods of a workload on the pools of INTENT.

    Pods are placed as the cluster does it: the scheduler chooses the node, the
    device plugin the GPU; quotas, namespaces and admission count. A pool without
    a number of nodes gets as many as the pods need.

    FILE is a CSV whose first line names its columns. A row is a pod that asks
    for one of memory (4Gi), share (0.25, 1/4, 25%), gpus and resource (and
    count); it may have namespace, name, pool, card, arrival and duration.
    Or FILE is what `kubectl get pods -A -o json` prints, or the parameters of a
    generator (`gpushare schema workload`).

    Rows that cannot be read are left out, with their line and the reason.

    For example:
      gpushare simulate intent.yaml --workload pods.csv
      gpushare simulate intent.yaml --workload pods.csv --compare other.yaml
      gpushare simulate intent.yaml --workload pods.csv --prices prices.yaml
      gpushare simulate --html intent.yaml --workload pods.csv > page.html
      kubectl get pods -A -o json | gpushare simulate intent.yaml --workload -

    Exit codes:
      0  all pods ran, at once or later
      1  pods of the workload never ran on INTENT, or an intent has errors
      2  a file could not be read, or no row of FILE can be used
    """
    if [intent, *overlays, workload, *others, prices].count("-") > 1:
        raise CouldNotRunError("standard input can be only one of the files", "write the other into a file")
    pods = option_files.read_workload(workload)
    read = [inputs.compiled(intent, inputs.bundle_of(intent), overlays=overlays)]
    read += [inputs.compiled(other, inputs.bundle_of(other)) for other in others]
    inputs.refuse_errors(*read)
    _refuse_on_demand(read)
    found = _simulate(pods, read, _prices(read, prices), scoring)
    streams.report(report.report(found), style)
    return ExitCode.FINDINGS if found.intents[0].never_ran else ExitCode.DONE


def _refuse_on_demand(read: Sequence[LoadedIntent]) -> None:
    """Raise CouldNotRunError for pools whose devices come and go with claims, which the simulation does not know."""
    for one in read:
        for pool in one.plan.pools:
            if modes.of(pool.pool).is_on_demand:
                what = f"pool {pool.name} of {one.text.file}, whose MIG instances are made for each claim"
                raise CouldNotRunError(
                    f"cannot simulate {what}", "leave the pool out, or give it a layout, in a copy of the intent"
                )


def _prices(read: Sequence[LoadedIntent], file: str | None) -> list[Mapping[str, Price]]:
    """Return the prices of each intent's pools. A file may name pools of any of the intents. Raises CouldNotRunError."""
    plans = [one.plan for one in read]
    if file is None:
        return [option_files.prices_of_pools(plan, None) for plan in plans]
    cards = [{pool.name: pool.card.id for pool in plan.every_pool} for plan in plans]
    known = option_files.read_prices(file, dict.fromkeys(name for each in cards for name in each), inputs.catalog_of(*read))
    return [prices.of_pools(known, each) for each in cards]


def _simulate(
    workload: Workload,
    read: Sequence[LoadedIntent],
    prices: Sequence[Mapping[str, Price]],
    scoring: str,
) -> Simulations:
    settings = engine.SimulationSettings(scoring=engine.Scoring(scoring))
    intents = []
    for one, priced in zip(read, prices, strict=True):
        offered = supply.of(one.plan, priced)
        with streams.Progress(f"simulating {len(workload.pods)} pods on {visible(one.text.file)}"):
            outcome = engine.simulate(offered, workload, settings)
        intents.append(Simulated(file=one.text.file, name=one.plan.intent.name, supply=offered, outcome=outcome))
    return Simulations(workload=workload, scoring=scoring, intents=tuple(intents))
