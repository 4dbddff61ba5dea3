"""`gpushare plan --live`: what installing a bundle does to the pods, quotas and nodes of a running cluster. Pure."""

from functools import partial

from gpushare.cluster.live.disturbance import Disturbance, NodeChange, QuotaProblem
from gpushare.cluster.live.objects import Pod
from gpushare.core.wording import pluralize
from gpushare.report.document import INTEGER, TEXT, Document, Member, Shape, array, fields, optional, record
from gpushare.report.model import Column, Form, Lines, Report, Section, Table, bare
from gpushare.report.status import UNSEEN

_MAX_NODES = 100
_BUSY = {"wait": "the node waits for them", "evict": "they are evicted", "fail": "the change fails while they run"}

PODS: tuple[Column[Pod], ...] = (
    Column(header="POD", value=lambda pod: pod.full_name),
    Column(header="OWNER", value=lambda pod: pod.owner or "-"),
    Column(
        header="REQUESTS", value=lambda pod: ", ".join(f"{name}: {number}" for name, number in sorted(pod.requests.items()))
    ),
)
QUOTAS: tuple[Column[QuotaProblem], ...] = (
    Column(header="NAMESPACE", value=lambda one: one.namespace),
    Column(header="RESOURCE", value=lambda one: one.resource),
    Column(header="IN USE", value=lambda one: str(one.used), is_number=True),
    Column(header="NEW QUOTA", value=lambda one: "resource is removed" if one.limit is None else str(one.limit)),
)
UNREADY: tuple[Column[tuple[str, str]], ...] = (
    Column(header="NODE", value=lambda one: one[0]),
    Column(header="STATE", value=lambda one: one[1]),
)


def report(found: Disturbance, *, has_pods: bool) -> Report:
    """Return the report. `has_pods`: the cluster's pods could be read."""
    count = f"{pluralize(len(found.nodes), 'node')} would change" if found.nodes else "no node would change"
    left = len(found.nodes) - _MAX_NODES
    heading = Lines(lines=["not ready now, and not changed:"] if found.unready else [])
    return Report(
        sections=(
            bare(Lines(lines=[count])),
            *(_node(node, has_pods=has_pods) for node in found.nodes[:_MAX_NODES]),
            bare(Lines(lines=[f"and {left} more nodes"] if left > 0 else [])),
            bare(Table(columns=QUOTAS, rows=found.quotas)),
            bare(heading, Table(columns=UNREADY, rows=found.unready[:_MAX_NODES], indent=2)),
        ),
        document=partial(DOCUMENT.write, found),
    )


def _node(node: NodeChange, *, has_pods: bool) -> Section:
    moved = f"{node.name}: {node.before or 'no pool'} → {node.after or 'no pool'}"
    return bare(
        Lines(lead=moved, lines=["" if node.is_ready else f"  ({node.state})"]),
        Lines(lines=[_effect(node, has_pods=has_pods)], form=Form.LIST, indent=4),
        Table(columns=PODS, rows=node.pods, indent=4),
    )


def _effect(node: NodeChange, *, has_pods: bool) -> str:
    if node.disturbed == 0:
        return "no pod is disturbed"
    most = "an unknown number of shares is" if node.disturbed is None else f"at most {pluralize(node.disturbed, 'share')} are"
    if not has_pods:
        return f"{most} removed; its pods were not seen"
    if not node.pods:
        return f"{most} removed; no pod holds any now"
    return f"{most} removed; {_BUSY.get(node.on_busy, node.on_busy)}"


_POD: Shape[Pod] = record(
    "",
    *fields(Pod, "namespace", "name"),
    Member("owner", optional(TEXT), text="Its controller, as Kind/name."),
    *fields(Pod, "requests"),
)
_NODE: Shape[NodeChange] = record(
    "",
    *fields(NodeChange, "name"),
    Member("from", optional(TEXT), lambda node: node.before, "Pool; null: none."),
    Member("to", optional(TEXT), lambda node: node.after),
    Member("onBusy", optional(TEXT), text="What happens while pods hold shares."),
    Member("sharesRemoved", optional(INTEGER), lambda node: node.disturbed, "At most so many; null: not known."),
    *fields(NodeChange, ready="is_ready"),
    *fields(NodeChange, "state"),
    Member("pods", array(_POD), text="Those that hold shares on the node, if any may be removed."),
)
_UNREADY: Shape[tuple[str, str]] = record(
    "", Member("name", TEXT, lambda one: one[0]), Member("state", TEXT, lambda one: one[1])
)
_QUOTA: Shape[QuotaProblem] = record(
    "",
    *fields(QuotaProblem, "namespace", "resource", "used"),
    Member("limit", optional(INTEGER), text="The new one; null: no pool offers the resource any more."),
)
DOCUMENT: Document[Disturbance] = Document(
    name="live-plan",
    kind="LivePlan",
    text="What installing an intent or bundle does to a running cluster: `gpushare plan --live NEW --format json`.",
    members=(
        Member("nodes", array(_NODE), text="Nodes that would change."),
        Member("notReady", array(_UNREADY), lambda found: found.unready, "Nodes that would not change, and are not ready now."),
        Member("quotas", array(_QUOTA)),
        Member("unseen", array(UNSEEN), lambda found: dict.fromkeys(found.unseen)),
    ),
)
