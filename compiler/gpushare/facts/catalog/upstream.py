"""Facts about the vendors' charts, read from `profiles/upstream`: releases, images, default tolerations, and values they read.

`chart` is of NVIDIA's, `vendor_chart` of other vendors'; this module also owns the form of the parts of `images.txt` on both.
`chart` is cheap, and every compile calls it; the schema of the values is read only when a caller looks up a path. The rules
decide what an intent may do with a path. An UpstreamChart is of one release (`at`): paths, defaults and schemas are that
release's; images and tolerations are the newest's.

`profiles/upstream/<chart>.releases.json` has for each release before the newest the changes of the values' schema from the next
newer one there to this one, the newest first. A change is [keys] for what is not there, and [keys, value] for what is.
`make upstream` writes it by `schema_changes`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

from gpushare.core import resources
from gpushare.core.diagnostics import Finding, Path
from gpushare.core.wording import nearest
from gpushare.reading import schema, source
from gpushare.vendors import OTHERS
from gpushare.vendors.nvidia import NVIDIA
from gpushare_node.contract.struct import NOTHING, Struct, replace

DRA = "dra"
"""What stands for a stack of the DRA driver's chart, which is installed beside that of a stack."""

OF_DRA = "# The DRA driver's chart"
"""With which the line of `images.txt` begins that names it."""

FILES = {**NVIDIA.charts, DRA: "dra-driver-nvidia-gpu"}
"""Stack of an intent → name of its chart. The stack `existing` has none."""


class ValueFact(Struct):
    """One value of a chart: its dotted path and its schema. A schema without `default`: the values file does not list it."""

    path: str
    schema: schema.Schema

    @property
    def default(self) -> Any:
        """The chart's own value."""
        return self.schema.get("default")

    @property
    def is_open(self) -> bool:
        """Whether it contains values of its own."""
        return "$ref" in self.schema or self.schema.get("type") == "object"


class Image(Struct):
    """One image that a chart names in section `section` of its values. `tag` None: the chart's own version.

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


OCI = "oci://"
"""The scheme of a registry that has charts as artifacts; Argo CD leaves it out."""


class UpstreamChart(Struct):
    """One chart. `releases` are (chart version, device plugin version) pairs, oldest first.

    `tolerations` are the default lists, by path, that a value of ours would replace. Another chart reads what is below
    `subcharts`. `uncharted`: releases that are known and whose charts were not read, with what is known of them. `described`:
    the release whose values these are; empty: the newest's.
    """

    name: str
    repository: str
    releases: tuple[tuple[str, str], ...]
    images: tuple[Image, ...]
    tolerations: Mapping[str, tuple[Mapping[str, str], ...]]
    subcharts: tuple[str, ...]
    uncharted: Mapping[str, str] = NOTHING
    described: str = ""

    def at(self, release: str | None) -> "UpstreamChart":
        """Return the chart whose values are those of a release: of the last chart that was read and is not newer.

        `described` of what is returned is that chart's release: the oldest for a release before all of them.
        """
        if release is None:
            return self
        wanted = version_order(release)
        older = (one for one in (self.version, *charted(self.name)) if version_order(one) <= wanted)
        return replace(self, described=next(older, (self.version, *charted(self.name))[-1]))

    def is_before_all(self, release: str) -> bool:
        """Whether a release is older than every chart that was read."""
        return version_order(release) < version_order((self.version, *charted(self.name))[-1])

    @property
    def version(self) -> str:
        """The default release: the newest whose chart was read, so that its values and images are known."""
        return next(version for version, _ in reversed(self.releases) if version not in self.uncharted)

    @property
    def known_versions(self) -> tuple[str, ...]:
        """Every known release, oldest first."""
        return tuple(version for version, _ in self.releases)

    def helm_reference(self, mirror: str | None) -> str:
        """Return the chart as Helm's commands name it, from the mirror's repository or registry if there is one."""
        address = mirror or self.repository
        return f"{address}/{self.name}" if address.startswith(OCI) else f"{self.name} --repo {address}"

    def plugin_version(self, version: str) -> str:
        """Return the device plugin that a release installs.

        For a release that is not known: the plugin of the newest known release that is not newer, else that of the oldest.
        """
        order = version_order(version)
        before = [plugin for release, plugin in self.releases if version_order(release) <= order]
        return before[-1] if before else self.releases[0][1]

    def path(self, dotted: str) -> ValueFact | None:
        """Return the value of that path; None for sections, for paths below a map, and for paths the chart does not know."""
        return paths(self.name, self.described).get(dotted)


def version_order(version: str) -> tuple[tuple[int, ...], bool, tuple[tuple[bool, int, str], ...]]:
    """Return a sort key of versions, as in semantic versioning: `v26.7.0-rc.1` is before `v26.7.0`, `v26.10.0` after both."""
    numbers, _, before = version.removeprefix("v").partition("-")
    parts = tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in before.split("."))
    return tuple(int(part) for part in numbers.split(".")), not before, parts if before else ()


class Known(Struct):
    """The chart reads this path. `fact` None: a section, a mapping with values below.

    `nullable`: no template fails if the section is null.
    """

    fact: ValueFact | None
    nullable: bool = False


class OpenMap(Struct):
    """The path is below `above`, which accepts any value: a map, or another chart's values."""

    above: str


