"""A stage with upkeep and loop, and the part of the API server that upkeep asks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL, ClusterError, NodeView
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.enforce.loop import Loop
from gpushare_node.enforce.node_monitor import NodeMonitor
from gpushare_node.gpus.view import build_view
from gpushare_node.partition.plan import PartitionPlan
from tests.node.enforce.enforcement import SHARED, EnforcementFixture, RecordedCluster
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool

LABELS = {POOL_LABEL: "pool", PLUGIN_LABEL: "time-slicing-01234567-a"}


VIEW = NodeView(name="node-1", uid="u", labels=LABELS, annotations={}, taints=(), allocatable={SHARED: 20})


@dataclass(kw_only=True)
class Api(RecordedCluster):
    """The part of the API server that upkeep asks."""

    view: NodeView = VIEW
    is_selected: bool = True
    is_down: bool = False
    is_deleted: bool = False
    """The pool's DaemonSet."""
    said: list[tuple[ConditionReason, str]] = field(default_factory=list)
    applied: list[Mapping[str, str]] = field(default_factory=list)
    deleted: int = 0
    read: int = 0
    """How often the Node was."""

    def node(self) -> NodeView:
        self._answer()
        self.read += 1
        return self.view

    def selects(self, _node: NodeView) -> bool:
        return self.is_selected

    def has_pool(self) -> bool:
        return not self.is_deleted

    def apply_labels(self, labels: Mapping[str, str]) -> None:
        self._answer()
        self.applied.append(labels)

    def set_condition(self, reason: ConditionReason, message: str) -> None:
        self._answer()
        self.said.append((reason, message))

    def delete_own_pod(self) -> None:
        self._answer()
        self.deleted += 1

    def evict(self, pod: Any, *, is_forced: bool = False, is_moved: bool = False) -> Any:
        self._answer()
        return super().evict(pod, is_forced=is_forced)

    def _answer(self) -> None:
        if self.is_down:
            raise ClusterError("GET node", None, "gone")


class EnforcementLoop:
    """A stage with upkeep and loop."""

    def __init__(self, folder: Path, two_gpus: FakeNvml, process_pool: ProcessPool, **changes: Any) -> None:
        self.enforcement = EnforcementFixture(folder, two_gpus, process_pool, **changes)
        self.api = Api()
        self.enforcement.told = self.api
        self.start()

    def start(self) -> None:
        enforcer = self.enforcement.start()
        self.monitor = NodeMonitor(enforcer=enforcer, cluster=self.api, labels=LABELS, plan=self.plan, boot_id="b1")
        clock = self.enforcement.clock
        self.loop = Loop(enforcer=enforcer, monitor=self.monitor, clock=clock, pause=clock.sleep, spread=lambda: 1.0)

    def plan(self, surveys: Any) -> PartitionPlan:
        return build_view(surveys, self.enforcement.policy, allocated=frozenset(), pending_modes={}).plan

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            self.enforcement.clock.time += 1
            self.loop.step()
