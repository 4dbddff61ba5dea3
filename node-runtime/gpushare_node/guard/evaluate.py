"""Evaluates one cycle's GPU processes: which steps enforcement must take, and what it reports. Pure: no clock, no I/O.

A container accumulates debt while it is over its cap, and pays it back, more slowly, while it is not (`guard.debts`). A
container whose debt reaches the required samples is warned; if it reaches the cap's grace on top, it is killed or evicted, as
the cap's action says. The order in one cycle: build views, count, advance targets, choose new ones, report. Fail-open: unknown
data never leads to a signal.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from gpushare_node.guard.debts import Violation, owes_most
from gpushare_node.guard.device_view import NO_SAMPLE, DeviceView, Level, Sample, Unit, level, view_device
from gpushare_node.guard.escalation import Offender, advance, end_at_once, may_choose, select_targets
from gpushare_node.guard.inputs import DEFAULTS, Cap, CapAction, ContainerId, Grant, GuardInput, ProcessKind, Settings
from gpushare_node.guard.process_list import Device, RejectReason, Uses
from gpushare_node.guard.state import CycleState, GuardState, NamespaceKey, Step
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind, CapState, ContainerStatus, Evict, Next, Verdict, Warn

_STEP_NEXT = {
    CapAction.KILL: Next.TERMINATE,
    CapAction.EVICT: Next.EVICT,
    CapAction.WARN: Next.NOTHING,
    CapAction.NONE: Next.NOTHING,
}
_WITHIN, _OVER, _UNKNOWN, _OK = Level.WITHIN, Level.OVER, Level.UNKNOWN, CapState.OK
"""Looked up once: they are used for every container, and the lookup of an enum member is slow."""

_ENDING = frozenset({CapAction.KILL, CapAction.EVICT})
"""The actions that end something."""

_SEVERAL_NAMESPACES = 2
_MOST_OF_A_NAMESPACE = 4
"""How many pods of a namespace count for a crowd."""
"""Containers of so many that are over at once may be a fault of the rows: one that is so likely harms every tenant."""


def evaluate(
    inputs: GuardInput, history: GuardState, now: float, settings: Settings = DEFAULTS
) -> tuple[tuple[Verdict, ...], GuardState]:
    """Return the verdicts of one cycle, and the state for the next one. `now` is monotonic seconds; wall time is never used.

    Steps against offenders come first, in the order in which the caller must carry them out; statuses and anomalies follow.
    """
    state = CycleState(history, now, settings, inputs.grants)
    looks = [(device, view_device(device, inputs)) for device in inputs.devices if not device.is_pending]
    views = {view.device: view for _, seen in looks if not isinstance(seen, RejectReason) for view in seen}
    _pause(inputs, [device for device, seen in looks if seen is RejectReason.ABOVE_USED], state)
    offenders: dict[Unit, Offender] = {}
    observed: list[tuple[Unit, Cap | None, Sample, Level]] = []
    crowded: set[str] = set()
    for view in views.values():
        over: list[tuple[Unit, Cap, Sample]] = []
        for container, sample in view.samples.items():
            unit = Unit(container, view.device)
            cap = _cap(inputs, container, view.device)
            answer = _answer(unit, cap, sample, view, state)
            observed.append((unit, cap, sample, answer))
            if answer is _OVER and cap is not None:
                over.append((unit, cap, sample))
        if len(over) > settings.crowd and _is_crowd(
            [unit for unit, cap, _ in over if cap.action in _ENDING], view, inputs, settings
        ):
            crowded.add(view.device)
            state.verdicts.append(Anomaly(reason=AnomalyKind.CROWDED, device=view.device))
            continue
        for unit, cap, sample in over:
            owner = inputs.grants[unit.container].owner
            violation = state.count(unit, sample.members, cap, owner, view.samples.keys())
            offenders[unit] = Offender(
                unit=unit,
                owner=owner,
                cap=cap,
                sample=sample,
                view=view,
                violation=violation,
                is_unevictable=unit.container in inputs.unevictable,
            )
    pending = {place for device in inputs.devices if device.is_pending for place in device.places()}
    _count_others(observed, offenders, views, crowded, pending, state)
    is_needed = state.targets or state.violations or state.namespaces
    places = {place for device in inputs.devices for place in device.places()} if is_needed else set()
    _advance_all(inputs, views, offenders, places, crowded, state)
    for offender in offenders.values():
        _act(offender, state)
    _report_overdue(offenders, state)
    state.verdicts.extend([_observe(unit, cap, sample, answer, state) for unit, cap, sample, answer in observed])
    for device, seen in looks:
        report_device(device, seen, state)
    report_places(views, inputs, state)
    return tuple(state.verdicts), state.close(places)


def _cap(inputs: GuardInput, container: ContainerId, device: str) -> Cap | None:
    """Return the cap in force; None if there is none, or if it is unknown."""
    grant = inputs.grants.get(container)
    if grant is None:
        return None
    if device in grant.devices:
        return grant.caps.get(device)
    return grant.stray_cap if inputs.is_allocation_known else None


def _answer(unit: Unit, cap: Cap | None, sample: Sample, view: DeviceView, state: CycleState) -> Level:
    """Return whether the container is over its cap. If the clock has not moved, or the cap is lost, a violation stays open."""
    violation = state.violations.get(unit) if state.violations else None
    if cap is None:
        return _WITHIN if violation is None else _UNKNOWN
    if not state.has_moved:
        return Level.UNKNOWN
    return level(sample, cap, 0 if violation is None else view.hidden_bytes(unit.container, violation.members))


def _is_crowd(over: list[Unit], view: DeviceView, inputs: GuardInput, settings: Settings) -> bool:
    """Whether so many of a device's pods are over at once that its rows are rather wrong than their programs.

    Who was not given the device does not count, and a namespace for few pods only: a person alone makes no crowd.
    """
    caps = [_cap(inputs, container, view.device) for container in view.samples]
    capped = sum(cap is not None and cap.action in _ENDING for cap in caps)
    grants = {unit.container: inputs.grants[unit.container] for unit in over}
    pods = {(own.owner.namespace, one.pod_uid) for one, own in grants.items() if view.device in own.devices}
    counted = sum(min(number, _MOST_OF_A_NAMESPACE) for number in Counter(namespace for namespace, _ in pods).values())
    return counted > settings.crowd and 2 * len(over) > capped


def _pause(inputs: GuardInput, contradicted: list[Device], state: CycleState) -> None:
    """Select no target while the rows of several namespaces cannot be true. Every grace starts again at the first true rows.

    Not after a single odd cycle: memory that changes owner while NVML is read must not give any container extra time.
    """
    namespaces = find_contradicting(contradicted, inputs) if contradicted else frozenset()
    if len(namespaces) >= _SEVERAL_NAMESPACES:
        state.paused_since = state.now if state.paused_since is None else state.paused_since
    elif state.paused_since is not None:
        if state.now - state.paused_since > state.settings.warn_seconds:
            state.restart_all()
        state.paused_since = None


def _count_others(  # noqa: PLR0913, PLR0917 - the whole cycle
    observed: list[tuple[Unit, Cap | None, Sample, Level]],
    offenders: dict[Unit, Offender],
    views: dict[str, DeviceView],
    crowded: AbstractSet[str],
    pending: AbstractSet[str],
    state: CycleState,
) -> None:
    """Update the debts of namespaces, and of containers that are not over: within, unknown, or absent from their device.

    On a crowded device nothing is known. On a pending one the time counts when its next sample has come.
    """
    if not (state.violations or state.namespaces) or not state.has_moved:
        return
    present = {unit: _UNKNOWN if unit.device in crowded else answer for unit, _, _, answer in observed}
    others = {
        unit: violation for unit, violation in state.violations.items() if unit not in offenders and unit.device not in pending
    }
    answers = {
        unit: present.get(unit) or _answer_absent(unit, violation, views.get(unit.device)) for unit, violation in others.items()
    }
    unknown = {unit for unit, answer in answers.items() if answer is _UNKNOWN}
    _count_namespaces(offenders, unknown, views.keys() - crowded, pending, state)
    for unit, answer in answers.items():
        if answer is _WITHIN:
            state.pay(unit)
        else:
            state.violations[unit] = others[unit].unknown()


def _answer_absent(unit: Unit, violation: Violation, view: DeviceView | None) -> Level:
    """Return the level of a container that no row of its device is known to belong to."""
    if view is None or view.is_cut:
        return _UNKNOWN
    return level(NO_SAMPLE, violation.cap, view.hidden_bytes(unit.container, violation.members))


def _count_namespaces(
    offenders: dict[Unit, Offender],
    unknown: AbstractSet[Unit],
    trusted: AbstractSet[str],
    pending: AbstractSet[str],
    state: CycleState,
) -> None:
    """Count time over for each namespace on each device: of containers whose cap's action is kill or evict."""
    over: dict[NamespaceKey, float] = {}
    for offender in offenders.values():
        if offender.cap.action in _ENDING:
            key = (offender.owner.namespace, offender.unit.device)
            over[key] = max(over.get(key, 0.0), state.settings.patience_seconds(offender.cap))
    hidden = {(state.violations[unit].owner.namespace, unit.device) for unit in unknown}
    state.count_namespaces(over, hidden, trusted, pending)


