"""Enforcement's judgement: what must be said and done about the GPU processes of this cycle. Pure: no clock, no I/O.

A container runs up a debt while it is over its cap, and pays it back, more slowly, while it is not. One that owes the samples
asked for is warned; one that owes the cap's grace as well is ended or evicted, as the cap says. The order in one cycle: look,
count, go on with victims, choose new ones, report. Fail-open: whatever is unknown leads to no signal.
"""

from collections.abc import Collection

from gpushare_node.guard.anomalies import report_device, report_places
from gpushare_node.guard.contradiction import find_accused
from gpushare_node.guard.debts import Violation
from gpushare_node.guard.device_view import DeviceView, Level, Sample, Unit, level, look
from gpushare_node.guard.escalation import Offender, advance, choose, may_choose
from gpushare_node.guard.identity import ContainerId
from gpushare_node.guard.inputs import DEFAULTS, Cap, CapAction, GuardInput, Settings
from gpushare_node.guard.process_list import Device, Mps, RejectReason
from gpushare_node.guard.state import CycleState, GuardState
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind, CapState, ContainerStatus, Evict, Next, Verdict, Warn

_STEP_NEXT = {
    CapAction.KILL: Next.TERMINATE,
    CapAction.EVICT: Next.EVICT,
    CapAction.WARN: Next.NOTHING,
    CapAction.NONE: Next.NOTHING,
}
_CALM, _OVER, _UNKNOWN, _OK = Level.CALM, Level.OVER, Level.UNKNOWN, CapState.OK
"""Found once, for they are asked about each container: an enumeration's members are slow to find."""

_ACCUSED_NAMESPACES = 2
"""Rows that contradict their device accuse so many namespaces at once: then nobody's readings are believed for now."""


def judge(
    reading: GuardInput, history: GuardState, now: float, settings: Settings = DEFAULTS, calm: Collection[str] = ()
) -> tuple[tuple[Verdict, ...], GuardState]:
    """The verdicts of one cycle, and what the next one must know. `now` is monotonic seconds; wall time is never used.

    Steps against offenders come first, in the order in which they are to be carried out; observations and reports follow.
    Nothing is said of the GPUs in `calm`: all of their devices have been seen, nobody there owes or is being ended, and
    `guard.calm` has found everybody within the cap.
    """
    ledger = CycleState(history, now, settings)
    looks = [(device, look(device, reading.identities)) for device in reading.devices if device.uuid not in calm]
    sights = {sight.device: sight for _, seen in looks if not isinstance(seen, RejectReason) for sight in seen}
    _pause(reading, [device for device, seen in looks if seen is RejectReason.ABOVE_USED], ledger)
    _bequeath(sights, reading, ledger)
    cases: dict[Unit, Offender] = {}
    observed: list[tuple[Unit, Cap | None, Sample, Level]] = []
    for sight in sights.values():
        for container, sample in sight.samples.items():
            unit = Unit(container, sight.device)
            grant = reading.grants.get(container)
            cap = _cap(reading, container, sight.device)
            answer = _answer(unit, cap, sample, sight, ledger)
            observed.append((unit, cap, sample, answer))
            if grant is not None and cap is not None and answer is _OVER:
                offence = ledger.count(unit, tuple([process for process, _ in sample.processes]), cap, reading.grants)
                cases[unit] = Offender(
                    unit=unit, owner=grant.owner, cap=cap, sample=sample, sight=sight, offence=offence,
                    is_unevictable=container in reading.unevictable,
                )  # fmt: skip
    _count_others(observed, sights, ledger)
    places = {place for device in reading.devices for place in device.places()} if ledger.victims or ledger.offences else set()
    _advance_all(reading, sights, cases, places, ledger)
    for case in sorted(cases.values(), key=lambda case: _turn(case, ledger)):
        _act(case, ledger)
    ledger.verdicts.extend([_observe(unit, cap, sample, answer, ledger) for unit, cap, sample, answer in observed])
    for device, seen in looks:
        report_device(device, seen, ledger)
    report_places(sights, reading, ledger)
    return tuple(ledger.verdicts), ledger.close(reading.grants, places)


def _cap(reading: GuardInput, container: ContainerId, device: str) -> Cap | None:
    """The cap that holds; None where none does, and where it is not known."""
    grant = reading.grants.get(container)
    if grant is None:
        return None
    if device in grant.devices:
        return grant.caps.get(device)
    return grant.stray_cap if reading.is_allocation_known else None


def _answer(unit: Unit, cap: Cap | None, sample: Sample, sight: DeviceView, ledger: CycleState) -> Level:
    """Whether the container is over its cap. A clock that stands still, or a lost cap, leaves an open offence open."""
    offence = ledger.offences.get(unit) if ledger.offences else None
    if cap is None:
        return _CALM if offence is None else _UNKNOWN
    if not ledger.has_moved:
        return Level.UNKNOWN
    return level(sample, cap, () if offence is None else offence.members, sight)


def _pause(reading: GuardInput, contradicted: list[Device], ledger: CycleState) -> None:
    """Choose nobody while the rows of several namespaces cannot be true. With the first reading that can, graces begin anew.

    Not after a single odd cycle: memory that changes hands while it is read must not win time for anybody.
    """
    accused = find_accused(contradicted, reading) if contradicted else frozenset()
    if len(accused) >= _ACCUSED_NAMESPACES:
        ledger.paused_since = ledger.now if ledger.paused_since is None else ledger.paused_since
    elif ledger.paused_since is not None:
        if ledger.now - ledger.paused_since > ledger.settings.confirm_seconds:
            ledger.forgive_all()
        ledger.paused_since = None


