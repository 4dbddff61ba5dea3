"""How a victim is chosen and ended: SIGTERM, for MPS clients terminate_client, SIGKILL, each after its time.

One victim at a time on each device; one that is within its cap for now, or that SIGKILL does not end, keeps no other waiting.
Namespaces take turns, each with a budget of its own for each device. Every signal needs the container over its cap in this
very cycle and the process verified in it; whatever is unknown waits. Who is an offender is told by the guard.
"""

from collections.abc import Mapping
from typing import NamedTuple, assert_never

from gpushare_node.core.structs import replace
from gpushare_node.guard.debts import Violation
from gpushare_node.guard.device_view import DeviceView, Sample, Unit
from gpushare_node.guard.identity import Owner, Process
from gpushare_node.guard.inputs import Cap, GuardInput
from gpushare_node.guard.process_list import Mps
from gpushare_node.guard.state import CycleState, Room, Step, Target
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
"""After so many times SIGKILL a victim keeps no other on its device waiting."""


class Offender(NamedTuple):
    """A container that is over its cap on a device in this cycle, without doubt.

    `is_unevictable`: its pod's eviction was asked for in vain; what is left are signals, under MPS too.
    """

    unit: Unit
    owner: Owner
    cap: Cap
    sample: Sample
    sight: DeviceView
    offence: Violation
    is_unevictable: bool = False

    @property
    def room(self) -> Room:
        """The namespace and the device: what has a budget, and takes turns with others."""
        return self.owner.namespace, self.unit.device

    @property
    def excess_bytes(self) -> int:
        """How far over the limit."""
        return self.sample.used_bytes - self.cap.limit_bytes

    def is_mps(self) -> bool:
        """Whether its processes must not simply be killed: under the platform's MPS everyone is taken for a client."""
        return self.sight.mps is not Mps.OFF and not self.is_unevictable

    def ends_whole(self) -> bool:
        """Whether the container ends with all its processes: an MPS server of its own starts others as it likes."""
        return self.is_unevictable or any(self.sight.has_own_server(process) for process, _ in self.sample.processes)

    def facts(self, ledger: CycleState, following: Next, following_seconds: float | None) -> ViolationDetails:
        """What a verdict tells about this case."""
        return ViolationDetails(
            unit=self.unit, used_bytes=self.sample.used_bytes, cap=self.cap, since_seconds=ledger.now - self.offence.since,
            next=following, next_seconds=following_seconds, dry_run=ledger.settings.dry_run,
            has_paused=self.offence.has_paused,
        )


def choose(case: Offender, ledger: CycleState) -> None:
    """Take a victim and send it SIGTERM, if the device and the processes are free and the namespace may lose one."""
    unit = case.unit
    if not may_choose(case, ledger) or ledger.is_taken(unit.device):
        return
    is_repeated = len(ledger.strikes.get(case.owner, ())) >= ledger.settings.strikes
    is_mps = case.is_mps()
    if is_repeated and is_mps:
        demote(case, ledger)
        return
    is_whole = is_repeated or case.ends_whole()
    scope = KillScope.CONTAINER if is_whole else KillScope.PROCESSES
    processes = _all(case) if is_whole else (_largest(case),)
    if _are_in_flight(processes, ledger.victims):
        return
    ledger.choose(unit, case.owner)
    ledger.victims[unit] = Target(
        unit=unit, processes=processes, scope=scope, is_mps=is_mps, offence_since=case.offence.since,
        step=Step.TERM_SENT, step_at=ledger.now,
    )
    following = Next.TERMINATE_CLIENT if is_mps else Next.KILL
    facts = case.facts(ledger, following, ledger.settings.exit_seconds)
    ledger.verdicts.append(Terminate(facts=facts, processes=processes, scope=scope))


def may_choose(case: Offender, ledger: CycleState) -> bool:
    """Whether readings are believed and the namespace's budget for the device has something left; says so if not."""
    reason = None
    if ledger.paused_since is not None:
        reason = AnomalyKind.CONTRADICTED
    elif ledger.is_spent(case.room):
        reason = AnomalyKind.BUDGET_SPENT
    if reason is not None:
        ledger.verdicts.append(Anomaly(reason=reason, device=case.unit.device, unit=case.unit))
    return reason is None


def demote(case: Offender, ledger: CycleState) -> None:
    """Give up ending MPS clients for this offence: the fallback follows, and never a raw SIGKILL."""
    ledger.victims.pop(case.unit, None)
    ledger.offences[case.unit] = ledger.offences[case.unit]._replace(is_demoted=True)


def advance(victim: Target, sight: DeviceView | None, case: Offender | None, reading: GuardInput, ledger: CycleState) -> None:
    """The victim's next step. `sight` is None when its device cannot be trusted now, `case` when it is not clearly over."""
    if sight is not None and not _is_listed(victim, sight, reading.identities):
        _end(victim, AnomalyKind.GONE, ledger)
        if case is None:
            ledger.offences.pop(victim.unit, None)
        return
    match victim.step:
        case Step.KILL_SENT | Step.STUCK:
            _persist(victim, case, reading, ledger)
        case Step.TERM_SENT | Step.CLIENT_SENT:
            _press(victim, sight, case, reading, ledger)
        case _:
            assert_never(victim.step)


