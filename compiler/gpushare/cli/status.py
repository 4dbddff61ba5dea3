"""`gpushare status`: what the pools and nodes of a running cluster offer, use and lack."""

import gc
import sys
import time

import click

from gpushare.cli import options, streams
from gpushare.cli.cluster import ClusterConnection, cluster_options, read, warn_unread
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.cluster.live import status
from gpushare.cluster.live.reader import Scope
from gpushare.cluster.live.status import Status
from gpushare.core.diagnostics import HintedError
from gpushare.core.wording import join_first, visible
from gpushare.report import status as report

_WATCH_SECONDS = 5
_CLEAR = "\x1b[H\x1b[2J"


@click.command(cls=options.Command)
@click.argument("name", required=False, metavar="[POOL|NODE]")
@options.product_format("text", "json", "html")
@click.option(
    "-o", "--output", type=click.Choice(("wide",)), help="wide: every node, with the condition's message, and every pod."
)
@click.option(
    "--kills", is_flag=True, help="Also memory in use and containers over their caps: Events, and the runtimes' metrics."
)
@click.option("--watch", "-w", is_flag=True, help=f"Refresh every {_WATCH_SECONDS} seconds, until interrupted.")
@cluster_options
def command(  # noqa: PLR0913 - one for each argument of the command line
    *, name: str | None, style: str, output: str | None, kills: bool, watch: bool, cluster: ClusterConnection
) -> ExitCode:
    """Show what each pool of a running cluster should offer, offers and uses.

    Also which pods hold the shares, why a node does not match its pool, and
    since when. Nothing is written to the cluster. What cannot be read is listed
    as not seen, and its numbers are `?`.

    For example:
      gpushare status
      gpushare status training -o wide
      gpushare status gpu-a100-01 --kills
      gpushare status -n physics                with the rights of one namespace
      gpushare status --format json
      gpushare status --kills --html > status.html      for a browser

    Exit codes:
      0  done
      2  no cluster can be reached, nothing of it can be read, or it has no such
         pool or node
    130  interrupted, which is how --watch ends
    """
    if watch and style != "text":
        raise click.UsageError("--watch writes text only")
    scope = Scope(release=cluster.release, namespace=cluster.namespace, metrics=kills, kills=kills)
    if not watch:
        seen = _seen(cluster, scope, name)
        _write(seen, style, is_wide=output == "wide", with_kills=kills)
        if all(any(one.what == what for one in seen.unseen) for what in ("nodes", "daemonsets", "pods")):
            raise CouldNotRunError(
                "nothing was seen: neither nodes nor pods nor objects of gpushare can be read",
                "`gpushare rbac` prints the rights that the command needs",
            )
        return ExitCode.DONE
    gc.enable()  # every other run ends before garbage collection pays
    _show(_seen(cluster, scope, name), is_wide=output == "wide", with_kills=kills)  # a wrong call does not repair itself
    while True:
        time.sleep(_WATCH_SECONDS)
        _look_again(cluster, scope, name, is_wide=output == "wide", with_kills=kills)


def _seen(cluster: ClusterConnection, scope: Scope, name: str | None) -> Status:
    whole = status.assess(read(cluster, scope))
    if name is None:
        return whole
    found = status.only(whole, name)
    if found is None:
        if whole.unseen:
            warn_unread(whole.unseen)
        known = join_first([pool.name for pool in whole.pools], 8)
        where = "the part of the cluster that could be read" if whole.unseen else "the cluster"
        raise CouldNotRunError(
            f"no pool and no node with GPUs named {name!r} in {where}",
            f"its pools are {known}" if whole.pools else "no pools were found",
        )
    return found


def _write(seen: Status, style: str, *, is_wide: bool, with_kills: bool) -> None:
    streams.report(report.report(seen, is_wide=is_wide, with_kills=with_kills), style)
    if style != "json":
        warn_unread(seen.unseen)


def _look_again(cluster: ClusterConnection, scope: Scope, name: str | None, *, is_wide: bool, with_kills: bool) -> None:
    try:
        seen = _seen(cluster, scope, name)
    except HintedError as problem:  # the server restarts, the network returns
        streams.write(f"{time.strftime('%H:%M:%S')} {visible(str(problem))}\n" + streams.hint(visible(problem.hint)))
        return
    _show(seen, is_wide=is_wide, with_kills=with_kills)


def _show(seen: Status, *, is_wide: bool, with_kills: bool) -> None:
    streams.write(_CLEAR if sys.stdout.isatty() else f"{time.strftime('%H:%M:%S')}\n")
    _write(seen, "text", is_wide=is_wide, with_kills=with_kills)
