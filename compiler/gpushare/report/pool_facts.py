"""What reports say of pools, on every page: modes and their colours, sums of memory, nodes, and maps of GPUs to scale."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from gpushare.core import palette
from gpushare.core.units import MemoryTotals
from gpushare.core.wording import gib, join_first, mib, visible
from gpushare.facts import mig
from gpushare.facts.catalog.cards import Geometry
from gpushare.offering import modes
from gpushare.report.model import Cell, Map, gaps
from gpushare.resolved.plan import DevicePlan

_MAX_NODES = 8
"""Nodes that a pool's card names."""
_REQUIREMENTS = {"In": "{key} in ({values})", "NotIn": "{key} notin ({values})", "Exists": "{key}", "DoesNotExist": "!{key}"}


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


def _sum(sizes: Sequence[int | None]) -> str:
    known = [size for size in sizes if size is not None]
    return gib(sum(known)) + ("" if len(known) == len(sizes) else " + ?") if known or not sizes else "?"


def drawn(  # noqa: PLR0913 - the fields of a map
    devices: Iterable[DevicePlan],
    geometry: Geometry | None,
    *,
    mark: Callable[[DevicePlan], str] = lambda _device: "",
    title: str = "",
    aside: str = "",
    mode: str = "",
) -> Map:
    """Return the map of a GPU with these devices; `geometry` is None for a GPU without MIG.

    `mark` says in a word what happens to a device.
    """
    # Of the places on demand, which overlap, one for each slice.
    by_start = {device.start: device for device in devices}
    cells = [
        Cell(
            start=device.start,
            size=1 if geometry is None else device.size,
            labels=_labels(device),
            profile=device.profile,
            replicas=device.replicas,
            mark=mark(device),
        )
        for device in by_start.values()
    ]
    return Map(cells=tuple(cells), slices=None if geometry is None else geometry.units, title=title, aside=aside, mode=mode)


def _labels(device: DevicePlan) -> tuple[str, ...]:
    """Return name and replicas, and the memory, or the cap if one container may use less than all of it."""
    name = (device.profile or "whole GPU") + (f"×{device.replicas}" if device.replicas > 1 else "")
    return name, mib(device.memory_mib) if device.cap_mib is None else f"≤{device.cap_mib}Mi"


def left_over(instances: Iterable[mig.PlacedInstance], geometry: Geometry) -> str:
    """Return in words what of the card no instance uses; empty if nothing is left."""
    placed = tuple(instances)
    memory = sum(size for _, size in gaps(((one.start, one.size) for one in placed), geometry.units))
    whole = max(profile.compute_slices for profile in geometry.profiles)
    compute = whole - sum(one.profile.compute_slices for one in placed)
    parts = [
        f"{number} of {total} {what} slices"
        for number, total, what in ((memory, geometry.units, "memory"), (compute, whole, "compute"))
        if number > 0
    ]
    return f"unused: {', '.join(parts)}" if parts else ""


def known(number: int | None) -> str:
    """Return the number, `?` if unknown."""
    return "?" if number is None else str(number)


def ranges(numbers: Sequence[int]) -> str:
    """Return `0-3, 6` for 0, 1, 2, 3, 6."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
