"""Facts about NVIDIA's charts, read from `profiles/upstream`: releases, images, default tolerations, and what values they know.

`chart` is cheap and serves every compile; the table of values is read when somebody asks for a path. Judges a path alone:
what an intent may do with it is for the rules. Knows the newest release of each chart; older ones are known by name only.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Any

from gpushare import facts, resources
from gpushare.record import Record, replace

FILES = {"gpu-operator": "gpu-operator", "device-plugin": "nvidia-device-plugin"}
"""Stack of an intent → name of its chart. The stack `existing` has none."""


class ValueKind(StrEnum):
    """What a value must be. ANY: the chart gives no default that tells."""

    STRING = "string"
    BOOL = "bool"
    INTEGER = "integer"
    MAP = "map"
    LIST = "list"
    INT_OR_STRING = "int-or-string"
    ANY = "any"


class ValueFact(Record):
    """One value of a chart. `path` is dotted; `declared` False: the templates read it, the values file does not list it.

    `words` are all that the API server takes there (empty: any text), `least` is the least number.
    """

    path: str
    kind: ValueKind
    default: Any = None
    declared: bool = True
    words: tuple[str, ...] = ()
    least: int | None = None


class Image(Record):
    """One image that a chart names in the section `section` of its values. `tag` None: the chart's own version.

    `installed`: a default installation for containers runs it. The operator appends `-<node OS>` to the driver's tag.
    """

    section: str
    repository: str
    name: str
    tag: str | None
    installed: bool

    @property
    def joined(self) -> bool:
        """Whether the values are `repository` (with the name) and `tag`, instead of `repository`, `image` and `version`."""
        return self.section.rpartition(".")[2] == "image"

    @property
    def values(self) -> Mapping[str, str]:
        """Value path → default, for the paths that make up the image; an empty version means the chart's."""
        if self.joined:
            return {f"{self.section}.repository": f"{self.repository}/{self.name}", f"{self.section}.tag": self.tag or ""}
        parts = {"repository": self.repository, "image": self.name, "version": self.tag or ""}
        return {f"{self.section}.{key}": default for key, default in parts.items()}


class UpstreamChart(Record):
    """One chart. `releases` are (chart version, device plugin version) pairs, oldest first.

    `tolerations` are the default lists, by path, that a value of ours would replace. Below `subcharts` another chart reads.
    `reserved_volumes` are names that the ConfigMap of device-plugin configs must not have.
    """

    name: str
    repository: str
    releases: tuple[tuple[str, str], ...]
    images: tuple[Image, ...]
    tolerations: Mapping[str, tuple[Mapping[str, str], ...]]
    subcharts: tuple[str, ...]
    reserved_volumes: tuple[str, ...]

    @property
    def version(self) -> str:
        """The newest known release, the one that the table of values describes."""
        return self.releases[-1][0]

    @property
    def known_versions(self) -> tuple[str, ...]:
        """Every known release, oldest first."""
        return tuple(version for version, _ in self.releases)

    def plugin_version(self, version: str) -> str:
        """The device plugin that a release installs.

        Of a release that is not known: that of the known one before it, which it is not older than, or for one before all that
        of the oldest, which it is not newer than.
        """
        order = version_order(version)
        before = [plugin for release, plugin in self.releases if version_order(release) <= order]
        return before[-1] if before else self.releases[0][1]

    def path(self, dotted: str) -> ValueFact | None:
        """The value of that path; None for sections, for what lies below a map, and for what the chart does not know."""
        return paths(self.name).get(dotted)


def version_order(version: str) -> tuple[tuple[int, ...], bool, tuple[tuple[bool, int, str], ...]]:
    """Versions by their order, as semantic versioning has it: `v26.7.0-rc.1` is before `v26.7.0`, `v26.10.0` behind both."""
    numbers, _, before = version.removeprefix("v").partition("-")
    parts = tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in before.split("."))
    return tuple(int(part) for part in numbers.split(".")), not before, parts if before else ()


class Known(Record):
    """The chart reads this path. `fact` None: a section, a mapping with values below."""

    fact: ValueFact | None


class OpenMap(Record):
    """The path lies below `above`, which takes anything: a map, or another chart's values."""

    above: str


class Dropped(Record):
    """Helm would accept the path and nothing would happen. `replacement` None: nothing replaced it.

    Not `confirmed`: that it is gone is known, since when and why is not.
    """

    path: str
    replacement: str | None
    reason: str
    confirmed: bool = True


class Unknown(Record):
    """No value of this chart."""

    path: str
    known: Mapping[str, ValueFact]

    @property
    def nearest(self) -> tuple[str, ...]:
        """Paths that may be meant, best first."""
        return _nearest(self.path, self.known)


@cache
def chart(stack: str) -> UpstreamChart:
    """The chart of a stack. KeyError for `existing` and unknown ones."""
    facts = _read(f"{FILES[stack]}.yaml")
    return UpstreamChart(
        name=facts["chart"],
        repository=facts["repository"],
        releases=tuple(facts["releases"].items()),
        images=(*_images(facts["images"], installed=True), *_images(facts["imagesOff"], installed=False)),
        tolerations={path: tuple(default) for path, default in facts["tolerations"].items()},
        subcharts=tuple(facts["subcharts"]),
        reserved_volumes=tuple(facts["reservedVolumes"]),
    )


