"""A bundle that was imported, against the bundle that its intent makes: whatever differs was not imported.

No list of the bundle's fields is needed: what the intent carries comes back when it is compiled.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpushare.core.diagnostics import Finding
from gpushare.core.wording import counted
from gpushare.importing.accounting import dotted, shown
from gpushare.importing.documents import InputFile, Reader
from gpushare.importing.parts import Notes, Part

_MOST_LISTED = 60
_DERIVED = ("policy", "profile", "cluster")
"""Names that follow from the contents of another file, or that `--name` chooses."""


def lost(inputs: Iterable[InputFile], made: Mapping[str, str]) -> list[Finding]:
    """Return one finding for each file of a bundle that has values which the compiled intent, `made` by path, has not."""
    notes = Notes()
    for one in inputs:
        path = next((path for path in sorted(made, key=len, reverse=True) if f"/{one.name}".endswith(f"/{path}")), None)
        if path is None or not path.endswith(".yaml") or path.startswith("gpushare.lock"):
            continue
        reader = Reader(Notes())
        ours = list(reader.objects([InputFile(name=path, data=made[path].encode())]))
        for number, given in enumerate(reader.objects([one])):
            other = ours[number].whole if number < len(ours) else None
            left = [part for part in given.unread() if _at(other, part) != part.value and part.path[-1:] not in _ENDS]
            if left:
                said = "; ".join(f"{dotted(part.path)}: {shown(part.value)}" for part in left[:_MOST_LISTED])
                notes.warn("GS871", left[0], f"{counted(len(left), 'value')} of the bundle's {path} not imported: {said}",
                           "no field of an intent has them, or the bundle was edited by hand: set them in the intent",
                           on_key=True)
    return notes.findings


_ENDS = tuple((name,) for name in _DERIVED)


def _at(value: Any, part: Part) -> Any:
    for step in part.path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value
