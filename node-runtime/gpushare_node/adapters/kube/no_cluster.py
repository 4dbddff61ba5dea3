"""NoCluster: the `Cluster` of a run that uses no API server. The node has no labels, taints or pods, and writes do nothing."""

from collections.abc import Collection, Mapping, Sequence

from gpushare_node.adapters.kube.cluster import Event, EventCounts, Eviction, NodeView, PodEvent, PodView, SlotResult, Taint
from gpushare_node.adapters.kube.slices import SliceView
from gpushare_node.reporting.reasons import ConditionReason

_NODE = NodeView(name="", uid="", labels={}, annotations={}, taints=(), allocatable={})


class NoCluster:
    """A `Cluster` without an API server. No method raises ClusterError."""

    has_server = False

    def record_event(self, event: Event) -> None:
        """Drop the event. The log has its text."""

    def evict(self, pod: PodView, *, is_forced: bool = False) -> Eviction:  # noqa: ARG002 - the Protocol's signature
        """Return REFUSED: no API server can evict the pod."""
        return Eviction.REFUSED

    def node(self) -> NodeView:
        """Return a node without labels, annotations, taints and allocatable resources."""
        return _NODE

    def pods(self) -> tuple[PodView, ...]:
        """Return no pods. Which pods run is unknown: see `RunContext.holders`."""
        return ()

    def slices(self, driver: str) -> tuple[SliceView, ...]:  # noqa: ARG002 - the Protocol's signature
        """Return none."""
        return ()

    def delete_slice(self, name: str) -> None:
        """Do nothing."""

    def extended_names(self, classes: Collection[str]) -> frozenset[str]:  # noqa: ARG002 - the Protocol's signature
        """Return none."""
        return frozenset()

    def events_of(self, pod: PodView) -> tuple[PodEvent, ...]:  # noqa: ARG002 - the Protocol's signature
        """Return none."""
        return ()

    def selects(self, node: NodeView) -> bool:  # noqa: ARG002 - the Protocol's signature
        """Return True: no DaemonSet can stop selecting the node."""
        return True

    def has_pool(self) -> bool:
        """Return True: no DaemonSet can be deleted."""
        return True

    def apply_labels(self, labels: Mapping[str, str]) -> None:
        """Do nothing."""

    def write_labels(self, labels: Mapping[str, str | None]) -> None:
        """Do nothing."""

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Do nothing."""

    def change_taints(
        self, *, add: Sequence[Taint] = (), remove: Sequence[str] = (), labels: Mapping[str, str] | None = None
    ) -> None:
        """Do nothing."""

    def set_condition(self, reason: ConditionReason, message: str) -> None:
        """Do nothing."""

    def clear_condition(self) -> None:
        """Do nothing."""

    def event_counts(self) -> EventCounts:
        """Return zeros."""
        return EventCounts()

    def take_slot(self, limit: int | str) -> SlotResult:  # noqa: ARG002 - the Protocol's signature
        """Return a slot that is held: no other node shares the limit."""
        return SlotResult(is_held=True)

    def find_slot(self) -> bool:
        """Return False: no Lease exists."""
        return False

    def renew_slot(self) -> None:
        """Do nothing."""

    def release_slot(self) -> None:
        """Do nothing."""

    def delete_own_pod(self) -> None:
        """Do nothing."""
