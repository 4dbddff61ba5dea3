"""NodeMonitor: what enforcement monitors besides caps: drift, the node's labels, whether the pool still selects it, XIDs.

Never changes hardware: to repair or to leave the pool, it deletes its own pod, and the reconcile loop of the new pod decides.
Calls to the API server go through the work queue; an unreachable server blocks nothing, and the calls are repeated.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gpushare_node.adapters.host.state_dir import RepairMark, StateDirError
from gpushare_node.adapters.kube.cluster import (
    PLUGIN_LABEL,
    Cluster,
    ClusterError,
    Event,
    EventType,
    Eviction,
    NodeView,
    platform_pods,
)
from gpushare_node.adapters.kube.connection import jitter
from gpushare_node.contract import xids
from gpushare_node.contract.names import BACKEND_LABEL, POOL_LABEL, RELEASE_ANNOTATION, RELEASED_ANNOTATION
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, field
from gpushare_node.enforce.enforcer import Enforcer
from gpushare_node.enforce.offer_watch import OfferWatch
from gpushare_node.gpus.faults import GpuFaults
from gpushare_node.gpus.view import find_fabric, has_wrong_mode
from gpushare_node.membership import RELEASE_AFTER_SECONDS, PoolSelection, Standing
from gpushare_node.partition.plan import PartitionPlan
from gpushare_node.reporting.log import EventReason
from gpushare_node.reporting.outcome import Unmet
from gpushare_node.vendors.driver import GpuInfo, Xid

_NODE_SECONDS = 600.0
"""How often the node is checked without a trigger: its watch reports changes, and a new selector means a new pod."""

_RETRY_SECONDS = 15.0
"""How soon a check that did not complete is repeated."""

_REPORT_SECONDS = 60
_LABEL_SECONDS = 60
_CONFLICT_SECONDS = 300
_REMIND_SECONDS = 600
_REPAIR_SECONDS = 3600
"""How long the same finding is not repaired again: if it recurs, its cause is not one that a repair removes."""

_KILL_ECHO_SECONDS = 60
_KILL_ECHOES = frozenset({43, 45})
"""XIDs caused by terminating a process with work on the GPU (NVIDIA's XID catalogue; the device plugin ignores them too)."""

_LOG = logging.getLogger(__name__)
_UNSELECTED = "The pool's selectors do not match the node's labels; if that lasts, the node leaves the pool."


class NodeMonitor(Struct, frozen=False):
    """`labels` are those that the pool requires on the node; `plan` returns what must change for the node to match the policy.

    `remark` is added to the message of a node that is ready; `refusal` is the message of a node that enforces a former policy
    because its own cannot be read. An unselected node is released after `release_after_seconds`, without an order.
    """

    enforcer: Enforcer
    cluster: Cluster
    labels: Mapping[str, str]
    plan: Callable[[tuple[GpuInfo, ...]], PartitionPlan]
    boot_id: str
    remark: str = ""
    refusal: str = ""
    release_after_seconds: float = RELEASE_AFTER_SECONDS
    _finding: tuple[ConditionReason, str] | None = None
    _fault: str = ""
    _release_reason: str = ""
    _unselected: str = ""
    _conflict: tuple[float, str] | None = None
    _applied_at: float | None = None
    _check_at: float = float("-inf")
    _reported: tuple[ConditionReason, str] | None = None
    _reported_at: float = 0.0
    _is_deleting: bool = False
    _event_at: dict[ConditionReason, float] = field(default_factory=dict)
    recent: deque[Xid] = field(default_factory=lambda: deque(maxlen=16))
    _is_triggered: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        adapters = self.enforcer.adapters
        self._faults = GpuFaults(folder=adapters.folder, boot_id=self.boot_id)
        self._offer = OfferWatch(
            enforcer=self.enforcer, cluster=self.cluster, flip=self._flip, is_faulty=lambda: bool(self._fault)
        )
        self._selection = PoolSelection(
            cluster=self.cluster,
            pods=adapters.pods.pods,
            folder=adapters.folder,
            clock=adapters.clock,
            boot_id=self.boot_id,
            pool=self.labels.get(POOL_LABEL, ""),
            release_after_seconds=self.release_after_seconds,
        )

    def trigger(self) -> None:
        """Check the node in the next cycle, because it has changed. From any thread."""
        self._is_triggered.set()

    def look(self, now: float) -> None:
        """Run the checks that are due. `now` is monotonic seconds."""
        for xid in self.enforcer.adapters.driver.xids():
            self._record_xid(xid, now)
        if self.enforcer.is_surveyed and self.enforcer.inventory.surveys is not None:
            self._check_layout(self.enforcer.inventory.surveys, now)
        if self._is_triggered.is_set() or now >= self._check_at:
            # Cleared before the check: a change during the check triggers another one.
            self._is_triggered.clear()
            self._check_at = now + _RETRY_SECONDS
            self.enforcer.queue.send(partial(self._check_node, now))
        if not self.refusal:
            self._offer.look(now)
        found = self.reason(now)
        if found[0] is not (self._reported[0] if self._reported else None) or now - self._reported_at >= _REPORT_SECONDS:
            self._reported, self._reported_at = found, now
            self.enforcer.metrics.ready.replace([((found[0].word,), 1)])
            self.enforcer.queue.send(partial(self._write_condition, *found))
        self._send_trouble(now)
        counter, counts = self.enforcer.metrics.events, self.cluster.event_counts()
        for outcome, count in (("sent", counts.sent), ("refused", counts.refused), ("dropped", counts.dropped)):
            counter.add(outcome, by=count - counter.value(outcome))

    def reason(self, now: float) -> tuple[ConditionReason, str]:
        """Return the reason of the node's condition, with its message."""
        if self._release_reason:
            return ConditionReason.RELEASING, self._release_reason
        found = self.enforcer.reason() or self._find_fault() or self._finding
        if found is not None:
            return found
        if self._conflict is not None and now - self._conflict[0] < _CONFLICT_SECONDS:
            return ConditionReason.LABEL_CONFLICT, self._conflict[1]
        if self.refusal:
            return ConditionReason.POLICY_INVALID, self.refusal
        offered = self._find_offer()
        if offered is not None:
            return offered
        unwritable = self.enforcer.adapters.folder.unwritable()
        if unwritable:
            return ConditionReason.STATE_UNWRITABLE, f"{unwritable}."
        return ConditionReason.READY, " ".join(filter(None, (ConditionReason.READY.value.means, self.remark, self._unselected)))

    def _find_fault(self) -> tuple[ConditionReason, str] | None:
        """Return the fault that is not ours to undo; a GPU that does not answer at all says so itself."""
        if self._finding is not None and self._finding[0].value.is_gpu_fault:
            return None
        if self._fault:
            return ConditionReason.GPU_FAULTY, f"{self._fault}."
        return _sentence(self._offer.finding) if self._is_tainted else None

    @property
    def _is_tainted(self) -> bool:
        """Whether the DRA driver keeps a device away from claims."""
        return self._offer.finding is not None and self._offer.finding.reason is ConditionReason.GPU_FAULTY

    def let_go(self) -> None:
        """At the end of the program: see `GpuFaults.let_go`."""
        self._faults.let_go(self.cluster)

    def _find_offer(self) -> tuple[ConditionReason, str] | None:
        """Return what is wrong with the offer, or with the daemon behind it."""
        return _sentence(self.enforcer.limit_tiers.mps_trouble or self._offer.finding)

    @property
    def is_leaving(self) -> bool:
        """Whether the node must leave the pool."""
        return bool(self._release_reason)

    def _send_trouble(self, now: float) -> None:
        """Send an Event on what prevents the enforcement of caps, not more often than is useful to people."""
        self._event_at = {reason: at for reason, at in self._event_at.items() if now - at < _REMIND_SECONDS}
        trouble = self.enforcer.reason() or self._find_offer()
        if trouble is not None and trouble[0] not in self._event_at:
            self._event_at[trouble[0]] = now
            _LOG.warning("%s: %s", trouble[0].word, trouble[1])
            self.cluster.record_event(Event(type=EventType.WARNING, reason=trouble[0].word, message=trouble[1]))

    def _record_xid(self, xid: Xid, now: float) -> None:
        self.enforcer.metrics.xids.add(str(xid.xid))
        self.recent.append(xid)
        if xid.xid in _KILL_ECHOES and now - self.enforcer.signalled_at(xid.uuid) <= _KILL_ECHO_SECONDS:
            return
        try:
            self._faults.record(xid.uuid, xid.xid)
        except StateDirError as error:
            _LOG.warning("%s", error)
        message = f"The driver reports {xids.describe(xid.xid)} ({xid.uuid})."
        self._send_event(EventReason.XID, message)

    def _check_layout(self, surveys: tuple[GpuInfo, ...], now: float) -> None:
        """Compare the GPUs with the policy. A difference found twice in a row is repaired, once.

        A lost or unreadable GPU is only reported: a restart does not repair it, and meanwhile the others would have no caps.
        """
        planned = self.plan(surveys)
        self._fault = self._faults.find(surveys)
        wrong = (
            () if self.refusal else tuple(survey for survey in surveys if has_wrong_mode(survey, self.enforcer.config.policy))
        )
        former, self._finding = self._finding, _find(planned, wrong) or _sentence(find_fabric(surveys))
        is_repairable = any(gpu.operations for gpu in planned.gpus) or bool(wrong)
        if self._finding is None or self._finding != former or not is_repairable or self._is_deleting:
            return
        if self._fault or self._is_tainted:
            return  # A new pod would have the device plugin or the driver offer the GPU again.
        folder = self.enforcer.adapters.folder
        mark, text = folder.repaired(), f"{self._finding[0].word}: {self._finding[1]}"
        if (
            mark is not None
            and (mark.finding, mark.boot_id) == (text, self.boot_id)
            and 0 <= now - mark.at_seconds < _REPAIR_SECONDS
        ):
            return
        try:
            folder.mark_repair(RepairMark(finding=text, boot_id=self.boot_id, at_seconds=int(now)))
        except StateDirError:
            return  # The condition says so; a repair would need the directory as well.
        self._send_event(EventReason.DRIFTED, f"{text} The runtime's pod is recreated to repair it.")
        self._restart()

    def _check_node(self, now: float) -> None:
        """Check whether the node still belongs to the pool, and its labels are ours. On the work queue's thread."""
        try:
            view = self.cluster.node()
            self._release_reason = self._find_release_reason(view)
            if self._release_reason:
                self.cluster.delete_own_pod()
                self._is_deleting = True
            elif self.labels and view.backend is not self.enforcer.config.policy.backend:
                # Pods hold GPUs by the one back end, and the other may offer them: the new pod keeps others away at once.
                drift = ", ".join(view.describe_drift({BACKEND_LABEL: str(self.enforcer.config.policy.backend)}))
                self._send_event(EventReason.LABEL_CONFLICT, f"{drift}. The runtime's pod is recreated to restore the label.")
                self.cluster.delete_own_pod()
                self._is_deleting = True
            elif (not self.labels or self._keep_labels(view, now)) and not self._unselected:
                self._check_at = now + jitter(_NODE_SECONDS)
        except ClusterError:
            self.enforcer.metrics.api_errors.add("node")
        except StateDirError:
            pass  # The condition says so, and the check is repeated.

    def _find_release_reason(self, view: NodeView) -> str:
        if RELEASE_ANNOTATION in view.annotations and RELEASED_ANNOTATION not in view.annotations:
            return "The node was requested to leave its pool."
        pool = view.labels.get(POOL_LABEL)
        if POOL_LABEL in self.labels and pool not in (None, self.labels[POOL_LABEL]):
            return f"The node now belongs to pool {pool}."
        standing = self._selection.find(view)
        self._unselected = _UNSELECTED if standing is Standing.UNSELECTED else ""
        return "The pool no longer selects the node." if standing is Standing.LEAVES else ""

    def _keep_labels(self, view: NodeView, now: float) -> bool:
        """Write our labels again, at most once a minute, and report which were changed. Return whether they were correct."""
        changed = view.describe_drift(self.labels)
        if not changed or (self._applied_at is not None and now - self._applied_at < _LABEL_SECONDS):
            return not changed
        self._applied_at = now
        message = f"The runtime's labels were corrected: {', '.join(changed)}."
        self._conflict = (now, message)
        self.enforcer.metrics.label_conflicts.add(by=len(changed))
        self._send_event(EventReason.LABEL_CONFLICT, message)
        self.cluster.apply_labels(self.labels)
        return False

    def _flip(self) -> None:
        """Publish the profile under its other name, so that the device plugin enumerates again. On the work queue's thread."""
        adapters = self.enforcer.adapters
        folder, last = adapters.folder, adapters.folder.profile()
        if last is None or self.labels.get(PLUGIN_LABEL, "") != last.key:
            return
        if not last.key:
            self._restart_plugin()
            return
        other = adapters.backend.flip(last)
        folder.keep_profile(other.key, other.devices)
        self.labels = {**self.labels, PLUGIN_LABEL: other.key}
        self.cluster.apply_labels(self.labels)
        text = f"The device plugin's config is now {other.key}, so that it restarts: the node does not provide what is planned."
        self._send_event(EventReason.PLUGIN_RESTARTED, text)

    def _restart_plugin(self) -> None:
        """Delete the pods of a plugin that follows no label."""
        adapters = self.enforcer.adapters
        pods = platform_pods(adapters.pods.pods(), adapters.tenants.find().platform)
        for pod in adapters.backend.restartable(pods, self.enforcer.config.policy):
            if self.cluster.evict(pod, is_forced=True) is Eviction.EVICTED:
                text = (
                    f"Pod {pod.namespace}/{pod.name} was deleted, so that it enumerates again: the offer differs from the plan."
                )
                self._send_event(EventReason.PLUGIN_RESTARTED, text)

    def _restart(self) -> None:
        def delete() -> None:
            try:
                self.cluster.delete_own_pod()
            except ClusterError:
                self.enforcer.metrics.api_errors.add("delete")
                self._is_deleting = False

        self._is_deleting = self.enforcer.queue.send(delete)

    def _write_condition(self, reason: ConditionReason, message: str) -> None:
        """On the work queue's thread."""
        try:
            self.cluster.set_condition(reason, message)
        except ClusterError:
            self.enforcer.metrics.api_errors.add("condition")

    def _send_event(self, about: EventReason, message: str) -> None:
        _LOG.warning("%s", message)
        self.cluster.record_event(Event(type=EventType.WARNING, reason=about.value, message=message))


def _sentence(unmet: Unmet | None) -> tuple[ConditionReason, str] | None:
    return None if unmet is None else (unmet.reason, f"{unmet.message[0].upper()}{unmet.message[1:]}.")


def _find(planned: PartitionPlan, wrong_modes: Sequence[GpuInfo]) -> tuple[ConditionReason, str] | None:
    """Return how the hardware differs from the policy; a GPU that cannot be partitioned takes precedence over a changed one."""
    if planned.unfit:
        text = "; ".join(f"GPU {unfit_gpu.index}: {unfit_gpu.detail}" for unfit_gpu in planned.unfit)
        return planned.unfit[0].reason, f"{text}."
    changed = sorted({gpu.index for gpu in planned.gpus if gpu.operations})
    if changed:
        return ConditionReason.DRIFTED, f"GPU {', '.join(map(str, changed))} no longer matches the policy."
    if wrong_modes:
        known = ((survey.index, survey.compute_mode) for survey in wrong_modes)
        modes = "; ".join(f"GPU {index} has the compute mode {mode.name}" for index, mode in known if mode is not None)
        return ConditionReason.DRIFTED, f"{modes}, which prevents sharing."
    return None
