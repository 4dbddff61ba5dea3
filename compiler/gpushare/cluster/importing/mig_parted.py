"""Configs of mig-parted (`mig-configs`): which layout each gives to which GPUs, and what mig-parted refuses.

Facts: mig-parted v0.15.0, api/spec/v1/spec.go, which is strict: one unknown field makes the whole file unreadable. What it
does not check, such as a profile that no card has, the intent's own check finds.
"""

from gpushare.cluster.importing.accounting import shown
from gpushare.cluster.importing.facts import MigEntry, MigPartedConfig
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.wording import join_words, nearest, shorten
from gpushare_node.contract.struct import replace

_FIELDS = ("device-filter", "devices", "mig-enabled", "mig-devices")
_REFUSED = "mig-parted refuses the file"


def is_config(part: Part) -> bool:
    """Whether a document is a file of mig-parted."""
    return not part.has("kind") and part.has("mig-configs")


def read(part: Part, group: str, origin: str, notes: Notes) -> list[MigPartedConfig]:
    """Return every config of a file, sorted by name."""
    for key, value in part.items():
        if key not in ("version", "mig-configs"):
            notes.error("GS850", value, f"mig-parted has no field {shorten(key)}: {_REFUSED}", "remove it", on_key=True)
    if part.at("version").value != "v1":
        notes.error("GS850", part.at("version"), f"the version is not v1: {_REFUSED}", "write version: v1", on_key=True)
    return [_config(name, rows, group, origin, notes) for name, rows in part.at("mig-configs").items()]


def _config(name: str, rows: Part, group: str, origin: str, notes: Notes) -> MigPartedConfig:
    config = MigPartedConfig(name=name, group=group, origin=f"{origin}, MIG config {shorten(name)}", part=rows)
    entries = [_entry(row, notes) for row in rows.entries()]
    for row, entry in zip(rows.entries(), entries, strict=True):
        if entry is None:
            _ = row.whole  # its finding is about the whole entry
    if not entries:
        notes.error(
            "GS850",
            rows,
            f"config {shorten(name)} has no list of entries: {_REFUSED}",
            "write `- devices: all` and `mig-enabled: false` below it",
            on_key=True,
        )
    good = tuple(entry for entry in entries if entry is not None)
    return replace(config, entries=good, works=bool(entries) and len(good) == len(entries))


def _entry(row: Part, notes: Notes) -> MigEntry | None:
    for key, value in row.items():
        if key not in _FIELDS:
            close = nearest(key[:40], _FIELDS, 1)
            hint = f"did you mean {close[0]}?" if close else f"the fields are {join_words(_FIELDS)}"
            notes.error("GS850", value, f"mig-parted has no field {shorten(key)}: {_REFUSED}", hint, on_key=True)
            return None
    devices, enabled = row.at("devices"), row.at("mig-enabled")
    gpus = _gpus(devices)
    if gpus is None and devices.value != "all":
        hint = f"write devices: [{devices.count}]" if devices.count is not None else "write devices: all, or devices: [0, 1]"
        problem = f"devices: {shown(devices.whole)} is neither `all` nor a list of numbers"
        notes.error("GS850", devices, f"{problem}: {_REFUSED}", hint)
        return None
    if enabled.truth is None:
        notes.error("GS850", enabled, f"mig-enabled is neither true nor false: {_REFUSED}", "write mig-enabled: true")
        return None
    layout = _layout(row.at("mig-devices"), notes)
    if layout is None:
        return None
    if layout and not enabled.truth:
        notes.error(
            "GS850",
            row.at("mig-devices"),
            f"mig-devices with mig-enabled: false: {_REFUSED}",
            "write mig-enabled: true",
            on_key=True,
        )
        return None
    given = row.at("device-filter")
    filters = [given.text] if given.text else [one.text for one in given.entries()]
    return MigEntry(part=row, filters=tuple(filters), gpus=gpus, enabled=bool(enabled.truth), layout=layout)


def _gpus(devices: Part) -> tuple[int, ...] | None:
    if not isinstance(devices.value, list):
        return None
    indexes = [entry.count for entry in devices.entries()]
    known = tuple(index for index in indexes if index is not None and 0 <= index < 1024)
    return known if known and len(known) == len(indexes) else None


def _layout(part: Part, notes: Notes) -> tuple[tuple[str, int], ...] | None:
    counts = []
    for profile, count in part.items():
        if count.count is None or count.count < 0:
            notes.error("GS850", count, f"the count of {shorten(profile)} is not a number: {_REFUSED}", "write a whole number")
            return None
        if count.count:
            counts.append((profile, count.count))
    return tuple(counts)
