"""What `gpushare import --live` reads: the objects from which an intent is made, as the API server has them. Reads only.

An object that is in no list that could be read is missing from the intent: `Inventory.unseen` says which lists those are.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote as quoted

from gpushare.cluster.importing import collecting, quotas
from gpushare.cluster.importing.helm_values import RELEASE_NAMESPACE
from gpushare.cluster.live import claims, helm_release
from gpushare.cluster.live.objects import ReadFailure
from gpushare.cluster.live.pages import Api, Json, Lists
from gpushare.core.wording import clean
from gpushare.facts.catalog import upstream
from gpushare.intent.types import Dra
from gpushare.vendors.nvidia import NVIDIA
from gpushare_node.contract.objects import mapping
from gpushare_node.contract.struct import Struct

NAMESPACES = ("gpu-operator", "nvidia-gpu-operator", "nvidia-device-plugin", "nvidia", "kube-system", Dra().namespace)
"""Where NVIDIA's operator, device plugin and DRA driver are usually installed."""
_CHARTS = tuple(upstream.FILES.values())
_OURS = "app.kubernetes.io/name!=gpushare"


class FoundObjects(Struct):
    """The objects, each with a name for findings, and what could not be read."""

    objects: tuple[tuple[str, Json], ...]
    unseen: tuple[ReadFailure, ...]


def read(api: Api, namespaces: Iterable[str], *, values: bool) -> FoundObjects:
    """Return the objects. `values`: of the Helm releases too. NoClusterError if the server cannot be reached."""
    lists = Lists(api)
    found = [*lists.read("nodes", "/api/v1/nodes", _node, bool, {})]
    found += lists.read("resourcequotas", "/api/v1/resourcequotas", _quota, bool, {})
    policies = [*_policies(lists)]
    found += policies
    path = f"/apis/{claims.API}/{claims.CLASSES}"
    found += lists.read(f"objects of DRA ({claims.API})", path, _device_class, bool, {"labelSelector": _OURS})
    for namespace in dict.fromkeys(namespaces):
        place = f"/api/v1/namespaces/{quoted(namespace, safe='')}"
        found += lists.read(f"configmaps of {namespace}", f"{place}/configmaps", _config_map, bool, {"labelSelector": _OURS})
        if values:
            charts = _CHARTS if not policies else (upstream.FILES[upstream.DRA],)
            found += [_release(one, namespace) for one in helm_release.installed(lists, namespace, charts)]
    return FoundObjects(objects=tuple((_name(one), one) for one in found), unseen=tuple(lists.unseen))


def _policies(lists: Lists) -> Iterator[Json]:
    """Yield the ClusterPolicies; a cluster without NVIDIA's operator does not know the kind."""
    path, unseen = f"/apis/{NVIDIA.prefix}v1/clusterpolicies", len(lists.unseen)
    yield from lists.read("clusterpolicies", path, _policy, bool, {})
    if any(one.why.startswith("404") for one in lists.unseen[unseen:]):
        del lists.unseen[unseen:]


def _device_class(item: Json) -> Json:
    """Return what names a DeviceClass: none is imported, and each that is not ours is reported."""
    return _object(claims.API, "DeviceClass", mapping(item, "metadata"))


def _node(item: Json) -> Json:
    metadata, status = mapping(item, "metadata"), mapping(item, "status")
    kept = {name: mapping(status, name) for name in ("capacity", "allocatable", "nodeInfo")}
    return _object("v1", "Node", metadata) | {"spec": {"taints": mapping(item, "spec").get("taints")}, "status": kept}


def _quota(item: Json) -> Json:
    spec = mapping(item, "spec")
    gpus = {key: number for key, number in mapping(spec, "hard").items() if quotas.is_of_gpus(key)}
    return _object("v1", "ResourceQuota", mapping(item, "metadata")) | {"spec": {**spec, "hard": gpus}} if gpus else {}


def _config_map(item: Json) -> Json:
    data = mapping(item, "data")
    if not any(isinstance(text, str) and collecting.may_be_config(text) for text in data.values()):
        return {}
    return _object("v1", "ConfigMap", mapping(item, "metadata")) | {"data": data}


def _policy(item: Json) -> Json:
    found = _object(f"{NVIDIA.prefix}v1", "ClusterPolicy", mapping(item, "metadata")) | {"spec": mapping(item, "spec")}
    return _annotated(found, item, RELEASE_NAMESPACE)


def _release(one: helm_release.DeployedRelease, namespace: str) -> Json:
    """Return a release of NVIDIA's charts with the user's values, as the importer reads it: the rest is the chart's own."""
    metadata = {"name": one.name, "namespace": namespace}
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "HelmRelease",
        "metadata": metadata,
        "chart": one.chart,
        "version": one.version,
        "values": dict(one.given),
    }


def _object(version: str, kind: str, metadata: Mapping[str, Any]) -> Json:
    """Return the object with what identifies it: entries of a list have no kind."""
    kept = {key: metadata[key] for key in ("name", "namespace", "labels") if key in metadata}
    return {"apiVersion": version, "kind": kind, "metadata": kept}


def _annotated(found: Json, item: Json, key: str) -> Json:
    """Return the object with this annotation, if it has it."""
    notes = mapping(mapping(item, "metadata"), "annotations")
    found["metadata"]["annotations"] = {key: notes[key]} if key in notes else {}
    return found


def _name(item: Mapping[str, Any]) -> str:
    metadata = mapping(item, "metadata")
    where = f"{clean(metadata.get('namespace'))}/" if metadata.get("namespace") else ""
    return f"{item['kind']} {where}{clean(metadata.get('name'))}" if metadata else "values of the Helm release"
