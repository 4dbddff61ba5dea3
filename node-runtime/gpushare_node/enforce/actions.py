"""Actions: carries out the guard's steps against offenders. The only place from which a tenant's process is signalled.

It decides on no step itself, but skips a signal if the pid was reused, or the process has no GPU or must not be signalled.
Reporting never delays a step, and no step waits for the API server.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from queue import SimpleQueue
from typing import assert_never

from gpushare_node.adapters.kube.cluster import Cluster, ClusterError, Event, EventType, Eviction, PodView
from gpushare_node.adapters.procs.processes import GpuUse, Processes, ProcessIdentity, Signal, SignalResult
from gpushare_node.contract.struct import Struct, field
from gpushare_node.core.worker import WorkQueue
from gpushare_node.enforce.identities import PodIndex
from gpushare_node.enforce.kill_log import KillLog
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.inputs import Cap, ContainerId, GuardInput, Process
from gpushare_node.guard.process_list import Mps
from gpushare_node.guard.verdicts import (
    Anomaly,
    ContainerStatus,
    Evict,
    Kill,
    KillScope,
    Terminate,
    Verdict,
    ViolationDetails,
    Warn,
)
from gpushare_node.reporting import messages
from gpushare_node.reporting.log import EventReason

TRIES = 3
"""How many requests respect a pod's budget, and how many then override it. The guard waits half a minute between two."""

EvictionAnswer = tuple[ViolationDetails, Eviction | None, bool]
"""The violation, the API server's answer (None: it did not answer), and whether the request overrode the budget."""


class EvictionRequests(Struct, frozen=False):
    """How often an offender's pod is evicted, and from which request on its budget is overridden. For the cycle's thread.

    Requests are sent on the work queue's thread; the cycle reads the answers, and reports none before.

    After TRIES answers the pod is deleted regardless of its PodDisruptionBudget, because its tenant may have written the
    budget. After as many more, or if the API server forbids the eviction (RBAC), only signals remain. An API server that does
    not answer has not refused. `offends` is called just before a request is sent, which may be long after it was queued;
    not if the container has been killed and its pod is to follow.
    """

    cluster: Cluster
    queue: WorkQueue
    metrics: EnforcementMetrics
    offends: Callable[[ViolationDetails], bool]
    _answers: SimpleQueue[EvictionAnswer] = field(default_factory=SimpleQueue)
    _tries: Counter[ContainerId] = field(default_factory=Counter)
    _forbidden: Counter[ContainerId] = field(default_factory=Counter)

    def request(self, facts: ViolationDetails, pod: PodView, *, is_forced: bool = False) -> None:
        """Queue the eviction of this pod. `is_forced`: override its budget from the first request on."""
        is_forced = is_forced or self._tries[facts.unit.container] >= TRIES
        self.queue.send(lambda: self._send(facts, pod, is_forced=is_forced))

    def update(self) -> Iterator[EvictionAnswer]:
        """Yield the answers that have arrived since the last call."""
        while not self._answers.empty():
            facts, answer, is_forced = self._answers.get()
            if answer is not None:
                self._tries[facts.unit.container] += 1
            if answer is Eviction.FORBIDDEN:
                self._forbidden[facts.unit.container] += 1
            yield facts, answer, is_forced

    def unevictable(self, offenders: Collection[ContainerId]) -> frozenset[ContainerId]:
        """Return the offenders whose pods still run after all requests. Containers that no longer offend are forgotten."""
        for container in self._tries.keys() - set(offenders):
            del self._tries[container], self._forbidden[container]
        return frozenset(
            container for container, tries in self._tries.items() if tries >= 2 * TRIES or self._forbidden[container] >= TRIES
        )

    def _send(self, facts: ViolationDetails, pod: PodView, *, is_forced: bool) -> None:
        """On the work queue's thread."""
        if not (facts.ended or self.offends(facts)):
            return
        try:
            answer: Eviction | None = self.cluster.evict(pod, is_forced=is_forced)
        except ClusterError:
            self.metrics.api_errors.add("evict")
            answer = None
        self.metrics.evictions.add("failed" if answer is None else answer.value)
        self._answers.put((facts, answer, is_forced))