def _report_overdue(offenders: dict[Unit, Offender], state: CycleState) -> None:
    """Report containers that are still over their caps long after their actions were due, whatever the reason."""
    for unit in offenders:
        violation = state.violations.get(unit)
        if violation is None or violation.due_at is None:
            continue
        seconds = state.now - violation.due_at
        if seconds > state.settings.overdue_seconds:
            state.verdicts.append(
                Anomaly(reason=AnomalyKind.OVERDUE, device=unit.device, unit=unit, since_seconds=state.now - violation.since)
            )


def _advance_all(  # noqa: PLR0913, PLR0917 - the whole cycle
    inputs: GuardInput,
    views: dict[str, DeviceView],
    offenders: dict[Unit, Offender],
    places: set[str],
    crowded: AbstractSet[str],
    state: CycleState,
) -> None:
    """Advance every target that is not on a crowded device; drop those on a device that is gone, after `stale_seconds`."""
    for unit, target in tuple(state.targets.items()):
        if unit.device in crowded:
            continue
        if unit.device in places or state.now - target.step_at <= state.settings.stale_seconds:
            advance(target, views.get(unit.device), offenders.get(unit), inputs, state)
        else:
            del state.targets[unit]


def _act(offender: Offender, state: CycleState) -> None:
    """Warn an offender, and after its grace take its cap's action."""
    unit = offender.unit
    violation = state.violations.get(unit)
    action = offender.cap.action
    if violation is None or action is CapAction.NONE:
        return
    namespace = state.namespace_debt(offender.owner, unit.device)
    rest_seconds = violation.rest_seconds(namespace, state.settings)
    if rest_seconds > 0 and not violation.debt.reaches(state.settings.warn_seconds):
        return
    if rest_seconds <= 0 and violation.due_at is None and action is not CapAction.WARN and not state.settings.dry_run:
        violation = state.violations[unit] = violation._replace(due_at=state.now)
    is_pressing = (
        rest_seconds <= 0 and owes_most(namespace, offender.cap, state.settings) and state.comes_again(violation, unit)
    )
    ends_now = is_pressing and action in _ENDING and not offender.is_mps()
    target = state.targets.get(unit)
    is_under_way = target is not None and target.is_for(violation) and not (ends_now and target.step is Step.TERM_SENT)
    if violation.is_settled or is_under_way:
        return
    if ends_now:
        _warn(offender, CapAction.KILL, 0.0, state)
        end_at_once(offender, state)
        return
    if action is CapAction.EVICT and offender.is_unevictable:
        action = CapAction.KILL
    elif action is CapAction.KILL and offender.is_mps():
        action = CapAction.EVICT
    _warn(offender, action, rest_seconds, state)
    if rest_seconds > 0:
        return
    if action is CapAction.KILL:
        select_targets(offender, state)
    elif action is CapAction.EVICT:
        _evict(offender, state)


