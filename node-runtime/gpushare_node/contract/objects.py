"""Objects of the API server, from JSON: what the compiler and the node read of them, by Kubernetes' rules. Pure; never raises.

An object may lack any field or have another type there: what is not as expected counts as missing.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpushare_node.contract.names import MEMORY, SHARES
from gpushare_node.contract.policy import DraShares
from gpushare_node.contract.quantity import units

Json = Mapping[str, Any]

KEEPING_AWAY = frozenset({"NoSchedule", "NoExecute"})
"""Effects of a device's taint that keep claims away. `None` only informs, and any other is not known to Kubernetes yet."""

UNLIMITED = "unlimited"
"""`division` of a device that any number of claims share."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def mapping(item: object, *path: str) -> Json:
    """Return the mapping at these keys; without one an empty one."""
    for key in path:
        item = item.get(key) if isinstance(item, dict) else None
    return item if isinstance(item, dict) else {}


def mappings(item: object, key: str) -> list[Json]:
    """Return the mappings in the list of that name."""
    found = item.get(key) if isinstance(item, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def texts(item: Json, key: str) -> list[str]:
    """Return the texts in the list of that name."""
    found = item.get(key)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def text(item: Json, key: str) -> str:
    """Return the text of that name; any other value is empty."""
    found = item.get(key)
    return found if isinstance(found, str) else ""


def term_matches(term: Json, name: str, labels: Mapping[str, str], ignored: tuple[str, ...] = ()) -> bool:
    """Whether a node selector term matches a node; labels that begin with one of `ignored` are not asked.

    An empty term matches nothing, as in Kubernetes.
    """
    expressions = [one for one in mappings(term, "matchExpressions") if not text(one, "key").startswith(ignored)]
    fields = mappings(term, "matchFields")
    named = {"metadata.name": name}
    holding = all(_holds(one, labels) for one in expressions) and all(_holds(one, named) for one in fields)
    return bool(expressions or fields) and holding


def _holds(requirement: Json, values: Mapping[str, str]) -> bool:
    value, listed = values.get(text(requirement, "key")), texts(requirement, "values")
    match requirement.get("operator"):
        case "In":
            return value in listed
        case "NotIn":
            return value not in listed
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _compares(value, operator, listed)
        case _:
            return False


def _compares(value: str | None, operator: str, listed: list[str]) -> bool:
    """Compare integers as Go reads them, of which there is one to compare with; any other text does not match."""
    if value is None or len(listed) != 1 or not (_WHOLE.fullmatch(value) and _WHOLE.fullmatch(listed[0])):
        return False
    have, than = int(value), int(listed[0])
    return have > than if operator == "Gt" else have < than


def container_resources(container: Json) -> Json:
    """Return the quantities of a container's extended resources, whose requests are its limits."""
    resources = mapping(container, "resources")
    found: Mapping[Any, Any] = {**mapping(resources, "requests"), **mapping(resources, "limits")}
    return {name: quantity for name, quantity in found.items() if isinstance(name, str)}  # YAML has other keys


def pod_requests(spec: Json, of_container: Callable[[Json], Mapping[str, int]]) -> dict[str, int]:
    """Return what the scheduler counts for a pod, of what each container requests.

    Init containers run one after the other, each beside the sidecars that began before it; then containers and sidecars run.
    """
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for one in mappings(spec, "initContainers"):
        own = of_container(one)
        if one.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, own)
            own = {}
        most = _most(most, _sum(sidecars, own))
    total = sidecars
    for one in mappings(spec, "containers"):
        total = _sum(total, of_container(one))
    return {name: number for name, number in _most(total, most).items() if number}


def _sum(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _most(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def pod_claims(spec: Json, status: Json) -> Iterator[tuple[str, str, str]]:
    """Yield the claims that a pod names: its name for each, the claim's, empty until it is made, and its template's, if any.

    Without those that were to be made, and were found to be unnecessary: they are in the status without a claim.
    """
    made = {text(one, "name"): text(one, "resourceClaimName") for one in mappings(status, "resourceClaimStatuses")}
    for one in mappings(spec, "resourceClaims"):
        own = text(one, "name")
        claim = text(one, "resourceClaimName") or made.get(own, "")
        if claim or own not in made:
            yield own, claim, text(one, "resourceClaimTemplateName")


def claimed_limits(status: Json) -> Iterator[tuple[str, str, str]]:
    """Yield container, resource and request of the limits for which the scheduler has made a claim."""
    for one in mappings(mapping(status, "extendedResourceClaimStatus"), "requestMappings"):
        if request := text(one, "requestName"):
            yield text(one, "containerName"), text(one, "resourceName"), request


def device_taints(device: Json) -> list[Json]:
    """Return the taints of a device that keep claims away which do not tolerate them."""
    return [one for one in mappings(device, "taints") if text(one, "effect") in KEEPING_AWAY]


def division(device: Json) -> str:
    """Return by what claims share a device: a word of `DraShares`, or UNLIMITED; empty: one claim has it whole.

    A claim that asks for none of its memory takes what the driver says, all if it says nothing: without limit they share where
    that is nothing.
    """
    capacities = mapping(device, "capacity")
    if device.get("allowMultipleAllocations") is not True:
        return ""
    if SHARES in capacities:
        return DraShares.COUNT.value
    memory = mapping(capacities, MEMORY)
    default = mapping(memory, "requestPolicy").get("default", memory.get("value"))
    return DraShares.MEMORY.value if units(default) else UNLIMITED


def tolerates(toleration: Json, taint: Json) -> bool:
    """Whether a request for devices with this toleration may get a device with this taint.

    Without an effect all are tolerated, and with `Exists` and no key all taints. The operator is `Equal` if not said.
    """
    key, operator, effect = text(toleration, "key"), text(toleration, "operator") or "Equal", text(toleration, "effect")
    if effect and effect != text(taint, "effect"):
        return False
    if operator == "Exists":
        return key in ("", text(taint, "key"))
    return operator == "Equal" and (key, text(toleration, "value")) == (text(taint, "key"), text(taint, "value")) and key != ""
