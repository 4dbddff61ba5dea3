"""A ResourceList: what kustomize and kpt give a KRM function, and take back from it.

Sources: the KRM Functions Specification, and kustomize 5.8, which also accepts the older `v1beta1` and gives a generator its
own configuration among the items. Objects of others keep their text: a reader of YAML 1.1 and one of 1.2 differ on `on` and
`0644`, and no other tool's object may change its meaning here.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpushare.cli import streams, yaml_nodes
from gpushare.cli.yaml_nodes import YamlObject
from gpushare.core import emit
from gpushare.core.diagnostics import Finding, pointer
from gpushare.core.printable import visible
from gpushare.core.record import Record

KIND = "ResourceList"
_VERSIONS = ("config.kubernetes.io/v1", "config.kubernetes.io/v1beta1", "config.kubernetes.io/v1alpha1")
_PATHS = ("config.kubernetes.io/path", "internal.config.kubernetes.io/path")
_OURS = ("app.kubernetes.io/managed-by", "gpushare")
_NAMESPACE = "Namespace"
_HINT_CLASH = "remove that object, or give it another name"
Object = Mapping[str, Any]


class Read(Record):
    """A ResourceList as read. `config`: the function's configuration, None without one."""

    version: str
    config: YamlObject | None
    items: tuple[YamlObject, ...]


def read(data: bytes) -> Read:
    """Return the list in the bytes. Raises ValueError with the reason for anything else."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    document = yaml_nodes.document(text)
    about = {name: yaml_nodes.scalars(document[name], 0) for name in ("apiVersion", "kind") if name in document}
    if about.get("kind") != KIND or about.get("apiVersion") not in _VERSIONS:
        raise ValueError(f"it is not a {KIND} of {_VERSIONS[0]}")
    listed, config = yaml_nodes.items(document.get("items")), document.get("functionConfig")
    items = None if listed is None else [yaml_nodes.cut(text, node) for node in listed]
    if items is None or None in items:
        raise ValueError("its items are not a list of objects")
    function = yaml_nodes.cut(text, config)
    if function is None and not yaml_nodes.is_null(config):
        raise ValueError("its functionConfig is not an object")
    return Read(version=about["apiVersion"], config=function, items=tuple(item for item in items if item is not None))


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


def clashes(received: Read, made: Iterable[Object]) -> Iterator[tuple[Finding, Object]]:
    """Yield GS793 for each object of others that has the name of one of ours. A Namespace may be shared."""
    mine = {identity(item): item for item in made}
    for item in received.items:
        own = mine.get(identity(item.fields))
        if own is None or _labels(item.fields).get(_OURS[0]) == _OURS[1]:
            continue
        if own["kind"] != _NAMESPACE:
            yield _clash(f"{own['kind']} {own['metadata']['name']} is made by gpushare", _HINT_CLASH), item.fields
        for key, label, other in _differing(own, item.fields):
            yield _clash(f"label {key} must be {label}, not {other}", "remove the label"), item.fields


def write(received: Read, made: Iterable[Object], results: Iterable[tuple[Finding, Object]]) -> str:
    """Return the ResourceList to give back: the objects of before, without those that are made again, and those made.

    A Namespace that is there gets our labels. What is made must have no `clashes` with what is there.
    """
    mine = {identity(item): item for item in made}
    texts = list(_remaining(received, mine))
    texts += [emit.yaml_text(item) for item in mine.values()]
    found = [_result(finding, item) for finding, item in results]
    lines = [f"apiVersion: {received.version}\nkind: {KIND}\n", "items:\n" if texts else "items: []\n"]
    more = emit.yaml_text({"results": found}) if found else ""
    return "".join((*lines, *map(_as_item, texts), more))


def _remaining(received: Read, mine: dict[tuple[str, ...], Object]) -> Iterator[str]:
    """Yield the texts of the objects that stay. The Namespace is then no longer one of `mine`."""
    for item in received.items:
        own = mine.get(identity(item.fields))
        if own is None:
            yield item.text
        elif own["kind"] == _NAMESPACE:
            del mine[identity(own)]
            there = _labels(item.fields)
            more = {key: label for key, label in _labels(own).items() if key not in there}
            yield yaml_nodes.with_labels(item.text, more)


def _as_item(text: str) -> str:
    """Return the text of an object as an item of the list: every line that is not empty is shifted, blank ones too."""
    lines = text.removesuffix("\n").split("\n")
    return "- " + "\n".join(f"  {line}" if line.strip("\r") else line for line in lines)[2:] + "\n"


def _labels(item: Object) -> Mapping[str, Any]:
    metadata = item.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else {}


def _differing(own: Object, item: Object) -> Iterator[tuple[str, str, str]]:
    """Yield the labels that a shared Namespace has with another value: key, ours, theirs."""
    there = _labels(item) if own["kind"] == _NAMESPACE else {}
    return ((key, label, there[key]) for key, label in _labels(own).items() if there.get(key, label) != label)


def _clash(message: str, hint: str) -> Finding:
    return Finding(code="GS793", message=message, hints=(hint,))


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
