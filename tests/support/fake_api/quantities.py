"""Quantities as a real API server answers them: in their canonical form, `1k` for 1000."""

from collections.abc import Iterator
from typing import Any


def canonical(text: str) -> str:
    """A number of resources as the API server writes it; what is not a plain number stays."""
    if not text.isdecimal():
        return text
    number, suffix = int(text), ""
    for larger in "kMGTPE":
        if number == 0 or number % 1000:
            break
        number, suffix = number // 1000, larger
    return f"{number}{suffix}"


def canonicalise(thing: dict[str, Any]) -> None:
    """Rewrite the quantities of a Node or a pod."""
    for numbers in _numbers(thing):
        numbers.update({name: canonical(str(number)) for name, number in numbers.items() if number is not None})


def _numbers(thing: dict[str, Any]) -> Iterator[dict[str, Any]]:
    status, spec = thing.get("status") or {}, thing.get("spec") or {}
    yield from (status[name] for name in ("allocatable", "capacity") if status.get(name))
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        resources = container.get("resources") or {}
        yield from (resources[name] for name in ("limits", "requests") if resources.get(name))
