"""What the node's pods hold by claims: kubelet's list of claims joined with the driver's checkpoint.

Kubelet's file is read first: a claim that has devices there is in the driver's already. If the two do not name the same
devices, or if the driver's has no such claim, the claim's devices are unknown, and have their names for ids.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from gpushare_node.backends.backend import Allocation, CheckpointError, Claim
from gpushare_node.backends.dra import driver_claims, kubelet_claims
from gpushare_node.backends.dra.driver_claims import DriverClaims
from gpushare_node.backends.dra.kubelet_claims import PodsClaim
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.struct import replace
from gpushare_node.vendors import DRA_DRIVERS

FOLDER = Path("/var/lib/kubelet")
_WHOLE, _INSTANCE = re.compile("gpu-[0-9]+"), re.compile("gpu-[0-9]+-mig-(.+)-[0-9]+-[0-9]+")
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
_Parsed = TypeVar("_Parsed")

Classes = Mapping[str | None, str]
"""The policy's DeviceClasses by the profile in the names of the driver's devices, None for whole GPUs."""


def read_claims(policy: Policy | None, folder: Path = FOLDER) -> tuple[Allocation, ...] | None:
    """Return what pods hold by claims; None if kubelet has no list of claims. CheckpointError if it cannot be read.

    The driver's checkpoint is read only if a pod has a claim of it, and is then required.
    """
    known = _read(folder / "dra_manager_state", kubelet_claims.parse)
    if known is None:
        return None
    prepared: dict[str, DriverClaims] = {}
    for driver in sorted(DRA_DRIVERS & {driver for claim in known for driver in claim.drivers}):
        path = folder / "plugins" / driver / "checkpoint.json"
        found = _read(path, driver_claims.parse)
        if found is None:
            raise CheckpointError(f"{path} is missing, and pods have claims of {driver}")
        prepared[driver] = found
    uuids = {driver: found.uuids(claim.uid for claim in known) for driver, found in prepared.items()}
    classes = {} if policy is None or policy.dra is None else {_form(share.profile): share.resource for share in policy.shares}
    return tuple(
        replace(one, pod_uid=pod) for claim in known for one in _held(claim, prepared, uuids, classes) for pod in claim.pod_uids
    )


def _read(path: Path, parse: Callable[[bytes], _Parsed]) -> _Parsed | None:
    try:
        return parse(path.read_bytes())
    except FileNotFoundError:
        return None
    except _UNREADABLE as error:
        raise CheckpointError(f"{path}: {type(error).__name__}: {error}") from error


def _form(profile: str | None) -> str | None:
    """Return a MIG profile as the names of the driver's devices contain it: `1g.10gb+me` is `1g10gb-me`."""
    return None if profile is None else re.sub("[^a-z0-9-]", "-", profile.replace(".", "").lower()).strip("-")


def _held(
    claim: PodsClaim, prepared: Mapping[str, DriverClaims], uuids: Mapping[str, Mapping[str, str]], classes: Classes
) -> Iterable[Allocation]:
    """Yield what a claim holds, as allocations to no pod yet."""
    plain = Claim(uid=claim.uid, namespace=claim.namespace, name=claim.name)
    for driver, devices in (claim.drivers or {"": frozenset[str]()}).items():
        if driver not in prepared:
            yield Allocation(pod_uid="", container="", resource=driver, ids=(), claim=plain)
            continue
        results = [one for one in prepared[driver].results.get(claim.uid, ()) if one.driver == driver]
        named = {one.device for one in results}
        if not results or (devices and devices != named):
            unknown = tuple(sorted(devices | named)) or (f"claim {claim.name}",)
            yield Allocation(pod_uid="", container="", resource=driver, ids=unknown, claim=plain)
            continue
        for one in results:
            own = replace(
                plain,
                request=one.request,
                share=one.share,
                memory_bytes=one.memory_bytes,
                shares=one.shares,
                is_admin=one.is_admin,
            )
            ids = (uuids[driver].get(one.device, one.device),)
            yield Allocation(pod_uid="", container="", resource=_class(one.device, classes) or driver, ids=ids, claim=own)


def _class(device: str, classes: Classes) -> str | None:
    """Return the DeviceClass of a device by its name."""
    if _WHOLE.fullmatch(device):
        return classes.get(None)
    match = _INSTANCE.fullmatch(device)
    return None if match is None else classes.get(match.group(1))
