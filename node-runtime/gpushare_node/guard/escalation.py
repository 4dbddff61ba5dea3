"""Selects targets and escalates against them: SIGTERM, for MPS clients terminate_client, SIGKILL, each after its timeout.

One target at a time on each device; a target that is within its cap for now, or that SIGKILL does not end, does not block the
others. Namespaces take turns, each with its own budget for each device. Every signal requires that the container is over its
cap and that the process is verified in this very cycle; if either is unknown, the step waits. `evaluate` decides who is an
offender.
"""

from collections.abc import Mapping
from typing import NamedTuple, assert_never

from gpushare_node.core.structs import replace
from gpushare_node.guard.debts import Violation
from gpushare_node.guard.device_view import DeviceView, Sample, Unit
from gpushare_node.guard.identity import Owner, Process
from gpushare_node.guard.inputs import Cap, GuardInput
from gpushare_node.guard.process_list import Mps
from gpushare_node.guard.state import BudgetKey, CycleState, Step, Target
from gpushare_node.guard.verdicts import (
    Anomaly,
    AnomalyKind,
    Kill,
    KillScope,
    Next,
    Terminate,
    TerminateClient,
    ViolationDetails,
)

_KILLS_UNTIL_STUCK = 2
"""After this many SIGKILLs a target no longer blocks the others on its device."""


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

    @property
    def budget_key(self) -> BudgetKey:
        """The namespace and the device: the unit that has a budget, and that takes turns with others."""
        return self.owner.namespace, self.unit.device

    @property
    def excess_bytes(self) -> int:
        """How far the container is over the limit."""
        return self.sample.used_bytes - self.cap.limit_bytes

    def is_mps(self) -> bool:
        """Whether its processes must not simply be killed: under the platform's MPS every process is treated as a client."""
        return self.view.mps is not Mps.OFF and not self.is_unevictable

    def ends_whole(self) -> bool:
        """Whether all processes of the container are ended: an MPS server of its own can start others at any time."""
        return self.is_unevictable or any(self.view.has_own_server(process) for process, _ in self.sample.processes)

    def facts(self, state: CycleState, following: Next, following_seconds: float | None) -> ViolationDetails:
        """Return the details that a verdict on this offender has."""
        return ViolationDetails(
            unit=self.unit, used_bytes=self.sample.used_bytes, cap=self.cap, since_seconds=state.now - self.violation.since,
            next=following, next_seconds=following_seconds, dry_run=state.settings.dry_run,
            has_paused=self.violation.has_paused,
        )


def select_targets(offender: Offender, state: CycleState) -> None:
    """Select a target and send it SIGTERM, if no target blocks the device or the processes and the budget allows it."""
    unit = offender.unit
    if not may_choose(offender, state) or state.is_taken(unit.device):
        return
    is_repeated = len(state.strikes.get(offender.owner, ())) >= state.settings.strikes
    is_mps = offender.is_mps()
    if is_repeated and is_mps:
        use_fallback(offender, state)
        return
    is_whole = is_repeated or offender.ends_whole()
    scope = KillScope.CONTAINER if is_whole else KillScope.PROCESSES
    processes = _all(offender) if is_whole else (_largest(offender),)
    if _are_in_flight(processes, state.targets):
        return
    state.choose(unit, offender.owner)
    state.targets[unit] = Target(
        unit=unit, processes=processes, scope=scope, is_mps=is_mps, violation_since=offender.violation.since,
        step=Step.TERM_SENT, step_at=state.now,
    )
    following = Next.TERMINATE_CLIENT if is_mps else Next.KILL
    facts = offender.facts(state, following, state.settings.exit_seconds)
    state.verdicts.append(Terminate(facts=facts, processes=processes, scope=scope))


def may_choose(offender: Offender, state: CycleState) -> bool:
    """Whether rows are trusted and the namespace's budget for the device is not spent; reports an anomaly if not."""
    reason = None
    if state.paused_since is not None:
        reason = AnomalyKind.CONTRADICTED
    elif state.is_spent(offender.budget_key):
        reason = AnomalyKind.BUDGET_SPENT
    if reason is not None:
        state.verdicts.append(Anomaly(reason=reason, device=offender.unit.device, unit=offender.unit))
    return reason is None


def use_fallback(offender: Offender, state: CycleState) -> None:
    """Stop terminating MPS clients for this violation: the fallback follows, and never a plain SIGKILL."""
    state.targets.pop(offender.unit, None)
    state.violations[offender.unit] = state.violations[offender.unit]._replace(is_on_fallback=True)


def advance(target: Target, view: DeviceView | None, offender: Offender | None, inputs: GuardInput, state: CycleState) -> None:
    """Take the target's next step. `view` is None if its device cannot be trusted now, `offender` if it is not surely over."""
    if view is not None and not _is_listed(target, view, inputs.identities):
        _end(target, AnomalyKind.GONE, state)
        if offender is None:
            state.violations.pop(target.unit, None)
        return
    match target.step:
        case Step.KILL_SENT | Step.STUCK:
            _persist(target, offender, inputs, state)
        case Step.TERM_SENT | Step.CLIENT_SENT:
            _after_sigterm(target, view, offender, inputs, state)
        case _:
            assert_never(target.step)


