"""KillLog: what happened to each offender, from the first signal to the end, in the log and in the metrics. Acts on nothing.

One line for each process that was to be terminated, with everything known about it; comm is for people and proves nothing.
"""

import logging
from collections.abc import Mapping

from gpushare_node.adapters.procs.processes import ProcessDetails, Processes, SignalResult
from gpushare_node.contract.struct import Struct, field
from gpushare_node.enforce.identities import PodIndex
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.inputs import Cap, GuardInput, Process
from gpushare_node.guard.state import GuardState
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind, ViolationDetails
from gpushare_node.reporting.log import Field, line

_LOG = logging.getLogger("gpushare.enforce")


class KillRecord(Struct, frozen=False):
    """An offender that is a target: what was known when it was selected, and what has been sent since."""

    facts: ViolationDetails
    began: float
    samples: int
    names: tuple[str, str, str]
    details: dict[Process, ProcessDetails | None] = field(default_factory=dict)
    used_bytes: dict[Process, int | None] = field(default_factory=dict)
    gpu_instance: int | None = None
    signal: str = ""
    sent_at: dict[str, float] = field(default_factory=dict)
    reached: set[Process] = field(default_factory=set)
    is_stuck: bool = False


class KillLog:
    """The open kill records."""

    def __init__(self, *, node: str, policy_digest: str, processes: Processes, metrics: EnforcementMetrics) -> None:
        self._common: dict[str, Field] = {"node": node, "policy": policy_digest}
        self._processes = processes
        self._metrics = metrics
        self._records: dict[Unit, KillRecord] = {}
        self.history = GuardState()
        self.signalled: dict[str, float] = {}

    def open(
        self, facts: ViolationDetails, processes: tuple[Process, ...], inputs: GuardInput, pod_index: PodIndex, now: float
    ) -> KillRecord:
        """Return this offender's record with these processes added. Call it before the signal: afterwards they may be gone."""
        violation = self.history.violations.get(facts.unit)
        pod = pod_index.find(facts.unit.container)
        record = self._records.get(facts.unit)
        if record is None:
            record = KillRecord(
                facts=facts,
                began=now,
                samples=0 if violation is None else violation.samples,
                names=("", "", "") if pod is None else (pod.namespace, pod.name, pod_index.name(facts.unit.container) or ""),
            )
            self._records[facts.unit] = record
        record.facts = facts
        for process in processes:
            record.details[process] = self._processes.details(process.pid)
            record.used_bytes[process], record.gpu_instance = _use(process, facts.unit.device, inputs)
        return record

    def note(self, record: KillRecord, signal: str, answers: Mapping[Process, str], now: float) -> None:
        """Record the results of sending a signal. Processes that it reached stay in the record until they are gone."""
        record.signal = signal
        record.sent_at[signal] = now
        if SignalResult.SENT.value in answers.values():
            self.signalled[record.facts.unit.device] = now
        for process, answer in answers.items():
            record.details.setdefault(process, None)
            self._write(record, process, answer, now)
            if answer == SignalResult.SENT.value:
                record.reached.add(process)
            else:
                self._metrics.kills.add(signal, _OUTCOMES.get(answer, answer), record.facts.cause)

    def close(self, report: Anomaly, now: float) -> bool:
        """Close a record as the guard reports; return whether that is new. A stuck one stays open until its target is gone."""
        record = None if report.unit is None else self._records.get(report.unit)
        if report.unit is None or record is None or (report.reason is AnomalyKind.STUCK and record.is_stuck):
            return False
        outcome = _end(report.reason, record)
        for process in record.reached:
            self._write(record, process, outcome, now)
            self._metrics.kills.add(record.signal, outcome, record.facts.cause)
        if record.reached and report.reason is not AnomalyKind.SPARED:
            self._metrics.note_kill(record.names, record.facts.cause)
        record.is_stuck = report.reason is AnomalyKind.STUCK
        if not record.is_stuck:
            del self._records[report.unit]
        return True

    def prune(self, now: float) -> None:
        """Close the records that the guard dropped without a report: those of a dry run, and of devices that are gone."""
        targets = {target.unit for target in self.history.targets.values()}
        for unit in [unit for unit in self._records if unit not in targets]:
            record = self._records.pop(unit)
            for process in record.reached:
                self._write(record, process, "dry-run" if record.facts.dry_run else "dropped", now)

    def facts(self, unit: Unit) -> ViolationDetails | None:
        """Return the last details of an offender that is a target; None if there is no record of it."""
        record = self._records.get(unit)
        return None if record is None else record.facts

    def log_report(self, event: str, facts: ViolationDetails, text: str, pod_index: PodIndex) -> None:
        """Log what is reported to the tenant."""
        fields: dict[str, Field] = {
            "used_bytes": facts.used_bytes,
            "cap_bytes": facts.cap.bytes,
            "dry_run": facts.dry_run,
            "message": text,
        }
        self._log(event, facts.unit, fields, pod_index)

    def note_exemption(self, unit: Unit, cap: Cap, text: str, pod_index: PodIndex) -> None:
        """Log the cap from which a container is exempt, and until when (seconds since 1970; null: as long as it runs)."""
        until = cap.exemption.until if cap.exemption else None
        self._log("exemption", unit, {"cap_bytes": cap.bytes, "exempt_until": until, "message": text}, pod_index)

    def _log(self, event: str, unit: Unit, fields: Mapping[str, Field], pod_index: PodIndex) -> None:
        pod = pod_index.find(unit.container)
        subject: dict[str, Field] = {
            "namespace": pod.namespace if pod else None,
            "pod": pod.name if pod else None,
            "container_id": unit.container.container,
            "gpu": unit.device,
        }
        _LOG.warning("%s", line(event, {**self._common, **subject, **fields}))

    def _write(self, record: KillRecord, process: Process, outcome: str, now: float) -> None:
        facts, details = record.facts, record.details.get(process)
        namespace, pod, container = record.names
        fields: dict[str, Field] = {
            **self._common,
            "gpu": facts.unit.device,
            "gpu_instance": record.gpu_instance,
            "namespace": namespace,
            "pod": pod,
            "pod_uid": facts.unit.container.pod_uid,
            "container": container,
            "container_id": facts.unit.container.container,
            "pid": process.pid,
            "namespace_pids": details.namespace_pids if details else None,
            "comm": details.comm if details else None,
            "uid": details.uid if details else None,
            "used_bytes": record.used_bytes.get(process),
            "container_used_bytes": facts.used_bytes,
            "cap_bytes": facts.cap.bytes,
            "tolerance_bytes": facts.cap.tolerance_bytes,
            "samples": record.samples,
            "over_seconds": round(facts.since_seconds, 3),
            "signal": record.signal,
            "outcome": outcome,
            "since_signal_seconds": round(now - record.sent_at.get(record.signal, now), 3),
            "since_choice_seconds": round(now - record.began, 3),
            "dry_run": facts.dry_run,
        }
        _LOG.warning("%s", line("kill", fields))


_OUTCOMES = {
    SignalResult.GONE.value: "vanished",
    SignalResult.REUSED.value: "reused",
    SignalResult.REFUSED.value: "eperm",
    SignalResult.DENIED.value: "eacces",
}


def _end(reason: AnomalyKind, record: KillRecord) -> str:
    """Return the outcome as the log names it; the last signal sent counts as the cause of the exit."""
    match reason:
        case AnomalyKind.GONE:
            return {"SIGTERM": "exited_term", "SIGKILL": "exited_kill"}.get(record.signal, "exited")
        case AnomalyKind.STUCK:
            return "stuck"
        case AnomalyKind.SPARED:
            return "spared"
        case _:
            return "lost"


def _use(process: Process, device: str, inputs: GuardInput) -> tuple[int | None, int | None]:
    """Return how much of the device the process itself uses, and on which GPU instance."""
    for one in inputs.devices:
        if device not in one.places():
            continue
        number = next((number for number, instance in (one.instances or {}).items() if instance.uuid == device), None)
        uses = [
            row.used_bytes
            for row in one.rows or ()
            if row.pid == process.pid and row.gpu_instance == number and row.used_bytes is not None
        ]
        return max(uses, default=None), number
    return None, None