def _persist(victim: Target, case: Offender | None, reading: GuardInput, ledger: CycleState) -> None:
    """Go on with a victim that has had SIGKILL: send it again from time to time, and say that it does not help."""
    settings, unit = ledger.settings, victim.unit
    is_due = ledger.now - victim.step_at >= settings.stuck_seconds
    if is_due and case is not None and victim.is_for(case.offence):
        verified = _verify(victim, case)
        if verified and (not case.is_mps() or reading.terminated_clients.issuperset(verified)):
            facts = case.facts(ledger, Next.NOTHING, None)
            ledger.verdicts.append(Kill(facts=facts, processes=verified, scope=victim.scope, is_repeated=True))
            victim = replace(victim, processes=verified, step_at=ledger.now, kills=victim.kills + 1)
    since = ledger.now - victim.killed_at
    if victim.kills >= _KILLS_UNTIL_STUCK or since >= _KILLS_UNTIL_STUCK * settings.stuck_seconds:
        victim = replace(victim, step=Step.STUCK)
        ledger.verdicts.append(_report(victim, AnomalyKind.STUCK, since))
    ledger.victims[unit] = victim


def _verify(victim: Target, case: Offender) -> tuple[Process, ...]:
    """Those of the victim's processes that were recognised in this cycle; of a container, all that it has."""
    present = _all(case)
    if victim.scope is KillScope.CONTAINER:
        return present
    return tuple(process for process in victim.processes if process in present)


def _press(victim: Target, sight: DeviceView | None, case: Offender | None, reading: GuardInput, ledger: CycleState) -> None:
    """Go on with a victim that has had SIGTERM, or let it go."""
    offence = ledger.offences.get(victim.unit)
    if offence is None or not victim.is_for(offence):
        is_calm = offence is None and sight is not None and victim.unit.container in sight.samples
        _end(victim, AnomalyKind.SPARED if is_calm else AnomalyKind.LOST, ledger)
        return
    if offence.calm_seconds >= ledger.settings.calm_seconds:
        _end(victim, AnomalyKind.SPARED, ledger)
        return
    if ledger.now - offence.known_at > ledger.settings.stale_seconds:
        _end(victim, AnomalyKind.LOST, ledger)
        return
    if case is None:
        return
    verified = _verify(victim, case)
    if verified:
        _escalate(victim, verified, case, reading, ledger)
    elif not case.sight.may_hide(victim.processes):
        _end(victim, AnomalyKind.LOST, ledger)


def _escalate(victim: Target, verified: tuple[Process, ...], case: Offender, reading: GuardInput, ledger: CycleState) -> None:
    settings = ledger.settings
    waited = ledger.now - victim.step_at
    if victim.step is Step.CLIENT_SENT:
        if settings.dry_run or reading.terminated_clients.issuperset(verified):
            _kill(victim, verified, case, ledger)
        elif waited >= settings.client_seconds:
            demote(case, ledger)
    elif waited >= settings.exit_seconds:
        if not victim.is_mps and not case.is_mps():
            _kill(victim, verified, case, ledger)
        elif case.sight.mps is Mps.REACHABLE and victim.scope is KillScope.PROCESSES:
            ledger.victims[victim.unit] = replace(victim, is_mps=True, step=Step.CLIENT_SENT, step_at=ledger.now)
            facts = case.facts(ledger, Next.KILL, settings.client_seconds)
            ledger.verdicts.append(TerminateClient(facts=facts, processes=verified))
        else:
            demote(case, ledger)


def _kill(victim: Target, verified: tuple[Process, ...], case: Offender, ledger: CycleState) -> None:
    """The last step. A dry run ends here: nobody was killed, so nobody will go."""
    facts = case.facts(ledger, Next.NOTHING, None)
    ledger.verdicts.append(Kill(facts=facts, processes=verified, scope=victim.scope))
    if ledger.settings.dry_run:
        del ledger.victims[victim.unit]
        ledger.offences[victim.unit] = case.offence._replace(is_settled=True)
    else:
        ledger.victims[victim.unit] = replace(
            victim, processes=verified, step=Step.KILL_SENT, step_at=ledger.now, kills=1, killed_at=ledger.now)


def _is_listed(victim: Target, sight: DeviceView, identities: Mapping[int, Process]) -> bool:
    """Whether any of it still has a row. A row whose process cannot be recognised may well be the dying victim's."""
    if victim.scope is KillScope.CONTAINER and victim.unit.container in sight.samples:
        return True
    return any(
        process.pid in sight.uses and identities.get(process.pid, process).start_time == process.start_time
        for process in victim.processes
    )


def _are_in_flight(processes: tuple[Process, ...], victims: Mapping[Unit, Target]) -> bool:
    """Whether one of them is being ended for another device. What is stuck there blocks nobody elsewhere."""
    return any(
        process in victim.processes for victim in victims.values() if victim.step is not Step.STUCK for process in processes
    )


def _all(case: Offender) -> tuple[Process, ...]:
    return tuple(process for process, _ in case.sample.processes)


def _largest(case: Offender) -> Process:
    """The process that uses most; of equal ones the youngest."""
    return max(case.sample.processes, key=lambda member: (member[1], member[0].start_time, member[0].pid))[0]


def _end(victim: Target, reason: AnomalyKind, ledger: CycleState) -> None:
    del ledger.victims[victim.unit]
    ledger.verdicts.append(_report(victim, reason, ledger.now - victim.step_at))


def _report(victim: Target, reason: AnomalyKind, since_seconds: float) -> Anomaly:
    unit = victim.unit
    return Anomaly(reason=reason, device=unit.device, unit=unit, processes=victim.processes, since_seconds=since_seconds)