def _persist(target: Target, offender: Offender | None, inputs: GuardInput, state: CycleState) -> None:
    """Continue with a target that was sent SIGKILL: repeat the signal at intervals, and report that it has no effect."""
    settings, unit = state.settings, target.unit
    is_due = state.now - target.step_at >= settings.stuck_seconds
    if is_due and offender is not None and target.is_for(offender.violation):
        verified = _verify(target, offender)
        if verified and (not offender.is_mps() or inputs.terminated_clients.issuperset(verified)):
            facts = offender.facts(state, Next.NOTHING, None)
            state.verdicts.append(Kill(facts=facts, processes=verified, scope=target.scope, is_repeated=True))
            target = replace(target, processes=verified, step_at=state.now, kills=target.kills + 1)
    since = state.now - target.killed_at
    if target.kills >= _KILLS_UNTIL_STUCK or since >= _KILLS_UNTIL_STUCK * settings.stuck_seconds:
        target = replace(target, step=Step.STUCK)
        state.verdicts.append(_report(target, AnomalyKind.STUCK, since))
    state.targets[unit] = target


def _verify(target: Target, offender: Offender) -> tuple[Process, ...]:
    """Return the target's processes that were identified in this cycle; for a container, all that it has."""
    present = _all(offender)
    if target.scope is KillScope.CONTAINER:
        return present
    return tuple(process for process in target.processes if process in present)


def _after_sigterm(
    target: Target, view: DeviceView | None, offender: Offender | None, inputs: GuardInput, state: CycleState
) -> None:
    """Continue with a target that was sent SIGTERM, or drop it."""
    violation = state.violations.get(target.unit)
    if violation is None or not target.is_for(violation):
        is_within = violation is None and view is not None and target.unit.container in view.samples
        _end(target, AnomalyKind.SPARED if is_within else AnomalyKind.LOST, state)
        return
    if violation.within_seconds >= state.settings.within_seconds:
        _end(target, AnomalyKind.SPARED, state)
        return
    if state.now - violation.known_at > state.settings.stale_seconds:
        _end(target, AnomalyKind.LOST, state)
        return
    if offender is None:
        return
    verified = _verify(target, offender)
    if verified:
        _escalate(target, verified, offender, inputs, state)
    elif not offender.view.may_hide(target.processes):
        _end(target, AnomalyKind.LOST, state)


def _escalate(target: Target, verified: tuple[Process, ...], offender: Offender, inputs: GuardInput, state: CycleState) -> None:
    settings = state.settings
    waited = state.now - target.step_at
    if target.step is Step.CLIENT_SENT:
        if settings.dry_run or inputs.terminated_clients.issuperset(verified):
            _kill(target, verified, offender, state)
        elif waited >= settings.client_seconds:
            use_fallback(offender, state)
    elif waited >= settings.exit_seconds:
        if not target.is_mps and not offender.is_mps():
            _kill(target, verified, offender, state)
        elif offender.view.mps is Mps.REACHABLE and target.scope is KillScope.PROCESSES:
            state.targets[target.unit] = replace(target, is_mps=True, step=Step.CLIENT_SENT, step_at=state.now)
            facts = offender.facts(state, Next.KILL, settings.client_seconds)
            state.verdicts.append(TerminateClient(facts=facts, processes=verified))
        else:
            use_fallback(offender, state)


def _kill(target: Target, verified: tuple[Process, ...], offender: Offender, state: CycleState) -> None:
    """Take the last step. A dry run ends here: no process was killed, so none will exit."""
    facts = offender.facts(state, Next.NOTHING, None)
    state.verdicts.append(Kill(facts=facts, processes=verified, scope=target.scope))
    if state.settings.dry_run:
        del state.targets[target.unit]
        state.violations[target.unit] = offender.violation._replace(is_settled=True)
    else:
        state.targets[target.unit] = replace(
            target, processes=verified, step=Step.KILL_SENT, step_at=state.now, kills=1, killed_at=state.now)


def _is_listed(target: Target, view: DeviceView, identities: Mapping[int, Process]) -> bool:
    """Whether any process of the target still has a row. A row that cannot be identified may belong to the dying target."""
    if target.scope is KillScope.CONTAINER and target.unit.container in view.samples:
        return True
    return any(
        process.pid in view.uses and identities.get(process.pid, process).start_time == process.start_time
        for process in target.processes
    )


def _are_in_flight(processes: tuple[Process, ...], targets: Mapping[Unit, Target]) -> bool:
    """Whether one of them is being ended for another device. A target that is stuck there blocks no other device."""
    return any(
        process in target.processes for target in targets.values() if target.step is not Step.STUCK for process in processes
    )


def _all(offender: Offender) -> tuple[Process, ...]:
    return tuple(process for process, _ in offender.sample.processes)


def _largest(offender: Offender) -> Process:
    """Return the process that uses most; of equal ones, the youngest."""
    return max(offender.sample.processes, key=lambda member: (member[1], member[0].start_time, member[0].pid))[0]


def _end(target: Target, reason: AnomalyKind, state: CycleState) -> None:
    del state.targets[target.unit]
    state.verdicts.append(_report(target, reason, state.now - target.step_at))


def _report(target: Target, reason: AnomalyKind, since_seconds: float) -> Anomaly:
    unit = target.unit
    return Anomaly(reason=reason, device=unit.device, unit=unit, processes=target.processes, since_seconds=since_seconds)