def _warn(offender: Offender, action: CapAction, rest_seconds: float, state: CycleState) -> None:
    """Warn the tenant once, and again every `remind_seconds`."""
    violation = state.violations[offender.unit]
    if violation.warned_at is not None and state.now - violation.warned_at < state.settings.remind_seconds:
        return
    state.violations[offender.unit] = violation._replace(warned_at=state.now)
    following = _STEP_NEXT[action]
    rest = None if following is Next.NOTHING else rest_seconds
    state.verdicts.append(Warn(facts=offender.facts(state, following, rest)))


def _evict(offender: Offender, state: CycleState) -> None:
    """Request the pod's eviction, and again every `retry_seconds`."""
    settings, unit = state.settings, offender.unit
    violation = state.violations[unit]
    if violation.evicted_at is None:
        if not may_choose(offender, state):
            return
        state.choose(unit, offender.owner)
    elif state.now - violation.evicted_at < settings.retry_seconds:
        return
    state.violations[unit] = violation._replace(evicted_at=state.now, is_settled=settings.dry_run)
    state.verdicts.append(Evict(facts=offender.facts(state, Next.EVICT, settings.retry_seconds)))


def _observe(unit: Unit, cap: Cap | None, sample: Sample, answer: Level, state: CycleState) -> ContainerStatus:
    """Return the container's status at the end of the cycle."""
    violation = state.violations.get(unit) if state.violations else None
    target = state.targets.get(unit) if state.targets else None
    if target is not None:
        cap_state = CapState(target.step.value)
    elif answer is _UNKNOWN:
        cap_state = CapState.UNKNOWN
    elif violation is None:
        cap_state = _OK if answer is _WITHIN else CapState.OVER
    else:
        cap_state = CapState.OVER if violation.warned_at is None else CapState.WARNED
    used = sample.used_bytes if sample.is_whole or answer is _OVER else None
    since = 0.0 if violation is None else state.now - violation.since
    return ContainerStatus(unit, cap_state, used, cap, since)