class Dropped(Struct):
    """Helm would accept the path without any effect. `replacement` None: nothing replaced it."""

    path: str
    replacement: str | None
    reason: str


class Unknown(Struct):
    """The path is not a value of this chart."""

    path: str
    known: Mapping[str, Any]

    @property
    def nearest(self) -> tuple[str, ...]:
        """Similar paths that the user may have meant, best first."""
        return nearest(self.path, self.known)


@cache
def chart(stack: str) -> UpstreamChart:
    """Return the chart of a stack. Raises KeyError for `existing` and for unknown stacks."""
    facts = _read(f"{FILES[stack]}.yaml")
    return UpstreamChart(
        name=facts["chart"],
        repository=facts["repository"],
        releases=tuple(facts["releases"].items()),
        images=(*_images(facts["images"], installed=True), *_images(facts["imagesOff"], installed=False)),
        tolerations={path: tuple(default) for path, default in facts["tolerations"].items()},
        subcharts=tuple(facts["subcharts"]),
        uncharted=facts.get("uncharted", {}),
    )


@cache
def paths(name: str, release: str = "") -> Mapping[str, ValueFact]:
    """Return every value of a chart (by the chart's name), by dotted path; of the newest chart or of a release with one."""
    own = chart(next(stack for stack, file in FILES.items() if file == name))
    known = list(_flatten(_schema(name, release), ()))
    for image in own.images:
        if image.section.partition(".")[0] in own.subcharts:
            known += [ValueFact(path=path, schema={"type": "string"}) for path in image.values]
    return {fact.path: fact for fact in known}


def violations(upstream: UpstreamChart, fact: ValueFact, value: object, base: Path) -> list[Finding]:
    """Return what the chart or the API server rejects in a value; `base` is the value's path. Helm removes null values."""
    wanted = {**fact.schema, "definitions": _schema(upstream.name, upstream.described)["definitions"]}
    needed = _read(f"{upstream.name}.notes.yaml")["needed"]
    return [] if value is None and fact.path not in needed else schema.violations(_without_nulls(value), wanted, base)


