"""What `enforce` would do to observed nodes, for people."""

from collections.abc import Iterator

from gpushare.core.wording import join_first, pluralize
from gpushare.live.observing import Observed, Would
from gpushare.report.terminal import Style, wrapped

_MAX_NODES = 20


def render(observed: Observed, style: Style) -> str:
    """Return one line for each thing that `enforce` would do, and one for each node that it would change."""
    return heading(observed) + ":\n" + "".join(wrapped(f"  {line}", style, indent=4) for line in lines(observed))


def heading(observed: Observed) -> str:
    """Return how many nodes are observed."""
    return f"{pluralize(len(observed.nodes), 'node')} observed: nothing is changed there. With enforce"


def lines(observed: Observed) -> list[str]:
    """Return what would be done to pods, then to each node; at most so many."""
    nodes = observed.nodes
    changed = [node for node in nodes if not node.is_nothing]
    found = [*_of_pods(observed), *map(_of_node, changed[:_MAX_NODES])]
    if len(changed) > _MAX_NODES:
        found.append(f"and {len(changed) - _MAX_NODES} more nodes would be changed")
    if len(changed) < len(nodes):
        found.append(f"{pluralize(len(nodes) - len(changed), 'node')} would not be changed")
    return found


def _of_pods(observed: Observed) -> Iterator[str]:
    if observed.over is None and observed.refused is None:
        yield "containers over their caps and refused pods are counted with --kills"
    if observed.over is not None:
        actions = pluralize(observed.actions or 0, "action")
        yield f"{pluralize(observed.over, 'container')} over their cap now; {actions} since the start of the runtimes"
    if observed.refused is not None:
        yield f"{pluralize(observed.refused, 'pod')} would have been refused since the start of the API server"


def _of_node(would: Would) -> str:
    if would.unknown and not (would.gpus or would.labels or would.resources):
        return f"{would.node}: not known: {would.unknown}"
    parts = [f"be repartitioned (GPU {join_first(would.gpus, 8)})"] if would.gpus else []
    if would.labels:
        parts.append(f"get {pluralize(len(would.labels), 'label')}")
    if would.resources:
        parts.append("offer " + join_first([f"{name}: {number}" for name, number in sorted(would.resources.items())], 8))
    text = f"node {would.node} would {', '.join(parts)}"
    if would.pods:
        text += f"; in use by {join_first(would.pods, 8)}" + (f" ({would.held} pods)" if would.held > len(would.pods) else "")
    return text + (f"; not known: {would.unknown}" if would.unknown else "")
