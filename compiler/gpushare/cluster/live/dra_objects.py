"""Objects of `resource.k8s.io/v1`, as JSON, to values: only the fields that we use. Pure; never raises.

What is not as expected counts as missing, as in `api_objects`. No expression is evaluated: those of our classes have one form,
which `render/stacks/dra.py` writes, and that is recognised.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from gpushare.cluster.live import devices
from gpushare.cluster.live.api_objects import Json
from gpushare.cluster.live.devices import (
    Capacity,
    Claim,
    ClaimTemplate,
    Counters,
    Device,
    DeviceClass,
    Grant,
    Policy,
    Request,
    Selection,
    Slice,
    Taint,
)
from gpushare.core.wording import clean
from gpushare.offering.backends.dra import DRIVER
from gpushare_node.contract import quantity
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.objects import device_taints, mapping, mappings
from gpushare_node.contract.struct import NOTHING

_MOST = 10**18
"""No generation or count of a real object is larger."""
_OURS = ("app.kubernetes.io/name", "gpushare")
_NO_GENERATION = -1
_TEXTS = {"kind": "type", "profile": "profile", "product": "productName"}
_ATTRIBUTE = rf"device\.attributes\['{re.escape(DRIVER)}'\]\."
_NAME = r"'[^'\\]{1,128}'"
_FORM = re.compile(
    rf"device\.driver == '{re.escape(DRIVER)}' && {_ATTRIBUTE}type == '(?P<kind>gpu|mig)'"
    rf"(?: && {_ATTRIBUTE}profile == '(?P<profile>[^'\\]{{1,64}})')?"
    rf" && {_ATTRIBUTE}productName (?:== (?P<one>{_NAME})|in \[(?P<several>{_NAME}(?:, {_NAME})*)\])"
)


def resource_slice(item: Json) -> Slice:
    """Return the slice of this object."""
    spec = mapping(item, "spec")
    pool = mapping(spec, "pool")
    return Slice(
        name=clean(mapping(item, "metadata").get("name")),
        node=clean(spec.get("nodeName")),
        pool=clean(pool.get("name")),
        generation=_whole(pool.get("generation"), _NO_GENERATION),
        count=_whole(pool.get("resourceSliceCount"), 0),
        devices=tuple(map(_device, mappings(spec, "devices"))),
        counters=_counters(spec, "sharedCounters", "name"),
    )


def _device(item: Json) -> Device:
    attributes, capacities = mapping(item, "attributes"), mapping(item, "capacity")
    values = {clean(name): _capacity(mapping(capacities, name)) for name in capacities}
    texts = {field: clean(mapping(attributes, name).get("string")) for field, name in _TEXTS.items()}
    division = ""
    if item.get("allowMultipleAllocations") is True:
        of_memory = values.get(devices.MEMORY)
        division = devices.BY_COUNT if devices.SHARES in values else devices.BY_MEMORY
        if division == devices.BY_MEMORY and (of_memory is None or not of_memory.default):
            division = devices.UNLIMITED
    taints = tuple(map(_taint, device_taints(item)))
    return Device(
        name=clean(item.get("name")),
        capacities=values or NOTHING,
        division=division,
        taints=taints,
        counters=_counters(item, "consumesCounters", "counterSet"),
        **texts,
    )


def _counters(item: Json, field: str, key: str) -> Counters:
    """Return the counters of all sets. Nodes with the same cards share one object: of many nodes it is half of their memory."""
    found = (
        (f"{clean(one.get(key))}/{clean(name)}", amount(mapping(counters, name).get("value")))
        for one in mappings(item, field)
        for counters in [mapping(one, "counters")]
        for name in counters
    )
    return _kept(tuple(found)) or NOTHING


@lru_cache(maxsize=4096)
def _kept(counters: tuple[tuple[str, int], ...]) -> Counters:
    return dict(counters)


def _capacity(item: Json) -> Capacity:
    value = amount(item.get("value"))
    policy = mapping(item, "requestPolicy")
    return Capacity(value=value, default=amount(policy["default"]) if "default" in policy else value)


def amount(text: object) -> int:
    """Return a quantity in whole units, rounded up; 0 if it is none."""
    return quantity.units(text) or 0


def device_class(item: Json) -> DeviceClass:
    """Return the class of this object."""
    metadata, spec = mapping(item, "metadata"), mapping(item, "spec")
    labels = mapping(metadata, "labels")
    return DeviceClass(
        name=clean(metadata.get("name")),
        pool=clean(labels.get(POOL_LABEL)),
        is_ours=labels.get(_OURS[0]) == _OURS[1],
        extended_name=clean(spec.get("extendedResourceName")),
        selection=_selection(spec),
        spec=spec,
    )


def _selection(spec: Json) -> Selection | None:
    expressions = [mapping(one, "cel").get("expression") for one in mappings(spec, "selectors")]
    found = _FORM.fullmatch(expressions[0]) if len(expressions) == 1 and isinstance(expressions[0], str) else None
    if found is None or (found["kind"] == devices.INSTANCE) != bool(found["profile"]):
        return None
    names = re.findall(r"'([^']*)'", found["one"] or found["several"])
    return Selection(kind=found["kind"], profile=clean(found["profile"]), products=tuple(map(clean, names)))


def template(item: Json) -> ClaimTemplate:
    """Return the template of this object; its specification is not for printing."""
    metadata = mapping(item, "metadata")
    spec = mapping(mapping(item, "spec"), "spec")
    return ClaimTemplate(namespace=clean(metadata.get("namespace")), name=clean(metadata.get("name")), spec=spec)


def policy(plural: str, item: Json) -> Policy:
    """Return the admission policy or the binding of this object; its specification is not for printing."""
    return Policy(plural=plural, name=clean(mapping(item, "metadata").get("name")), spec=mapping(item, "spec"))


def claim(item: Json) -> Claim:
    """Return the claim of this object."""
    metadata, spec, status = (mapping(item, part) for part in ("metadata", "spec", "status"))
    allocation = status.get("allocation")
    results = [*mappings(mapping(mapping(status, "allocation"), "devices"), "results")]
    owner = next((one for one in mappings(metadata, "ownerReferences") if one.get("kind") == "Pod"), None)
    return Claim(
        namespace=clean(metadata.get("namespace")),
        name=clean(metadata.get("name")),
        uid=clean(metadata.get("uid")),
        requests=tuple(tuple(_alternatives(one)) for one in mappings(mapping(spec, "devices"), "requests")),
        grants=tuple(map(_grant, (one for one in results if one.get("driver") == DRIVER))) if allocation else None,
        pods=tuple(
            (clean(one.get("name")), clean(one.get("uid")))
            for one in mappings(status, "reservedFor")
            if one.get("resource") == "pods"
        ),
        owner=(clean(owner.get("name")), clean(owner.get("uid"))) if owner else None,
        is_going="deletionTimestamp" in metadata,
    )


def _alternatives(item: Json) -> Iterator[Request]:
    name = clean(item.get("name"))
    listed = [mapping(item, "exactly")] if "exactly" in item else [*mappings(item, "firstAvailable")]
    for one in listed:
        asked = mapping(mapping(one, "capacity"), "requests")
        yield Request(
            name=f"{name}/{clean(one.get('name'))}" if one.get("name") else name,
            device_class=clean(one.get("deviceClassName")),
            count=_whole(one.get("count"), 1),
            capacities={clean(key): amount(value) for key, value in asked.items()} or NOTHING,
            has_selectors=bool(one.get("selectors")),
            tolerations=tuple(map(_taint, mappings(one, "tolerations"))),
            is_admin=one.get("adminAccess") is True,
        )


def _grant(item: Json) -> Grant:
    consumed = mapping(item, "consumedCapacity")
    return Grant(
        request=clean(item.get("request")),
        pool=clean(item.get("pool")),
        device=clean(item.get("device")),
        is_admin=item.get("adminAccess") is True,
        consumed={clean(key): amount(value) for key, value in consumed.items()} or NOTHING,
    )


def _taint(item: Json) -> Taint:
    key, value, effect, operator = (clean(item.get(name)) for name in ("key", "value", "effect", "operator"))
    return Taint(key=key, value=value, effect=effect, operator=operator)


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST else default
