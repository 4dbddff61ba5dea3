"""Views: the API server's JSON as this project's types. Pure; what an object lacks is empty, never an error."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from gpushare_node.adapters.kube.cluster import NodeView, PodClaim, PodEvent, PodView, Taint
from gpushare_node.contract import objects
from gpushare_node.contract.quantity import units
from gpushare_node.vendors import RESOURCES, names_gpus

Json = Mapping[str, Any]

FIELD_MANAGER = "gpushare"
"""The field manager of applied labels."""

DISRUPTION = "DisruptionTarget"
"""The condition of a pod that is moved: Jobs (`podFailurePolicy`) and other controllers do not count it as a failure."""

_CONFIG_HASH = "kubernetes.io/config.hash"
_MIRROR = "kubernetes.io/config.mirror"
_HASH = re.compile("[0-9a-f]{32}")
"""It marks a static pod's mirror. Any user may write annotations, but kubelet runs no pod that has this one."""
_CONTAINERS = ("initContainers", "containers")
_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def view_node(node: Json) -> NodeView:
    """Return the node of this object."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    return NodeView(
        name=metadata["name"],
        uid=metadata["uid"],
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        taints=tuple(view_taint(one) for one in spec.get("taints") or ()),
        allocatable=dict(_resources(status.get("allocatable") or {})),
        owners=_owners(metadata.get("managedFields") or ()),
    )


def view_taint(taint: Json) -> Taint:
    """Return the taint of this object."""
    return Taint(key=taint["key"], effect=taint["effect"], value=taint.get("value") or "")


def view_event(event: Json) -> PodEvent:
    """Return the Event of this object; without a readable time, one of 1970."""
    at = 0.0
    with suppress(ValueError):
        at = datetime.fromisoformat(str(event.get("lastTimestamp") or event.get("eventTime"))).timestamp()
    return PodEvent(reason=str(event.get("reason") or ""), message=str(event.get("message") or ""), at=at)


def view_pod(pod: Json) -> PodView:
    """Return the pod of this object."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    # The mirror of a static pod has its own uid; kubelet and cgroups identify the pod by the hash of its file.
    annotations = metadata.get("annotations") or {}
    # Any pod may have these annotations, but none of the API server's has a uid of this form.
    other = annotations.get(_CONFIG_HASH) if _MIRROR in annotations else None
    other = other if other and _HASH.fullmatch(other) else None
    controller: Json = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), {})
    return PodView(
        uids=(metadata["uid"], other) if other else (metadata["uid"],),
        namespace=metadata["namespace"],
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        phase=status.get("phase") or "",
        is_terminating=bool(metadata.get("deletionTimestamp")),
        owner=controller.get("uid") or "",
        controller=f"{controller.get('kind')}/{controller.get('name')}" if controller else "",
        containers={identity: one["name"] for identity, one in _made(status)},
        started=_started(status),
        claims=tuple(_claims(spec, status)),
        resources=frozenset(_requested(spec, status)),
        is_disrupted=any(
            (one.get("type"), one.get("status")) == (DISRUPTION, "True") for one in objects.mappings(status, "conditions")
        ),
    )


def _resources(allocatable: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    """Yield the resources of GPUs' vendors. The API server itself does not allow fractions of an extended resource."""
    for name, quantity in allocatable.items():
        if name.startswith(RESOURCES) and (count := units(quantity)) is not None:
            yield name, count


def _requested(spec: Json, status: Json) -> Iterable[str]:
    """Yield the GPU resources that containers request, without those that the pod has by a claim.

    Requests equal limits for extended resources.
    """
    claimed = {(container, name) for container, name, _ in objects.claimed_limits(status)}
    for one in _specified(spec):
        yield from (name for name in _limits(one) if _is_gpu(name) and (one.get("name") or "", name) not in claimed)


def _specified(spec: Json) -> Iterable[Json]:
    """Yield the containers of the spec; ephemeral ones have no resources."""
    return (one for kind in _CONTAINERS for one in spec.get(kind) or ())


def _limits(container: Json) -> Iterable[str]:
    """Return the names in a container's limits, without those of which it wants none."""
    return [name for name, quantity in objects.container_resources(container).items() if units(quantity) != 0]


def _claims(spec: Json, status: Json) -> Iterable[PodClaim]:
    """Yield the pod's claims as kubelet finds them: named, made from a template, or made for extended resources."""
    for own, name, _ in objects.pod_claims(spec, status):
        used = {objects.text(one, "name"): objects.mappings(one.get("resources"), "claims") for one in _specified(spec)}
        requests = {
            container: frozenset(objects.text(one, "request") for one in claims if one.get("name") == own)
            for container, claims in used.items()
        }
        yield PodClaim(name=name, requests={container: wanted for container, wanted in requests.items() if wanted})
    extended = objects.mapping(status, "extendedResourceClaimStatus")
    if extended:
        asked = {(one.get("name"), name) for one in _specified(spec) for name in _limits(one)}
        found: dict[str, frozenset[str]] = {}
        for container, resource, request in objects.claimed_limits(status):
            if (container, resource) in asked:
                found[container] = found.get(container, frozenset()) | {request}
        yield PodClaim(name=objects.text(extended, "resourceClaimName"), requests=found)


def _is_gpu(resource: str) -> bool:
    """Whether its name is a vendor's, or one under which other plugins give parts of GPUs."""
    return resource.startswith(RESOURCES) or ("/" in resource and names_gpus(resource))


def _owners(entries: Iterable[Json]) -> dict[str, str]:
    """Return the field manager of each label; ours, if several share one."""
    found: dict[str, str] = {}
    for entry in entries:
        fields = entry.get("fieldsV1") or {}
        for field in (fields.get("f:metadata") or {}).get("f:labels") or {}:
            label = field.removeprefix("f:")
            if field != label and found.get(label) != FIELD_MANAGER:
                found[label] = str(entry.get("manager") or "unknown")
    return found


def _started(status: Json) -> dict[str, float]:
    """Return when each running container was started, in seconds since 1970, as kubelet reports it."""
    found = {}
    for identity, one in _made(status):
        text = ((one.get("state") or {}).get("running") or {}).get("startedAt")
        with suppress(ValueError):
            found[identity] = datetime.fromisoformat(str(text)).timestamp()
    return found


def _made(status: Json) -> Iterable[tuple[str, Json]]:
    """Yield the statuses of created containers, with the runtime's id, whose form is `containerd://ID`."""
    for one in (one for kind in _STATUSES for one in status.get(kind) or ()):
        identity = str(one.get("containerID") or "").rpartition("//")[2]
        if identity:
            yield identity, one