_ROUNDS = 3
"""How often in a cycle a container's processes are listed again while it is killed: each round kills those forked since."""

_EMPTYING_SECONDS = 30
"""How long cycles continue to kill what is left in a container. What is left then does not exit on SIGKILL."""

_QUIET_SECONDS = {EventReason.OVER_CAP: 60, EventReason.EVICTED: 300, EventReason.EVICTION_FAILED: 300}
"""The least time between two equal Events on a container: one that oscillates around its cap must not flood the API server."""

_NO_GPU = "no-gpu"


class Actions(Struct, frozen=False):
    """Carries out the guard's verdicts."""

    processes: Processes
    cluster: Cluster
    queue: WorkQueue
    metrics: EnforcementMetrics
    records: KillLog
    denied_at: float | None = None
    """When a security module last refused a signal."""

    _reported_at: dict[tuple[EventReason, Unit, Cap], float] = field(default_factory=dict)
    _pod_index: PodIndex = field(default_factory=PodIndex)
    _has_mps: bool = False
    _logged: set[tuple[EventReason, Unit]] = field(default_factory=set)
    """What a dry run has logged of violations that last."""
    _emptying: dict[str, tuple[Process, float]] = field(default_factory=dict)
    """A process of each container that is being killed, by cgroup, and since when."""

    def __post_init__(self) -> None:
        self._evictions = EvictionRequests(cluster=self.cluster, queue=self.queue, metrics=self.metrics, offends=self._offends)

    def carry_out(self, verdicts: Iterable[Verdict], inputs: GuardInput, pod_index: PodIndex, now: float) -> frozenset[Unit]:
        """Carry out every verdict, in this order. `now` is monotonic seconds.

        Return the offenders none of whose processes can be signalled: they are not targets, and others must not wait for them.
        """
        self._pod_index = pod_index
        self._has_mps = any(device.mps is not Mps.OFF for device in inputs.devices)
        self._reported_at = {key: at for key, at in self._reported_at.items() if now - at < _QUIET_SECONDS[key[0]]}
        if self._logged:
            self._logged = {one for one in self._logged if one[1] in self.records.history.violations}
        self._report_evictions(now)
        self._kill_remaining(now)
        out_of_reach: set[Unit] = set()
        for verdict in verdicts:
            self._count_dry_run(verdict)
            match verdict:
                case Warn():
                    self.metrics.over_cap.add()
                    self._report_if_new(EventReason.OVER_CAP, verdict.facts, messages.over_cap, now)
                case Terminate() | Kill():
                    signal = Signal.TERM if isinstance(verdict, Terminate) else Signal.KILL
                    if not self._signal(verdict, signal, inputs, now):
                        out_of_reach.add(verdict.facts.unit)
                case Evict():
                    pod = self._pod_index.find(verdict.facts.unit.container)
                    if verdict.facts.dry_run:
                        self._report_if_new(EventReason.EVICTED, verdict.facts, messages.would_evict, now)
                    elif pod is not None:
                        self._evictions.request(verdict.facts, pod)
                case ContainerStatus() | Anomaly():
                    pass
                case _:
                    assert_never(verdict)
        return frozenset(out_of_reach)

    def unevictable(self) -> frozenset[ContainerId]:
        """Return the containers whose pods could not be evicted."""
        return self._evictions.unevictable({unit.container for unit in self.records.history.violations})

    def _offends(self, facts: ViolationDetails) -> bool:
        """Whether the container was last seen over its cap. From any thread: the guard's state is replaced as a whole."""
        violation = self.records.history.violations.get(facts.unit)
        return violation is not None and not violation.is_within

    def _count_dry_run(self, verdict: Verdict) -> None:
        """Count a step that is only counted. SIGTERM and SIGKILL are one step: enforce would kill the container once."""
        step = _COUNTED.get(type(verdict))
        if step is not None and not isinstance(verdict, ContainerStatus | Anomaly) and verdict.facts.dry_run:
            self.metrics.would_act.add(step, verdict.facts.cause)

    def _report_if_new(
        self, about: EventReason, facts: ViolationDetails, sentence: Callable[[ViolationDetails, str], str], now: float
    ) -> None:
        """Report it, unless it was reported recently under this cap."""
        if (about, facts.unit, facts.cap) not in self._reported_at:
            self._reported_at[about, facts.unit, facts.cap] = now
            self._report(about, facts, sentence(facts, self._pod_index.label(facts.unit.container)))

    def _signal(self, verdict: Terminate | Kill, signal: Signal, inputs: GuardInput, now: float) -> bool:
        """Send the signal to each process, and report the results. Return False if none of them can be signalled."""
        facts = verdict.facts
        record = self.records.open(facts, verdict.processes, inputs, self._pod_index, now)
        answers = self._send_all(verdict, signal, now)
        if SignalResult.DENIED.value in answers.values():
            self.denied_at = now
        if _FORBIDDEN.intersection(answers.values()):
            self._delete_instead(facts)
        self.records.note(record, signal.value, answers, now)
        pids = tuple(process.pid for process, answer in answers.items() if answer == SignalResult.SENT.value)
        if pids and not (isinstance(verdict, Kill) and verdict.is_repeated):
            text = messages.signalled(facts, self._pod_index.label(facts.unit.container), pids, signal.value)
            self._report(EventReason.PROCESS_KILLED, facts, text)
        for answer, (label, why) in _OBSTACLES.items():
            spared = tuple(process.pid for process, found in answers.items() if found == answer)
            if spared:
                self.metrics.suppressed.add(label)
                self._report(
                    EventReason.KILL_FAILED,
                    facts,
                    messages.not_terminated(facts, self._pod_index.label(facts.unit.container), spared, why),
                )
        return not _OBSTACLES.keys() >= set(answers.values())

    def _delete_instead(self, facts: ViolationDetails) -> None:
        """Delete the pod instead: the signal was refused, and so will the next be."""
        pod = self._pod_index.find(facts.unit.container)
        if pod is not None and not facts.dry_run:
            self._evictions.request(facts, pod, is_forced=True)

    def _send_all(self, verdict: Terminate | Kill, signal: Signal, now: float) -> Mapping[Process, str]:
        """Return the result for each process: a `SignalResult`, or `no-gpu`. The scope CONTAINER adds all that live now.

        In place of a process without a GPU those of its container are meant that have one open: its children keep its memory.
        Under MPS none of them is killed: the server has not confirmed the end of any.
        """
        answers = {process: self._send(process, signal, verdict.facts) for process in verdict.processes}
        if verdict.scope is KillScope.PROCESSES:
            may_reach = signal is Signal.TERM or not self._has_mps
            for spared in [process for process, answer in answers.items() if answer == _NO_GPU and may_reach]:
                heirs = [one for one in self._rest(spared, answers) if self.processes.uses_gpu(one.pid) is not GpuUse.NO]
                answers.update((one, self._deliver(one, signal, verdict.facts)) for one in heirs)
                if heirs:
                    del answers[spared]
            return answers
        for anchor in {process.cgroup: process for process in verdict.processes}.values():
            if isinstance(verdict, Terminate):
                answers.update((one, self._deliver(one, signal, verdict.facts)) for one in self._rest(anchor, answers))
            elif not verdict.facts.dry_run:
                self._emptying[anchor.cgroup] = (anchor, now)
                answers.update(self._kill_rest(anchor))
        return answers

    def _rest(self, anchor: Process, answers: Collection[Process]) -> list[Process]:
        """Return the processes that live in the container of this process now, without those in `answers`."""
        found = (
            Process(pid=seen.pid, start_time=seen.start_time, cgroup=seen.cgroup, container=anchor.container, kind=anchor.kind)
            for seen in self.processes.members(as_seen(anchor))
        )
        return [process for process in found if process not in answers]

    def _kill_rest(self, anchor: Process) -> dict[Process, str]:
        """Kill all that live in the container: with its cgroup, else one by one. Return the results of those that still did."""
        self.processes.kill_group(as_seen(anchor))
        answers: dict[Process, str] = {}
        for _ in range(_ROUNDS):
            fresh = self._rest(anchor, answers)
            if not fresh:
                break
            answers.update((process, self.processes.send(as_seen(process), Signal.KILL).value) for process in fresh)
        return answers

    def _kill_remaining(self, now: float) -> None:
        """Continue to kill containers until they are empty: a fork may escape each pass."""
        for cgroup, (anchor, since) in tuple(self._emptying.items()):
            if now - since > _EMPTYING_SECONDS or not self._kill_rest(anchor):
                del self._emptying[cgroup]

    def _send(self, process: Process, signal: Signal, facts: ViolationDetails) -> str:
        """Signal a process that the driver listed, unless it has no GPU open: then the driver's list is not trusted.

        If that cannot be read, the list is trusted: a tenant must not protect a process by hiding it.
        """
        if self.processes.uses_gpu(process.pid) is GpuUse.NO and not self.processes.has_ended(as_seen(process)):
            return _NO_GPU
        return self._deliver(process, signal, facts)

    def _deliver(self, process: Process, signal: Signal, facts: ViolationDetails) -> str:
        if facts.dry_run:
            return SignalResult.SENT.value
        return self.processes.send(as_seen(process), signal).value

    def _report_evictions(self, now: float) -> None:
        """Report the answers to eviction requests."""
        for facts, answer, is_forced in self._evictions.update():
            if answer is Eviction.EVICTED:
                self._report_if_new(EventReason.EVICTED, facts, partial(messages.evicted, is_forced=is_forced), now)
            elif answer is not Eviction.GONE:
                self._report_if_new(
                    EventReason.EVICTION_FAILED, facts, partial(messages.not_evicted, why=_REFUSALS[answer]), now
                )

    def _report(self, about: EventReason, facts: ViolationDetails, text: str) -> None:
        """Log it, and send it to the tenant as an Event on its pod, if the pod is known. A dry run does so once a violation."""
        if facts.dry_run:
            if (about, facts.unit) in self._logged:
                return
            self._logged.add((about, facts.unit))
        self.records.log_report(about.value, facts, text, self._pod_index)
        pod = self._pod_index.find(facts.unit.container)
        if pod is not None:
            self.cluster.record_event(Event(type=EventType.WARNING, reason=about.value, message=text, pod=pod))