def find_contradicting(devices: Iterable[Device], inputs: GuardInput) -> frozenset[str]:
    """Return the namespaces that would have a container over its cap if the rows of these devices were true.

    Several mean that the rows, which contradict their device, are wrong: a driver that returns wrong rows returns them for
    every tenant. A tenant's allocations cannot make the contradiction last: each of its rows is part of what the device reports
    as used, unless the memory was taken and freed between two readings of a cycle.
    """
    namespaces = set()
    for device in devices:
        for (container, place), used_bytes in _sums(device, inputs).items():
            grant = inputs.grants[container]
            cap = grant.caps.get(place)
            if cap is not None and used_bytes > cap.limit_bytes:
                namespaces.add(grant.owner.namespace)
    return frozenset(namespaces)


def _sums(device: Device, inputs: GuardInput) -> dict[tuple[ContainerId, str], int]:
    """Return how much of each device each container would use; a row in several lists counts with its largest value."""
    largest: dict[tuple[int, str], int] = {}
    for row in device.rows or ():
        place = device.place_of(row) or device.uuid
        largest[row.pid, place] = max(largest.get((row.pid, place), 0), row.used_bytes or 0)
    sums: dict[tuple[ContainerId, str], int] = {}
    for (pid, place), used_bytes in largest.items():
        process = inputs.identities.get(pid)
        container = process.container if process is not None and process.kind is ProcessKind.TENANT else None
        if container is not None and container in inputs.grants:
            sums[container, place] = sums.get((container, place), 0) + used_bytes
    return sums


