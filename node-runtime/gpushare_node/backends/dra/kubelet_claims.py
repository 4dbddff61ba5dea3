"""The claims of this node's pods as kubelet knows them, from its own file (`dra_manager_state`). Pure.

Kubelet writes a claim before it calls the claim's drivers, and its devices after they have answered. After a restart it may
list a device twice, because it asks the driver again.
"""

import json
import zlib
from collections.abc import Mapping
from functools import lru_cache

from gpushare_node.contract.strict_document import Field
from gpushare_node.contract.struct import Struct


class PodsClaim(Struct):
    """A claim with the pods that use it, and its devices by driver: none while a driver prepares them."""

    uid: str
    namespace: str
    name: str
    pod_uids: tuple[str, ...]
    drivers: Mapping[str, frozenset[str]]


@lru_cache(maxsize=1)
def parse(text: bytes) -> tuple[PodsClaim, ...]:
    """Return the claims. ValueError, with the reason, for anything that kubelet itself would not read."""
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
        drivers={driver: frozenset(_devices(state)) for driver, state in drivers},
    )


def _devices(state: Field) -> list[str]:
    devices = _fields(state, "Devices")["Devices"].optional(Field.items) or ()
    return [_fields(device, "DeviceName")["DeviceName"].text(at_least=1) for device in devices]


def _fields(value: Field, *names: str) -> dict[str, Field]:
    """Return these fields of a mapping; a later kubelet may write others too."""
    return Field(value=value.value, path=value.path, ignored=[]).fields(*names)
