"""`gpushare plan --live`: what installing a bundle does to the pods, quotas and nodes of a running cluster."""

from gpushare.cli import inputs, streams
from gpushare.cli.cluster import ClusterConnection, read, warn_unread
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.cli.sides import load_side
from gpushare.cluster.live import disturbance
from gpushare.cluster.live.reader import Scope
from gpushare.report import live_plan


def run(  # noqa: PLR0913 - the arguments of `plan`
    *, new: str, overlays: tuple[str, ...], style: str, exit_code: bool, strict: bool, cluster: ClusterConnection
) -> ExitCode:
    """Write the plan; the exit codes are those of `plan`."""
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
