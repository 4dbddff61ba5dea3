"""A ResourceList: what kustomize and kpt give a KRM function, and take back from it.

Sources: the KRM Functions Specification, and kustomize 5.8, which also accepts the older `v1beta1` and gives a generator its
own configuration among the items. Objects of others keep their text: a reader of YAML 1.1 and one of 1.2 differ on `on` and
`0644`, and no other tool's object may change its meaning here.
"""

import io
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from gpushare.cli import streams
from gpushare.core import emit
from gpushare.core.diagnostics import Finding, pointer
from gpushare.core.printable import visible
from gpushare.core.record import Record

KIND = "ResourceList"
_VERSIONS = ("config.kubernetes.io/v1", "config.kubernetes.io/v1beta1", "config.kubernetes.io/v1alpha1")
_PATHS = ("config.kubernetes.io/path", "internal.config.kubernetes.io/path")
Object = Mapping[str, Any]


class Read(Record):
    """A ResourceList as read. `config`: the function's configuration, None without one."""

    version: str
    config: CommentedMap | None
    items: tuple[CommentedMap, ...]


def read(data: bytes) -> Read:
    """Return the list in the bytes. Raises ValueError with the reason for anything else."""
    try:
        document = _yaml().load(data.decode())
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except (YAMLError, RecursionError, ValueError) as problem:
        raise ValueError(f"it is not YAML: {str(problem).partition(chr(10))[0]}") from None
    if not isinstance(document, CommentedMap) or document.get("kind") != KIND or document.get("apiVersion") not in _VERSIONS:
        raise ValueError(f"it is not a {KIND} of {_VERSIONS[0]}")
    items, config = document.get("items") or [], document.get("functionConfig")
    if not isinstance(items, list) or not all(isinstance(item, CommentedMap) for item in items):
        raise ValueError("its items are not a list of objects")
    if config is not None and not isinstance(config, CommentedMap):
        raise ValueError("its functionConfig is not an object")
    return Read(version=document["apiVersion"], config=config, items=tuple(items))


def text_of(item: CommentedMap) -> str:
    """Return an object of the list as YAML, each scalar as it was written."""
    written = io.StringIO()
    _yaml().dump(item, written)
    return written.getvalue()


def file_of(item: Object) -> str:
    """Return the file that an object is from, as the tool says; its kind if the tool does not."""
    metadata = item.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    found = (annotations.get(key) for key in _PATHS) if isinstance(annotations, dict) else iter(())
    return next((str(path) for path in found if path), str(item.get("kind", "")))


def identity(item: Object) -> tuple[str, ...]:
    """Return what makes an object this one: group, kind, namespace, name."""
    metadata = item.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    group = str(item.get("apiVersion", "")).rpartition("/")[0]
    return (group, *(str(part or "") for part in (item.get("kind"), metadata.get("namespace"), metadata.get("name"))))


def write(received: Read, made: Iterable[Object], results: Iterable[tuple[Finding, Object]]) -> str:
    """Return the ResourceList to give back: the objects of before, without those that are made again, and those made."""
    made = tuple(made)
    again = set(map(identity, made))
    texts = [text_of(item) for item in received.items if identity(item) not in again]
    texts += [emit.yaml_text(item) for item in made]
    found = [_result(finding, item) for finding, item in results]
    lines = [f"apiVersion: {received.version}", f"kind: {KIND}", "items:" if texts else "items: []"]
    lines += ["- " + textwrap.indent(text.rstrip("\n"), "  ")[2:] for text in texts]
    more = emit.yaml_text({"results": found}) if found else ""
    return "\n".join(lines) + "\n" + more


def _result(finding: Finding, item: Object) -> dict[str, Any]:
    metadata = item.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
    path = ".".join(map(str, finding.path))
    return {
        "message": ". ".join((finding.message, *finding.hints)),
        "severity": str(finding.severity),
        "resourceRef": {"apiVersion": str(item.get("apiVersion", "")), "kind": str(item.get("kind", "")), "name": name},
        **({"field": {"path": path}} if path else {}),
        "file": {"path": file_of(item)},
        "tags": {"code": finding.code},
    }


def line(finding: Finding, item: Object) -> str:
    """Return a finding for a person, who sees the object's file and not what the function got: by a path, not a line."""
    where = f" at {pointer(finding.path)}" if finding.path else ""
    first = f"{file_of(item)}: {finding.severity} {finding.code}{where}: {finding.message}"
    return visible(first) + "\n" + "".join(streams.hint(visible(hint)) for hint in finding.hints)


def _yaml() -> YAML:
    reader = YAML(typ="rt")
    reader.preserve_quotes = True
    reader.width = 1 << 20
    return reader