_COUNTED: Mapping[type[Verdict], str] = {Warn: "warn", Kill: "kill", Evict: "evict"}
"""The steps of a dry run that are counted. A dry run takes no other step after one of the last two."""

_REFUSALS = {
    Eviction.REFUSED: "its PodDisruptionBudget allows no eviction now",
    Eviction.FORBIDDEN: "the API server forbids it (RBAC)",
    Eviction.THROTTLED: "the API server rejects requests now",
    None: "the API server does not answer",
}
"""Why a pod was not evicted, for messages."""

_FORBIDDEN = frozenset({SignalResult.DENIED.value, SignalResult.REFUSED.value})
"""What no signal can end."""

_OBSTACLES = {
    SignalResult.REFUSED.value: ("no-permission", "the runtime lacks the permission to signal it (capability KILL)"),
    SignalResult.DENIED.value: (
        "security-module",
        "a security module of the kernel (AppArmor, SELinux) blocks the runtime's signal",
    ),
    _NO_GPU: (_NO_GPU, "it has no GPU open, so the driver's list is not trusted"),
}
"""Why a process was not signalled although it lives: the metric's label, and the text for messages."""


def as_seen(process: Process) -> ProcessIdentity:
    """Return the process as `adapters.procs` identifies it: this is compared before a signal. Its cgroup is its container's."""
    return ProcessIdentity(pid=process.pid, start_time=process.start_time, cgroup=process.cgroup, candidates=())