def _bequeath(sights: dict[str, DeviceView], reading: GuardInput, ledger: CycleState) -> None:
    """Whoever is gone leaves its debt before anybody is counted: the next container of a pod appears as the last one goes."""
    if not ledger.has_moved:
        return
    for unit, offence in tuple(ledger.offences.items()):
        sight, grant = sights.get(unit.device), reading.grants.get(unit.container)
        if (grant is None or grant.is_gone) and sight is not None and _is_absent(unit, offence, sight):
            ledger.bequeath(unit)


def _is_absent(unit: Unit, offence: Violation, sight: DeviceView) -> bool:
    return unit.container not in sight.samples and not sight.may_hide(offence.members)


def _count_others(
    observed: list[tuple[Unit, Cap | None, Sample, Level]], sights: dict[str, DeviceView], ledger: CycleState
) -> None:
    """What this look means for offenders that are not over now: calm, unknown, or absent from a device that can be trusted."""
    if not ledger.offences or not ledger.has_moved:
        return
    present = {unit: answer for unit, _, _, answer in observed}
    for unit, offence in tuple(ledger.offences.items()):
        answer = present.get(unit)
        if answer is Level.OVER:
            continue
        sight = sights.get(unit.device)
        if answer is Level.CALM or (sight is not None and _is_absent(unit, offence, sight)):
            ledger.pay(unit)
        else:
            ledger.offences[unit] = offence.unknown()


def _advance_all(
    reading: GuardInput, sights: dict[str, DeviceView], cases: dict[Unit, Offender], places: set[str], ledger: CycleState
) -> None:
    """Go on with every victim. One whose device has left the node for good is forgotten."""
    for unit, victim in tuple(ledger.victims.items()):
        if unit.device in places or ledger.now - victim.step_at <= ledger.settings.stale_seconds:
            advance(victim, sights.get(unit.device), cases.get(unit), reading, ledger)
        else:
            del ledger.victims[unit]


def _turn(case: Offender, ledger: CycleState) -> tuple[float, float, int]:
    """Who comes first: namespaces take turns on a device; among offenders the oldest offence, then the largest excess."""
    return ledger.served_at(case.room), case.offence.since, -case.excess_bytes


def _act(case: Offender, ledger: CycleState) -> None:
    """Warn an offender, and after its grace do what its cap says."""
    unit = case.unit
    offence = ledger.offences.get(unit)
    action = case.cap.action
    if offence is None or not offence.is_confirmed(ledger.settings) or offence.is_settled or action is CapAction.NONE:
        return
    victim = ledger.victims.get(unit)
    if victim is not None and victim.is_for(offence):
        return
    if case.is_unevictable and action is CapAction.EVICT:
        action = CapAction.KILL
    elif action is CapAction.KILL and _needs_eviction(case, offence):
        action = ledger.settings.mps_fallback
        ledger.verdicts.append(Anomaly(reason=AnomalyKind.MPS_REFUSED, device=unit.device, unit=unit))
    rest_seconds = offence.rest_seconds(ledger.settings)
    _warn(case, action, rest_seconds, ledger)
    if rest_seconds > 0:
        return
    if action is CapAction.KILL:
        choose(case, ledger)
    elif action is CapAction.EVICT:
        _evict(case, ledger)


def _needs_eviction(case: Offender, offence: Violation) -> bool:
    """Whether it is a client of MPS that cannot be ended as MPS asks for, and its pod's eviction has not failed yet."""
    return not case.is_unevictable and (offence.is_demoted or (case.is_mps() and case.sight.mps is not Mps.REACHABLE))


def _warn(case: Offender, action: CapAction, rest_seconds: float, ledger: CycleState) -> None:
    """Tell the tenant once, and again after a while."""
    offence = ledger.offences[case.unit]
    if offence.warned_at is not None and ledger.now - offence.warned_at < ledger.settings.remind_seconds:
        return
    ledger.offences[case.unit] = offence._replace(warned_at=ledger.now)
    following = _STEP_NEXT[action]
    rest = None if following is Next.NOTHING else rest_seconds
    ledger.verdicts.append(Warn(facts=case.facts(ledger, following, rest)))


def _evict(case: Offender, ledger: CycleState) -> None:
    """Ask for the pod's eviction, again after a while. The first request counts like a victim."""
    settings, unit = ledger.settings, case.unit
    offence = ledger.offences[unit]
    if offence.evicted_at is None:
        if not may_choose(case, ledger):
            return
        ledger.choose(unit, case.owner)
    elif ledger.now - offence.evicted_at < settings.retry_seconds:
        return
    ledger.offences[unit] = offence._replace(evicted_at=ledger.now, is_settled=settings.dry_run)
    ledger.verdicts.append(Evict(facts=case.facts(ledger, Next.EVICT, settings.retry_seconds)))


def _observe(unit: Unit, cap: Cap | None, sample: Sample, answer: Level, ledger: CycleState) -> ContainerStatus:
    """How the container stands at the end of the cycle."""
    offence = ledger.offences.get(unit) if ledger.offences else None
    victim = ledger.victims.get(unit) if ledger.victims else None
    if victim is not None:
        state = CapState(victim.step.value)
    elif answer is _UNKNOWN:
        state = CapState.UNKNOWN
    elif offence is None:
        state = _OK if answer is _CALM else CapState.OVER
    else:
        state = CapState.OVER if offence.warned_at is None else CapState.WARNED
    used = sample.used_bytes if sample.is_whole or answer is _OVER else None
    since = 0.0 if offence is None else ledger.now - offence.since
    return ContainerStatus(unit, state, used, cap, since)
