"""Cards for people: the catalogue as a table, one card as a sheet of facts, profiles and drawn layouts."""

from collections.abc import Iterable, Iterator, Sequence

from gpushare.core.wording import layout_text, mib, pluralize, visible
from gpushare.facts import mig
from gpushare.facts.catalog.cards import Card, Geometry, MigProfile, PartitionMode, VgpuRefusal
from gpushare.intent.types import Layout
from gpushare.report import memory_map
from gpushare.report.terminal import BOLD, Style, table, wrapped
from gpushare_node.contract.struct import replace


def overview(cards: Iterable[Card], style: Style) -> str:
    """Return all cards in a table."""
    entries = [(card.id, card.name + _doubt(card, "name").strip(), _memory(card), _mig(card), _mps(card)) for card in cards]
    rows = list(_folded(entries, style))
    shown = table(("ID", "NAME", "MEMORY", "MIG", "MPS"), rows, style, numbers=("MEMORY", "MIG", "MPS"))
    shown += f"\n{pluralize(len(entries), 'card')}; MIG: instances at most; MPS: replicas at most; ?: not confirmed\n"
    return shown + "`gpushare cards ID` shows one card with all its MIG layouts\n"


def _folded(rows: Sequence[tuple[str, ...]], style: Style) -> Iterator[tuple[str, ...]]:
    """Yield the rows; a name that is too wide for the terminal continues in the row below, instead of being cut."""
    others = sum(max(3, *(len(row[column]) for row in rows)) for column in (0, 2, 3, 4)) + 2 * 4
    narrow = replace(style, columns=max(style.columns - others, 12))
    for card_id, name, *facts in rows:
        first, *more = wrapped(name, narrow).splitlines()
        yield card_id, first, *facts
        yield from (("", part, "", "", "") for part in more)


def render(card: Card, style: Style) -> str:
    """Return everything about one card."""
    shown = style.paint(card.id, BOLD) + f"  {card.name}{_doubt(card, 'name')}\n\n"
    of_vendor = _amd_facts(card) if card.compute_capability is None else _facts(card, card.compute_capability)
    facts = [*of_vendor, *_layout_drivers(card), *([("note", card.note)] if card.note else [])]
    shown += "".join(wrapped(f"  {name:<20} {visible(value)}", style, indent=23) for name, value in facts)
    if card.partition_modes:
        return shown + "\n" + _modes(card.partition_modes, style)
    if card.mig is None:
        return shown
    return shown + "\n" + _profiles(card.mig, style) + "\n" + _layouts(card, card.mig, style)


def _amd_facts(card: Card) -> list[tuple[str, str]]:
    driver = f"ROCm {card.min_driver} or newer" if card.min_driver else ""
    words = f"{pluralize(len(card.partition_modes), 'mode')}, {driver}" if card.partition_modes else "no"
    return [
        ("memory", mib(card.memory_mib) + _doubt(card, "memoryMiB")),
        ("PCI device ids", ", ".join(card.pci_device_ids) + _doubt(card, "pciDeviceIds")),
        ("partitioning", words),
    ]


def _modes(modes: Iterable[PartitionMode], style: Style) -> str:
    rows = [
        (
            mode.compute + ("?" if "mode" in mode.unconfirmed else ""),
            mode.memory,
            str(mode.partitions),
            mib(mode.memory_mib) + ("?" if "memoryMiB" in mode.unconfirmed else ""),
            "?" if mode.compute_units is None else f"{mode.compute_units}{'?' if 'computeUnits' in mode.unconfirmed else ''}",
            mode.name,
        )
        for mode in modes
    ]
    headers = ("COMPUTE", "MEMORY MODE", "PARTITIONS", "MEMORY EACH", "UNITS EACH", "RESOURCE amd.com/")
    return table(headers, rows, style, numbers=("PARTITIONS", "MEMORY EACH", "UNITS EACH"))


def _facts(card: Card, capability: tuple[int, int]) -> list[tuple[str, str]]:
    nvlink = None if card.nvlink is None else {"true": "yes", "false": "no"}.get(card.nvlink.value, card.nvlink.value)
    facts = [
        ("memory", mib(card.memory_mib), "memoryMiB"),
        ("architecture", " ".join(filter(None, (card.architecture, card.chip))), "architecture"),
        ("compute capability", ".".join(map(str, capability)), "computeCapability"),
        ("ECC", _yes(card.ecc), "ecc"),
        ("NVLink", nvlink or "?", "nvlink"),
        ("form factor", card.form_factor or "?", "formFactor"),
        ("PCI device ids", ", ".join(card.pci_device_ids) or "?", "pciDeviceIds"),
        ("GFD label", card.product, "product"),
        ("MPS", f"at most {card.mps_max_replicas} replicas" if card.mps_supported else "no", "mps"),
        ("MIG", _mig_words(card), "migSupported"),
        ("vGPU", _vgpu_words(card), "vgpu"),
    ]
    return [(title, value + ("" if value == "?" else _doubt(card, field))) for title, value, field in facts]


