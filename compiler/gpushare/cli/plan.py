"""`gpushare plan`: what would change when one intent or bundle replaces another."""

import time
from pathlib import Path

import click

from gpushare.bundle import lock
from gpushare.cli import fleet, inputs, option_files, options, streams
from gpushare.cli import report as findings
from gpushare.cli.cluster import ClusterConnection, cluster_options
from gpushare.cli.exits import ExitCode
from gpushare.cli.sides import load_side
from gpushare.compare import compare, only
from gpushare.compare.changes import Comparison
from gpushare.compare.files import settings
from gpushare.compare.sides import Side
from gpushare.core import emit
from gpushare.core.wording import pluralize
from gpushare.facts.catalog.cards import Catalog
from gpushare.report import comparison as report
from gpushare.report import markdown
from gpushare.report.effect_words import summary
from gpushare_node.contract.struct import replace


@click.command(cls=options.Command)
@click.argument("sides", type=options.INTENT, nargs=-1, metavar="[OLD] NEW")
@options.product_format("text", "json", "markdown", "html")
@click.option("--exit-code", is_flag=True, help="Exit 3 when there are changes.")
@click.option("--live", is_flag=True, help="Compare NEW with the running cluster instead of OLD.")
@options.overlays("NEW")
@inputs.only_pools()
@options.prices("Prices of a GPU-hour, by pool or card, in place of those of OLD and NEW.")
@click.option("--fleet", type=options.INTENT, metavar="FILE", help="Compare every cluster that FILE lists with its bundle.")
@options.strict()
@cluster_options
def command(  # noqa: PLR0913 - one for each argument of the command line
    *,
    sides: tuple[str, ...],
    overlays: tuple[str, ...],
    pools: tuple[str, ...],
    prices: str | None,
    style: str,
    exit_code: bool,
    live: bool,
    fleet: str | None,
    strict: bool,
    cluster: ClusterConnection,
) -> ExitCode:
    """Show what changes when NEW replaces OLD.

    That is: capacity, nodes, GPUs, pods disturbed or refused, quotas that no
    longer fit, and every setting of the bundle. "No changes" means that both
    bundles are equal, comments aside.

    OLD and NEW are intent files or bundle directories; one may be `-`. The
    number of pods is an upper bound: every share that a change takes away
    counts as one. Only --live contacts a cluster.

    With --live, NEW is compared with the running cluster: which pods would be
    disturbed, by name and owner, which quotas in use would not fit any more,
    and which nodes are not ready. The cluster's options need --live.

    With prices of a GPU-hour, of spec.prices or FILE, it also says what an hour
    of all GPUs costs before and after. If OLD or NEW has no prices, those of the
    other count for both.

    With --pool, only the named pools and cluster-wide settings are
    compared. Pools with equal changes are shown once, with all their names.

    With --fleet, the intent of every cluster of FILE is compared with its
    bundle, one line per cluster: what the next `compile --fleet` changes.

    For example:
      gpushare plan bundle intent.yaml          before the next compile
      git show main:intent.yaml | gpushare plan - intent.yaml
      gpushare plan --exit-code --format json old.yaml new.yaml
      gpushare plan --format markdown bundle intent.yaml     for a merge request
      gpushare plan bundle intent.yaml --pool training
      gpushare plan --html bundle intent.yaml > plan.html    for a browser
      gpushare plan prod/bundle base.yaml --overlay prod.yaml
      gpushare plan --live intent.yaml                       before an upgrade
      gpushare plan --fleet clusters.yaml                    before a compile

    Exit codes:
      0  done (with --exit-code: nothing changes)
      1  OLD or NEW has errors
      2  OLD or NEW could not be read, or neither has such a pool
      3  --exit-code: something changes
    """
    if prices and (live or fleet is not None):
        raise click.UsageError("--prices is not for --live or --fleet")
    if fleet is not None:
        if sides or overlays or pools or live or style == "html":
            message = "--fleet excludes OLD, NEW, --overlay, --pool and --live, and writes text, json or markdown"
            raise click.UsageError(message)
        return _plan_fleet(fleet, style=style, exit_code=exit_code, strict=strict)
    if len(sides) != (1 if live else 2):
        raise click.UsageError("--live takes NEW alone" if live else "name OLD and NEW, NEW alone with --live, or --fleet")
    if live:
        if pools or style in {"markdown", "html"}:
            raise click.UsageError("--live writes text or json, of all pools")
        from gpushare.cli.live import plan  # noqa: PLC0415 - the other calls read no cluster

        return plan(new=sides[0], overlays=overlays, style=style, exit_code=exit_code, strict=strict, cluster=cluster)
    old, new = sides
    if [old, new, *overlays].count("-") > 1:
        raise click.UsageError("only one of OLD, NEW and the overlays can be standard input")
    comparison, compared, catalog = _compared(old, new, overlays, strict=strict, prices=prices)
    if pools:
        inputs.refuse_unknown(pools, [pool.name for pool in comparison.pools], "neither OLD nor NEW has a pool")
        comparison = only(comparison, pools)
    streams.report(report.report(comparison, compared, catalog), style, is_paged=True)
    return ExitCode.CHANGES if exit_code and not comparison.is_empty else ExitCode.DONE


