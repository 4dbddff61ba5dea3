"""Sizes of the rendered bundle against the limits of Kubernetes and Helm: GS720 to GS722 and GS724.

Checks artifacts, not the intent, and is therefore not in the registry. ConfigMaps are measured exactly. A Helm release is
built here as Helm stores it, except for the DaemonSets, which are nearly equal and count with what one more of them adds.
"""

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gpushare.bundle import admission
from gpushare.bundle.artifact import Artifact
from gpushare.core import emit
from gpushare.core.diagnostics import Finding, Path, Severity
from gpushare_node.contract.struct import replace

KIB = 1 << 10

CONFIG_MAP_BYTES = 1024 * KIB
"""The API server refuses more data in a ConfigMap."""

RELEASE_BYTES = 1024 * KIB
"""A release is one Secret, and that is as much data as a Secret holds."""

REQUEST_BYTES = 1536 * KIB
"""The largest object that etcd takes, unless it is configured otherwise."""

ANNOTATION_BYTES = 256 * KIB
"""What all annotations of an object may take. Client-side apply writes the whole object into one."""

WARN_PERCENT = 50
FAIL_PERCENT = 90

_VALUES = "chart/values.yaml"
"""Kept as values, not as a file; its terms are repeated in the DaemonSets."""

_SMALL_VALUES = 128 * KIB
"""Nothing that is made of smaller values is near a limit."""

_TENANCY = "gpushare-tenancy"
_POLICIES, _PROFILES, _MIG_PARTED = "chart/files/policies/", "chart/files/profiles/", "chart/files/mig-parted/"
_PACKED_DAEMONSET_BYTES = 200
"""What one more pool's DaemonSet adds to a compressed release, its node affinity aside; 170 measured with 1,000 pools."""


def check_sizes(artifacts: Iterable[Artifact], values: Callable[[], Mapping[str, Any]]) -> list[Finding]:
    """Return what is near or over a limit: warnings from 50 % of it, errors from 90 % if no way of installing avoids it.

    `values` builds the chart's values; it is called only if they are needed.
    """
    files = {artifact.path: artifact.text for artifact in artifacts}
    maps, policies = dict(_config_maps(files)), dict[str, str]()
    if len(files.get(_VALUES, "")) >= _SMALL_VALUES:
        given = values()
        maps[_TENANCY] = len(emit.canonical_json(admission.tenancy(given)))
        specs = admission.policies(admission.document(given))
        policies = {name: emit.canonical_json(spec) for name, spec in specs.items()}
    objects = {f"ConfigMap {name}": size for name, size in maps.items()}
    objects |= {name: len(text) for name, text in policies.items()}
    too_large = (*_too_large_a_release(files), *_too_large_to_annotate(objects))
    return [*_too_much_data(maps), *_too_large_a_policy(policies), *too_large]


def _config_maps(files: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield (name, bytes of its keys and values) of every ConfigMap that the chart creates."""
    profiles = {path: text for path, text in files.items() if path.startswith(_PROFILES)}
    if profiles:
        each = (len(text.encode()) + len(path) - len(_PROFILES) for path, text in profiles.items())
        yield "gpushare-profiles", 2 * sum(each)
    for path, text in files.items():
        if path.startswith(_MIG_PARTED):
            yield "gpushare-mig-parted", len(text.encode())
        if path.startswith(_POLICIES):
            yield f"gpushare-{path.removeprefix(_POLICIES).rpartition('.')[0]}-policy-…", len(text.encode())


def _too_much_data(maps: Mapping[str, int]) -> Iterator[Finding]:
    for name, size in maps.items():
        hint = "pools with the same sharing, caps and card share a profile: use fewer different combinations"
        if name == _TENANCY:
            hint = "give pools or quotas to fewer namespaces: the ConfigMap names each"
        yield from _against("GS720", f"ConfigMap {name}", size, CONFIG_MAP_BYTES, hint)


def _too_large_a_policy(policies: Mapping[str, str]) -> Iterator[Finding]:
    hint = "give pools or quotas to fewer namespaces, or describe fewer pools: the policy names each"
    for name, text in policies.items():
        # etcd stores the text of an expression unescaped, JSON has its quotes escaped.
        yield from _against("GS724", name, len(text) - text.count('\\"'), REQUEST_BYTES, hint)
        longest = max(len(one["expression"]) for one in json.loads(text)["variables"])
        if longest > admission.EXPRESSION_CHARACTERS:
            message = f"an expression of {name} has {longest} characters, more than {admission.EXPRESSION_CHARACTERS}"
            fewer = "assign one namespace to fewer pools, or give them shorter names: they are in one expression"
            yield Finding(code="GS724", message=message, hints=(fewer,), path=_POOLS)


def _too_large_a_release(files: Mapping[str, str]) -> Iterator[Finding]:
    size = _release_bytes(files)
    hint = "Argo CD keeps no release; for Helm describe fewer pools, or select by labels, not names"
    # A warning at any size: the limit is Helm's own, and users who apply rendered objects are not affected.
    for finding in _against("GS721", "the Helm release of the chart", size, RELEASE_BYTES, hint):
        yield replace(finding, severity=Severity.WARNING)


def _against(code: str, what: str, size: int, limit: int, hint: str) -> Iterator[Finding]:
    percent = 100 * size // limit
    if percent >= WARN_PERCENT:
        severity = Severity.ERROR if percent >= FAIL_PERCENT else Severity.WARNING
        message = f"{what} takes about {size // KIB} KiB, {percent} % of what Kubernetes stores"
        yield Finding(code=code, severity=severity, message=message, hints=(hint,), path=_POOLS)


_POOLS: Path = ("spec", "pools")


def _too_large_to_annotate(objects: Mapping[str, int]) -> Iterator[Finding]:
    large = [name for name, size in objects.items() if size >= ANNOTATION_BYTES * FAIL_PERCENT // 100]
    if large:
        yield Finding(
            code="GS722",
            severity=Severity.WARNING,
            message=f"{large[0]} is too large for client-side apply, which keeps a copy in an annotation",
            hints=("apply it with kubectl apply --server-side, or install the chart with Helm, which needs no copy",),
            path=_POOLS,
        )


def _release_bytes(files: Mapping[str, str]) -> int:
    """Return the size of the release Secret: chart with its files in base64, values, rendered objects; gzip; base64 again.

    What is far below the limit without gzip is not compressed at all: it would take a tenth of a compile.
    """
    chart = {path: text.encode() for path, text in files.items() if path.startswith("chart/")}
    parts = [path.encode() + base64.b64encode(text) for path, text in chart.items() if path != _VALUES]
    for path, text in chart.items():
        copies = 2 if path.startswith((_PROFILES, _VALUES)) else 1 if path.startswith("chart/files/") else 0
        parts += [text] * copies
    daemon_sets = _PACKED_DAEMONSET_BYTES * sum(path.startswith(_POLICIES) for path in chart)
    if 4 * (sum(map(len, parts)) + daemon_sets) // 3 < RELEASE_BYTES * WARN_PERCENT // 100:
        return 0
    packer = zlib.compressobj(6)
    size = daemon_sets + sum(len(packer.compress(part)) for part in parts) + len(packer.flush())
    return -(-size // 3) * 4
