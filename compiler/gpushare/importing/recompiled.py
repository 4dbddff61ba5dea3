"""A bundle that was imported, against the bundle that its intent makes: whatever differs was not imported.

No list of the bundle's fields is needed: what the intent carries comes back when it is compiled.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpushare.bundle import reader
from gpushare.core.diagnostics import Finding, Path
from gpushare.core.wording import pluralize
from gpushare.importing.accounting import dotted, shown
from gpushare.importing.documents import InputFile, Reader
from gpushare.importing.parts import Notes

_LOCK = "gpushare.lock.yaml"
"""What the next compile must know of former bundles: not a cluster's description."""
_MOST_LISTED = 60
_CLUSTER = "cluster"
_DERIVED = frozenset({"policy", "profile", _CLUSTER})
"""Names that follow from the contents of another file: with these they differ as well, so they are compared where all else is
equal. The profile of a device is a layout's."""


def lost(inputs: Iterable[InputFile], made: Mapping[str, str]) -> list[Finding]:
    """Return one finding for each file of a bundle that differs from that of the compiled intent, `made` by path."""
    given = list(inputs)
    paths = known(given, made)
    edited = [(one, paths[one.name]) for one in given if one.name in paths and one.data != made[paths[one.name]].encode()]
    is_renamed = any(path == reader.POOLS and _cluster(one.data) != _cluster(made[path].encode()) for one, path in edited)
    for ignored in (_DERIVED, frozenset({_CLUSTER}) if is_renamed else frozenset()):
        notes = Notes()
        for one, path in edited:
            if path != _LOCK:
                _compare(one, path, made[path], ignored, notes)
        if notes.findings:
            return notes.findings
    return []


def known(inputs: Iterable[InputFile], made: Mapping[str, str]) -> dict[str, str]:
    """Return the paths in the bundle, by name, of the inputs that are files of it: beside its pools, and in `made`, too."""
    names = [one.name for one in inputs]
    roots = [name.removesuffix(reader.POOLS) for name in names if f"/{name}".endswith(f"/{reader.POOLS}")]
    paths = {name: name[len(root) :] for root in roots for name in names if name.startswith(root)}
    return {name: path for name, path in paths.items() if path in made and path.endswith(".yaml")}


def _cluster(data: bytes) -> Any:
    """Return the cluster's name in a list of pools; the import may have chosen another."""
    found = Reader(Notes()).objects([InputFile(name=reader.POOLS, data=data)])
    return next((part.whole.get(_CLUSTER) for part in found if isinstance(part.whole, dict)), None)


def _compare(one: InputFile, path: str, ours: str, ignored: frozenset[str], notes: Notes) -> None:
    """Report the values that only one of the two texts of a file has, but for the keys that are ignored."""
    silent = Notes()
    documents = [part.whole for part in Reader(silent).objects([InputFile(name=path, data=ours.encode())])]
    for number, part in enumerate(Reader(silent).objects([one])):
        other = documents[number] if number < len(documents) else None
        has, wanted = dict(_leaves(part.whole, ignored)), dict(_leaves(other, ignored))
        left = [at for at in has if has[at] != wanted.get(at)]
        gone = [at for at in wanted if at not in has and not any(other[: len(at)] == at[: len(other)] for other in left)]
        if left:
            listed = "; ".join(f"{dotted(at)}: {shown(has[at])}" for at in left[:_MOST_LISTED])
            notes.warn(
                "GS871",
                part.at(*left[0]),
                f"{pluralize(len(left), 'value')} of the bundle's {path} not imported: {listed}",
                "no field of an intent has them, or the bundle was edited by hand: set them in the intent",
                on_key=True,
            )
        if gone:
            listed = "; ".join(f"{dotted(at)}: {shown(wanted[at])}" for at in gone[:_MOST_LISTED])
            notes.warn(
                "GS871",
                part.at(*gone[0]),
                f"the bundle's {path} lacks {pluralize(len(gone), 'value')} that the intent's bundle has: {listed}",
                "the bundle was edited by hand: set in the intent what is wanted",
                on_key=True,
            )


def _leaves(value: Any, ignored: frozenset[str], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each scalar and each empty mapping or list with its path; null is the same as no value."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in below:
        yield from _leaves(entry, ignored, (*path, key))
    is_ignored = bool(path) and path[-1] in ignored and "devices" not in path
    if value is not None and (value in ({}, []) or not isinstance(value, dict | list)) and not is_ignored:
        yield path, value
