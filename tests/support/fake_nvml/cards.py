"""Writes catalogue cards into a state file: what of a GPU is given by its model and its driver."""

from typing import Any

from gpushare.facts.catalog import cards
from tests.support.fake_nvml import layout

_ARCHITECTURES = {"maxwell": 3, "pascal": 4, "volta": 5, "turing": 6, "ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10}
"""NVML's numbers (nvml.h, NVML_DEVICE_ARCH_*)."""

_CUDA = ((615, 13040), (580, 13000), (570, 12080), (550, 12040), (535, 12020), (525, 12000), (470, 11040), (0, 11000))
"""The newest CUDA of the drivers from this branch on."""

_PROFILE_ENUMS = ((575, 18), (525, 10), (470, 8), (0, 7))
"""How many profile enums drivers know from this branch on: +me came with R470, doubled memory with R525, the rest with R575."""

_MIB = 1 << 20
_RESERVED_MIB = 600
"""What the driver keeps for itself of a whole GPU: some hundreds of MiB on every card, here the same on all."""


def describe_driver(state: Any, version: str) -> None:
    """The versions, and what a driver of this branch knows of MIG. Up to R535 it tells no profiles before MIG is on."""
    branch = int(version.split(".", maxsplit=1)[0])
    cuda = _since(_CUDA, branch)
    state.driver, state.nvml, state.cuda = version.encode(), f"{cuda // 1000}.{version}".encode(), cuda
    state.profile_enums = _since(_PROFILE_ENUMS, branch)
    state.tells_profiles_when_off = branch > 535


def gpu_uuid(index: int, *, node: int = 0) -> str:
    """The UUID of a GPU: no other one of the node, or of a node with another number, has it."""
    return f"GPU-51c0{index:04x}-{node:04x}-5000-8000-{0x51C00000 + index:012x}"


def describe_gpu(gpu: Any, index: int, card: cards.Card, *, node: int = 0) -> None:
    """A GPU of that card, idle, MIG off."""
    gpu.uuid = gpu_uuid(index, node=node).encode()
    gpu.name = card.name.encode()
    gpu.pci_device_id = int(card.pci_device_ids[0], 16)
    gpu.pci_bus = 0x07 + 8 * index
    gpu.architecture = _ARCHITECTURES[card.architecture]
    assert card.compute_capability is not None, f"NVML knows no {card.id}"
    gpu.major, gpu.minor = card.compute_capability
    assert card.memory_mib is not None, f"nobody knows the memory of {card.id}"
    gpu.memory_bytes, gpu.reserved_bytes = card.memory_mib * _MIB, _RESERVED_MIB * _MIB
    gpu.mig_survives_reboot = card.architecture == "ampere"
    if card.mig is not None:
        _describe_mig(gpu, card, card.mig)


def _describe_mig(gpu: Any, card: cards.Card, geometry: cards.Geometry) -> None:
    gpu.mig_capable, gpu.max_instances, gpu.units = 1, geometry.max_instances, geometry.units
    _describe_engines(gpu.totals, geometry.engine_totals, unknown=layout.UNLIMITED)
    for profile in geometry.profiles:
        row = gpu.profiles[profile.nvml_enum]
        _describe_profile(row, profile)
        # Nobody has written down the wrong figures of an A30; too many is the one wrong figure that overruns no caller's array.
        row.told_count = profile.max_count * 2 if card.id == "a30" else profile.max_count
        if profile.memory_mib is None:
            row.memory_mib = card.memory_mib * profile.placements[0].size // geometry.units if card.memory_mib else 0


def _describe_profile(row: Any, profile: cards.MigProfile) -> None:
    row.exists, row.name, row.slices, row.max_count = 1, profile.name.encode(), profile.compute_slices, profile.max_count
    row.id = profile.nvml_enum if profile.profile_id is None else profile.profile_id
    row.sm, row.memory_mib, row.placement_count = profile.sm or 0, profile.memory_mib or 0, len(profile.placements)
    _describe_engines(row.engines, profile.engines, unknown=0)
    for place, known in zip(row.placements, profile.placements, strict=False):
        place.start, place.size = known.start, known.size


def _describe_engines(row: Any, engines: cards.Engines, *, unknown: int) -> None:
    for name in ("copy", "decoders", "encoders", "jpeg", "ofa"):
        known = getattr(engines, name)
        setattr(row, name, unknown if known is None else known)


def _since(table: tuple[tuple[int, int], ...], branch: int) -> int:
    return next(value for first, value in table if branch >= first)
