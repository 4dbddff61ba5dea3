"""AnomalyTracker: what the guard's anomalies mean for the node: metrics, Events, and the reason in its condition.

The condition ignores a single odd cycle, and reports what lasts. Nothing here touches a process.
"""

from collections.abc import Hashable, Iterable

from gpushare_node.adapters.kube.cluster import Cluster, Event, EventType
from gpushare_node.contract import reasons
from gpushare_node.contract.struct import Struct, field
from gpushare_node.enforce.grants import Noticed
from gpushare_node.enforce.identities import PodIndex
from gpushare_node.enforce.kill_log import KillLog
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.inputs import ContainerId
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind, Verdict
from gpushare_node.reporting import messages
from gpushare_node.reporting.log import EventReason

LASTING_SECONDS = 60
"""How long an anomaly must last before the node's condition reports it."""

_GAP_SECONDS = 5
"""How long an anomaly may be absent and still last: a tenant can cause one, end it and, after some cycles, cause the next."""

_REMIND_SECONDS = 300

_LASTING = frozenset(
    {
        AnomalyKind.DISTRUSTED,
        AnomalyKind.UNRESOLVED,
        AnomalyKind.MEMORY_UNKNOWN,
        AnomalyKind.DOUBTFUL,
        AnomalyKind.CROWDED,
    }
)
"""Anomalies that the condition reports if they last."""

_BLIND = {
    AnomalyKind.MEMORY_UNKNOWN: "The driver does not report how much memory processes on {devices} use.",
    AnomalyKind.DOUBTFUL: "Memory on {devices} is held of a process that exited before it was seen; {holders}.",
    AnomalyKind.UNRESOLVED: "No process on {devices} can be identified.",
}
"""Why caps are not enforced on a device, in the order in which they are reported."""

_CROWD = (
    "Most containers on {device}, of many namespaces, are over their caps at once, so its process list is not believed. "
    "While that lasts, no process on it is terminated."
)
_CONTRADICTION = (
    "The driver's process lists attribute more memory to several namespaces than their GPUs report in use. "
    "Until both agree, no further process is terminated on this node."
)
_PAUSES = {AnomalyKind.CROWDED: ("crowd", _CROWD), AnomalyKind.CONTRADICTED: ("contradiction", _CONTRADICTION)}
"""Why no target is selected: the metric's label, and the text for messages."""

_STUCK = (
    "it still holds the device {seconds:.0f} s after SIGKILL: it is in D state, waiting in the kernel for the driver or for "
    "I/O, and exits when that wait ends; if it never ends, reboot the node. SIGKILL is sent repeatedly, and caps of other "
    "containers on the device are still enforced"
)


