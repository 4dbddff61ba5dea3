"""Facts about cards as values: Card, MigProfile, Geometry; read from card files, never guessed.

Owns the types, the reading of `profiles/cards/*.yaml` and of the intent's own `spec.cards`, which have the same schema
(`schemas/card.v1.json`), and the schema check of the latter. Knows nothing of pools. `mig` decides which layouts a geometry
allows, `card_check` whether an intent's own card is consistent.

A memory of None (or the 0 that unified-memory boards report) is unknown, and whatever depends on it is None.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from gpushare import vendors
from gpushare.core import resources
from gpushare.core.diagnostics import Finding
from gpushare.core.units import MIB, SizeOrPercent
from gpushare.facts.catalog import card_check
from gpushare.reading import schema, source
from gpushare_node.contract.struct import NOTHING, Struct, replace

MAX_FINDINGS = 100
"""How many findings the cards of one intent may have."""


class VgpuRefusal(StrEnum):
    """Why NVIDIA's vGPU device manager does not serve a card."""

    VENDOR_VFIO = "vendor-vfio"
    HGX = "hgx"
    BEFORE_TURING = "before-turing"


class NvLink(StrEnum):
    """How a card is connected to its peers; C2C is the chip-to-chip link of the Grace boards and counts as NVLink."""

    YES = "true"
    NO = "false"
    C2C = "c2c"


class Placement(Struct):
    """An interval of the card's memory slices: `start` and `size` in the card's own placement units (NVML's numbers)."""

    start: int
    size: int


class Engines(Struct):
    """Media and copy engines of an instance or a whole card. None: not known, which never counts as zero."""

    copy: int | None = None
    decoders: int | None = None
    encoders: int | None = None
    jpeg: int | None = None
    ofa: int | None = None


class MigProfile(Struct):
    """One GPU-instance profile of one card.

    `name` is NVML's (`1g.5gb+me`). `profile_id` creates an instance (the ID column of `nvidia-smi mig -lgip`), `nvml_enum`
    queries the profile's description: two different numbers. `memory_mib` is the smallest value seen.
    """

    name: str
    nvml_enum: int
    profile_id: int | None
    compute_slices: int
    memory_mib: int | None
    max_count: int
    placements: tuple[Placement, ...]
    engines: Engines
    sm: int | None = None
    unconfirmed: tuple[str, ...] = ()

    @property
    def resource_suffix(self) -> str:
        """The name as written in Kubernetes resources, labels and names of mig-parted configs: `+` becomes `.`."""
        return self.name.replace("+", ".")

    @property
    def has_attributes(self) -> bool:
        """Whether the name has attributes, as in `+me`, `+gfx`, `-me`."""
        return "+" in self.name or "-" in self.name


class LayoutDriver(Struct):
    """A layout with all of `profiles` needs driver `min_driver` or newer."""

    profiles: tuple[str, ...]
    min_driver: str


class Geometry(Struct):
    """How MIG can divide one card: a grid of `units` memory slices and the profiles that may be placed on it.

    `max_compute_instances` and `max_gfx_instances` are constraints that only some cards have (Thor).
    """

    units: int
    max_instances: int
    profiles: tuple[MigProfile, ...]
    engine_totals: Engines
    min_driver: str | None = None
    layout_drivers: tuple[LayoutDriver, ...] = ()
    max_compute_instances: int | None = None
    max_gfx_instances: int | None = None
    unconfirmed: tuple[str, ...] = ()


class PartitionMode(Struct):
    """One way in which all GPUs of a node with AMD's card are divided: a compute mode with a memory mode.

    `memory_mib` is the smallest size seen of a partition, None if unknown; `partitions` those of one GPU. `unconfirmed` names
    `mode` (no source confirms that it exists), `memoryMiB` or `computeUnits`.
    """

    compute: str
    memory: str
    partitions: int
    memory_mib: int | None
    compute_units: int | None
    unconfirmed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name as in resources and labels of AMD's device plugin: `cpx_nps4`."""
        return f"{self.compute}_{self.memory}".lower()

    @property
    def resource_suffix(self) -> str:
        """The name as written in Kubernetes resources."""
        return self.name

    @property
    def compute_slices(self) -> int:
        """The part of a GPU that computes for it: partitions of a GPU are equal."""
        return 1


DeviceProfile = MigProfile | PartitionMode
"""What a part of a GPU is: an instance of MIG, or a partition of AMD's."""


