"""What a device plugin offers for a config, as NVIDIA's does: resource names, ids, replicas. Pure.

Facts: k8s-device-plugin v0.20.0, internal/rm: MIG strategies, `.shared` by renameByDefault, `UUID::n` for replicas; one
strategy at a time, MPS before time-slicing; a resource that the node lacks is passed over in silence.
"""

from collections.abc import Mapping
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


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A resource with its ids. `refuses_more_than_one`: a request for two shares fails for good."""

    ids: tuple[str, ...]
    refuses_more_than_one: bool = False


def offers(config: Mapping[str, Any], gpus: tuple[Gpu, ...]) -> dict[str, Offer]:
    """Offers by resource name. No config at all offers whole GPUs."""
    devices = _devices(str((config.get("flags") or {}).get("migStrategy") or "none"), gpus)
    sharing = config.get("sharing") or {}
    strategy = "mps" if sharing.get("mps") else "timeSlicing" if sharing.get("timeSlicing") else ""
    shared = sharing.get(strategy) or {}
    replicas = {one["name"]: int(one["replicas"]) for one in shared.get("resources", ())}
    refuses = bool(shared.get("failRequestsGreaterThanOne", strategy == "mps"))
    found = {}
    for name, uuids in devices.items():
        count = replicas.get(name, 1)
        if count < 2:
            found[name] = Offer(ids=tuple(uuids))
        else:
            renamed = f"{name}.shared" if shared.get("renameByDefault") else name
            ids = tuple(f"{uuid}::{number}" for uuid in uuids for number in range(count))
            found[renamed] = Offer(ids=ids, refuses_more_than_one=refuses)
    return found


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
