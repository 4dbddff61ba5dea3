"""What is odd on a device without being an offence: untrusted rows, strangers, strays, blindness. Says it; acts on nothing."""

from collections.abc import Mapping

from gpushare_node.guard.device_view import DeviceView, Unit
from gpushare_node.guard.identity import ContainerId
from gpushare_node.guard.inputs import Grant, GuardInput, Settings
from gpushare_node.guard.process_list import Device, RejectReason, Uses
from gpushare_node.guard.state import CycleState
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind


def report_device(device: Device, seen: tuple[DeviceView, ...] | RejectReason, ledger: CycleState) -> None:
    """What concerns a GPU as a whole: that it cannot be trusted now, or that it holds memory of nobody."""
    if isinstance(seen, RejectReason):
        ledger.verdicts.append(Anomaly(reason=AnomalyKind.DISTRUSTED, device=device.uuid, distrust=seen))
        return
    gap = find_gap(device, {sight.device: sight.uses for sight in seen}, ledger.settings)
    if gap is not None:
        ledger.verdicts.append(Anomaly(reason=AnomalyKind.UNATTRIBUTED, device=device.uuid, used_bytes=gap))


def find_gap(device: Device, uses: Mapping[str, Uses], settings: Settings) -> int | None:
    """How much of a GPU no process accounts for, where that is much."""
    if device.used_bytes is None or device.total_bytes is None:
        return None
    gap = device.used_bytes - sum([sum(filter(None, own.values())) for own in uses.values()])
    return gap if gap * 100 > device.total_bytes * settings.unattributed_percent else None


def report_places(sights: Mapping[str, DeviceView], reading: GuardInput, ledger: CycleState) -> None:
    """What concerns single devices: who is on them that should not be, and who should be and is not."""
    for sight in sights.values():
        _report_strangers(sight, ledger)
        _report_containers(sight, reading.grants, ledger)
    showing = {sight.device for sight in sights.values() if sight.uses}
    ledger.seen = ledger.seen.intersection(place for device in reading.devices for place in device.places()) | showing
    _report_blindness(sights, reading.grants, ledger)


def _report_strangers(sight: DeviceView, ledger: CycleState) -> None:
    if sight.uses and len(sight.unrecognised) == len(sight.uses):
        ledger.verdicts.append(Anomaly(reason=AnomalyKind.UNRESOLVED, device=sight.device))
    if sight.orphans:
        ledger.verdicts.append(Anomaly(reason=AnomalyKind.ORPHAN, device=sight.device, processes=sight.orphans))


def _report_containers(sight: DeviceView, grants: Mapping[ContainerId, Grant], ledger: CycleState) -> None:
    for container, sample in sight.samples.items():
        grant = grants.get(container)
        is_stray = grant is not None and sight.device not in grant.devices
        if sample.is_whole and not is_stray:
            continue
        reason = AnomalyKind.STRAY if is_stray else AnomalyKind.MEMORY_UNKNOWN
        processes = tuple(process for process, _ in sample.processes)
        unit = Unit(container=container, device=sight.device)
        used = sample.used_bytes if sample.is_whole else None
        ledger.verdicts.append(Anomaly(reason=reason, device=sight.device, unit=unit, processes=processes, used_bytes=used))


def _report_blindness(sights: Mapping[str, DeviceView], grants: Mapping[ContainerId, Grant], ledger: CycleState) -> None:
    """Devices that someone was given under a cap, and on which no process has ever been seen."""
    dark = sights.keys() - ledger.seen
    present = [grant for grant in grants.values() if not grant.is_gone] if dark else []
    given = {device for grant in present for device in grant.caps if device in dark}
    ledger.empty = {device: ledger.empty.get(device, ledger.now) for device in sorted(given)}
    for device, since in ledger.empty.items():
        seconds = ledger.now - since
        if seconds >= ledger.settings.blind_seconds:
            ledger.verdicts.append(Anomaly(reason=AnomalyKind.BLIND, device=device, since_seconds=seconds))