class VgpuType(Struct):
    """One type of vGPU of one card, as NVIDIA's vGPU device manager names it, and how many of them one GPU has."""

    name: str
    max_count: int


class Vgpus(Struct):
    """The vGPUs of one card. `refused` None: NVIDIA's vGPU device manager creates them."""

    types: tuple[VgpuType, ...] = ()
    refused: VgpuRefusal | None = None


class Card(Struct):
    """One card model.

    `name` is what NVML returns (`name_aliases`: on other drivers), `product` GFD's label value. `memory_mib` is the smallest
    total seen (safe for caps), None if unknown. `mig` is None if the card has no MIG; `mig_supported` None means that neither
    is confirmed. `vgpu` is None if no source knows vGPUs of the card. `sources` are keys of `profiles/sources.yaml`.
    `unconfirmed` names the facts that no source confirms, by their keys in the card file (`memoryMiB`, `nvlink`, …).
    `compute_capability` is None on cards of other vendors than NVIDIA; `partition_modes` are AMD's, `min_driver` is the first
    ROCm release that has them.
    `vendor` is a key of `VENDORS`: that in whose folder the card's file is.
    """

    id: str
    name: str
    product: str
    architecture: str
    chip: str | None
    compute_capability: tuple[int, int] | None
    memory_mib: int | None
    memory_gb_nominal: int | None
    pci_device_ids: tuple[str, ...]
    form_factor: str | None
    ecc: bool | None
    nvlink: NvLink | None
    mps_supported: bool
    mps_max_replicas: int
    mig_supported: bool | None
    mig: Geometry | None
    device_filters: tuple[str, ...]
    name_aliases: tuple[str, ...] = ()
    vgpu: Vgpus | None = None
    note: str = ""
    sources: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    vendor: str = "nvidia"
    partition_modes: tuple[PartitionMode, ...] = ()
    min_driver: str | None = None

    @cached_property
    def profiles(self) -> Mapping[str, MigProfile]:
        """The MIG profiles by name; empty if the card has none."""
        return {profile.name: profile for profile in self.mig.profiles} if self.mig else {}

    @property
    def switches_mig(self) -> bool:
        """Whether MIG mode is switched without a reset of the GPU: from Hopper on (NVIDIA's MIG User Guide)."""
        return (self.compute_capability or (0, 0)) >= (9, 0)

    @property
    def has_intervals(self) -> bool:
        """Whether the GPU driver can change how long turns are: from Volta on (dra-driver-nvidia-gpu issues 41 and 222)."""
        return (self.compute_capability or (7, 0)) >= (7, 0)

    @cached_property
    def device_profiles(self) -> Mapping[str, DeviceProfile]:
        """What parts of the card can be, by name: MIG profiles, or partition modes."""
        return {**self.profiles, **{mode.name: mode for mode in self.partition_modes}}


class Catalog(Struct):
    """The cards that one intent may name: the shipped cards and its own, which take precedence."""

    own: Mapping[str, Card] = NOTHING

    def get(self, card_id: str) -> Card | None:
        """Return the card of that id; None if there is none."""
        own = self.own.get(card_id)
        if own is None and card_id in ids():
            return load(card_id)
        return own

    def geometry(self, card_id: str) -> Geometry | None:
        """Return the MIG geometry of the card of that id; None without one."""
        card = self.get(card_id)
        return None if card is None else card.mig

    def vendors(self, card_ids: Iterable[str]) -> set[str]:
        """Return the vendors of those cards that `get` knows."""
        return {card.vendor for card_id in card_ids if (card := self.get(card_id))}

    def ids(self) -> tuple[str, ...]:
        """Return every id that `get` knows, sorted."""
        return tuple(sorted({*ids(), *self.own}))


@cache
def ids() -> tuple[str, ...]:
    """Return the ids of the shipped cards, sorted. They are the names of the files."""
    return tuple(sorted(_files()))


@cache
def _files() -> Mapping[str, tuple[str, Path]]:
    """Return of each shipped card the vendor's key, and the file."""
    folders = ((key, resources.cards(vendor.catalogue)) for key, vendor in vendors.VENDORS.items())
    return {path.stem: (key, path) for key, folder in folders for path in folder.glob("*.yaml")}


@cache
def load(card_id: str) -> Card:
    """Return a shipped card. Reads only that card's file. Raises KeyError if there is none."""
    vendor, path = _files()[card_id]
    document = source.read(path.read_bytes(), str(path)).data
    is_other = vendor in vendors.OTHERS
    return _of_other(vendor, document) if is_other else replace(build(card_id, document), vendor=vendor)


