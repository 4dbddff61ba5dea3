"""`gpushare plan --live`: what installing a bundle does to the pods, quotas and nodes of a running cluster."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gpushare.cli import inputs, streams
from gpushare.cli.cluster import ClusterConnection, read, warn_unread
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.cluster.live import disturbance
from gpushare.cluster.live.disturbance import Disturbance, NodeChange
from gpushare.cluster.live.reader import Scope
from gpushare.core import emit
from gpushare.core.wording import pluralize, visible
from gpushare.report import terminal
from gpushare.report.status import unseen
from gpushare.report.terminal import BOLD, Style, table, wrapped

if TYPE_CHECKING:
    from gpushare.cluster.live.objects import Pod

_MAX_NODES = 100
_BUSY = {"wait": "the node waits for them", "evict": "they are evicted", "fail": "the change fails while they run"}


def run(  # noqa: PLR0913 - the arguments of `plan`
    *, new: str, overlays: tuple[str, ...], style: str, exit_code: bool, strict: bool, cluster: ClusterConnection
) -> ExitCode:
    """Write the plan; the exit codes are those of `plan`."""
    side = inputs.load_side(new, overlays=overlays)
    inputs.refuse_errors(side, strict=strict)
    snapshot = read(cluster, Scope(release=cluster.release))
    if not snapshot.has_seen("nodes"):
        warn_unread(snapshot.unseen)
        raise CouldNotRunError("the nodes cannot be read, so their changes are unknown", "`gpushare rbac` prints the rights")
    found = disturbance.assess(side.files, side.side, snapshot, inputs.catalog_of(side).geometry)
    if style == "json":
        streams.product(emit.json_text(document(found)))
    else:
        streams.page(render(found, terminal.detect_style(sys.stdout), has_pods=snapshot.has_seen("pods")))
        warn_unread(found.unseen)
    return ExitCode.CHANGES if exit_code and not found.is_empty else ExitCode.DONE


def render(found: Disturbance, style: Style, *, has_pods: bool) -> str:
    """Return the plan for people."""
    shown = f"{pluralize(len(found.nodes), 'node')} would change\n" if found.nodes else "no node would change\n"
    for node in found.nodes[:_MAX_NODES]:
        shown += "\n" + style.paint(f"{node.name}: {node.before or 'no pool'} -> {node.after or 'no pool'}", BOLD)
        shown += "" if node.is_ready else f"  ({node.state})"
        shown += "\n" + wrapped(f"  {_effect(node, has_pods=has_pods)}", style, indent=4)
        shown += table(("POD", "OWNER", "REQUESTS"), map(_row, node.pods), style, indent=4) if node.pods else ""
    shown += f"and {len(found.nodes) - _MAX_NODES} more nodes\n" if len(found.nodes) > _MAX_NODES else ""
    if found.quotas:
        rows = [
            (one.namespace, one.resource, str(one.used), "resource is removed" if one.limit is None else str(one.limit))
            for one in found.quotas
        ]
        shown += "\n" + table(("NAMESPACE", "RESOURCE", "IN USE", "NEW QUOTA"), rows, style, numbers=("IN USE",))
    if found.unready:
        shown += "\nnot ready now, and not changed:\n" + table(("NODE", "STATE"), found.unready[:_MAX_NODES], style, indent=2)
    return shown


def _effect(node: NodeChange, *, has_pods: bool) -> str:
    if node.disturbed == 0:
        return "no pod is disturbed"
    most = "an unknown number of shares is" if node.disturbed is None else f"at most {pluralize(node.disturbed, 'share')} are"
    if not has_pods:
        return f"{most} removed; its pods were not seen"
    if not node.pods:
        return f"{most} removed; no pod holds any now"
    return f"{most} removed; {_BUSY.get(node.on_busy, visible(node.on_busy))}"


def _row(pod: "Pod") -> tuple[str, str, str]:
    return pod.full_name, pod.owner or "-", ", ".join(f"{name}: {number}" for name, number in sorted(pod.requests.items()))


def document(found: Disturbance) -> dict[str, Any]:
    """Return the `LivePlan` document (schemas/live-plan.v1.json)."""
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "LivePlan",
        "nodes": [
            {
                "name": node.name,
                "from": node.before or None,
                "to": node.after or None,
                "onBusy": node.on_busy or None,
                "sharesRemoved": node.disturbed,
                "ready": node.is_ready,
                "state": node.state,
                "pods": list(_pods(node.pods)),
            }
            for node in found.nodes
        ],
        "notReady": [{"name": name, "state": state} for name, state in found.unready],
        "quotas": [
            {"namespace": one.namespace, "resource": one.resource, "used": one.used, "limit": one.limit} for one in found.quotas
        ],
        "unseen": unseen(found.unseen),
    }


def _pods(pods: "Iterable[Pod]") -> Iterable[dict[str, Any]]:
    for pod in pods:
        yield {"namespace": pod.namespace, "name": pod.name, "owner": pod.owner or None, "requests": dict(pod.requests)}
