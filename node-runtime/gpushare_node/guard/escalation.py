"""Selects targets and escalates against them: SIGTERM, and SIGKILL after its timeout.

First the processes that hold a container's memory are the target; if it offends again while a debt remains, has an MPS server
of its own, or others keep the memory of a process that has ended, the whole container. A signal to processes requires that the
container is over its cap and that they are verified in this cycle; if either is unknown, the step waits. A whole container that
was sent SIGTERM is killed after its time whatever its processes did meanwhile: who restarts them would otherwise gain by it.

Each container over its cap is a case of its own: none waits for another. `evaluate` decides who is an offender.
"""

from collections.abc import Mapping
from typing import NamedTuple, assert_never

from gpushare_node.contract.struct import replace
from gpushare_node.guard.debts import Violation
from gpushare_node.guard.device_view import DeviceView, Sample, Unit
from gpushare_node.guard.inputs import Cap, GuardInput, Owner, Process
from gpushare_node.guard.process_list import Mps
from gpushare_node.guard.state import CycleState, Step, Target
from gpushare_node.guard.verdicts import (
    Anomaly,
    AnomalyKind,
    Evict,
    Kill,
    KillScope,
    Next,
    Terminate,
    ViolationDetails,
)

_KILLS_UNTIL_STUCK = 2
"""After this many SIGKILLs a target counts as stuck."""


class Offender(NamedTuple):
    """A container that is certainly over its cap on a device in this cycle.

    `is_unevictable`: the eviction of its pod failed; only signals are left, under MPS too.
    """

    unit: Unit
    owner: Owner
    cap: Cap
    sample: Sample
    view: DeviceView
    violation: Violation
    is_unevictable: bool = False

    def is_mps(self) -> bool:
        """Whether its pod is evicted instead: a signal to a client of the platform's MPS can end every other client."""
        return self.view.mps is not Mps.OFF and not self.is_unevictable

    def kills_whole(self) -> bool:
        """Whether the whole container is killed: it has offended before, or its own MPS server can start others at any time."""
        return (
            self.is_unevictable
            or self.violation.offences > 0
            or any(self.view.has_own_server(process) for process, _ in self.sample.processes)
        )

    def facts(self, state: CycleState, following: Next, following_seconds: float | None) -> ViolationDetails:
        """Return the details that a verdict on this offender has."""
        return ViolationDetails(
            unit=self.unit,
            used_bytes=self.sample.used_bytes,
            cap=self.cap,
            since_seconds=state.now - self.violation.since,
            next=following,
            next_seconds=following_seconds,
            dry_run=state.settings.dry_run,
            has_paused=self.violation.has_paused,
        )


def select_targets(offender: Offender, state: CycleState) -> None:
    """Select a target and send it SIGTERM, unless its processes are being killed already."""
    unit = offender.unit
    if not may_choose(offender, state):
        return
    processes = _holding(offender)
    is_whole = offender.kills_whole() or any(process.is_gone for process in processes)
    scope = KillScope.CONTAINER if is_whole else KillScope.PROCESSES
    processes = offender.sample.members if is_whole else processes
    if _are_in_flight(processes, state.targets):
        return
    state.choose(unit, offender.owner)
    facts = offender.facts(state, Next.KILL, state.settings.exit_seconds)
    state.targets[unit] = Target(
        unit=unit,
        processes=processes,
        scope=scope,
        facts=facts,
        violation_since=offender.violation.since,
        step=Step.TERM_SENT,
        step_at=state.now,
    )
    state.verdicts.append(Terminate(facts=facts, processes=processes, scope=scope))


