"""The document of cards. Pure."""

from collections.abc import Mapping

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
from gpushare.facts.vendors import VENDORS
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
    Member("partitions", COUNT, lambda mode: mode.partitions, "Of one GPU."),
    Member("memoryMiB", optional(INTEGER), lambda mode: mode.memory_mib, "Of one partition."),
    Member("computeUnits", optional(INTEGER), lambda mode: mode.compute_units, "Of one partition."),
    *fields(PartitionMode, "unconfirmed"),
)
_VGPU_TYPE: Shape[VgpuType] = record(
    "", *fields(VgpuType, "name"), Member("maxCount", COUNT, lambda one: one.max_count, "How many of them one GPU has.")
)
_VGPUS: Shape[Vgpus] = record(
    "",
    Member("types", array(_VGPU_TYPE), lambda vgpus: vgpus.types if vgpus.refused is None else None, is_rare=True),
    Member("refused", words(VgpuRefusal), lambda vgpus: vgpus.refused, is_rare=True),
)
_PLACEMENT: Shape[Placement] = record("", *fields(Placement, "start", "size"))
_PROFILE: Shape[MigProfile] = record(
    "profile",
    *fields(MigProfile, "name"),
    Member(
        "profileId",
        optional(COUNT),
        lambda profile: profile.profile_id,
        "What creates an instance: the ID column of nvidia-smi mig -lgip.",
    ),
    *fields(MigProfile, computeSlices="compute_slices", memoryMiB="memory_mib", maxCount="max_count"),
    Member("placements", array(_PLACEMENT), lambda profile: profile.placements),
    *fields(MigProfile, "sm", "unconfirmed"),
)
_LAYOUT_DRIVER: Shape[LayoutDriver] = record("", *fields(LayoutDriver, "profiles", minDriver="min_driver"))
_GEOMETRY: Shape[Geometry] = record(
    "geometry",
    Member("units", COUNT, lambda geometry: geometry.units, "Memory slices of the card's own grid."),
    *fields(Geometry, maxInstances="max_instances", minDriver="min_driver"),
    Member(
        "layoutDrivers",
        array(_LAYOUT_DRIVER),
        lambda geometry: geometry.layout_drivers,
        "Layouts that need a newer driver than minDriver: those with all of `profiles`.",
    ),
    Member("profiles", array(_PROFILE), lambda geometry: geometry.profiles),
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
