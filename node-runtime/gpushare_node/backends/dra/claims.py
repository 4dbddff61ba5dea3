"""What the node's pods hold by claims: kubelet's list of claims joined with the driver's checkpoint; and who serves them.

Kubelet's file is read first: a claim that has devices there is in the driver's already. If the two do not name the same
devices, or if the driver's has no such claim, the claim's devices are unknown, and have their names for ids.
"""

import json
import re
import socket
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from gpushare_node.backends.backend import Allocation, CheckpointError, Claim
from gpushare_node.contract import quantity
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.strict_document import Field
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.vendors import DRA_DRIVERS, UUIDS

FOLDER = Path("/var/lib/kubelet")
_WHOLE, _INSTANCE = re.compile("gpu-[0-9]+"), re.compile("gpu-[0-9]+-mig-(.+)-[0-9]+-[0-9]+")
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
_Parsed = TypeVar("_Parsed")

Classes = Mapping[str | None, str]
"""The policy's DeviceClasses by the profile in the names of the driver's devices, None for whole GPUs."""
_SECONDS = 1.0
_NONE_LISTENS = (FileNotFoundError, ConnectionRefusedError)


class PodsClaim(Struct):
    """A claim as kubelet knows it, with the pods that use it, and its devices by driver: none while a driver prepares them."""

    uid: str
    namespace: str
    name: str
    pod_uids: tuple[str, ...]
    drivers: Mapping[str, frozenset[str]]


@lru_cache(maxsize=1)
def parse_kubelet(text: bytes) -> tuple[PodsClaim, ...]:
    """Return the claims of kubelet's file (`dra_manager_state`). ValueError, with the reason, for what kubelet would not read.

    Kubelet writes a claim before it calls the claim's drivers, and its devices after they have answered. After a restart it may
    list a device twice, because it asks the driver again.
    """
    whole = _fields(Field(value=json.loads(text)), "Data", "Checksum")
    data = whole["Data"].text()
    if zlib.crc32(data.encode()) != whole["Checksum"].integer(at_least=0):
        raise ValueError("its checksum does not match")
    claims = _fields(Field(value=json.loads(data)), "ClaimInfoStateList")["ClaimInfoStateList"]
    found = tuple(map(_claim, claims.optional(Field.items) or ()))
    if len({one.uid for one in found}) < len(found) or len({(one.namespace, one.name) for one in found}) < len(found):
        raise ValueError("it lists a claim twice")
    return found


def _claim(value: Field) -> PodsClaim:
    fields = _fields(value, "ClaimUID", "ClaimName", "Namespace", "PodUIDs", "DriverState")
    drivers = fields["DriverState"].optional(Field.entries) or ()
    return PodsClaim(
        uid=fields["ClaimUID"].text(at_least=1),
        namespace=fields["Namespace"].text(at_least=1),
        name=fields["ClaimName"].text(at_least=1),
        pod_uids=tuple(uid for uid, _ in fields["PodUIDs"].optional(Field.entries) or ()),
        drivers={driver: frozenset(_prepared(state)) for driver, state in drivers},
    )


def _prepared(state: Field) -> list[str]:
    devices = _fields(state, "Devices")["Devices"].optional(Field.items) or ()
    return [_fields(device, "DeviceName")["DeviceName"].text(at_least=1) for device in devices]


class Result(Struct):
    """A device that was allocated to a request of a claim. What is None is not counted on this device."""

    driver: str
    device: str
    request: str
    share: str
    memory_bytes: int | None
    shares: int | None
    is_admin: bool


class DriverClaims(Struct):
    """The results of each claim by its uid, and the names and UUIDs of its devices: none until they are prepared."""

    results: Mapping[str, tuple[Result, ...]]
    devices: Mapping[str, tuple[tuple[str, str], ...]]

    def uuids(self, claims: Iterable[str]) -> dict[str, str]:
        """Return the UUIDs of the devices of these claims by name.

        A name with several UUIDs, a UUID of several names, and what is no UUID are left out. Claims that no pod has any more
        may have devices that are gone, under names that were given again.
        """
        pairs = {pair for uid in claims for pair in self.devices.get(uid, ()) if pair[1].startswith(UUIDS)}
        names, uuids = Counter(name for name, _ in pairs), Counter(uuid for _, uuid in pairs)
        return {name: uuid for name, uuid in pairs if names[name] == uuids[uuid] == 1}