def _compared(
    old: str, new: str, overlays: tuple[str, ...], *, strict: bool, prices: str | None = None
) -> tuple[Comparison, tuple[Side, Side], Catalog]:
    """Return what changes from one side to the other, both sides, and the cards. Raises FindingsError for errors."""
    before = load_side(old)
    after = load_side(new, before, overlays)
    inputs.refuse_errors(before, after, strict=strict)
    bundles = before.files, after.files
    sides, catalog = (before.side, after.side), inputs.catalog_of(before, after)
    if prices:
        named = {name for side in sides for name in (*side.pools, *side.vm_pools)}
        given = option_files.read_prices(prices, named, catalog)
        sides = (replace(sides[0], prices=given), replace(sides[1], prices=given))
    with streams.Progress(f"comparing {pluralize(len(after.side.pools), 'pool')}"):
        comparison = compare(*sides, catalog.geometry, bundles, time.time())
    if before.compilation and after.compilation:
        comparison = replace(comparison, intent=settings(before.text.data, after.text.data))
    return comparison, sides, catalog


def _plan_fleet(file: str, *, style: str, exit_code: bool, strict: bool) -> ExitCode:
    """Compare the intent of every cluster that the file lists with its bundle; a cluster without one is new.

    Returns the worst exit code, as `compile --fleet`; changes count only with `exit_code`.
    """

    def make(cluster: fleet.FleetCluster) -> fleet.Done:
        directory = Path(cluster.output)
        if not (directory / lock.FILE).is_file() and not (directory / "chart").is_dir():
            inputs.refuse_errors(inputs.compiled(cluster.intent, directory, overlays=cluster.overlays), strict=strict)
            return fleet.Done(cluster=cluster, code=ExitCode.DONE, outcome="new", text="")
        comparison, sides, catalog = _compared(cluster.output, cluster.intent, cluster.overlays, strict=strict)
        code, outcome = (ExitCode.DONE, "unchanged") if comparison.is_empty else (ExitCode.CHANGES, "changes")
        result = report.report(comparison, sides, catalog)
        return fleet.Done(cluster=cluster, code=code, outcome=outcome, text=summary(comparison), result=result)

    done = fleet.run(file, findings.FindingFormat.JSON if style == "json" else findings.FindingFormat.TEXT, make)
    code = fleet.worst(done)
    if code is ExitCode.DONE and any(one.outcome == "new" for one in done):
        code = ExitCode.CHANGES
    if code is ExitCode.CHANGES and not exit_code:
        code = ExitCode.DONE
    if style == "json":
        streams.product(emit.json_text(fleet.document("FleetPlan", "plan", done, lambda one: one.document(), code)))
        return code
    streams.warn("".join(one.message for one in done))
    if style == "markdown":
        streams.product(_markdown(done))
    else:
        streams.page(fleet.lines(done))
    return code


def _markdown(done: list[fleet.Done]) -> str:
    """Return a table with a row for every cluster, and below it what changes in each, folded."""
    rows, folds = [], []
    for one in done:
        text = one.text if one.result else one.text and markdown.code(one.text)
        rows.append("| {} | {} | {} |".format(markdown.code(one.cluster.name), one.outcome, text.replace("|", "\\|")))
        if one.outcome == "changes":
            folds += ["", f"<details><summary>{one.cluster.name}</summary>", "", markdown.render(one.result), "</details>"]
    return "\n".join(["| cluster | outcome | |", "|---|---|---|", *rows, *folds]) + "\n"
