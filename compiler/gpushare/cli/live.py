"""The commands on a running cluster: `gpushare status`, what its pools and nodes offer, use and lack, `drift` and `rbac`.

`drift` tells how it differs from a bundle or an intent, `rbac` the least rights for the commands that ask it; `plan` is that of
`gpushare plan --live`.
"""

import gc
import sys
import time
from collections.abc import Callable

import click

from gpushare import vendors
from gpushare.cli import inputs, options, streams
from gpushare.cli.cluster import RELEASE, ClusterConnection, cluster_options, read, warn_unread
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.cli.sides import LoadedSide, load_side
from gpushare.cluster.live import disturbance, drift, reader, status
from gpushare.cluster.live.reader import Scope
from gpushare.cluster.live.status import Status
from gpushare.compare import bundles
from gpushare.compare.files import parsed
from gpushare.core import emit
from gpushare.core.diagnostics import HintedError
from gpushare.core.units import is_dns_label, is_dns_subdomain
from gpushare.core.wording import join_first, visible
from gpushare.report import drift as drift_report
from gpushare.report import live_plan
from gpushare.report import status as status_report

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
def status_command(  # noqa: PLR0913 - one for each argument of the command line
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
    streams.report(status_report.report(seen, is_wide=is_wide, with_kills=with_kills), style)
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


@click.command(cls=options.Command)
@click.argument("bundle", type=options.INTENT, metavar="BUNDLE_OR_INTENT")
@options.product_format("text", "json")
@options.strict()
@cluster_options
def drift_command(*, bundle: str, style: str, strict: bool, cluster: ClusterConnection) -> ExitCode:
    """Show how a running cluster differs from BUNDLE_OR_INTENT, and what to do.

    That is: DaemonSets, ConfigMaps, AMD's DeviceConfigs, DeviceClasses, templates
    and policies on claims, quotas, Helm's values, labels of nodes, what the node
    runtime reports of the hardware, and what the nodes offer. A change that is
    still being rolled out is a difference, too.
    What cannot be read is not compared, and is listed as not seen.

    For example:
      gpushare drift bundle
      gpushare drift intent.yaml --format json

    Exit codes:
      0  no difference was seen
      1  BUNDLE_OR_INTENT has errors
      2  it could not be read, no cluster can be reached, or nothing was compared
      3  the cluster differs
    """
    side = load_side(bundle)
    inputs.refuse_errors(side, strict=strict)
    chart = bundles.values(side.files)
    scope = Scope(
        release=cluster.release_namespace or _release(side, cluster),
        plugin=str(chart.get("pluginNamespace") or ""),
        operators=drift.operator_namespaces(side.files, chart),
        values=True,
        dra=drift.has_dra(side.files),
    )
    snapshot = read(cluster, scope)
    found = drift.differences(side.files, side.side, snapshot)
    streams.report(drift_report.report(found, snapshot.unseen), style)
    if style == "text":
        warn_unread(snapshot.unseen)
    if not found and not any(map(snapshot.has_seen, ("nodes", "daemonsets", "configmaps"))):
        raise CouldNotRunError(
            "nothing was compared: neither nodes nor objects of gpushare can be read",
            "`gpushare rbac` prints the rights that the command needs",
        )
    return ExitCode.CHANGES if found else ExitCode.DONE


def _release(side: LoadedSide, cluster: ClusterConnection) -> str:
    """Return the namespace that the bundle is for."""
    namespace = parsed("namespace.yaml", side.files.get("namespace.yaml", ""))
    metadata = namespace.get("metadata") if isinstance(namespace, dict) else None
    return str(metadata["name"]) if isinstance(metadata, dict) and metadata.get("name") else cluster.release


def _operator_options(function: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Add an option for the namespace of each vendor's operator that reads objects of our chart."""
    for vendor, _ in reversed(vendors.OPERATORS):
        words = f"Also what `drift` reads where {vendor.name}'s operator is."
        add = click.option(f"--{vendor.word}-namespace", vendor.word.value, default="", metavar="NAMESPACE", help=words)
        function = add(function)
    return function


@click.command(cls=options.Command)
@click.option("--user", default="", help="For this user.")
@click.option("--group", default="", help="For this group.")
@click.option("--service-account", "account", default="", metavar="NAME", help="For this account of the release's namespace.")
@click.option("--release-namespace", default=RELEASE, help=f"Where gpushare is installed. Default: {RELEASE}.")
@click.option(
    "--plugin-namespace",
    default="",
    metavar="NAMESPACE",
    help="Where the device plugin's configs are, if elsewhere: the intent's platform.namespace.",
)
@_operator_options
@click.option("--metrics", is_flag=True, help="Also what `status --kills` reads from the runtimes.")
@click.option("--helm-values", is_flag=True, help="Also the Secrets of the namespace, for Helm's values in `drift`.")
@click.option(
    "--import",
    "imports",
    multiple=True,
    metavar="NAMESPACE",
    help="Also what `import --live` reads in this namespace; repeatable.",
)
def rbac(  # noqa: PLR0913 - one for each argument of the command line
    *,
    user: str,
    group: str,
    account: str,
    release_namespace: str,
    plugin_namespace: str,
    metrics: bool,
    helm_values: bool,
    imports: tuple[str, ...],
    **operators: str,
) -> ExitCode:
    """Print the RBAC objects for status, drift, explain and plan --live, as YAML.

    Nothing is sent to a cluster, and none of these rights allows a change.
    Without a subject they are for the service account gpushare-viewer.

    For example:
      gpushare rbac --group gpu-operators | kubectl apply -f -
      gpushare rbac --service-account gpushare-drift | kubectl apply -f -

    Exit codes:
      0  done
    """
    if sum(map(bool, (user, group, account))) > 1:
        raise click.UsageError("name one of --user, --group and --service-account")
    for namespace in (release_namespace, *filter(None, [plugin_namespace, *operators.values()]), *imports):
        if not is_dns_label(namespace):
            raise click.UsageError(f"{visible(namespace)!r} is not the name of a namespace")
    if account and not is_dns_subdomain(account):
        raise click.UsageError(f"{visible(account)!r} is not the name of a service account")
    if user or group:
        subject = reader.Subject(kind="User" if user else "Group", name=user or group)
    else:
        subject = reader.Subject(kind="ServiceAccount", name=account or reader.NAME, namespace=release_namespace)
    found = reader.rights(
        release_namespace,
        subject,
        plugin=plugin_namespace,
        operators=operators,
        metrics=metrics,
        values=helm_values,
        imports=imports,
    )
    streams.product("---\n".join(emit.yaml_text(one) for one in found))
    return ExitCode.DONE


def plan(  # noqa: PLR0913 - the arguments of `plan`
    *, new: str, overlays: tuple[str, ...], style: str, exit_code: bool, strict: bool, cluster: ClusterConnection
) -> ExitCode:
    """Write what installing a bundle does to pods, quotas and nodes; the exit codes are those of `gpushare plan`."""
    side = load_side(new, overlays=overlays)
    inputs.refuse_errors(side, strict=strict)
    snapshot = read(cluster, Scope(release=cluster.release))
    if not snapshot.has_seen("nodes"):
        warn_unread(snapshot.unseen)
        raise CouldNotRunError("the nodes cannot be read, so their changes are unknown", "`gpushare rbac` prints the rights")
    found = disturbance.assess(side.files, side.side, snapshot, inputs.catalog_of(side).geometry)
    streams.report(live_plan.report(found, has_pods=snapshot.has_seen("pods")), style, is_paged=True)
    if style != "json":
        warn_unread(found.unseen)
    return ExitCode.CHANGES if exit_code and not found.is_empty else ExitCode.DONE
