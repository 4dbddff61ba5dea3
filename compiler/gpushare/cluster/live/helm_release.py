"""The values of the installed Helm release, from the Secret in which Helm keeps it. Optional: reading Secrets is a large right.

Helm stores a release as base64 of gzip of JSON, which the Secret encodes in base64 again (helm.sh/helm, pkg/storage/driver).
"""

import base64
import binascii
import zlib
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote as quoted

from gpushare.cluster.live import objects
from gpushare.cluster.live.pages import Lists, RequestError
from gpushare_node.contract.struct import Struct

_MAX_BYTES = 64 << 20
_CHART = "gpushare"


class DeployedRelease(Struct):
    """A deployed release of a chart: `given` are the user's values, `values` those over the chart's own."""

    name: str
    chart: str
    version: str
    given: Mapping[str, Any]
    values: Mapping[str, Any]


def read(lists: Lists, namespace: str) -> Mapping[str, Any] | None:
    """Return the values of our deployed release, the user's over the chart's; None if there is none to read."""
    found = installed(lists, namespace, (_CHART,))
    return found[0].values if found else None


def installed(lists: Lists, namespace: str, charts: Collection[str]) -> list[DeployedRelease]:
    """Return the deployed releases of the charts in a namespace."""
    path = f"/api/v1/namespaces/{quoted(namespace, safe='')}/secrets"
    query = {"labelSelector": "owner=helm,status=deployed"}
    what = "values of the Helm release"
    releases = lists.read(what, path, lambda secret: _release(secret, charts), lambda one: one is not None, query)
    return [one for one in releases if one is not None]


def _release(secret: Mapping[str, Any], charts: Collection[str]) -> DeployedRelease | None:
    data = secret.get("data")
    text = data.get("release") if isinstance(data, dict) else None
    release = objects.document(_unpacked(text)) if isinstance(text, str) else None
    chart = release.get("chart") if isinstance(release, dict) else None
    metadata = chart.get("metadata") if isinstance(chart, dict) else None
    if not isinstance(release, dict) or not isinstance(chart, dict) or not isinstance(metadata, dict):
        return None
    if metadata.get("name") not in charts:
        return None
    values, config = chart.get("values") or {}, release.get("config") or {}
    if not isinstance(values, dict) or not isinstance(config, dict):
        raise RequestError("the release's Secret is not in Helm's form: its values are not a mapping")
    try:
        merged: Mapping[str, Any] = _merged(values, config)
    except RecursionError as problem:
        raise RequestError("the release's values are nested too deeply") from problem
    words = (release.get("name"), metadata.get("name"), metadata.get("version"))
    name, chart_name, version = (word if isinstance(word, str) else "" for word in words)
    return DeployedRelease(name=name, chart=chart_name, version=version, given=config, values=merged)


def _unpacked(text: str) -> str:
    try:
        packed = base64.b64decode(base64.b64decode(text))
        inflate = zlib.decompressobj(wbits=31)
        plain = inflate.decompress(packed, _MAX_BYTES)
    except (binascii.Error, zlib.error, ValueError) as problem:
        raise RequestError(f"the release's Secret is not in Helm's form: {problem}") from problem
    if inflate.unconsumed_tail:
        raise RequestError(f"the release is larger than {_MAX_BYTES >> 20} MiB")
    if not inflate.eof:
        raise RequestError("the release's Secret is not in Helm's form: it ends too early")
    return plain.decode(errors="replace")


def _merged(base: Any, over: Any) -> Any:
    """Return Helm's merge: mappings by key, in which null removes; anything else replaces."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    both = {key: _merged(base[key], value) if key in base else value for key, value in over.items()}
    return {key: value for key, value in {**base, **both}.items() if value is not None}