def check(cards: Mapping[str, Any]) -> list[Finding]:
    """Return findings of an intent's own cards (`spec.cards`): GS901 schema, GS902 id of a shipped card, GS903 and GS904.

    Paths are those of the intent, below `spec.cards`. Only a card without an error may be built. At most MOST_FINDINGS are
    returned: cards with more were generated.
    """
    found = (finding for card_id, document in cards.items() for finding in _check(str(card_id), _exact(document)))
    return list(islice(found, MAX_FINDINGS))


def _check(card_id: str, document: Any) -> list[Finding]:
    base = ("spec", "cards", card_id)
    shape = [replace(finding, code="GS901") for finding in schema.violations(document, "card.v1", base)]
    if card_id in ids():
        shape.append(
            Finding(
                code="GS902",
                message=f"the catalogue has a card {card_id} already",
                hints=("choose another id, such as " + card_id[:57] + "-local, and name it in the pools",),
                path=base,
                on_key=True,
            )
        )
    if shape:
        return shape
    if document.get("id", card_id) != card_id:
        wrong = f"id is {document['id']}, but the card's key is {card_id}"
        return [Finding(code="GS903", message=wrong, hints=("leave id out: the key is the id",), path=(*base, "id"))]
    return card_check.inconsistencies(document, base, mps_limit=mps_limit(_capability(document["computeCapability"])))


def build(card_id: str, document: Mapping[str, Any]) -> Card:
    """Return the card of a document that passed `card.v1`; never fails then. Fields that an own card omits get defaults."""
    document = _exact(document)
    get = document.get
    capability = _capability(document["computeCapability"])
    mps = get("mps") or {"supported": True}
    mig = get("mig")
    nvlink = get("nvlink")
    return Card(
        id=card_id,
        name=document["name"],
        product=get("product") or product_label(document["name"]),
        name_aliases=tuple(get("nameAliases", ())),
        architecture=get("architecture", "unknown"),
        chip=get("chip"),
        compute_capability=capability,
        memory_mib=_smallest(document),
        memory_gb_nominal=get("memoryGBNominal"),
        pci_device_ids=tuple(get("pciDeviceIds", ())),
        form_factor=get("formFactor"),
        ecc=get("ecc"),
        nvlink=None if nvlink is None else NvLink(str(nvlink).lower()),
        mps_supported=mps["supported"],
        mps_max_replicas=mps.get("maxReplicas", mps_limit(capability)),
        mig_supported=get("migSupported", mig is not None),
        mig=_geometry(mig) if mig else None,
        device_filters=tuple(get("deviceFilters", ())),
        vgpu=_vgpus(document["vgpu"]) if get("vgpu") else None,
        note=get("note", ""),
        sources=_cited(document),
        unconfirmed=tuple(get("unconfirmed", ())),
    )


def _of_other(vendor: str, document: Mapping[str, Any]) -> Card:
    """Return the card of a file of another vendor than NVIDIA's, which has the form of `amd-card.v1`."""
    get = document.get
    return Card(
        id=document["id"],
        name=document["name"],
        product=product_label(document["name"]),
        architecture="unknown",
        chip=None,
        compute_capability=None,
        memory_mib=_smallest(document),
        memory_gb_nominal=document["memoryGBNominal"],
        pci_device_ids=tuple(document["pciDeviceIds"]),
        form_factor=None,
        ecc=None,
        nvlink=None,
        mps_supported=False,
        mps_max_replicas=0,
        mig_supported=False,
        mig=None,
        device_filters=(),
        note=get("note", ""),
        sources=_cited(document),
        unconfirmed=tuple(get("unconfirmed", ())),
        vendor=vendor,
        partition_modes=tuple(_mode(row) for row in get("modes", ())),
        min_driver=get("minDriver"),
    )


def _mode(row: Mapping[str, Any]) -> PartitionMode:
    return PartitionMode(
        compute=row["compute"],
        memory=row["memory"],
        partitions=row["partitions"],
        memory_mib=_smallest(row),
        compute_units=row["computeUnits"],
        unconfirmed=tuple(row.get("unconfirmed", ())),
    )


def _cited(document: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for keys in document.get("provenance", {}).values() for key in keys.split()))


