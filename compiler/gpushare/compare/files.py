"""Which files of a bundle differ, and which settings in them: what makes "no changes" mean that the bundles are equal.

Compares texts by path. Ignores comments, and the lock's digests of files, which follow from the files. Pure.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

from gpushare.bundle import admission, lock
from gpushare.bundle.artifact import Artifact
from gpushare.reading import source
from gpushare_node.contract.struct import Struct

Files = Mapping[str, str]
"""The texts of a bundle by their paths in it."""

MAX_SETTINGS = 100
"""Listed for one file; the rest is counted."""

_MAX_PARSED = 16_384
"""Documents that are kept: those of both sides."""

_VALUES = "chart/values.yaml"
_CONFIGMAPS = ("chart/files/", "nodes/", "README.md", lock.INTENT, lock.FILE)
"""Files that become ConfigMaps of ours, and files that only people and the compiler read."""

_OF_VALUES = (admission.FILE, admission.TENANCY)
"""Files that are made from the chart's values: where these differ, they say why."""

_TEMPLATES = "chart/templates/"
"""Helm's templates: what looks like a comment there may contain actions, and is rendered."""


class FileKind(StrEnum):
    """What happens to a file or a setting."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class SettingChange(Struct):
    """One value of a YAML file. `path` has keys, and indexes of lists as text; a value that a side lacks is None."""

    path: tuple[str, ...]
    kind: FileKind
    before: Any = None
    after: Any = None


class FileDiff(Struct):
    """One file. `settings` for a changed YAML file, at most MAX_SETTINGS; `more` counts the others.

    `is_configmap`: it changes nothing in the cluster except ConfigMaps of ours and quotas.
    """

    path: str
    kind: FileKind
    settings: tuple[SettingChange, ...] = ()
    more: int = 0
    is_configmap: bool = False


class WrittenText(str):
    """The text of a file that was compiled just now, with the document of which it was made."""

    __slots__ = ("made_of",)
    made_of: Any

    def __new__(cls, text: str, made_of: Any) -> "WrittenText":
        """Return the text with its document."""
        written = super().__new__(cls, text)
        written.made_of = made_of
        return written


def of_artifacts(artifacts: Iterable[Artifact]) -> Files:
    """Return the texts of a bundle that was compiled just now; `parsed` need not read those that were made of documents."""
    return {one.path: one.text if one.document is None else WrittenText(one.text, one.document) for one in artifacts}


def changes(old: Files, new: Files) -> tuple[FileDiff, ...]:
    """Return the files that differ, by path; none if and only if the bundles are equal except for comments."""
    found = {
        path: change for path in sorted(old.keys() | new.keys()) if (change := _change(path, old.get(path), new.get(path)))
    }
    return tuple(change for path, change in found.items() if not (_VALUES in found and path in _OF_VALUES))


def _change(path: str, before: str | None, after: str | None) -> FileDiff | None:
    is_configmap = path.startswith(_CONFIGMAPS) and path != admission.FILE
    if before is None or after is None:
        return FileDiff(path=path, kind=FileKind.ADDED if before is None else FileKind.REMOVED, is_configmap=is_configmap)
    if before == after or _differs_in_comments(path, before, after):
        return None
    if not path.endswith(".yaml"):
        return FileDiff(path=path, kind=FileKind.CHANGED, is_configmap=is_configmap)
    old, new = parsed(path, before), parsed(path, after)
    if path == lock.FILE and isinstance(old, dict) and isinstance(new, dict):
        old, new = _without_digests(old), _without_digests(new)
    found = settings(old, new)
    if path == lock.FILE and not found:
        return None
    rest = max(0, len(found) - MAX_SETTINGS)
    is_configmap = is_configmap or (path == _VALUES and all(_in_configmap(one.path) for one in found))
    return FileDiff(path=path, kind=FileKind.CHANGED, settings=found[:MAX_SETTINGS], more=rest, is_configmap=is_configmap)


def _in_configmap(path: tuple[str, ...]) -> bool:
    """Whether a value of the chart is the digest of a ConfigMap's text or a quota."""
    return path[0] == "quotas" or (path[0] == "pools" and path[2:] == ("policy",))


@lru_cache(maxsize=_MAX_PARSED)
def parsed(path: str, text: str) -> Any:
    """Return the document in a file of a bundle, which no caller may change; None if the text is not YAML.

    Every part of a comparison reads the same files: parsed again each time, 300 pools take four seconds longer.
    """
    if isinstance(text, WrittenText):
        return json.loads(json.dumps(text.made_of))  # with the types that a reader finds: a list for a tuple, text for a word
    return source.read(text.encode(), path, own=True).data


def _without_digests(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "files"}


def _differs_in_comments(path: str, before: str, after: str) -> bool:
    """Whether only comments differ. What looks like a comment may be a line of a string, so the texts are parsed."""
    if not path.endswith(".yaml") or path.startswith(_TEMPLATES) or _uncommented(before) != _uncommented(after):
        return False
    return not settings(parsed(path, before), parsed(path, after))


def _uncommented(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))


def settings(old: Any, new: Any) -> tuple[SettingChange, ...]:
    """Return what differs between two documents."""
    return tuple(_settings((), old, new))


def _settings(path: tuple[str, ...], old: Any, new: Any) -> Iterator[SettingChange]:
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _entries(path, old, new)
    elif isinstance(old, list) and isinstance(new, list) and _named(old) and _named(new):
        yield from _entries(path, {one["name"]: one for one in old}, {one["name"]: one for one in new})
    elif json.dumps(old, sort_keys=True) != json.dumps(new, sort_keys=True):
        yield SettingChange(path=path, kind=FileKind.CHANGED, before=old, after=new)


def _entries(path: tuple[str, ...], old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[SettingChange]:
    for key in sorted(old.keys() | new.keys(), key=str):
        below = (*path, str(key))
        if key not in new:
            yield SettingChange(path=below, kind=FileKind.REMOVED, before=old[key])
        elif key not in old:
            yield SettingChange(path=below, kind=FileKind.ADDED, after=new[key])
        else:
            yield from _settings(below, old[key], new[key])


def _named(entries: list[Any]) -> bool:
    """Whether these are mappings with distinct names, such as environment variables."""
    names = [one.get("name") for one in entries if isinstance(one, dict)]
    return len(names) == len(entries) == len(set(map(str, names))) and all(isinstance(name, str) for name in names)