@lru_cache(maxsize=1)
def parse_driver(text: bytes) -> DriverClaims:
    """Return what NVIDIA's driver has prepared, from its checkpoint. ValueError, with the reason, if it is none.

    The format is the driver's own and private to it: version 2, or version 1 as older drivers wrote it, which is as far as read
    here the same. The driver copies a claim's allocation from the API server before it prepares the claim, and has its devices'
    UUIDs afterwards.
    """
    versions = _fields(Field(value=json.loads(text)), optional=("v1", "v2"))
    present = next((one for one in (versions["v2"], versions["v1"]) if one.value is not None), None)
    if present is None:
        raise ValueError("it has neither version 2 nor version 1 of the driver's claims")
    claims = _fields(present, optional=("preparedClaims",))["preparedClaims"].optional(Field.entries) or ()
    results: dict[str, tuple[Result, ...]] = {}
    devices: dict[str, tuple[tuple[str, str], ...]] = {}
    for uid, claim in claims:
        fields = _fields(claim, optional=("status", "preparedDevices"))
        results[uid] = tuple(_results(fields["status"]))
        devices[uid] = tuple(_devices(fields["preparedDevices"]))
    return DriverClaims(results=results, devices=devices)


def _results(status: Field) -> Iterable[Result]:
    allocation = _optional(status, "allocation")
    for one in _optional(_optional(allocation, "devices"), "results").optional(Field.items) or ():
        fields = _fields(one, "driver", "device", "request", optional=("shareID", "consumedCapacity", "adminAccess"))
        consumed = dict(fields["consumedCapacity"].optional(Field.entries) or ())
        yield Result(
            driver=fields["driver"].text(),
            device=fields["device"].text(at_least=1),
            # A request with alternatives is followed by the one that was taken; pods name the request.
            request=fields["request"].text().partition("/")[0],
            share=fields["shareID"].optional(Field.text) or "",
            memory_bytes=_consumed(consumed.get("memory")),
            shares=_consumed(consumed.get("shares")),
            is_admin=fields["adminAccess"].optional(Field.boolean) or False,
        )


def _consumed(value: Field | None) -> int | None:
    if value is None:
        return None
    amount = quantity.units(value.text())
    if amount is None:
        raise value.refusal("must be a quantity")
    return amount


def _devices(groups: Field) -> Iterable[tuple[str, str]]:
    """Yield the names and UUIDs of a claim's devices. Those that are passed to virtual machines have none here."""
    for group in groups.optional(Field.items) or ():
        for one in _optional(group, "devices").optional(Field.items) or ():
            for kind, part, key in (("gpu", "info", "uuid"), ("mig", "concrete", "migUUID")):
                device = _optional(one, kind)
                if device.value is not None:
                    fields = _fields(device, part, "device")
                    name = _fields(fields["device"], "DeviceName")["DeviceName"].text(at_least=1)
                    yield name, _fields(fields[part], key)[key].text()


def _optional(value: Field, name: str) -> Field:
    """Return a field of a mapping, null if there is none or the mapping itself is null."""
    return value if value.value is None else _fields(value, optional=(name,))[name]


def _fields(value: Field, *names: str, optional: tuple[str, ...] = ()) -> dict[str, Field]:
    """Return these fields of a mapping; a later driver or kubelet may write others too."""
    return Field(value=value.value, path=value.path, ignored=[]).fields(*names, optional=optional)


def read_claims(policy: Policy | None, folder: Path = FOLDER) -> tuple[Allocation, ...] | None:
    """Return what pods hold by claims; None if kubelet has no list of claims. CheckpointError if it cannot be read.

    The driver's checkpoint is read only if a pod has a claim of it, and is then required where the pool's pods have claims.
    Elsewhere a driver that was removed leaves claims in kubelet's list, and their devices are unknown.
    """
    known = _read(folder / "dra_manager_state", parse_kubelet)
    if known is None:
        return None
    prepared: dict[str, DriverClaims] = {}
    for driver in sorted(DRA_DRIVERS & {driver for claim in known for driver in claim.drivers}):
        path = folder / "plugins" / driver / "checkpoint.json"
        found = _read(path, parse_driver)
        if found is None and (policy is None or policy.backend.has_claims):
            raise CheckpointError(f"{path} is missing, and pods have claims of {driver}")
        if found is not None:
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
    """Yield what a claim holds, as allocations to no pod yet.

    Kubelet names the drivers of all devices that the scheduler gave to a claim before any of them prepares one: a claim without
    drivers, such as one that requests nothing, has no device, and its allocation no resource.
    """
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


def is_served(driver: str, folder: Path = FOLDER) -> bool:
    """Return whether a program listens for the driver, or may: what cannot be asked counts as an answer.

    A driver listens on sockets in kubelet's folder, by which kubelet finds it too. Their names are those of
    k8s.io/dynamic-resource-allocation (kubeletplugin/draplugin.go). A driver that starts or ends does not listen, and lives:
    only with its pods does this say something.
    """
    registry, own = folder / "plugins_registry", folder / "plugins" / driver
    try:
        # Without kubelet's list of claims the folder may be another one than kubelet's.
        (folder / "dra_manager_state").stat()
        sockets = [path for path in registry.iterdir() if path.name.startswith(f"{driver}-")]
        sockets += [path for path in own.iterdir() if path.suffix == ".sock"] if own.exists() else []
    except OSError:
        return True
    return any(map(_listens, sockets))


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_SECONDS)
        try:
            client.connect(str(path))
        except _NONE_LISTENS:
            return False
        except OSError:
            return True
    return True