def _exact(document: Any) -> Any:
    """Return the document with floats that JSON Schema accepts as integers, such as `8.0`, converted to integers.

    Strings and fractions, which the schema rejects, stay as the user wrote them. So does a number in place of a string.
    """
    match document:
        case Mapping():
            return {key: value if key in _TEXTS else _exact(value) for key, value in document.items()}
        case list():
            return [_exact(value) for value in document]
        case float() if document.is_integer():
            return int(document)
        case _:
            return document


_TEXTS = ("computeCapability", "minDriver")
"""Versions, which look like fractions if their quotes are missing."""


def mps_limit(compute_capability: tuple[int, int]) -> int:
    """Return how many MPS clients of one GPU the device plugin allows: 48 from 7.5 on, else 16, a V100 (7.0) included."""
    return 48 if compute_capability >= (7, 5) else 16


def product_label(name: str) -> str:
    """Return the product name as in GFD's label nvidia.com/gpu.product (k8s-device-plugin, internal/lm/resource.go)."""
    return "-".join("".join(c for c in name if c.isascii() and (c.isalnum() or c in "-_. ")).split())


def _capability(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _smallest(document: Mapping[str, Any]) -> int | None:
    seen = [size for size in (document["memoryMiB"], *document.get("memoryObservedMiB", ())) if size is not None]
    return min(seen, default=None)


def _engines(document: Mapping[str, Any]) -> Engines:
    get = document.get
    return Engines(copy=get("copy"), decoders=get("decoders"), encoders=get("encoders"), jpeg=get("jpeg"), ofa=get("ofa"))


def _geometry(mig: Mapping[str, Any]) -> Geometry:
    return Geometry(
        units=mig["units"],
        max_instances=mig["maxInstances"],
        profiles=tuple(_profile(row) for row in mig["profiles"]),
        engine_totals=_engines(mig.get("engineTotals", {})),
        min_driver=mig.get("minDriver"),
        layout_drivers=tuple(
            LayoutDriver(profiles=tuple(row["profiles"]), min_driver=row["minDriver"]) for row in mig.get("layoutDrivers", ())
        ),
        max_compute_instances=mig.get("maxComputeInstances"),
        max_gfx_instances=mig.get("maxGfxInstances"),
        unconfirmed=tuple(mig.get("unconfirmed", ())),
    )


def _profile(row: Mapping[str, Any]) -> MigProfile:
    return MigProfile(
        name=row["name"],
        nvml_enum=row["nvmlEnum"],
        profile_id=row["profileId"],
        compute_slices=row["computeSlices"],
        memory_mib=_smallest(row),
        max_count=row["maxCount"],
        placements=tuple(_placement(text) for text in row["placements"]),
        engines=_engines(row),
        sm=row.get("sm"),
        unconfirmed=tuple(row.get("unconfirmed", ())),
    )


def _vgpus(document: Mapping[str, Any]) -> Vgpus:
    rows = document.get("types", ())
    return Vgpus(
        types=tuple(VgpuType(name=row["name"], max_count=row["maxCount"]) for row in rows),
        refused=VgpuRefusal(document["refused"]) if "refused" in document else None,
    )


def _placement(text: str) -> Placement:
    start, _, size = text.partition(":")
    return Placement(start=int(start), size=int(size))


DEFAULT_RESERVE = SizeOrPercent(percent_hundredths=300)
"""What the driver and its contexts need of a device before any tenant: 3 %, but never less than `MIN_RESERVE_BYTES`."""

MIN_RESERVE_BYTES = 256 * MIB


def reserve_bytes(memory_mib: int, reserve: SizeOrPercent | None) -> int:
    """Return how much of a device with `memory_mib` is reserved, in whole bytes, rounded up. `reserve` None: the default."""
    whole = memory_mib * MIB
    return max(DEFAULT_RESERVE.of(whole), MIN_RESERVE_BYTES) if reserve is None else reserve.of(whole)


def usable_bytes(memory_mib: int | None, reserve: SizeOrPercent | None) -> int | None:
    """Return what all containers of a device may use together, in whole bytes; zero or less if the reserve takes it all."""
    return memory_mib * MIB - reserve_bytes(memory_mib, reserve) if memory_mib else None


def memory_mib(card: Card, profile: DeviceProfile | None) -> int | None:
    """Return the smallest catalogued memory of a whole card or of a part of one; None if it was never measured."""
    return (card.memory_mib if profile is None else profile.memory_mib) or None
