"""ResourceSlices: what a DRA driver says a node's devices are, as this project's types. Pure.

A slice that lacks something has it empty; whether that is right, `backends/dra/offer.py` decides.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpushare_node.contract.names import SHARES
from gpushare_node.contract.objects import KEEPING_AWAY, division
from gpushare_node.contract.policy import DraShares
from gpushare_node.contract.quantity import units
from gpushare_node.contract.struct import Struct

Json = Mapping[str, Any]

PATH = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
MAX_SLICES = 64
"""How many slices of a node are read. A node of sixteen GPUs has one, or two for each GPU."""


class SliceDevice(Struct):
    """A device. `type`, `profile` and `uuid` are the driver's attributes, empty if it gives none.

    A MIG device without a UUID is a place, at which the driver makes an instance for a claim.

    `shares` is its `division`, `count` how many shares it has, 0 if they are not counted. `taints` are the keys of those that
    keep claims away.
    """

    name: str
    type: str
    profile: str
    uuid: str
    shares: str = ""
    count: int = 0
    taints: tuple[str, ...] = ()


class SliceView(Struct):
    """A ResourceSlice. `count` is how many slices its pool has in this `generation`."""

    name: str
    node: str
    pool: str
    generation: int
    count: int
    devices: tuple[SliceDevice, ...]


def select_node(node: str, driver: str) -> dict[str, str]:
    """Return the query for the slices of this driver of this node."""
    return {"fieldSelector": f"spec.driver={driver},spec.nodeName={node}"}


def view_slice(thing: Json) -> SliceView:
    """Return the slice of this object. ValueError, TypeError, LookupError or AttributeError if it is none."""
    spec = thing["spec"]
    pool = spec.get("pool") or {}
    return SliceView(
        name=str(thing["metadata"]["name"]),
        node=str(spec.get("nodeName") or ""),
        pool=str(pool.get("name") or ""),
        generation=int(pool.get("generation") or 0),
        count=int(pool.get("resourceSliceCount") or 0),
        devices=tuple(map(_device, spec.get("devices") or ())),
    )


def _device(device: Json) -> SliceDevice:
    attributes, capacities = device.get("attributes") or {}, device.get("capacity") or {}
    shares = division(device)
    return SliceDevice(
        name=str(device["name"]),
        type=_text(attributes, "type"),
        profile=_text(attributes, "profile"),
        uuid=_text(attributes, "uuid"),
        shares=shares,
        count=(units(capacities[SHARES].get("value")) or 0) if shares == DraShares.COUNT else 0,
        taints=tuple(str(one["key"]) for one in device.get("taints") or () if one["effect"] in KEEPING_AWAY),
    )


def _text(attributes: Json, name: str) -> str:
    return str((attributes.get(name) or {}).get("string") or "")


def view_slices(things: Iterable[Json]) -> tuple[SliceView, ...]:
    """Return the slices of these objects. Errors as `view_slice`."""
    return tuple(map(view_slice, things))


def are_on_demand(slices: Iterable[SliceView]) -> bool | None:
    """Return whether the driver makes MIG instances on demand; None if nothing is listed."""
    devices = [device for one in slices for device in one.devices]
    return any(one.type == "mig" and not one.uuid for one in devices) if devices else None