def report_device(device: Device, seen: tuple[DeviceView, ...] | RejectReason, state: CycleState) -> None:
    """Report anomalies of a whole GPU: its rows cannot be trusted now, or it holds memory that no process accounts for."""
    if isinstance(seen, RejectReason):
        state.verdicts.append(Anomaly(reason=AnomalyKind.DISTRUSTED, device=device.uuid, distrust=seen))
        return
    if any(view.is_cut for view in seen):
        state.verdicts.append(Anomaly(reason=AnomalyKind.DISTRUSTED, device=device.uuid, distrust=RejectReason.TOO_MANY))
    gap = _find_gap(device, {view.device: view.uses for view in seen}, state.settings)
    if gap is not None:
        state.verdicts.append(Anomaly(reason=AnomalyKind.UNATTRIBUTED, device=device.uuid, used_bytes=gap))


def _find_gap(device: Device, uses: Mapping[str, Uses], settings: Settings) -> int | None:
    """Return how much memory of a GPU no process accounts for, if that exceeds `unattributed_percent`; else None."""
    if device.used_bytes is None or device.total_bytes is None:
        return None
    gap = device.used_bytes - sum([sum(filter(None, own.values())) for own in uses.values()])
    return gap if gap * 100 > device.total_bytes * settings.unattributed_percent else None


def report_places(views: Mapping[str, DeviceView], inputs: GuardInput, state: CycleState) -> None:
    """Report anomalies of single devices: processes that should not be there, and allocated devices without a process."""
    for view in views.values():
        _report_strangers(view, state)
        _report_containers(view, inputs.grants, state)
    showing = {view.device for view in views.values() if view.uses}
    state.seen = state.seen.intersection(place for device in inputs.devices for place in device.places()) | showing
    _report_blindness(views, inputs.grants, state)


def _report_strangers(view: DeviceView, state: CycleState) -> None:
    for pid, candidates in view.doubtful.items():
        state.verdicts.append(
            Anomaly(reason=AnomalyKind.DOUBTFUL, device=view.device, used_bytes=view.uses[pid], candidates=candidates)
        )
    if view.uses and len(view.unrecognised) == len(view.uses):
        state.verdicts.append(Anomaly(reason=AnomalyKind.UNRESOLVED, device=view.device))
    if view.orphans:
        state.verdicts.append(Anomaly(reason=AnomalyKind.ORPHAN, device=view.device, processes=view.orphans))


def _report_containers(view: DeviceView, grants: Mapping[ContainerId, Grant], state: CycleState) -> None:
    for container, sample in view.samples.items():
        grant = grants.get(container)
        is_stray = grant is not None and view.device not in grant.devices
        if sample.is_whole and not is_stray:
            continue
        reason = AnomalyKind.STRAY if is_stray else AnomalyKind.MEMORY_UNKNOWN
        unit = Unit(container=container, device=view.device)
        used = sample.used_bytes if sample.is_whole else None
        state.verdicts.append(Anomaly(reason=reason, device=view.device, unit=unit, processes=sample.members, used_bytes=used))


def _report_blindness(views: Mapping[str, DeviceView], grants: Mapping[ContainerId, Grant], state: CycleState) -> None:
    """Report devices that are allocated to a container under a cap, and on which no process has ever been seen."""
    dark = views.keys() - state.seen
    present = [grant for grant in grants.values() if not grant.is_gone] if dark else []
    given = {device for grant in present for device in grant.caps if device in dark}
    state.empty = {device: state.empty.get(device, state.now) for device in sorted(given)}
    for device, since in state.empty.items():
        seconds = state.now - since
        if seconds >= state.settings.blind_seconds:
            state.verdicts.append(Anomaly(reason=AnomalyKind.BLIND, device=device, since_seconds=seconds))