def end_at_once(offender: Offender, state: CycleState) -> None:
    """Kill the whole container without SIGTERM; if its pod has come since one of its namespace was ended, evict that too.

    A container that kubelet starts again in its pod comes later each time, a new pod does not.
    """
    unit, processes = offender.unit, offender.sample.members
    former = state.targets.pop(unit, None)
    if not may_choose(offender, state) or _are_in_flight(processes, state.targets):
        if former is not None:
            state.targets[unit] = former
        return
    if former is None:
        state.choose(unit, offender.owner)
    endings = state.endings[offender.owner.namespace, unit.device]
    facts = replace(offender.facts(state, Next.NOTHING, None), ended=endings.ended, ended_seconds=state.now - endings.since)
    target = Target(
        unit=unit,
        processes=processes,
        scope=KillScope.CONTAINER,
        facts=facts,
        violation_since=offender.violation.since,
        step=Step.TERM_SENT,
        step_at=state.now,
    )
    _kill(target, processes, offender, state)
    if unit.container.pod_uid not in endings.pods:
        state.verdicts.append(Evict(facts=facts))


def may_choose(offender: Offender, state: CycleState) -> bool:
    """Whether rows are trusted, which reports an anomaly if not, and the program does not end."""
    if state.paused_since is not None:
        state.verdicts.append(Anomaly(reason=AnomalyKind.CONTRADICTED, device=offender.unit.device, unit=offender.unit))
    return state.paused_since is None and not state.settings.is_ending


def advance(target: Target, view: DeviceView | None, offender: Offender | None, inputs: GuardInput, state: CycleState) -> None:
    """Take the target's next step. `view` is None if its device cannot be trusted now, `offender` if it is not surely over."""
    has_left = view is not None and not _is_listed(target, view, inputs)
    match target.step:
        case Step.TERM_SENT if target.scope is KillScope.CONTAINER:
            _escalate(target, _present(target, view), view, offender, inputs, state)
        case _ if has_left:
            _end(target, AnomalyKind.GONE, state)
        case Step.KILL_SENT | Step.STUCK:
            _persist(target, offender, state)
        case Step.TERM_SENT:
            _after_sigterm(target, view, offender, inputs, state)
        case _:
            assert_never(target.step)


def _persist(target: Target, offender: Offender | None, state: CycleState) -> None:
    """Continue with a target that was sent SIGKILL: repeat the signal at intervals, and report that it has no effect."""
    settings, unit = state.settings, target.unit
    is_due = state.now - target.step_at >= settings.stuck_seconds
    if is_due and offender is not None and target.is_for(offender.violation):
        verified = _verify(target, offender)
        if verified and not offender.is_mps():
            facts = offender.facts(state, Next.NOTHING, None)
            state.verdicts.append(Kill(facts=facts, processes=verified, scope=target.scope, is_repeated=True))
            target = replace(target, processes=verified, facts=facts, step_at=state.now, kills=target.kills + 1)
    since = state.now - target.killed_at
    if target.kills >= _KILLS_UNTIL_STUCK or since >= _KILLS_UNTIL_STUCK * settings.stuck_seconds:
        target = replace(target, step=Step.STUCK)
        state.verdicts.append(_report(target, AnomalyKind.STUCK, since))
    state.targets[unit] = target


def _verify(target: Target, offender: Offender) -> tuple[Process, ...]:
    """Return the target's processes that were identified in this cycle; for a container, all that it has."""
    present = offender.sample.members
    if target.scope is KillScope.CONTAINER:
        return present
    return tuple(process for process in target.processes if process in present)


def _after_sigterm(
    target: Target, view: DeviceView | None, offender: Offender | None, inputs: GuardInput, state: CycleState
) -> None:
    """Continue with processes that were sent SIGTERM, or drop them."""
    violation = state.violations.get(target.unit)
    if violation is None or not target.is_for(violation):
        is_within = violation is None and view is not None and target.unit.container in view.samples
        _end(target, AnomalyKind.SPARED if is_within else AnomalyKind.LOST, state)
        return
    if violation.debt.within_seconds >= state.settings.within_seconds or violation.debt.is_paid:
        _end(target, AnomalyKind.SPARED, state)
        return
    if state.now - violation.known_at > state.settings.stale_seconds:
        _end(target, AnomalyKind.LOST, state)
        return
    if offender is None:
        return
    verified = _verify(target, offender)
    if verified:
        _escalate(target, verified, offender.view, offender, inputs, state)
    elif not offender.view.may_hide(target.processes):
        _end(target, AnomalyKind.LOST, state)


