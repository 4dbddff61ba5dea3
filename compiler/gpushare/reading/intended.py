"""What a person means by a value that an intent cannot have there, as a hint on what to write: pools, nodes, shares, quotas.

Owns the shapes that other programs' configurations have, and those that follow from wrong indentation. Makes no findings.
"""

import re
from collections.abc import Mapping
from typing import Any

from gpushare.core.diagnostics import Path
from gpushare.core.units import meant_sizes, parse_quantity
from gpushare.core.wording import shorten

ONE_MODEL = "a node has one card model: make a pool for each model, of different nodes: two in one node cannot be described"
ALIKE = "the device plugin shares all GPUs of a node alike: write one number for all, or make another pool of other nodes"
_OF_ONE_GPU = {"gpu", "gpus", "device", "devices", "index", "indexes", "indices"}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DURATIONS = {"duration", "drainTimeout", "grace", "notice", "interval"}
_LONG = re.compile(r"([0-9]{1,4})([dw])")
_OF_A_POOL = {"card", "nodes", "gpusPerNode", "sharing", "memory", "enforcement", "rollout"}


def of_value(path: Path, value: object, document: object) -> str:
    """Return what to write in place of a value of the wrong shape or size; empty if that is not known."""
    match path, value:
        case ("spec", "pools"), [{"name": str(name)}, *_]:
            return f"write a mapping by name: {{{shorten(name)}: {{card: …}}}}"
        case ("spec", "pools", _), None:
            return "indent its fields further than its name"
        case ("spec", "pools", field), _ if field in _OF_A_POOL:
            return f"{field} is a field of a pool: indent it further than the pool's name"
        case ("spec", "pools", _, "card"), list() | dict():
            return ONE_MODEL
        case ("spec", "pools", _, "nodes"), list() | str():
            return _nodes(value)
        case (("spec", "pools", _, "sharing"), list()) | (("spec", "pools", _, "sharing", "replicas"), list() | dict()):
            return ALIKE
        case ("spec", "pools", pool, "sharing", "replicas", *profile), 1:
            return _unshared(document, pool, *profile)
        case (*_, "rollout", "windows", int()), str():
            days = f"days: [{value}], " if value in _DAYS else ""
            return f'write a mapping: {{{days}start: "22:00", duration: 6h}}'
        case (*above, str(field)), str() if field in _DURATIONS and (days_or_weeks := _LONG.fullmatch(value)):
            hours = int(days_or_weeks[1]) * (24 if days_or_weeks[2] == "d" else 168)
            return f"the largest unit is the hour: write {min(hours, 168) if 'windows' in above else hours}h"
        case ("spec", "quotas", *_), _:
            return _quota(path[2:], value)
        case _:
            return ""


def of_field(path: Path, key: str, value: object) -> str:
    """Return what to write in place of a field that is unknown at the path, or has no place there; empty if not known."""
    if path and isinstance(value, Mapping) and len(_OF_A_POOL & set(value)) > 1:
        return f"{shorten(key)} reads like a pool: indent it as far as the pools, below spec.pools"
    match path:
        case ("spec", "pools", _) if key in {"cards", "models"}:
            return ONE_MODEL
        case ("spec", "pools", _) if key in {"nodeSelector", "selector"}:
            return "write nodes: {matchLabels: {LABEL: VALUE}}"
        case ("spec", "pools", _, "sharing") if key in _OF_ONE_GPU or key == "layouts":
            return ALIKE
        case ("spec", "quotas", _, _) if key in {"replicas", "count"}:
            return f"the number of shares is called shares: {{shares: {shorten(value)}}}"
        case ("spec", "quotas", _, _):
            return "shares and memory are for a pool with one resource: for each of several write a number alone"
        case ("spec", "pools", _, "nodes") if isinstance(value, str):
            return f"labels belong in matchLabels: {{matchLabels: {{{shorten(key)}: {shorten(value)}}}}}"
        case _:
            return ""


def _nodes(value: list[Any] | str) -> str:
    entries = value if isinstance(value, list) else [value]
    if entries and all(isinstance(entry, str) for entry in entries):
        return f"write the names so: {{names: [{', '.join(map(shorten, entries[:3]))}{', …' if len(entries) > 3 else ''}]}}"
    if entries and all(isinstance(entry, dict) and "key" in entry for entry in entries):
        return "write the conditions so: {matchExpressions: [{key: …, operator: …}]}"
    return "write {names: [NODE]}, or {matchLabels: {KEY: VALUE}}"


def _unshared(document: Any, pool: object, profile: object = None) -> str:
    sharing = document["spec"]["pools"][pool]["sharing"]
    if sharing.get("mode") != "mig":
        return "a GPU for one container is not shared: write mode: exclusive, without replicas"
    what = "replicas" if profile is None else f"{profile}"
    return f"an instance for one container is not shared: leave {what} out"


def _quota(path: Path, value: object) -> str:
    """Return a hint on a quota; `path` begins with the namespace and its pool."""
    size = _size(value)
    match path, value:
        case (_,), int() | str() if not isinstance(value, bool):
            return f"name the pool, too: {{POOL: {_written(value)}}}"
        case (_, "memory"), str() if size:
            return f"name the pool, too: {{POOL: {{memory: {size}}}}}"
        case (_, _), str() if size:
            return f"a quota of memory is {{memory: {size}}}"
        case _:
            return ""


def _written(value: int | str) -> str:
    size = _size(value)
    return f"{{memory: {size}}}" if size else shorten(value)


def _size(value: object) -> str:
    """Return the value as a size in Kubernetes' form; empty if it is none."""
    if not isinstance(value, str) or value.isdecimal():
        return ""
    return value if parse_quantity(value) else next(iter(meant_sizes(value)), "")