def _without_nulls(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


def switches(upstream: UpstreamChart, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values, as dotted paths, that must be true so that something reads the value at `path`."""
    of_parts = _read(f"{upstream.name}.notes.yaml")["switches"]
    above = (".".join(path[:length]) for length in range(len(path), 0, -1))
    return tuple(next((of_parts[part] for part in above if part in of_parts), ()))


@cache
def _sections(name: str, release: str) -> Mapping[str, bool]:
    """Return every path that has others below it → whether it may be null."""
    every = (path[:at] for path in (*paths(name, release), *dropped(name)) for at, char in enumerate(path) if char == ".")
    return {path: "null" in _node(_schema(name, release), path.split(".")).get("type", ()) for path in every}


def _node(tree: schema.Schema, keys: Sequence[str]) -> schema.Schema:
    for key in keys:
        tree = tree.get("properties", {}).get(key, {})
    return tree


def check_path(upstream: UpstreamChart, path: tuple[str, ...]) -> Known | OpenMap | Dropped | Unknown:
    """Return how a chart reads a value at `path` (keys from the root down, at least one)."""
    known = paths(upstream.name, upstream.described)
    gone = {gone: row for gone, row in dropped(upstream.name).items() if gone not in known}
    for length in range(1, len(path) + 1):
        above = ".".join(path[:length])
        if above in gone:
            return gone[above]
    dotted = ".".join(path)
    if dotted in known:
        return Known(fact=known[dotted])
    for length in range(1, len(path)):
        above = ".".join(path[:length])
        if above in known:
            return OpenMap(above=above) if known[above].is_open else Unknown(path=above, known={above: known[above]})
    if dotted in (sections := _sections(upstream.name, upstream.described)):
        return Known(fact=None, nullable=sections[dotted])
    if path[0] in upstream.subcharts:
        return OpenMap(above=path[0])
    return Unknown(path=dotted, known=known)


@cache
def _read(file: str) -> Mapping[str, Any]:
    path = resources.upstream() / file
    data: Mapping[str, Any] = source.read(path.read_bytes(), str(path)).data
    return data


@cache
def _schema(name: str, release: str = "") -> schema.Schema:
    loaded: schema.Schema = json.loads((resources.upstream() / f"{name}.values.json").read_text(encoding="utf-8"))
    return schema_at(name, loaded, release) if release in charted(name) else loaded


def _images(sections: Mapping[str, str], *, installed: bool) -> Iterator[Image]:
    for section, reference in sections.items():
        repository, _, rest = reference.rpartition("/")
        name, _, tag = rest.partition(":")
        yield Image(section=section, repository=repository, name=name, tag=tag or None, installed=installed)


def _flatten(tree: schema.Schema, above: tuple[str, ...]) -> Iterator[ValueFact]:
    for key, below in tree["properties"].items():
        path = (*above, key)
        if "properties" in below:
            yield from _flatten(below, path)
        else:
            yield ValueFact(path=".".join(path), schema=below)


@cache
def dropped(name: str) -> Mapping[str, Dropped]:
    """Return, by path, the values that Helm accepts and no template reads."""
    return {
        path: Dropped(path=path, replacement=row["replacement"], reason=row["reason"])
        for path, row in _read(f"{name}.notes.yaml")["dropped"].items()
    }


Change = Sequence[Any]
Tree = dict[str, Any]


def schema_at(name: str, newest: Mapping[str, Any], release: str) -> Tree:
    """Return the schema of a release that `charted` names. Raises KeyError for another."""
    found: Tree = deepcopy(dict(newest))
    for older, changed in _table(name).items():
        for change in changed:
            _apply(found, change)
        if older == release:
            return found
    raise KeyError(release)


def charted(name: str) -> tuple[str, ...]:
    """Return the releases before the newest whose charts were read, the newest first."""
    return tuple(_table(name))


def schema_changes(before: Mapping[str, Any], after: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[Change]:
    """Yield what turns one schema into another, in the order of the keys."""
    for key in sorted(before.keys() | after.keys()):
        path = (*above, key)
        if key not in after:
            yield [list(path)]
        elif key in before and isinstance(before[key], dict) and isinstance(after[key], dict):
            yield from schema_changes(before[key], after[key], path)
        elif key not in before or before[key] != after[key] or type(before[key]) is not type(after[key]):
            yield [list(path), after[key]]


def _apply(tree: Tree, change: Change) -> None:
    (*above, last), *values = change
    for key in above:
        tree = tree[key]
    if values:
        tree[last] = deepcopy(values[0])
    else:
        del tree[last]


def releases_text(table: Mapping[str, Sequence[Change]]) -> str:
    """Return the file's releases_text: one change a line."""
    blocks = []
    for release, changed in table.items():
        lines = ",\n".join(f"    {json.dumps(change, ensure_ascii=False)}" for change in changed)
        blocks.append(f"  {json.dumps(release)}: [\n{lines}\n  ]" if lines else f"  {json.dumps(release)}: []")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


@cache
def _table(name: str) -> Mapping[str, Sequence[Change]]:
    path = resources.upstream() / f"{name}.releases.json"
    table: Mapping[str, Sequence[Change]] = json.loads(path.read_text(encoding="utf-8"))
    return table


HEADINGS = {word: f"# {vendor.name}'s chart" for word, vendor in OTHERS.items()}
"""With which the part of `images.txt` on a vendor's chart begins."""

OF_SUBCHARTS = "# Those of its subcharts"
"""With which the line of `images.txt` begins that says how to list them."""

_OPEN = ("object", "parent")


class VendorChart(Struct):
    """One chart. `releases`: oldest first. `images` are those of the last release, by the part that runs them.

    `firsts`: the first release with a part, and with a card, by its id. `values` are the types of those that an
    intent may set, by dotted path: what is below an `object` or a `parent` is not judged, and templates read values below a
    `parent`, so that it is never null. `owned` are values that an intent may not set, with what to do instead.
    """

    name: str
    repository: str
    releases: tuple[str, ...]
    images: Mapping[str, str]
    firsts: Mapping[str, str] = NOTHING
    values: Mapping[str, str] = NOTHING
    owned: Mapping[str, str] = NOTHING

    @property
    def version(self) -> str:
        """The newest release that is known."""
        return self.releases[-1]

    def check_path(self, path: tuple[str, ...]) -> Known | OpenMap | Unknown:
        """Return how the chart reads a value at `path` (keys from the root down, at least one). It reads one that is owned."""
        dotted = ".".join(path)
        kind = self.values.get(dotted)
        if kind == "parent" or any(one.startswith(f"{dotted}.") for one in (*self.values, *self.owned)):
            return Known(fact=None)
        if kind is not None or dotted in self.owned:
            return Known(fact=ValueFact(path=dotted, schema={"type": kind} if kind else {}))
        parents = (".".join(path[:length]) for length in range(1, len(path)))
        above = next((one for one in parents if one in self.owned or self.values.get(one) in _OPEN), None)
        return Unknown(path=dotted, known=self.values) if above is None else OpenMap(above=above)

    def lacks(self, part: str, release: str) -> bool:
        """Whether a release is older than the first one with the part."""
        return part in self.firsts and version_order(release) < version_order(self.firsts[part])


@cache
def vendor_chart(stack: str) -> VendorChart:
    """Return the chart of a vendor's stack. `existing` has none."""
    path = resources.upstream() / f"{stack}.yaml"
    facts = source.read(path.read_bytes(), str(path)).data
    return VendorChart(
        name=facts["chart"],
        repository=facts["repository"],
        releases=tuple(facts["releases"]),
        images=facts["images"],
        firsts=facts.get("firsts", {}),
        values=facts["values"],
        owned=facts["owned"],
    )


def listed(text: str, vendor: str) -> str:
    """Return what the text of `images.txt` says of a vendor's chart, after the heading; empty without one."""
    _, _, rest = text.partition(HEADINGS[vendor])
    return _before_any(rest)


def listed_before(text: str) -> str:
    """Return what it says before the first of these charts."""
    return _before_any(text)


def _before_any(text: str) -> str:
    return text[: min((at for heading in HEADINGS.values() if (at := text.find(heading)) >= 0), default=len(text))]