def _present(target: Target, view: DeviceView | None) -> tuple[Process, ...]:
    """Return the processes that the target's container has on the device now."""
    sample = None if view is None else view.samples.get(target.unit.container)
    return () if sample is None else sample.members


def _escalate(  # noqa: PLR0913, PLR0917 - everything that the step depends on
    target: Target,
    verified: tuple[Process, ...],
    view: DeviceView | None,
    offender: Offender | None,
    inputs: GuardInput,
    state: CycleState,
) -> None:
    """Take the step after SIGTERM. `offender` None, for a whole container: it is not surely over now."""
    is_mps = view is not None and view.mps is not Mps.OFF and target.unit.container not in inputs.unevictable
    if is_mps:
        _end(target, AnomalyKind.LOST, state)
    elif state.now - target.step_at >= state.settings.exit_seconds:
        _kill(target, verified, offender, state)


def _kill(target: Target, verified: tuple[Process, ...], offender: Offender | None, state: CycleState) -> None:
    """Take the last step. A dry run ends here: no process was killed, so none will exit."""
    facts = _facts(target, offender, state, Next.NOTHING, None)
    processes = verified or target.processes
    state.verdicts.append(Kill(facts=facts, processes=processes, scope=target.scope))
    if state.settings.dry_run:
        state.targets.pop(target.unit, None)
        violation = state.violations.get(target.unit)
        if violation is not None:
            state.violations[target.unit] = violation._replace(is_settled=True)
    else:
        state.targets[target.unit] = replace(
            target, processes=processes, facts=facts, step=Step.KILL_SENT, step_at=state.now, kills=1, killed_at=state.now
        )


def _facts(
    target: Target, offender: Offender | None, state: CycleState, following: Next, following_seconds: float | None
) -> ViolationDetails:
    """Return the details of the target's next verdict; if it is not surely over now, with what it used at the last."""
    if offender is None:
        return replace(target.facts, next=following, next_seconds=following_seconds)
    return offender.facts(state, following, following_seconds)


def _is_listed(target: Target, view: DeviceView, inputs: GuardInput) -> bool:
    """Whether any process of the target still has a row of its own.

    A row that cannot be identified may belong to the dying target; one of a process that has ended long since does not.
    """
    present = _present(target, view)
    if present and (target.scope is KillScope.CONTAINER or not set(present).isdisjoint(target.processes)):
        return True
    listed = [
        (process, inputs.identities.get(process.pid, process)) for process in target.processes if process.pid in view.uses
    ]
    return any(now.start_time == process.start_time and not now.is_gone for process, now in listed)


def _are_in_flight(processes: tuple[Process, ...], targets: Mapping[Unit, Target]) -> bool:
    """Whether one of them is being killed for another device. A target that is stuck there blocks no other device."""
    return any(
        process in target.processes for target in targets.values() if target.step is not Step.STUCK for process in processes
    )


def _holding(offender: Offender) -> tuple[Process, ...]:
    """Return the processes that use most, as few as bring the container within its cap; of equal ones, the youngest first."""
    members, rest = offender.sample.processes, offender.sample.used_bytes
    chosen: list[Process] = []
    for process, used in sorted(members, key=lambda one: (one[1], one[0].start_time, one[0].pid), reverse=True):
        if rest <= offender.cap.limit_bytes:
            break
        chosen.append(process)
        rest -= used
    return tuple(chosen)


def _end(target: Target, reason: AnomalyKind, state: CycleState) -> None:
    """Drop the target. The debt remains; if its action becomes due again, that is a new offence."""
    del state.targets[target.unit]
    violation = state.violations.get(target.unit)
    if violation is not None and reason is AnomalyKind.GONE:
        state.violations[target.unit] = violation._replace(due_at=None)
    state.verdicts.append(_report(target, reason, state.now - target.step_at))


def _report(target: Target, reason: AnomalyKind, since_seconds: float) -> Anomaly:
    unit = target.unit
    return Anomaly(reason=reason, device=unit.device, unit=unit, processes=target.processes, since_seconds=since_seconds)
