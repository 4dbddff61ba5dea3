"""What a device plugin offers for a config, as NVIDIA's does: resource names, ids, replicas. Pure.

Facts: k8s-device-plugin v0.20.0, internal/rm: MIG strategies, `.shared` by renameByDefault, `UUID::n` for replicas; one
strategy at a time, MPS before time-slicing and never under MIG; a resource that the node lacks is passed over in silence.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GPU = "nvidia.com/gpu"


class ConfigError(Exception):
    """What makes NVIDIA's plugin exit."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU as the plugin enumerates it. `devices`: profile and UUID of its MIG devices, if MIG is on."""

    uuid: str
    mig: bool
    devices: tuple[tuple[str, str], ...] = ()
    memory_mib: int = 0


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A resource with its ids. `refuses_more_than_one`: a request for two shares fails for good.

    `mps_root`: the daemon's folder on the host, under MPS. `is_packed`: shares are given from as few devices as can be.
    """

    ids: tuple[str, ...]
    refuses_more_than_one: bool = False
    mps_root: str | None = None
    is_packed: bool = False


def device_of(one: str) -> str:
    """The UUID in the id of a share, or of a whole device."""
    return one.partition("::")[0]


def offers(config: Mapping[str, Any], gpus: tuple[Gpu, ...]) -> dict[str, Offer]:
    """Offers by resource name. No config at all offers whole GPUs."""
    flags, sharing = config.get("flags") or {}, config.get("sharing") or {}
    mig = str(flags.get("migStrategy") or "none")
    strategy = "mps" if sharing.get("mps") else "timeSlicing" if sharing.get("timeSlicing") else ""
    if strategy == "mps" and (mig == "mixed" or (mig == "single" and any(gpu.mig for gpu in gpus))):
        raise ConfigError("sharing using MPS is not supported for MIG devices")
    devices = _devices(mig, gpus)
    mps_root = flags.get("mpsRoot") if strategy == "mps" else None
    is_packed = (flags.get("plugin") or {}).get("sharedDevicesAllocationPolicy") == "packed"
    shared = sharing.get(strategy) or {}
    replicas = {one["name"]: int(one["replicas"]) for one in shared.get("resources", ())}
    refuses = bool(shared.get("failRequestsGreaterThanOne", strategy == "mps"))
    found = {}
    for name, uuids in devices.items():
        count = replicas.get(name, 1)
        if count < 2:
            found[name] = Offer(ids=tuple(uuids), is_packed=is_packed)
        else:
            renamed = f"{name}.shared" if shared.get("renameByDefault") else name
            ids = tuple(f"{uuid}::{number}" for uuid in uuids for number in range(count))
            found[renamed] = Offer(ids=ids, refuses_more_than_one=refuses, mps_root=mps_root, is_packed=is_packed)
    return found


def refusal(offer: Offer, ids: Sequence[str]) -> str:
    """Why a container cannot have these ids, in the plugin's words; empty where it can."""
    if offer.refuses_more_than_one and len(ids) > 1:
        return f"maximum request size for shared resources is 1; found {len(ids)}"
    return next((f"unknown device: {one}" for one in ids if one not in offer.ids), "")


def preferred(offer: Offer, available: Sequence[str], required: Sequence[str], size: int) -> tuple[str, ...]:
    """Which ids a container should get: those required, then each from the device that has given fewest shares.

    Packed: from the one that has given most. Between whole GPUs there is nothing to choose without links between them.
    """
    left = [one for one in available if one not in required]
    given = Counter(map(device_of, offer.ids)) - Counter(map(device_of, left))
    chosen = list(required)
    while left and len(chosen) < size:
        best = (max if offer.is_packed else min)(left, key=lambda one: given[device_of(one)])
        left.remove(best)
        given[device_of(best)] += 1
        chosen.append(best)
    return tuple(chosen)


def _devices(strategy: str, gpus: tuple[Gpu, ...]) -> dict[str, list[str]]:
    """UUIDs by resource name, before sharing."""
    on = [gpu for gpu in gpus if gpu.mig]
    if strategy == "none" or not on:
        return {GPU: [gpu.uuid for gpu in gpus]}
    if strategy == "single":
        profiles = {profile for gpu in on for profile, _ in gpu.devices}
        if len(on) < len(gpus) or len(profiles) != 1 or not all(gpu.devices for gpu in on):
            raise ConfigError("single: all GPUs must be under MIG, with one profile, and none empty")
        return {GPU: [uuid for gpu in on for _, uuid in gpu.devices]}
    found: dict[str, list[str]] = {}
    for gpu in gpus:
        if not gpu.mig:
            found.setdefault(GPU, []).append(gpu.uuid)
        for profile, uuid in gpu.devices:
            found.setdefault(f"nvidia.com/mig-{profile.replace('+', '.')}", []).append(uuid)
    return found
