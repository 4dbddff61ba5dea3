"""The `Cards` document and the words for the features of a card. Pure: a Card in, plain data and text out."""

from typing import Any

from gpushare import mig
from gpushare.catalog.cards import Card, Geometry, MigProfile, NvLink, PartitionMode, Vgpus
from gpushare.intent.types import Layout


def document(cards: dict[str, Card], layouts_of: str | None = None) -> dict[str, Any]:
    """Return the `Cards` document (schemas/cards.v1.json); with `layouts_of`, that card's entry contains its layouts too."""
    entries = {name: _entry(card) for name, card in cards.items()}
    if layouts_of is not None:
        entries[layouts_of]["layouts"] = [dict(layout) for layout in layouts(cards[layouts_of])]
    return {"apiVersion": "gpushare.dev/v1", "kind": "Cards", "cards": entries}


def layouts(card: Card) -> tuple[Layout, ...]:
    """Return every layout of the card to which no instance can be added, those of plain profiles first."""
    if card.mig is None:
        return ()
    special = {profile.name for profile in card.mig.profiles if profile.has_attributes}
    return tuple(sorted(mig.maximal_layouts(card.mig), key=lambda layout: any(name in special for name, _ in layout)))


def _entry(card: Card) -> dict[str, Any]:
    return {
        "vendor": card.vendor,
        "name": card.name,
        "product": card.product,
        "architecture": card.architecture,
        "chip": card.chip,
        "computeCapability": None if card.compute_capability is None else ".".join(map(str, card.compute_capability)),
        "memoryMiB": card.memory_mib,
        "memoryGBNominal": card.memory_gb_nominal,
        "pciDeviceIds": list(card.pci_device_ids),
        "formFactor": card.form_factor,
        "ecc": card.ecc,
        "nvlink": None if card.nvlink is None else {NvLink.YES: True, NvLink.NO: False}.get(card.nvlink, card.nvlink.value),
        "mps": {"supported": card.mps_supported, "maxReplicas": card.mps_max_replicas},
        "migSupported": card.mig_supported,
        "mig": None if card.mig is None else _geometry(card.mig),
        "partitionModes": [_mode(mode) for mode in card.partition_modes],
        "vgpu": None if card.vgpu is None else _vgpus(card.vgpu),
        "note": card.note,
        "unconfirmed": list(card.unconfirmed),
    }


def _mode(mode: PartitionMode) -> dict[str, Any]:
    return {
        "compute": mode.compute,
        "memory": mode.memory,
        "partitions": mode.partitions,
        "memoryMiB": mode.memory_mib,
        "computeUnits": mode.compute_units,
        "unconfirmed": list(mode.unconfirmed),
    }


def _vgpus(vgpus: Vgpus) -> dict[str, Any]:
    types = [{"name": one.name, "maxCount": one.max_count} for one in vgpus.types]
    return {"types": types} if vgpus.refused is None else {"refused": vgpus.refused.value}


def _geometry(geometry: Geometry) -> dict[str, Any]:
    return {
        "units": geometry.units,
        "maxInstances": geometry.max_instances,
        "minDriver": geometry.min_driver,
        "layoutDrivers": [
            {"profiles": list(needed.profiles), "minDriver": needed.min_driver} for needed in geometry.layout_drivers
        ],
        "profiles": [_profile(profile) for profile in geometry.profiles],
        "unconfirmed": list(geometry.unconfirmed),
    }


def _profile(profile: MigProfile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "profileId": profile.profile_id,
        "computeSlices": profile.compute_slices,
        "memoryMiB": profile.memory_mib,
        "maxCount": profile.max_count,
        "placements": [{"start": place.start, "size": place.size} for place in profile.placements],
        "sm": profile.sm,
        "unconfirmed": list(profile.unconfirmed),
    }
