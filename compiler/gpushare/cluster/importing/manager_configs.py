"""Configs of mig-parted (`mig-configs`) and of NVIDIA's vGPU device manager (`vgpu-configs`), and nodes that have the latter.

Facts: mig-parted v0.15.0 and vgpu-device-manager v0.5.0, api/spec/v1 of both, which are strict: one unknown field makes the
whole file unreadable. What mig-parted does not check, such as a profile that no card has, the intent's own check finds. A pool
of an intent has one type of vGPU, as many as fit on each GPU; every other config is reported.
"""

import re
from collections.abc import Callable
from typing import Any

from gpushare.cluster.importing import node_objects
from gpushare.cluster.importing.accounting import shown
from gpushare.cluster.importing.facts import Facts, ImportedNode, MigEntry, MigPartedConfig, VgpuManagerConfig
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.wording import join_first, join_words, nearest, shorten
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card
from gpushare.offering.backends import vgpu
from gpushare.vendors.nvidia import NVIDIA
from gpushare_node.contract.struct import Struct, replace

_FIELDS = ("device-filter", "devices", "mig-enabled", "mig-devices")
_MIG_REFUSED = "mig-parted refuses the file"


def read_mig(part: Part, group: str, origin: str, notes: Notes) -> list[MigPartedConfig]:
    """Return every config of a file, sorted by name."""
    for key, value in part.items():
        if key not in ("version", "mig-configs"):
            notes.error("GS850", value, f"mig-parted has no field {shorten(key)}: {_MIG_REFUSED}", "remove it", on_key=True)
    if part.at("version").value != "v1":
        notes.error("GS850", part.at("version"), f"the version is not v1: {_MIG_REFUSED}", "write version: v1", on_key=True)
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
            f"config {shorten(name)} has no list of entries: {_MIG_REFUSED}",
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
            notes.error("GS850", value, f"mig-parted has no field {shorten(key)}: {_MIG_REFUSED}", hint, on_key=True)
            return None
    devices, enabled = row.at("devices"), row.at("mig-enabled")
    gpus = _gpus(devices)
    if gpus is None and devices.value != "all":
        hint = f"write devices: [{devices.count}]" if devices.count is not None else "write devices: all, or devices: [0, 1]"
        problem = f"devices: {shown(devices.whole)} is neither `all` nor a list of numbers"
        notes.error("GS850", devices, f"{problem}: {_MIG_REFUSED}", hint)
        return None
    if enabled.truth is None:
        notes.error("GS850", enabled, f"mig-enabled is neither true nor false: {_MIG_REFUSED}", "write mig-enabled: true")
        return None
    layout = _layout(row.at("mig-devices"), notes)
    if layout is None:
        return None
    if layout and not enabled.truth:
        notes.error(
            "GS850",
            row.at("mig-devices"),
            f"mig-devices with mig-enabled: false: {_MIG_REFUSED}",
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
            notes.error(
                "GS850", count, f"the count of {shorten(profile)} is not a number: {_MIG_REFUSED}", "write a whole number"
            )
            return None
        if count.count:
            counts.append((profile, count.count))
    return tuple(counts)


_VGPU_REFUSED = "NVIDIA's vGPU device manager refuses the file"
_KERNEL = re.compile(r"([1-9][0-9]?)\.(0|[1-9][0-9]{0,2})(?![0-9])")
_HINT = "an intent has one type for each pool, as many as fit on a GPU: correct the config, or leave the node out"


class VmHost(Struct):
    """What a node for virtual machines becomes: the card, its number of GPUs, the type of its vGPUs, and where that is from."""

    card: Card
    gpus: int
    profile: str
    origin: str


def read_vgpu(part: Part, group: str, origin: str, notes: Notes) -> list[VgpuManagerConfig]:
    """Return every config of a file."""
    for key, value in part.items():
        if key not in ("version", "vgpu-configs"):
            notes.error("GS850", value, f"it has no field {shorten(key)}: {_VGPU_REFUSED}", "remove it", on_key=True)
    if part.at("version").value != "v1":
        notes.error("GS850", part.at("version"), f"the version is not v1: {_VGPU_REFUSED}", "write version: v1", on_key=True)
    return [
        VgpuManagerConfig(
            name=name,
            group=group,
            origin=f"{origin}, vGPU config {shorten(name)}",
            part=rows,
            filters=tuple(filter_ for row in rows.entries() for filter_ in _filters(row)),
            types=tuple([(name, count.count or 0) for row in rows.entries() for name, count in row.at("vgpu-devices").items()]),
            is_whole=all(row.at("devices").value == "all" for row in rows.entries()),
        )
        for name, rows in part.at("vgpu-configs").items()
    ]


class ManagerFile(Struct):
    """A kind of file. `key` is the one with its configs, `words` name these, and `facts` is the list of `Facts` for them.

    `group` is the field of ChartSettings that names its ConfigMap.
    """

    key: str
    words: str
    facts: str
    group: str
    read: Callable[[Part, str, str, Notes], list[Any]]

    def is_one(self, part: Part) -> bool:
        """Whether a document is such a file."""
        return not part.has("kind") and part.has(self.key)

    def is_like(self, value: Part) -> bool:
        """Whether the value of a ConfigMap has its key, though it may be no YAML."""
        return value.has(self.key) or bool(re.search(rf"(?m)^{self.key}:", value.fresh().text))


MIG = ManagerFile(key="mig-configs", words="MIG configs", facts="mig_configs", group="mig_group", read=read_mig)
VGPU = ManagerFile(key="vgpu-configs", words="vGPU configs", facts="vgpu_configs", group="vgpu_group", read=read_vgpu)


def _filters(row: Part) -> list[str]:
    given = row.at("device-filter")
    return [given.text] if given.text else [one.text for one in given.entries()]


def is_for_vms(node: ImportedNode) -> bool:
    """Whether the node is for virtual machines with vGPUs."""
    return node.labels.get(NVIDIA.workload_label, "") == vgpu.WORKLOAD


def kernel(node: ImportedNode) -> tuple[int, int] | None:
    """Return major and minor number of the node's kernel; None if the Node does not say it."""
    found = _KERNEL.match(node.part.at("status", "nodeInfo", "kernelVersion").text)
    return (int(found[1]), int(found[2])) if found else None


def machines_of_node(node: ImportedNode, facts: Facts, notes: Notes) -> VmHost | None:
    """Return what the node becomes; None if its config is none of an intent: findings say why."""
    label = node.labels.get(NVIDIA.vgpu_label, "")
    part = node.part.at("metadata", "labels", NVIDIA.vgpu_label)
    if not label:
        message = f"node {shorten(node.name)} is for virtual machines, and no label names its vGPUs: left out"
        notes.warn("GS872", node.part.at("metadata", "labels"), message, f"label it {NVIDIA.vgpu_label}", on_key=True)
        return None
    found = next((one for one in facts.vgpu_configs if one.name == label), None)
    if found is None and not (_cards(label, ()) and not facts.vgpu_configs):
        hint = "give the ConfigMap of the vGPU device manager, too"
        notes.error("GS857", part, f"there is no vGPU config {shorten(label)}", hint)
        return None
    types = dict(found.types) if found else {label: 0}
    if len(types) != 1 or (found and not found.is_whole):
        words = join_first(sorted(types)) or "no vGPU"
        notes.error("GS862", part, f"vGPU config {shorten(label)} has {words}, not the same on every GPU", _HINT)
        return None
    [(profile, count)] = types.items()
    card = _card(node, profile, found.filters if found else (), part, notes)
    if card is None:
        return None
    most = next(one.max_count for one in card.vgpu.types if one.name == profile) if card.vgpu else 0
    if count not in (0, most):
        notes.error("GS862", part, f"vGPU config {shorten(label)} has {count} of {most} {profile} on each GPU", _HINT)
        return None
    offered = sum(number for name, number in node_objects.capacity(node).items() if name.endswith(profile))
    gpus = node_objects.counted_gpus(node) or (offered // most if offered and not offered % most else None)
    if not gpus:
        message = f"nothing says how many GPUs node {shorten(node.name)} has"
        notes.error("GS862", node.part, message, "give the Node with its capacity of vGPUs")
        return None
    origin = found.origin if found else f"label {NVIDIA.vgpu_label}: {shorten(label)}, a config of NVIDIA's own"
    return VmHost(card=card, gpus=gpus, profile=profile, origin=origin)


def _cards(profile: str, filters: tuple[str, ...]) -> list[Card]:
    """Return the cards that have vGPUs of the type, and that a filter of the config names if it has one."""
    known = (cards.load(card_id) for card_id in cards.ids())
    found = [card for card in known if card.vgpu and any(one.name == profile for one in card.vgpu.types)]
    return [card for card in found if not filters or {*card.pci_device_ids, *card.device_filters} & {*filters}]


def _card(node: ImportedNode, profile: str, filters: tuple[str, ...], part: Part, notes: Notes) -> Card | None:
    """Return the card with the type; of several that which feature discovery has labelled, before the node was for machines."""
    found = _cards(profile, filters)
    product = node.labels.get("nvidia.com/gpu.product", "")
    found = [card for card in found if card.product == product] or found
    if len(found) != 1:
        which = join_first([card.id for card in found]) or "no card of the catalogue"
        hint = "give the Node with the label nvidia.com/gpu.product"
        notes.error("GS859", part, f"vGPUs {shorten(profile)} are of {which}", hint)
        return None
    return found[0]
