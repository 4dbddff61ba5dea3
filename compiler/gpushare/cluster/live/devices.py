"""What a cluster says of the devices of NVIDIA's DRA driver, as values: slices, classes, templates, claims. Pure.

All texts are safe to print. Amounts are whole units: bytes, or a count.
"""

from collections.abc import Mapping
from typing import Any

from gpushare_node.contract.struct import NOTHING, Struct

API = "resource.k8s.io/v1"
"""The group and version that they are of."""

SLICES, CLASSES = "resourceslices", "deviceclasses"
CLAIMS, TEMPLATES = "resourceclaims", "resourceclaimtemplates"
"""`ReadFailure.what` of these lists."""

POLICIES = ("validatingadmissionpolicies", "mutatingadmissionpolicies")
BINDINGS = ("validatingadmissionpolicybindings", "mutatingadmissionpolicybindings")
"""`ReadFailure.what` of the lists of admission, in the same order."""

BY_MEMORY, BY_COUNT, UNLIMITED = "memory", "count", "unlimited"
"""By what claims share a device."""

WHOLE, INSTANCE = "gpu", "mig"
"""The driver's types of devices."""

MEMORY, SHARES = "memory", "shares"
"""Names of capacities."""


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
    """One device of a slice. `kind` is gpu or mig; `division` by what claims share it, empty: one claim has it whole.

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


class ClaimTemplate(Struct):
    """One ResourceClaimTemplate of ours, with the specification of its claims as it is."""

    namespace: str
    name: str
    spec: Mapping[str, Any] = NOTHING


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


class PodClaim(Struct):
    """One claim of a pod: by which template, or none, and the name of the ResourceClaim; empty until it is made."""

    name: str
    claim: str = ""
    template: str = ""


class Policy(Struct):
    """One admission policy of ours, or the binding of one, with its specification as it is."""

    plural: str
    name: str
    spec: Mapping[str, Any] = NOTHING


class DraObjects(Struct):
    """What was read of the driver's objects; templates and policies for a comparison with a bundle only."""

    slices: tuple[Slice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    templates: tuple[ClaimTemplate, ...] = ()
    claims: tuple[Claim, ...] = ()
    policies: tuple[Policy, ...] = ()
