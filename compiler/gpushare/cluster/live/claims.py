"""Objects of NVIDIA's DRA driver as values, each beside its reader: slices, classes, templates, claims. Pure; never raises.

What is not as expected counts as missing, and texts are safe to print, as in `objects`. Amounts are whole units: bytes, or a
count. No expression is evaluated: those of our classes have one form, which `render/stacks/dra.py` writes, and that is
recognised. The commands on a cluster ask this module for whatever is the driver's own.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from gpushare.core.wording import clean
from gpushare.offering.backends import dra
from gpushare.offering.backends.requests import OUR_CLASSES
from gpushare_node.contract import quantity
from gpushare_node.contract.names import IMPLICIT, POOL_LABEL
from gpushare_node.contract.objects import Json, device_taints, division, mapping, mappings
from gpushare_node.contract.struct import NOTHING, Struct

API = "resource.k8s.io/v1"
"""The group and version that they are of."""
DRIVER = dra.DRIVER
"""The name of the driver in slices and claims."""

OUR_NAMES = (OUR_CLASSES, f"{IMPLICIT}{OUR_CLASSES}")
"""With which the names of our classes begin, and those that Kubernetes gives them in limits."""

SLICES, CLASSES = "resourceslices", "deviceclasses"
CLAIMS, TEMPLATES = "resourceclaims", "resourceclaimtemplates"
"""`ReadFailure.what` of these lists."""
POLICIES = ("validatingadmissionpolicies", "mutatingadmissionpolicies")
BINDINGS = ("validatingadmissionpolicybindings", "mutatingadmissionpolicybindings")
"""`ReadFailure.what` of the lists of admission, in the same order."""
WHOLE, INSTANCE = "gpu", "mig"
"""The driver's types of devices."""

_MOST = 10**18
"""No generation or count of a real object is larger."""
_OURS = ("app.kubernetes.io/name", "gpushare")
_NO_GENERATION = -1
_TEXTS = {"kind": "type", "profile": "profile", "product": "productName"}

Counters = Mapping[str, int]
"""Amounts of counters, by set and name as in `gpu-0-counter-set/memory-slice-0`."""


class Capacity(Struct):
    """One capacity of a device. `default`: what a claim gets that asks for none of it; all, if the driver does not say."""

    value: int
    default: int


class Taint(Struct):
    """A taint of a device that keeps claims away, or what a request tolerates; then `operator` is Exists or Equal."""

    key: str
    value: str
    effect: str
    operator: str = ""

    def __str__(self) -> str:
        return f"{self.key}:{self.effect}"


class Device(Struct):
    """One device of a slice. `kind` is gpu or mig; `division` by what claims share it, as `objects` has it.

    `counters`: what it takes, while claims have it, of those that the devices of its pool share.
    """

    name: str
    kind: str = ""
    profile: str = ""
    product: str = ""
    capacities: Mapping[str, Capacity] = NOTHING
    division: str = ""
    taints: tuple[Taint, ...] = ()
    counters: Counters = NOTHING


