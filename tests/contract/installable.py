"""What an API server refuses of our objects beyond their schema, after Kubernetes' own validation.

Each function yields what is wrong, in words; nothing means that the object is taken.
"""

import re
from collections.abc import Iterator
from typing import Any

INT32 = 2**31 - 1
EXACT = 2**53 - 1
"""What a number that went through JSON, as Helm's values do, is exact up to."""

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
QUANTITY = re.compile(r"[0-9]{1,18}[kMGTPE]?\Z")
REFERENCE = re.compile(
    r"(?=.{1,255}[:@])[A-Za-z0-9]+((\.|-+)[A-Za-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})\Z"
)
OF_INT32 = {"maxUnavailable", "periodSeconds", "timeoutSeconds", "containerPort"}


def is_key(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return bool(QUALIFIED.match(name)) and (not slash or bool(SUBDOMAIN.match(prefix)))


def problems(item: dict[str, Any]) -> Iterator[str]:
    """Everything wrong with an object."""
    name, namespace = item["metadata"]["name"], item["metadata"].get("namespace", "default")
    if not SUBDOMAIN.match(name) or not LABEL.match(namespace):
        yield f"name {namespace}/{name}"
    yield from _walk(item, item["kind"])
    for key, value in item.get("spec", {}).get("hard", {}).items() if item["kind"] == "ResourceQuota" else ():
        if not is_key(key) or not QUANTITY.match(str(value)):
            yield f"quota {key}: {value}"
    for key in item.get("data", {}):
        if not re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key):
            yield f"key {key!r}"


def _walk(value: Any, path: str) -> Iterator[str]:  # noqa: PLR0912 - one branch for each kind of field
    if isinstance(value, bool):
        return
    if isinstance(value, int) and abs(value) > (INT32 if path.rpartition(".")[2] in OF_INT32 else EXACT):
        yield f"{path} = {value}"
    if isinstance(value, list):
        for entry in value:
            yield from _walk(entry, path)
    if not isinstance(value, dict):
        return
    for key, inside in value.items():
        if key in ("labels", "matchLabels"):
            yield from (f"{path} label {one}={text}" for one, text in inside.items() if not _is_label(one, text))
        elif key == "tolerations":
            yield from (f"toleration {one}" for one in inside if not _is_toleration(one))
        elif key == "nodeSelectorTerms":
            yield from (f"requirement {one}" for term in inside for one in _wrong_requirements(term))
        elif key == "runtimeClassName" and not SUBDOMAIN.match(inside):
            yield f"runtime class {inside!r}"
        elif key == "imagePullSecrets":
            yield from (f"secret {one}" for one in inside if not SUBDOMAIN.match(one["name"]))
        elif key == "image" and not REFERENCE.match(inside):
            yield f"image {inside!r}"
        elif key == "path" and path.endswith("hostPath") and (not inside.startswith("/") or ".." in inside.split("/")):
            yield f"host path {inside!r}"
        yield from _walk(inside, f"{path}.{key}")


def _is_label(key: str, text: Any) -> bool:
    return is_key(key) and isinstance(text, str) and (text == "" or bool(QUALIFIED.match(text)))


def _is_toleration(one: dict[str, Any]) -> bool:
    exists = one.get("operator", "Equal") == "Exists"
    key, value, effect = one.get("key", ""), one.get("value", ""), one.get("effect", "")
    if (key and not is_key(key)) or (not key and not exists) or (exists and value):
        return False
    if value and not QUALIFIED.match(value):
        return False
    return "tolerationSeconds" not in one or effect == "NoExecute"


def _wrong_requirements(term: dict[str, Any]) -> Iterator[Any]:
    for one in term.get("matchExpressions", ()):
        values = one.get("values", [])
        needs_values = one["operator"] in ("In", "NotIn")
        if not is_key(one["key"]) or needs_values != bool(values) or not all(v == "" or QUALIFIED.match(v) for v in values):
            yield one
    for one in term.get("matchFields", ()):
        if one["key"] != "metadata.name" or len(one["values"]) != 1 or not SUBDOMAIN.match(one["values"][0]):
            yield one
