"""`gpushare drift`: how a running cluster differs from a bundle or an intent."""

import click

from gpushare.cli import inputs, options, streams
from gpushare.cli.cluster import ClusterConnection, cluster_options, read, warn_unread
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.cli.inputs import LoadedIntent
from gpushare.cluster.live import drift
from gpushare.cluster.live.reader import Scope
from gpushare.compare import bundles
from gpushare.compare.files import parsed
from gpushare.report import drift as report


@click.command(cls=options.Command)
@click.argument("bundle", type=options.INTENT, metavar="BUNDLE_OR_INTENT")
@options.product_format("text", "json")
@options.strict()
@cluster_options
def command(*, bundle: str, style: str, strict: bool, cluster: ClusterConnection) -> ExitCode:
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
    side = inputs.load_side(bundle)
    inputs.refuse_errors(side, strict=strict)
    chart = bundles.values(side.files)
    scope = Scope(
        release=cluster.release_namespace or _release(side, cluster),
        plugin=str(chart.get("pluginNamespace") or ""),
        amd=drift.amd_namespace(side.files, chart),
        values=True,
        dra=drift.has_dra(side.files),
    )
    snapshot = read(cluster, scope)
    found = drift.differences(side.files, side.side, snapshot)
    streams.report(report.report(found, snapshot.unseen), style)
    if style == "text":
        warn_unread(snapshot.unseen)
    if not found and not any(map(snapshot.has_seen, ("nodes", "daemonsets", "configmaps"))):
        raise CouldNotRunError(
            "nothing was compared: neither nodes nor objects of gpushare can be read",
            "`gpushare rbac` prints the rights that the command needs",
        )
    return ExitCode.CHANGES if found else ExitCode.DONE


def _release(side: LoadedIntent, cluster: ClusterConnection) -> str:
    """Return the namespace that the bundle is for."""
    namespace = parsed("namespace.yaml", side.files.get("namespace.yaml", ""))
    metadata = namespace.get("metadata") if isinstance(namespace, dict) else None
    return str(metadata["name"]) if isinstance(metadata, dict) and metadata.get("name") else cluster.release
