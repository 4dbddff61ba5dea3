"""Upstream values that every schema allows and the API server or Helm rejects: parts that contradict each other. Pure.

Each function yields (path below the value, message, hint); `values.check_type` makes GS710 of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpushare.core.diagnostics import Path
from gpushare.core.units import parse_amount
from gpushare.rules import fields

Wrong = tuple[Path, str, str]


def of_list(name: str, entries: Sequence[Any]) -> Iterator[Wrong]:
    """Check tolerations as Kubernetes validates them, variables set twice, objects with half an action of a template."""
    names: set[str] = set()
    for number, entry in enumerate(entries):
        if name == "tolerations":
            for field, message, hint in fields.wrong_in_toleration(entry):
                yield (number, field), message, hint
        elif name == "env":
            if "valueFrom" in entry and "value" in entry:
                yield (number,), f"{entry['name']} has both value and valueFrom", "leave one of the two out"
            elif entry["name"] in names:
                yield (number,), f"{entry['name']} is listed twice", "leave one of the two out"
            names.add(entry["name"])
        elif name == "extraObjects":
            for path, text in _texts(entry, (number,)):
                if text.rfind("{{") > text.rfind("}}"):
                    hint = 'close it with }}, or write {{ "{{" }} for the text itself: Helm reads these objects as templates'
                    yield path, "{{ opens an action of a Helm template, and no }} closes it", hint


def of_mapping(name: str, given: Mapping[str, Any], default: Mapping[str, Any]) -> Iterator[Wrong]:
    """Check a mapping named `name`; Helm merges what is `given` into the chart's `default`."""
    if name == "resources":
        yield from _above_limits(given, default)
    elif name == "securityContext":
        yield from _privileges({**default, **given})
    elif name == "config" and given.get("create") is True and given.get("data") and not given.get("name", default.get("name")):
        yield ("create",), "create makes a ConfigMap, and needs a name for it", "add name"


def _above_limits(given: Mapping[str, Any], default: Mapping[str, Any]) -> Iterator[Wrong]:
    kept = {key: value for key, value in default.items() if given.get(key, value) is not None}  # Helm removes null values
    requests, limits = ({**_mapping(kept, key), **_mapping(given, key)} for key in ("requests", "limits"))
    for resource, request in requests.items():
        requested, limit = parse_amount(request), parse_amount(limits.get(resource))
        if requested is not None and limit is not None and requested > limit:
            key = "requests" if resource in _mapping(given, "requests") else "limits"
            message = f"{resource}: a request of {request} is above the limit of {limits[resource]}"
            chart = " (the chart's default)" if resource not in _mapping(given, "limits") else ""
            yield (key, resource), message + chart, f"write limits: {{{resource}: {request}}}, or a smaller request"


def _privileges(context: Mapping[str, Any]) -> Iterator[Wrong]:
    if context.get("allowPrivilegeEscalation") is False:
        added = _mapping(context, "capabilities").get("add") or ()
        what = "privileged: true" if context.get("privileged") is True else "CAP_SYS_ADMIN" if "CAP_SYS_ADMIN" in added else ""
        if what:
            message = f"{what} and allowPrivilegeEscalation: false exclude each other"
            yield (), message, "leave allowPrivilegeEscalation out"


def _mapping(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = of.get(key)
    return found if isinstance(found, Mapping) else {}


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping | list | tuple):
        for step, below in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _texts(below, (*path, step))