@cache
def paths(name: str) -> Mapping[str, ValueFact]:
    """Every value of a chart (by the chart's name), by dotted path."""
    table = _read(f"{name}.values.yaml")
    own = chart(next(stack for stack, file in FILES.items() if file == name))
    facts = list(_flatten(table["values"], (), frozenset(table["open"])))
    facts += [ValueFact(path=path, kind=ValueKind.LIST, default=list(default)) for path, default in own.tolerations.items()]
    for image in own.images:
        ours = image.section.partition(".")[0] not in own.subcharts
        facts += [
            ValueFact(path=path, kind=ValueKind.STRING, default=default, declared=ours and bool(default))
            for path, default in image.values.items()
        ]
    facts += [ValueFact(path=path, kind=ValueKind(kind), declared=False) for path, kind in table["undeclared"].items()]
    return {fact.path: _told(fact, table) for fact in facts}


def _told(fact: ValueFact, table: Mapping[str, Any]) -> ValueFact:
    """The fact with what its default does not tell."""
    path = fact.path
    kind = ValueKind(table["types"].get(path, fact.kind))
    return replace(fact, kind=kind, words=tuple(table["words"].get(path, ())), least=table["least"].get(path))


def inside(upstream: UpstreamChart, dotted: str) -> str | None:
    """What the list or mapping at a path holds: `texts`, `text-map`, `quantities` or `variables`; None: anything."""
    held: str | None = _read(f"{upstream.name}.values.yaml")["inside"].get(dotted)
    return held


def pattern(upstream: UpstreamChart, dotted: str) -> str | None:
    """What the text at a path must match, also below a mapping that takes anything."""
    wanted: str | None = _read(f"{upstream.name}.values.yaml")["patterns"].get(dotted)
    return wanted


def switches(upstream: UpstreamChart, path: tuple[str, ...]) -> tuple[str, ...]:
    """The values, as dotted paths, that must be true for anything to read the value at `path`."""
    of_parts = _read(f"{upstream.name}.values.yaml")["switches"]
    above = (".".join(path[:length]) for length in range(len(path), 0, -1))
    return tuple(next((of_parts[part] for part in above if part in of_parts), ()))


@cache
def _sections(name: str) -> frozenset[str]:
    """Every path that has others below it."""
    return frozenset(path[:at] for path in (*paths(name), *_dropped(name)) for at, char in enumerate(path) if char == ".")


def judge_path(upstream: UpstreamChart, path: tuple[str, ...]) -> Known | OpenMap | Dropped | Unknown:
    """What a chart makes of a value at `path` (keys from the root down, at least one)."""
    known, dropped = paths(upstream.name), _dropped(upstream.name)
    for length in range(1, len(path) + 1):
        above = ".".join(path[:length])
        if above in dropped:
            return dropped[above]
    dotted = ".".join(path)
    if dotted in known:
        return Known(fact=known[dotted])
    for length in range(1, len(path)):
        above = ".".join(path[:length])
        if above in known:
            is_open = known[above].kind in (ValueKind.MAP, ValueKind.ANY)
            return OpenMap(above=above) if is_open else Unknown(path=above, known={above: known[above]})
    if dotted in _sections(upstream.name):
        return Known(fact=None)
    if path[0] in upstream.subcharts:
        return OpenMap(above=path[0])
    return Unknown(path=dotted, known=known)


def type_matches(fact: ValueFact, value: object) -> bool:
    """Whether a value has the type that the chart expects there. None always does: Helm removes the key then."""
    if value is None:
        return True
    match fact.kind:
        case ValueKind.STRING:
            return isinstance(value, str)
        case ValueKind.BOOL:
            return isinstance(value, bool)
        case ValueKind.INTEGER:
            return isinstance(value, int) and not isinstance(value, bool)
        case ValueKind.MAP:
            return isinstance(value, Mapping)
        case ValueKind.LIST:
            return isinstance(value, list | tuple)
        case ValueKind.INT_OR_STRING:
            return isinstance(value, int | str) and not isinstance(value, bool)
        case ValueKind.ANY:
            return True


@cache
def _read(file: str) -> Mapping[str, Any]:
    data: Mapping[str, Any] = facts.read(resources.upstream() / file)
    return data


def _images(sections: Mapping[str, str], *, installed: bool) -> Iterator[Image]:
    for section, reference in sections.items():
        repository, _, rest = reference.rpartition("/")
        name, _, tag = rest.partition(":")
        yield Image(section=section, repository=repository, name=name, tag=tag or None, installed=installed)


def _flatten(tree: Mapping[str, Any], above: tuple[str, ...], open_maps: frozenset[str]) -> Iterator[ValueFact]:
    for key, default in tree.items():
        path = (*above, key)
        dotted = ".".join(path)
        section = isinstance(default, Mapping) and bool(default)
        if not section or dotted in open_maps:
            yield ValueFact(path=dotted, kind=_kind(default), default=default)
        if section:
            yield from _flatten(default, path, open_maps)


def _kind(default: object) -> ValueKind:
    match default:
        case None:
            return ValueKind.ANY
        case bool():
            return ValueKind.BOOL
        case int():
            return ValueKind.INTEGER
        case list():
            return ValueKind.LIST
        case dict():
            return ValueKind.MAP
        case _:
            return ValueKind.STRING


@cache
def _dropped(name: str) -> Mapping[str, Dropped]:
    return {
        path: Dropped(path=path, replacement=row["replacement"], reason=row["reason"], confirmed=not row.get("unconfirmed"))
        for path, row in _read(f"{name}.values.yaml")["dropped"].items()
    }


def _nearest(dotted: str, known: Mapping[str, ValueFact]) -> tuple[str, ...]:
    from difflib import get_close_matches  # noqa: PLC0415 - only an error pays for it

    return tuple(get_close_matches(dotted, known, n=3, cutoff=0.6))
