"""Anomalies of a device that are not violations: untrusted rows, unknown processes, strays, blindness. Only reports them."""

from collections.abc import Mapping

from gpushare_node.guard.device_view import DeviceView, Unit
from gpushare_node.guard.identity import ContainerId
from gpushare_node.guard.inputs import Grant, GuardInput, Settings
from gpushare_node.guard.process_list import Device, RejectReason, Uses
from gpushare_node.guard.state import CycleState
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind


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