class AnomalyTracker(Struct, frozen=False):
    """The anomalies so far. `_lasting`: since when and until when each device's process list was distrusted, and the like."""

    cluster: Cluster
    metrics: EnforcementMetrics
    records: KillLog
    _lasting: dict[tuple[AnomalyKind, str], tuple[float, float]] = field(default_factory=dict)
    _reported_at: dict[Hashable, float] = field(default_factory=dict)
    _blind: frozenset[str] = frozenset()
    _candidates: frozenset[ContainerId] = frozenset()
    _overdue: tuple[Anomaly, ...] = ()
    _overdue_at: float = float("-inf")
    _pods: PodIndex = field(default_factory=PodIndex)

    def update(self, verdicts: Iterable[Verdict], pod_index: PodIndex, now: float) -> None:
        """Process the anomalies of one cycle."""
        reports = [verdict for verdict in verdicts if isinstance(verdict, Anomaly)]
        self._set_gauges(reports)
        doubtful = [one.candidates for one in reports if one.reason is AnomalyKind.DOUBTFUL]
        if doubtful:
            self._candidates = frozenset(one for several in doubtful for one in several)
        overdue = tuple(one for one in reports if one.reason is AnomalyKind.OVERDUE)
        if overdue or now - self._overdue_at >= LASTING_SECONDS:
            self._overdue, self._overdue_at = overdue, now
        self._pods = pod_index
        former = {key: seen for key, seen in self._lasting.items() if now - seen[1] <= _GAP_SECONDS}
        present = {(one.reason, one.device) for one in reports if one.reason in _LASTING}
        self._lasting = former | {key: (former.get(key, (now,))[0], now) for key in present}
        self._blind = frozenset(anomaly.device for anomaly in reports if anomaly.reason is AnomalyKind.BLIND)
        self._reported_at = {key: at for key, at in self._reported_at.items() if now - at < _REMIND_SECONDS}
        for report in reports:
            self._report(report, pod_index, now)

    def notify(self, noticed: Iterable[Noticed], pod_index: PodIndex) -> None:
        """Notify containers that ran before there was a cap of the cap, and of their exemption."""
        for unit, cap in noticed:
            text = messages.exemption_notice(cap, unit.device, pod_index.label(unit.container))
            self.records.note_exemption(unit, cap, text, pod_index)
            self._report_to_pod(EventReason.CAP_NOTICE, unit, pod_index, text)

    def reason(self, now: float) -> tuple[reasons.ConditionReason, str] | None:
        """Return why the node is not ready, and on which devices; None if enforcement sees all that it must."""
        lasting = [key for key, (since, _) in self._lasting.items() if now - since >= LASTING_SECONDS]
        distrusted = sorted(device for reason, device in lasting if reason is AnomalyKind.DISTRUSTED)
        if distrusted:
            return (
                reasons.ConditionReason.PROCESS_LIST_UNRELIABLE,
                f"The process lists of {', '.join(distrusted)} are not trusted.",
            )
        for kind, text in _BLIND.items():
            devices = sorted(device for reason, device in lasting if reason is kind)
            if devices:
                names = ", ".join(sorted(map(self._name, self._candidates)))
                holders = f"it may be held by {names}" if names else "it was allocated to no container"
                message = text.format(devices=", ".join(devices), holders=holders)
                return reasons.ConditionReason.ENFORCEMENT_BLIND, message
        crowded = sorted(device for reason, device in lasting if reason is AnomalyKind.CROWDED)
        if crowded:
            return reasons.ConditionReason.CAP_EXCEEDED, _CROWD.format(device=", ".join(crowded))
        if self._overdue:
            names = "; ".join(f"{self._name(one.unit.container)} on {one.device}" for one in self._overdue if one.unit)
            seconds = max(anomaly.since_seconds or 0 for anomaly in self._overdue)
            return reasons.ConditionReason.CAP_EXCEEDED, f"Over the cap for {seconds:.0f} s and not terminated: {names}."
        if self._blind:
            return (
                reasons.ConditionReason.ENFORCEMENT_BLIND,
                f"{', '.join(sorted(self._blind))} are allocated, but the driver has never listed a process on them.",
            )
        return None

    def _name(self, container: ContainerId) -> str:
        pod = self._pods.find(container)
        name = self._pods.label(container)
        return f"{pod.namespace}/{pod.name}, container {name}" if pod else name

    def _set_gauges(self, reports: list[Anomaly]) -> None:
        metrics = self.metrics
        metrics.breaker.set(any(one.reason in _PAUSES for one in reports))
        metrics.stuck.set(sum(len(one.processes) for one in reports if one.reason is AnomalyKind.STUCK))
        metrics.orphans.replace(((one.device,), len(one.processes)) for one in reports if one.reason is AnomalyKind.ORPHAN)
        metrics.unattributed.replace(
            ((one.device,), one.used_bytes or 0) for one in reports if one.reason is AnomalyKind.UNATTRIBUTED
        )
        for reason, gauge in ((AnomalyKind.STRAY, metrics.strays), (AnomalyKind.MEMORY_UNKNOWN, metrics.unknown)):
            devices = [anomaly.device for anomaly in reports if anomaly.reason is reason]
            gauge.replace(((device,), devices.count(device)) for device in sorted(set(devices)))
        for one in reports:
            if one.reason is AnomalyKind.DISTRUSTED and one.distrust is not None:
                metrics.rejected.add(one.distrust.name.lower().replace("_", "-"))

    def _report(self, report: Anomaly, pod_index: PodIndex, now: float) -> None:
        match report.reason:
            case AnomalyKind.GONE | AnomalyKind.SPARED | AnomalyKind.LOST:
                self.records.close(report, now)
            case AnomalyKind.STUCK:
                self._report_stuck(report, pod_index, now)
            case AnomalyKind.STRAY:
                if report.unit is not None and self._is_news((AnomalyKind.STRAY, report.unit), now):
                    self._report_to_pod(
                        EventReason.STRAY, report.unit, pod_index, f"It uses {report.device}, which was not allocated to it."
                    )
            case AnomalyKind.CROWDED | AnomalyKind.CONTRADICTED:
                self._report_pause(report, now)
            case _:
                pass

    def _report_pause(self, report: Anomaly, now: float) -> None:
        """Report that nothing is terminated for now: on one device, or on the whole node."""
        device = report.device if report.reason is AnomalyKind.CROWDED else ""
        if not self._is_news((report.reason, device), now):
            return
        label, text = _PAUSES[report.reason]
        self.metrics.suppressed.add(label)
        message = text.format(device=device)
        self.cluster.record_event(Event(type=EventType.WARNING, reason=EventReason.BREAKER_OPEN.value, message=message))

    def _report_stuck(self, report: Anomaly, pod_index: PodIndex, now: float) -> None:
        facts = None if report.unit is None else self.records.facts(report.unit)
        if facts is None or not self.records.close(report, now):
            return
        why = _STUCK.format(seconds=report.since_seconds or 0)
        name = pod_index.label(facts.unit.container)
        pids = tuple(process.pid for process in report.processes)
        self._report_to_pod(EventReason.KILL_FAILED, facts.unit, pod_index, messages.not_terminated(facts, name, pids, why))

    def _report_to_pod(self, about: EventReason, unit: Unit, pod_index: PodIndex, text: str) -> None:
        pod = pod_index.find(unit.container)
        if pod is not None:
            self.cluster.record_event(Event(type=EventType.WARNING, reason=about.value, message=text, pod=pod))

    def _is_news(self, key: Hashable, now: float) -> bool:
        """Whether this has not been reported recently; records that it is reported now."""
        is_news = key not in self._reported_at
        self._reported_at.setdefault(key, now)
        return is_news