class Slice(Struct):
    """One ResourceSlice. `count` is how many slices its pool has in this generation.

    `counters`: how much of each there is for the devices of its pool.
    """

    name: str
    node: str
    pool: str
    generation: int
    count: int
    devices: tuple[Device, ...] = ()
    counters: Counters = NOTHING


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
    return Device(
        name=clean(item.get("name")),
        capacities=values or NOTHING,
        division=division(item),
        taints=tuple(map(_taint, device_taints(item))),
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


def _taint(item: Json) -> Taint:
    key, value, effect, operator = (clean(item.get(name)) for name in ("key", "value", "effect", "operator"))
    return Taint(key=key, value=value, effect=effect, operator=operator)


_ATTRIBUTE = rf"device\.attributes\['{re.escape(DRIVER)}'\]\."
_NAME = r"'[^'\\]{1,128}'"
_FORM = re.compile(
    rf"device\.driver == '{re.escape(DRIVER)}' && {_ATTRIBUTE}type == '(?P<kind>gpu|mig)'"
    rf"(?: && {_ATTRIBUTE}profile == '(?P<profile>[^'\\]{{1,64}})')?"
    rf" && {_ATTRIBUTE}productName (?:== (?P<one>{_NAME})|in \[(?P<several>{_NAME}(?:, {_NAME})*)\])"
)


class Selection(Struct):
    """What a selector of our form chooses: devices of this kind and profile (empty: whole GPUs) of one of these products."""

    kind: str
    profile: str
    products: tuple[str, ...]

    def accepts(self, device: Device) -> bool:
        """Whether the class gives out the device."""
        is_same = (device.kind, device.profile if device.kind == INSTANCE else "") == (self.kind, self.profile)
        return is_same and device.product in self.products

    def __str__(self) -> str:
        kind = f"type mig, profile {self.profile}" if self.profile else f"type {self.kind}"
        return f"{kind}, productName {' or '.join(self.products)}"


class DeviceClass(Struct):
    """One DeviceClass. `selection` is None if its selectors are not of our form. `spec` is compared, and printed only clean."""

    name: str
    pool: str = ""
    is_ours: bool = False
    extended_name: str = ""
    selection: Selection | None = None
    spec: Mapping[str, Any] = NOTHING

    def stands_for(self, resource: str) -> bool:
        """Whether the name in limits means a device of the class."""
        return resource in {self.extended_name, f"{IMPLICIT}{self.name}"}


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
    if found is None or (found["kind"] == INSTANCE) != bool(found["profile"]):
        return None
    names = re.findall(r"'([^']*)'", found["one"] or found["several"])
    return Selection(kind=found["kind"], profile=clean(found["profile"]), products=tuple(map(clean, names)))


class ClaimTemplate(Struct):
    """One ResourceClaimTemplate of ours, with the specification of its claims as it is."""

    namespace: str
    name: str
    spec: Mapping[str, Any] = NOTHING


def template(item: Json) -> ClaimTemplate:
    """Return the template of this object; its specification is not for printing."""
    metadata = mapping(item, "metadata")
    spec = mapping(mapping(item, "spec"), "spec")
    return ClaimTemplate(namespace=clean(metadata.get("namespace")), name=clean(metadata.get("name")), spec=spec)


class Policy(Struct):
    """One admission policy of ours, or the binding of one, with its specification as it is."""

    plural: str
    name: str
    spec: Mapping[str, Any] = NOTHING


def policy(plural: str, item: Json) -> Policy:
    """Return the admission policy or the binding of this object; its specification is not for printing."""
    return Policy(plural=plural, name=clean(mapping(item, "metadata").get("name")), spec=mapping(item, "spec"))


class Request(Struct):
    """One alternative of what a claim asks for: devices of a class, and these amounts of each. `has_selectors`: of its own.

    `is_admin`: it only looks on, at devices that others may have, and consumes nothing.
    """

    name: str
    device_class: str
    count: int = 1
    capacities: Mapping[str, int] = NOTHING
    has_selectors: bool = False
    tolerations: tuple[Taint, ...] = ()
    is_admin: bool = False


class Grant(Struct):
    """One device that a claim has, by pool and name in its slice, with what it consumes of it: with `is_admin` nothing."""

    request: str
    pool: str
    device: str
    consumed: Mapping[str, int] = NOTHING
    is_admin: bool = False


class Claim(Struct):
    """One ResourceClaim. `requests` has for each request its alternatives; `grants` is None until it is allocated.

    `pods` are those that it is reserved for, as (name, uid); `owner` is the pod for which it was made.
    """

    namespace: str
    name: str
    uid: str = ""
    requests: tuple[tuple[Request, ...], ...] = ()
    grants: tuple[Grant, ...] | None = None
    pods: tuple[tuple[str, str], ...] = ()
    owner: tuple[str, str] | None = None
    is_going: bool = False

    @property
    def full_name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def classes(self) -> set[str]:
        """The DeviceClasses that it asks for."""
        return {one.device_class for alternatives in self.requests for one in alternatives}

    @property
    def is_of_pool(self) -> bool:
        """Whether it asks for a device of a class of ours."""
        return any(map(is_ours, self.classes))

    def concerns(self, ours: Collection[str]) -> bool:
        """Whether it has, or asks for, devices of the driver. `ours` are classes that select such."""
        return bool(self.grants) or any(name in ours or dra.is_of_gpus(name) for name in self.classes)


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


class PodClaim(Struct):
    """One claim of a pod: by which template, or none, and the name of the ResourceClaim; empty until it is made."""

    name: str
    claim: str = ""
    template: str = ""

    @property
    def is_by_our_template(self) -> bool:
        """Whether the template, from which the claim may not be made yet, is of our form."""
        return is_ours(self.template)

    @property
    def is_ours(self) -> bool:
        """Whether a claim that is not there would be one of ours: those of other drivers are not read."""
        return is_ours(self.template) or is_ours(self.claim)


class DraObjects(Struct):
    """What was read of the driver's objects; templates and policies for a comparison with a bundle only."""

    slices: tuple[Slice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    templates: tuple[ClaimTemplate, ...] = ()
    claims: tuple[Claim, ...] = ()
    policies: tuple[Policy, ...] = ()


def is_ours(name: str) -> bool:
    """Whether a class, or what is made for one, has a name of our form."""
    return name.startswith(OUR_CLASSES)


def of_driver(node: str) -> str:
    """Return the field selector of the driver's slices, of one node if it is not empty."""
    return f"spec.driver={DRIVER}" + (f",spec.nodeName={node}" if node else "")


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST else default
