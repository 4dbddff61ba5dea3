"""`gpushare cards`: the catalogue as a table, or one card as a sheet of facts, profiles and drawn layouts."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from gpushare.core.wording import layout_text, mib, pluralize
from gpushare.facts import mig
from gpushare.facts.catalog.cards import (
    Card,
    Geometry,
    LayoutDriver,
    MigProfile,
    NvLink,
    PartitionMode,
    Placement,
    VgpuRefusal,
    Vgpus,
    VgpuType,
)
from gpushare.intent.types import Layout
from gpushare.report.document import (
    COUNT,
    FLAG,
    INTEGER,
    NUMBER,
    TEXT,
    Document,
    Member,
    Shape,
    array,
    by_name,
    fields,
    optional,
    record,
    words,
)
from gpushare.report.model import Cell, Column, Lines, Map, Report, Section, Table, bare
from gpushare.report.pool_facts import left_over
from gpushare.vendors import VENDORS


def _memory(card: Card) -> str:
    """In a column where a doubt does not shift the digits."""
    doubt = card.memory_mib is not None and "memoryMiB" in card.unconfirmed
    return mib(card.memory_mib) + ("?" if doubt else " ")


def _mig(card: Card) -> str:
    if card.mig is None:
        return {True: "yes ", False: "- ", None: "? "}[card.mig_supported]
    return f"{card.mig.max_instances}" + ("?" if card.mig.unconfirmed else " ")


def _doubt(card: Card, field: str) -> str:
    return " ?" if field in card.unconfirmed else ""


def _sure(shown: str, field: str, one: MigProfile | PartitionMode) -> str:
    """Return the text with `?` behind it if no source confirms the field."""
    return shown + ("?" if field in one.unconfirmed and shown != "?" else "")


def _or_unknown(value: object) -> str:
    return "?" if value is None else str(value)


CARDS: tuple[Column[Card], ...] = (
    Column(header="ID", value=lambda card: card.id),
    Column(header="NAME", value=lambda card: card.name + _doubt(card, "name").strip(), is_continued=True),
    Column(header="MEMORY", value=_memory, is_number=True),
    Column(header="MIG", value=_mig, is_number=True),
    Column(header="MPS", value=lambda card: str(card.mps_max_replicas) if card.mps_supported else "-", is_number=True),
)
PROFILES: tuple[Column[MigProfile], ...] = (
    Column(header="PROFILE", value=lambda one: one.name),
    Column(header="MEMORY", value=lambda one: _sure(mib(one.memory_mib), "memoryMiB", one), is_number=True),
    Column(header="MAX", value=lambda one: _sure(_or_unknown(one.max_count), "maxCount", one), is_number=True),
    Column(header="COMPUTE", value=lambda one: str(one.compute_slices), is_number=True),
    Column(header="SM", value=lambda one: _sure(_or_unknown(one.sm), "sm", one), is_number=True),
    Column(header="ID", value=lambda one: _sure(_or_unknown(one.profile_id), "profileId", one), is_number=True),
    Column(
        header="PLACEMENTS start:size",
        value=lambda one: _sure(" ".join(f"{place.start}:{place.size}" for place in one.placements), "placements", one),
    ),
)
_PARTITION_MODES: tuple[Column[PartitionMode], ...] = (
    Column(header="COMPUTE", value=lambda mode: mode.compute + ("?" if "mode" in mode.unconfirmed else "")),
    Column(header="MEMORY MODE", value=lambda mode: mode.memory),
    Column(header="PARTITIONS", value=lambda mode: str(mode.partitions), is_number=True),
    Column(header="MEMORY EACH", value=lambda mode: _sure(mib(mode.memory_mib), "memoryMiB", mode), is_number=True),
    Column(
        header="UNITS EACH", value=lambda mode: _sure(_or_unknown(mode.compute_units), "computeUnits", mode), is_number=True
    ),
)


def overview(cards: Mapping[str, Card]) -> Report:
    """Return all cards, by id, in a table."""
    lines = (
        f"{pluralize(len(cards), 'card')}; MIG: instances at most; MPS: replicas at most; ?: not confirmed",
        "`gpushare cards ID` shows one card with all its MIG layouts",
    )
    return Report(
        sections=(bare(Table(columns=CARDS, rows=list(cards.values()))), bare(Lines(lines=lines))),
        document=lambda: DOCUMENT.write({name: (card, None) for name, card in cards.items()}),
    )


def report(card: Card) -> Report:
    """Return everything about one card."""
    found = layouts(card)
    of_vendor = _divided_facts(card) if card.compute_capability is None else _facts(card, card.compute_capability)
    named = Column[PartitionMode](header=f"RESOURCE {VENDORS[card.vendor].prefix}", value=lambda mode: mode.name)
    facts = [*of_vendor, *_layout_drivers(card), *([("note", card.note)] if card.note else [])]
    return Report(
        sections=(
            bare(Lines(lead=card.id, lines=[f"  {card.name}{_doubt(card, 'name')}"])),
            bare(Lines(lines=[f"  {name:<20} {value}" for name, value in facts], indent=21)),
            bare(Table(columns=(*_PARTITION_MODES, named), rows=card.partition_modes)),
            *(_layouts(card.mig, found) if card.mig and not card.partition_modes else ()),
        ),
        document=partial(DOCUMENT.write, {card.id: (card, found)}),
    )


def _divided_facts(card: Card) -> list[tuple[str, str]]:
    driver = f"{VENDORS[card.vendor].driver} {card.min_driver} or newer" if card.min_driver else ""
    words = f"{pluralize(len(card.partition_modes), 'mode')}, {driver}" if card.partition_modes else "no"
    return [
        ("memory", mib(card.memory_mib) + _doubt(card, "memoryMiB")),
        ("PCI device ids", ", ".join(card.pci_device_ids) + _doubt(card, "pciDeviceIds")),
        ("partitioning", words),
    ]


def _facts(card: Card, capability: tuple[int, int]) -> list[tuple[str, str]]:
    nvlink = None if card.nvlink is None else {"true": "yes", "false": "no"}.get(card.nvlink.value, card.nvlink.value)
    facts = [
        ("memory", mib(card.memory_mib), "memoryMiB"),
        ("architecture", " ".join(filter(None, (card.architecture, card.chip))), "architecture"),
        ("compute capability", ".".join(map(str, capability)), "computeCapability"),
        ("ECC", {True: "yes", False: "no", None: "?"}[card.ecc], "ecc"),
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


def layouts(card: Card) -> tuple[Layout, ...]:
    """Return every layout of the card to which no instance can be added, those of plain profiles first."""
    if card.mig is None:
        return ()
    special = {profile.name for profile in card.mig.profiles if profile.has_attributes}
    return tuple(sorted(mig.maximal_layouts(card.mig), key=lambda layout: any(name in special for name, _ in layout)))


def _layouts(geometry: Geometry, found: Sequence[Layout]) -> Iterator[Section]:
    """Yield the profiles, and each layout with a drawing."""
    yield bare(Table(columns=PROFILES, rows=geometry.profiles))
    yield bare(Lines(lines=[f"{pluralize(len(found), 'maximal layout')}; any subset is valid too"]))
    for number, layout in enumerate(found, 1):
        placed = mig.place(geometry, layout) or ()
        names = [(one, one.profile.name) for one in placed]
        cells = [Cell(start=one.start, size=one.size, labels=(name,), profile=name) for one, name in names]
        title = "  ".join(filter(None, (f"{number:>3}", layout_text(layout), left_over(placed, geometry))))
        yield bare(
            Lines(lines=[title], indent=2 + len(str(number))),
            Map(cells=cells, slices=geometry.units, indent=5, is_framed=False),
        )


_NVLINK: Shape[NvLink] = Shape(
    schema={"enum": [True, False, NvLink.C2C.value]},
    write=lambda nvlink: {NvLink.YES: True, NvLink.NO: False}.get(nvlink, nvlink.value),
)
_MPS: Shape[Card] = record(
    "",
    Member("supported", FLAG, lambda card: card.mps_supported),
    Member("maxReplicas", COUNT, lambda card: card.mps_max_replicas, "At most so many replicas of one GPU."),
)
_MODE: Shape[PartitionMode] = record(
    "",
    *fields(PartitionMode, "compute", "memory"),
    Member("partitions", COUNT, text="Of one GPU."),
    Member("memoryMiB", optional(INTEGER), text="Of one partition."),
    Member("computeUnits", optional(INTEGER), text="Of one partition."),
    *fields(PartitionMode, "unconfirmed"),
)
_VGPU_TYPE: Shape[VgpuType] = record(
    "", *fields(VgpuType, "name"), Member("maxCount", COUNT, text="How many of them one GPU has.")
)
_VGPUS: Shape[Vgpus] = record(
    "",
    Member("types", array(_VGPU_TYPE), lambda vgpus: vgpus.types if vgpus.refused is None else None, is_rare=True),
    Member("refused", words(VgpuRefusal), is_rare=True),
)
_PLACEMENT: Shape[Placement] = record("", *fields(Placement, "start", "size"))
_PROFILE: Shape[MigProfile] = record(
    "profile",
    *fields(MigProfile, "name"),
    Member("profileId", optional(COUNT), text="What creates an instance: the ID column of nvidia-smi mig -lgip."),
    *fields(MigProfile, computeSlices="compute_slices", memoryMiB="memory_mib", maxCount="max_count"),
    Member("placements", array(_PLACEMENT)),
    *fields(MigProfile, "sm", "unconfirmed"),
)
_LAYOUT_DRIVER: Shape[LayoutDriver] = record("", *fields(LayoutDriver, "profiles", minDriver="min_driver"))
_GEOMETRY: Shape[Geometry] = record(
    "geometry",
    Member("units", COUNT, text="Memory slices of the card's own grid."),
    *fields(Geometry, maxInstances="max_instances", minDriver="min_driver"),
    Member(
        "layoutDrivers",
        array(_LAYOUT_DRIVER),
        text="Layouts that need a newer driver than minDriver: those with all of `profiles`.",
    ),
    Member("profiles", array(_PROFILE)),
    *fields(Geometry, "unconfirmed"),
)
_CARD: Shape[tuple[Card, tuple[Layout, ...] | None]] = record(
    "card",
    Member("vendor", words(VENDORS), lambda one: one[0].vendor),
    Member("name", TEXT, lambda one: one[0].name, "What NVML returns."),
    Member("product", TEXT, lambda one: one[0].product, "Value of the label for the product on its nodes."),
    Member("architecture", TEXT, lambda one: one[0].architecture),
    Member("chip", optional(TEXT), lambda one: one[0].chip),
    Member(
        "computeCapability",
        optional(TEXT),
        lambda one: None if one[0].compute_capability is None else ".".join(map(str, one[0].compute_capability)),
    ),
    Member("memoryMiB", optional(COUNT), lambda one: one[0].memory_mib, "Smallest total seen."),
    Member("memoryGBNominal", optional(NUMBER), lambda one: one[0].memory_gb_nominal),
    Member("pciDeviceIds", array(TEXT), lambda one: one[0].pci_device_ids),
    Member("formFactor", optional(TEXT), lambda one: one[0].form_factor),
    Member("ecc", optional(FLAG), lambda one: one[0].ecc),
    Member("nvlink", optional(_NVLINK), lambda one: one[0].nvlink),
    Member("mps", _MPS, lambda one: one[0]),
    Member("migSupported", optional(FLAG), lambda one: one[0].mig_supported),
    Member("mig", optional(_GEOMETRY), lambda one: one[0].mig),
    Member(
        "partitionModes",
        array(_MODE),
        lambda one: one[0].partition_modes,
        "The pairs of compute mode and memory mode of AMD's cards.",
    ),
    Member(
        "vgpu",
        optional(_VGPUS),
        lambda one: one[0].vgpu,
        "Its vGPU types, or why NVIDIA's vGPU device manager does not serve it; null if no source knows.",
    ),
    Member("note", TEXT, lambda one: one[0].note),
    Member("unconfirmed", array(TEXT), lambda one: one[0].unconfirmed),
    Member(
        "layouts",
        array(by_name(COUNT)),
        lambda one: None if one[1] is None else [dict(layout) for layout in one[1]],
        "Every layout (profile: count) to which no instance can be added, those of plain profiles first. Only for `cards "
        "CARD`.",
        is_rare=True,
    ),
)
DOCUMENT: Document[Mapping[str, tuple[Card, tuple[Layout, ...] | None]]] = Document(
    name="cards",
    kind="Cards",
    text="The card catalogue: `gpushare cards --format json`, or one card of it with its layouts. null: not known. "
    "`unconfirmed` names the facts that no source confirms.",
    members=(Member("cards", by_name(_CARD), lambda cards: cards),),
)
"""By id each card, and its layouts if they are wanted."""
