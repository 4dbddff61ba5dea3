"""Whether the files of a bundle on disk are what gpushare writes: each by its reader or its schema, with positions of faults.

Everything that reads a bundle (`plan`, `images`, `drift`, `import`) asks here first, and may then rely on the schemas. A bundle
that a compile has just made needs no check. Reads no files.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from gpushare import __version__
from gpushare.bundle import admission, lock
from gpushare.core import resources
from gpushare.core.diagnostics import Finding
from gpushare.intent.gitops import TOOLS
from gpushare.reading import schema, source
from gpushare.reading.source import Source
from gpushare_node.contract import policy
from gpushare_node.contract.strict_document import PolicyError
from gpushare_node.contract.struct import replace

POLICY = "NodePolicy"
"""In the place of a schema: the contract reads the document."""
_CODE = "GS794"
_AGAIN = "restore the file from version control, or compile the bundle again"
_CONFLICT = r"(?m)^(?:<{7}|\|{7}|={7}|>{7})(?: .*)?$"
_WRITTEN_BY = r"""(?m)^gpushare: ["']?([^"'\s]+)["']?\s*$"""

_ANY: Mapping[str, Any] = {"type": "object"}
_UPSTREAM: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "driver": {"type": "object", "properties": {"enabled": {"type": "boolean"}}},
        "daemonsets": {"type": "object"},
    },
}
"""Of NVIDIA's values, what `plan` speaks of; the rest are the chart's own and the user's."""
_OBJECT: Mapping[str, Any] = {
    "type": "object",
    "required": ["apiVersion", "kind"],
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "namespace": {"type": "string"},
                "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
        "spec": {"type": "object"},
    },
}
_ADMISSION: Mapping[str, Any] = {
    "type": "object",
    "required": ["lookups", "policies"],
    "properties": {
        "lookups": {"type": "array"},
        "policies": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["kind", "cel", "binding"],
                "properties": {
                    "kind": {"enum": ["Validating", "Mutating"]},
                    "cel": {"enum": list(admission.CEL)},
                    "lookups": {"type": "boolean"},
                    "variables": {"type": "array"},
                    "spec": {"type": "object"},
                    "binding": {
                        "type": "object",
                        "properties": {"validationActions": {"type": "array", "items": {"type": "string"}}},
                    },
                },
            },
        },
    },
}
_NAMED: Mapping[str, Any] = {
    **_OBJECT,
    "required": ["apiVersion", "kind", "metadata"],
    "properties": {**_OBJECT["properties"], "metadata": {**_OBJECT["properties"]["metadata"], "required": ["name"]}},
}


def findings(files: Mapping[str, bytes], folder: str) -> Iterator[tuple[Finding, Source]]:
    """Yield, of each file that is not what gpushare writes, its first finding (GS794, GS790 of the lock) and its text.

    `files` maps paths in the bundle to contents, `folder` is the bundle's name in findings.
    """
    later = _later(files.get(lock.FILE, b""))
    for path in sorted(files):
        found = _finding(path, files[path], later)
        if found is not None:
            name = f"{folder}/{path}"
            yield replace(found[0], file=name), replace(found[1], file=name)


@lru_cache(maxsize=16_384)
def _finding(path: str, data: bytes, later: str) -> tuple[Finding, Source] | None:
    """Return the first thing that is wrong with a file. The same file is on both sides of most comparisons.

    Checked twice, the files of 300 pools take half a second longer.
    """
    wanted = _schema(path)
    text = source.read(data, path, own=True) if wanted is not None else _plain(path, data)
    marker = re.search(_CONFLICT, text.text) if text.findings or wanted is not None else None
    if marker is not None:
        span = text.span(marker.start(), marker.end())
        hints = ("resolve the conflict in the intent, then compile the bundle again",)
        return Finding(code=_CODE, message=f"{path} has a merge conflict that is not resolved", hints=hints, span=span), text
    if text.findings:
        return _broken(path, text.findings[0], later), text
    if wanted is None:
        return None
    found = violation(text.data, wanted)
    return None if found is None else (text.locate(_broken(path, found, later)), text)


def violation(data: object, wanted: str | Mapping[str, Any]) -> Finding | None:
    """Return the first violation of a schema, with its path in the document."""
    if wanted == POLICY:
        return _refusal(data)
    loaded = schema.load(wanted) if isinstance(wanted, str) else wanted
    if not schema.accepts(loaded, data):
        return schema.violations(data, loaded, ())[0]
    return None


def _refusal(data: object) -> Finding | None:
    """Return why a node runtime of this release would not read a policy as the compiler meant it."""
    try:
        policy.of_document(data)
    except PolicyError as error:
        path = tuple(step for step in error.steps if isinstance(step, str | int))
        return Finding(code=_CODE, message=str(error), path=path)
    return None


def _broken(path: str, first: Finding, later: str) -> Finding:
    hint = later or _AGAIN
    span = first.span
    return Finding(
        code=_CODE,
        message=f"{path} is not what gpushare writes: {first.message}",
        path=first.path,
        on_key=first.on_key,
        span=span,
        hints=(hint,),
    )


def _later(written: bytes) -> str:
    """Return the hint for a bundle that another release of gpushare wrote; empty if this one did, or none is named."""
    found = re.search(_WRITTEN_BY, written.decode(errors="replace"))
    if found is None or found[1] == __version__:
        return ""
    return f"gpushare {found[1][:40]} wrote the bundle and this is {__version__}: use that release, or compile the bundle again"


def _plain(path: str, data: bytes) -> Source:
    """Return a text that is not YAML, such as a template: only its encoding is checked."""
    try:
        return Source(file=path, text=data.decode())
    except UnicodeDecodeError:
        return source.read(data, path, own=True)


def _schema(path: str) -> str | Mapping[str, Any] | None:
    """Return the schema of a file of the bundle; None for a text that nothing here parses."""
    if not path.endswith(".yaml") or path.startswith(("chart/templates/", "chart/admission/")):
        return None
    match path:
        case lock.INTENT:
            return "intent.v1"
        case lock.FILE:
            return "lock.v1"
        case admission.FILE:
            return _ADMISSION
        case "chart/values.yaml":
            return chart_values()
        case "gpu-operator/values.yaml" | "device-plugin/values.yaml":
            return _UPSTREAM
        case "namespace.yaml":
            return _NAMED
        case _:
            pass
    if path.startswith("chart/files/policies/"):
        return POLICY
    return _OBJECT if path.partition("/")[0] in TOOLS else _ANY


@cache
def chart_values() -> Mapping[str, Any]:
    """Return the schema of the chart's values."""
    found: Mapping[str, Any] = json.loads((resources.chart() / "values.schema.json").read_text(encoding="utf-8"))
    return found