def _mig_words(card: Card) -> str:
    if card.mig is None:
        return {True: "yes, but its profiles are not known", False: "no", None: "?"}[card.mig_supported]
    driver = f", driver {card.mig.min_driver} or newer" if card.mig.min_driver else ""
    return f"at most {pluralize(card.mig.max_instances, 'instance')}, {card.mig.units} memory slices{driver}"


_REFUSED = {
    VgpuRefusal.VENDOR_VFIO: "only with vendor-specific VFIO, which NVIDIA's vGPU device manager does not support",
    VgpuRefusal.HGX: "not with NVIDIA's operator, which has none on HGX boards",
    VgpuRefusal.BEFORE_TURING: "not with NVIDIA's operator, which has none before Turing",
}


def _vgpu_words(card: Card) -> str:
    if card.vgpu is None:
        return "?"
    if card.vgpu.refused is not None:
        return _REFUSED[card.vgpu.refused]
    return ", ".join(f"{one.name} x{one.max_count}" for one in card.vgpu.types)


def _layout_drivers(card: Card) -> list[tuple[str, str]]:
    needed = card.mig.layout_drivers if card.mig else ()
    drivers = (f"{' with '.join(one.profiles)}: {one.min_driver} or newer" for one in needed)
    return [("drivers of layouts", ", ".join(drivers))] if needed else []


def _memory(card: Card) -> str:
    """In a column where a doubt does not shift the digits."""
    doubt = card.memory_mib is not None and "memoryMiB" in card.unconfirmed
    return mib(card.memory_mib) + ("?" if doubt else " ")


def _mig(card: Card) -> str:
    if card.mig is None:
        return {True: "yes ", False: "- ", None: "? "}[card.mig_supported]
    return f"{card.mig.max_instances}" + ("?" if card.mig.unconfirmed else " ")


def _mps(card: Card) -> str:
    return str(card.mps_max_replicas) if card.mps_supported else "-"


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "?"}[value]


def _doubt(card: Card, field: str) -> str:
    return " ?" if field in card.unconfirmed else ""


def _profiles(geometry: Geometry, style: Style) -> str:
    headers = ("PROFILE", "MEMORY", "MAX", "COMPUTE", "SM", "ID", "PLACEMENTS start:size")
    return table(headers, map(_profile_row, geometry.profiles), style, numbers=("MEMORY", "MAX", "COMPUTE", "SM", "ID"))


def _profile_row(profile: MigProfile) -> tuple[str, ...]:
    def shown(value: object, field: str) -> str:
        return "?" if value is None else f"{value}" + ("?" if field in profile.unconfirmed else "")

    return (
        profile.name,
        mib(profile.memory_mib) + ("?" if "memoryMiB" in profile.unconfirmed and profile.memory_mib is not None else ""),
        shown(profile.max_count, "maxCount"),
        str(profile.compute_slices),
        shown(profile.sm, "sm"),
        shown(profile.profile_id, "profileId"),
        shown(" ".join(f"{place.start}:{place.size}" for place in profile.placements), "placements"),
    )


def layouts(card: Card) -> tuple[Layout, ...]:
    """Return every layout of the card to which no instance can be added, those of plain profiles first."""
    if card.mig is None:
        return ()
    special = {profile.name for profile in card.mig.profiles if profile.has_attributes}
    return tuple(sorted(mig.maximal_layouts(card.mig), key=lambda layout: any(name in special for name, _ in layout)))


def _layouts(card: Card, geometry: Geometry, style: Style) -> str:
    found = layouts(card)
    shown = f"{pluralize(len(found), 'maximal layout')}; any subset is valid too\n"
    return shown + "".join(_layout(number, layout, geometry, style) for number, layout in enumerate(found, 1))


def _layout(number: int, layout: Layout, geometry: Geometry, style: Style) -> str:
    placed = mig.place(geometry, layout) or ()
    names = [(one, one.profile.name) for one in placed]
    cells = [memory_map.Cell(start=one.start, size=one.size, labels=(name,), profile=name) for one, name in names]
    left = left_over(placed, geometry)
    title = wrapped(f"{number:>3}  {layout_text(layout)}{f'  {left}' if left else ''}", style, indent=5)
    return "\n" + title + memory_map.bar(cells, geometry.units, style, indent=5, framed=False)


def left_over(instances: Iterable[mig.PlacedInstance], geometry: Geometry) -> str:
    """Return in words what of the card no instance uses; empty if nothing is left."""
    placed = tuple(instances)
    memory = sum(size for _, size in memory_map.gaps(((one.start, one.size) for one in placed), geometry.units))
    whole = max(profile.compute_slices for profile in geometry.profiles)
    compute = whole - sum(one.profile.compute_slices for one in placed)
    parts = [
        f"{number} of {total} {what} slices"
        for number, total, what in ((memory, geometry.units, "memory"), (compute, whole, "compute"))
        if number > 0
    ]
    return f"unused: {', '.join(parts)}" if parts else ""
