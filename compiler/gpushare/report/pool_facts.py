"""What reports say of pools, on every page: modes and their colours, sums of memory, nodes, and maps of GPUs to scale."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpushare.core import palette
from gpushare.core.units import MemoryTotals
from gpushare.core.wording import gib, join_first, visible
from gpushare.facts.catalog.cards import Geometry
from gpushare.offering import modes
from gpushare.report import memory_map, plan_view
from gpushare.report.terminal import Style
from gpushare.resolved.plan import DevicePlan

_MAX_NAMED = 2
"""Pools that the heading of several equal pools names."""
_MAX_NODES = 8
"""Nodes that a pool's card names."""
_REQUIREMENTS = {"In": "{key} in ({values})", "NotIn": "{key} notin ({values})", "Exists": "{key}", "DoesNotExist": "!{key}"}


def heading(names: Sequence[str], nodes: Mapping[str, str]) -> dict[str, Any]:
    """Return what a template needs of the pools of one card. `nodes` says which nodes a pool has."""
    shown = list(map(visible, names))
    several = [{"name": visible(name), "nodes": visible(nodes[name])} for name in names] if len(names) > 1 else ()
    where = "" if several else visible(nodes[names[0]])
    return {"name": join_first(shown, _MAX_NAMED), "id": shown[0], "names": several, "where": where}


def nodes_text(labels: Mapping[str, str], expressions: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return the names of nodes, or the selector as `kubectl get nodes --selector` reads it."""
    if names:
        return join_first(names, _MAX_NODES)
    parts = [f"{key}={value}" for key, value in labels.items()]
    for one in expressions:
        form = _REQUIREMENTS.get(one["operator"], "{key}")
        parts.append(form.format(key=one["key"], values=", ".join(one.get("values", ()))))
    return ",".join(parts)


def mode(word: str, *, is_divided: bool) -> Mapping[str, str]:
    """Return the kind and the words of a way of sharing; of a mode that this gpushare does not know, the word alone."""
    if is_divided and modes.named(word).is_partitioned:
        return {"kind": "mig-replicas", "words": "mig with time-slicing"}
    return {"kind": word if word in palette.LIGHT.modes else "", "words": visible(word)}


def legend(shown: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return the ways of sharing that a page has, each once, in the order of the palette."""
    by_kind = {one["kind"]: one for one in shown}
    return [by_kind[kind] for kind in palette.LIGHT.modes if kind in by_kind]


MEMORY_EXPLAINED = (
    "Offered: the memory of all devices. Caps: what their containers may use together. Stranded: what no device offers."
)


def memory(parts: Sequence[MemoryTotals]) -> dict[str, str]:
    """Return the sums of what is known, and whether something is not."""
    numbers = {
        "GPU memory": [one.gpus for one in parts],
        "Offered": [one.offered for one in parts],
        "Caps": [one.caps for one in parts],
        "Stranded": [one.stranded for one in parts],
    }
    return {name: _sum(sizes) for name, sizes in numbers.items()}


def memory_line(parts: Sequence[MemoryTotals], whose: str) -> str:
    """Return the same as a line."""
    return f"Memory of {whose}: " + ", ".join(f"{name} {value}" for name, value in memory(parts).items())


def memory_facts(parts: Sequence[MemoryTotals]) -> list[dict[str, str]]:
    """Return the same for a template of its own."""
    return [{"name": name, "value": value} for name, value in memory(parts).items()]


def _sum(sizes: Sequence[int | None]) -> str:
    known = [size for size in sizes if size is not None]
    return gib(sum(known)) + ("" if len(known) == len(sizes) else " + ?") if known or not sizes else "?"


def cells(
    devices: Iterable[DevicePlan], geometry: Geometry | None, mark: Callable[[DevicePlan], str] = lambda _device: ""
) -> list[Mapping[str, Any]]:
    """Return the map of one GPU, from its first memory slice to its last; `geometry` is None for a GPU without MIG.

    `mark` says in a word what happens to a device.
    """
    placed = {device.start: _cell(device, mark(device)) for device in devices}
    if geometry is not None:
        free = memory_map.gaps(((start, cell["size"]) for start, cell in placed.items()), geometry.units)
        placed |= {start: _unused(size) for start, size in free}
    return [placed[start] for start in sorted(placed)]


def _unused(size: int) -> Mapping[str, Any]:
    return {"colour": "unused", "size": size, "lines": ("unused",), "mark": "", "shares": 1}


def _cell(device: DevicePlan, mark: str) -> Mapping[str, Any]:
    return {
        "colour": palette.css_class(palette.kind(device.profile)),
        "size": device.size if device.profile else 1,
        "mark": mark,
        "lines": plan_view.labels(device, Style()),
        "shares": memory_map.segments(device.replicas),
    }
