"""The card knowledge as values: Card, MigProfile, Geometry; read from card files, never guessed.

Owns the types, the reading of `profiles/cards/*.yaml` and of the intent's own `spec.cards`, which have the same form
(`schemas/card.v1.json`). Knows nothing of pools. Geometry is judged in `mig`.
"""

from dataclasses import dataclass
from enum import StrEnum


class NvLink(StrEnum):
    """How a card talks to its peers; C2C is the chip-to-chip link of the Grace boards and counts as NVLink."""

    YES = "true"
    NO = "false"
    C2C = "c2c"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A stretch of the card's memory slices: `start` and `size` in the card's own placement units (NVML's numbers)."""

    start: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Engines:
    """Media and copy engines of an instance or a whole card. None: not known, which never counts as zero."""

    copy: int | None = None
    decoders: int | None = None
    encoders: int | None = None
    jpeg: int | None = None
    ofa: int | None = None


@dataclass(frozen=True, kw_only=True)
class MigProfile:
    """One GPU-instance profile of one card.

    `name` is NVML's (`1g.5gb+me`); `profile_id` is what creates an instance (the ID column of `nvidia-smi mig -lgip`);
    `nvml_enum` is what asks for the profile's description: two different numbers. `memory_mib` is the smallest value seen.
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
        """The name as Kubernetes resources, labels and mig-parted config names spell it: `+` becomes `.`."""
        return self.name.replace("+", ".")

    @property
    def has_attributes(self) -> bool:
        """Whether the name carries attributes, as in `+me`, `+gfx`, `-me`."""
        return "+" in self.name or "-" in self.name


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """What MIG can make of one card: a grid of `units` memory slices and the profiles that may stand on it.

    `max_compute_instances` and `max_gfx_instances` are constraints that only some cards have (Thor).
    """

    units: int
    max_instances: int
    profiles: tuple[MigProfile, ...]
    engine_totals: Engines
    min_driver: str | None = None
    max_compute_instances: int | None = None
    max_gfx_instances: int | None = None
    unconfirmed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Card:
    """One card model.

    `name` is what NVML returns, `product` GFD's label value. `memory_mib` is the smallest total seen (safe for caps), None
    when unknown. `mig` is None where the card has no MIG; `mig_supported` None means that nobody has confirmed either.
    `unconfirmed` names the facts that no source confirms, in the card file's own words (`memoryMiB`, `nvlink`, …).
    """

    id: str
    name: str
    product: str
    architecture: str
    chip: str | None
    compute_capability: tuple[int, int]
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
    note: str = ""
    sources: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()
