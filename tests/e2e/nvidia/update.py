"""`make upstream NVIDIA=FOLDER`: write *.values.json and *.releases.json of profiles/upstream anew.

A JSON Schema for the values of each chart. Its values file gives the paths and defaults, its templates the paths that no
default shows, and the place that a value gets in a rendered object what may stand there: by the ClusterPolicy's schema, by
Kubernetes', and by `rules` what their programs ask besides. What has no effect stands in the hand-written notes.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from gpushare.core import emit, resources
from gpushare.facts.catalog import upstream
from tests.e2e.nvidia import charts, rules
from tests.e2e.nvidia.destinations import Destination, destinations

Schema = dict[str, Any]

_KUBERNETES = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
_CUSTOM = {"ClusterPolicy": "clusterpolicies", "NVIDIADriver": "nvidiadrivers"}
_FIRST = ("ClusterPolicy", "DaemonSet", "Deployment", "Job")
"""Of several places the one in the first of these tells what a value must be."""
_REFUSED = ("namespace",)
"""A template reads it to refuse it."""
_MAPPINGS = ("operator.labels",)
"""No default tells that these are mappings, and templates print them among others' entries."""
_KEPT = ("type", "enum", "pattern", "minimum", "maximum", "required", "minItems", "items", "properties", "additionalProperties")
_TYPES: Mapping[type, str] = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}


class Charted:
    """One chart, and the schema of its values."""

    def __init__(self, stack: str, folder: Path, version: str | None = None) -> None:
        self._chart = upstream.chart(stack)
        self._version = version or self._chart.version
        self._is_newest = self._version == self._chart.version
        self._name, self._folder = self._chart.name, folder
        self._read, self._whole = charts.read_paths(folder)
        self._defaults: dict[str, Any] = yaml.safe_load((folder / "values.yaml").read_text(encoding="utf-8"))
        self._definitions: dict[str, Schema] = {}
        self._sources: dict[str, Schema] = {}
        kubernetes = max((path.name for path in _KUBERNETES.glob("v*-local")), key=_order)
        self._kubernetes = json.loads((_KUBERNETES / kubernetes / "_definitions.json").read_text(encoding="utf-8"))["$defs"]

    def document(self) -> Schema:
        """The schema, in the order of the paths."""
        gone = upstream.dropped(self._name)
        dropped = {path for path in gone if self._is_newest or path in _REFUSED or path not in self._read}
        leaves = {path: default for path, default in self._leaves(self._defaults, ()) if path not in dropped}
        leaves |= dict.fromkeys(path for path in self._undeclared(leaves) if path not in dropped)
        own = {path: one for path, one in leaves.items() if path.partition(".")[0] not in self._chart.subcharts}
        places = destinations(self._name, self._folder, own | {path: {} for path in _MAPPINGS if path in own})
        leaves |= dict.fromkeys(self._besides(leaves, places))
        nested: Schema = {}
        for path in sorted(leaves):
            for below, schema in self._schemas(path, leaves[path], places.get(path, [])):
                _put(nested, below.split("."), schema, frozenset(self._nullable(below)))
        head = {"$comment": f"Written by `make upstream`: the values of {self._name} {self._version}."}
        return head | {"definitions": dict(sorted(self._definitions.items()))} | nested

    def _leaves(self, tree: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for key, default in tree.items():
            path = (*above, key)
            dotted = ".".join(path)
            below = any(name.startswith(f"{dotted}.") for name in self._read)
            subchart = path[0] in self._chart.subcharts
            custom = self._name == "gpu-operator" and path[0] != "operator"
            if isinstance(default, dict) and default and (below or subchart or custom):
                yield from self._leaves(default, path)
            else:
                yield dotted, default

    def _undeclared(self, leaves: Mapping[str, Any]) -> Iterator[str]:
        for path in sorted(self._read):
            known = any(path == leaf or path.startswith(f"{leaf}.") or leaf.startswith(f"{path}.") for leaf in leaves)
            deeper = any(other.startswith(f"{path}.") for other in self._read)
            if not known and not deeper:
                yield path

    def _besides(self, leaves: Mapping[str, Any], places: dict[str, list[Destination]]) -> list[str]:
        """Values beside declared ones, in sections that templates print as they are; told of by their places as well."""
        found = []
        for section in sorted(self._whole - {self._above(name) for name in self._read}):
            first = next((path for path in sorted(leaves) if self._above(path) == section and path in places), None)
            place = self._best(places[first]) if first else None
            if place is None or place.kind not in _CUSTOM:
                continue
            around = replace(place, path=place.path[:-1])
            for key in (self._at(around) or {}).get("properties", {}):
                if f"{section}.{key}" not in leaves:
                    places[f"{section}.{key}"] = [replace(around, path=(*around.path, key), plain=False)]
                    found.append(f"{section}.{key}")
        return found

    @staticmethod
    def _above(path: str) -> str:
        return path.rpartition(".")[0]

    @staticmethod
    def _best(places: list[Destination]) -> Destination | None:
        """Of all places the one that tells most, where the value is all that stands there."""
        whole = [one for one in places if one.whole]
        return min(whole, key=lambda one: _FIRST.index(one.kind) if one.kind in _FIRST else len(_FIRST), default=None)

    def _nullable(self, path: str) -> Iterator[str]:
        """The sections above a path that may be null: no template looks for values below them."""
        parts = path.split(".")
        for length in range(1, len(parts)):
            above = ".".join(parts[:length])
            if not any(name.startswith(f"{above}.") for name in self._read):
                yield above

    def _schemas(self, path: str, default: Any, places: list[Destination]) -> Iterator[tuple[str, Schema]]:
        """(path, schema) of a value, or of all values below it where a resource of NVIDIA's says what these are."""
        exact = self._best(places)
        found = self._at(exact) if exact else None
        if exact and found is None:
            if not self._is_newest:  # an older release: Helm prints it, and the resource has no such place
                return
            raise SystemExit(f"{path}: {exact.kind} has no {'.'.join(map(str, exact.path))}: list it under dropped")
        if exact and exact.kind in _CUSTOM and found and found.get("properties"):
            for key, below in sorted(found["properties"].items()):
                name = f"{path}.{key}"
                yield from self._inner(name, below, default[key] if isinstance(default, dict) and key in default else _NOTHING)
            return
        declared = default if path in self._declared else _NOTHING
        schema = self._reduced(found, path) if found is not None else {"type": "string"} if places and default is None else {}
        yield path, self._finished(path, schema, declared, plain=bool(exact and exact.plain))

    def _inner(self, path: str, found: Schema, default: Any) -> Iterator[tuple[str, Schema]]:
        if found.get("properties"):
            for key, below in sorted(found["properties"].items()):
                yield from self._inner(f"{path}.{key}", below, _NOTHING)
        else:
            yield path, self._finished(path, self._reduced(found, path), default, plain=False)

    @cached_property
    def _declared(self) -> frozenset[str]:
        return frozenset(path for path, _ in self._leaves(self._defaults, ()))

    def _finished(self, path: str, schema: Schema, default: Any, *, plain: bool) -> Schema:
        """The schema with what the default tells, and what programs ask."""
        key = path.rpartition(".")[2]
        if "type" not in schema and "$ref" not in schema and type(default) in _TYPES:
            schema = {**schema, "type": _TYPES[type(default)]}
        asked = rules.merged(rules.BY_KEY.get(key, {}), rules.BY_PATH.get(path, {}))
        if "type" not in schema and "$ref" not in schema and "type" not in asked:
            schema = {**schema, "type": _guessed(asked)}
        if key in rules.MAPS and "$ref" not in schema:
            schema = {**schema, **_mapping(*rules.MAPS[key])}
        if plain and schema.get("type") == "string" and not {"enum"} & (asked.keys() | schema.keys()):
            schema = {**schema, **rules.UNQUOTED}
            if "patternErrorMessage" in asked:
                asked = {**asked, "patternErrorMessage": f"{asked['patternErrorMessage']}, and no number or word of YAML"}
        if plain and "enum" in schema:
            schema = {**schema, "enum": [*schema["enum"], ""]}  # nothing is printed then, or nothing behind the colon
        schema = rules.merged(schema, asked)
        return schema if default is _NOTHING else {**schema, "default": default}

    def _at(self, place: Destination) -> Schema | None:
        """What the resource's schema says of a place; None where it has no such place."""
        meta = place.path[0] == "metadata"
        found = self._resource("ObjectMeta" if meta else place.kind)
        for step in place.path[meta:]:
            found = self._resolved(found)
            inner = found.get("items") if isinstance(step, int) else found.get("properties", {}).get(step)
            if inner is None and isinstance(found.get("additionalProperties"), dict):
                inner = found["additionalProperties"]
            if inner is None:
                return None
            found = inner
        return found

    def _resource(self, kind: str) -> Schema:
        if kind in _CUSTOM:
            return _custom(next((self._folder / "crds").glob(f"nvidia.com_{_CUSTOM[kind]}*.yaml")))
        names = [name for name in self._kubernetes if name.endswith(f".{kind}")]
        return self._kubernetes[max(names, key=lambda name: (".v1." in name, name))]  # type: ignore[no-any-return]

    def _resolved(self, schema: Schema) -> Schema:
        reference = schema.get("$ref")
        return self._kubernetes[reference.rpartition("/")[2]] if reference else schema

    def _reduced(self, schema: Schema, path: str) -> Schema:
        """The schema in the keywords that `gpushare.reading.schema` knows; objects with fields become definitions."""
        name = schema.get("$ref", "").rpartition(".")[2] or path.rpartition(".")[2]
        schema = self._resolved(schema)
        if name in ("Quantity", "IntOrString") or schema.get("x-kubernetes-int-or-string"):
            if name == "Quantity":
                return {"type": ["number", "string"], **rules.QUANTITY}
            return {"type": ["integer", "string"]} | ({"pattern": _closed(schema["pattern"])} if "pattern" in schema else {})
        if schema.get("properties"):
            if self._sources.setdefault(name, schema["properties"]) != schema["properties"]:
                raise SystemExit(f"{path}: there are two kinds of {name}")
            if name not in self._definitions:
                self._definitions[name] = self._object(schema, name)
            return {"$ref": f"#/definitions/{name}"}
        return self._plain(schema, path)

    def _plain(self, schema: Schema, path: str) -> Schema:
        reduced: Schema = {}
        for key in _KEPT:
            if key in schema:
                reduced[key] = schema[key]
        if "type" in reduced:
            types = [reduced["type"]] if isinstance(reduced["type"], str) else [one for one in reduced["type"] if one != "null"]
            reduced["type"] = types[0] if len(types) == 1 else types
        if "pattern" in reduced:
            reduced["pattern"] = _closed(reduced["pattern"])
        if schema.get("format") == "int32":
            reduced.setdefault("maximum", rules.MAX_INT32)
        if "items" in reduced:
            reduced["items"] = self._entry(self._reduced(reduced["items"], path), path)
        if isinstance(reduced.get("additionalProperties"), dict):
            reduced["additionalProperties"] = self._reduced(reduced["additionalProperties"], "value")
        return reduced

    def _entry(self, schema: Schema, path: str) -> Schema:
        secret = path.endswith("imagePullSecrets") and "$ref" not in schema
        return rules.merged(schema, {**rules.NAME, "minLength": 1}) if secret else schema

    def _object(self, schema: Schema, name: str) -> Schema:
        properties = {}
        for key, part in sorted(schema["properties"].items()):
            reduced = self._reduced(part, key)
            properties[key] = {**reduced, **_mapping(*rules.MAPS[key])} if key in rules.MAPS else reduced
        one: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
        if schema.get("required"):
            one["required"] = sorted(schema["required"])
        return rules.merged(one, rules.BY_DEFINITION.get(name, {}))


_NOTHING = object()


@cache
def _custom(path: Path) -> Schema:
    schema: Schema = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)["spec"]["versions"][0]["schema"]
    inner: Schema = schema["openAPIV3Schema"]
    return inner


def _mapping(keys: Schema | None, values: Schema | None) -> Schema:
    return {"type": "object", "propertyNames": keys or {}, "additionalProperties": {"type": "string", **(values or {})}}


def _guessed(asked: Schema) -> str:
    """The type of a value that no default and no place tells: templates only ask whether it is true."""
    return "string" if {"pattern", "enum", "format"} & asked.keys() else "boolean"


def _closed(pattern: str) -> str:
    """`$` is also before a last line break in Python, and only there at the end of the text in Go."""
    return f"{pattern}(?!\\n)" if pattern.endswith("$") else pattern


def _order(name: str) -> list[int]:
    return [int(part) for part in name.removeprefix("v").removesuffix("-local").split(".")]


def _put(tree: Schema, keys: list[str], schema: Schema, nullable: frozenset[str]) -> None:
    for length in range(len(keys)):
        above = ".".join(keys[:length])
        tree.setdefault("type", ["object", "null"] if above in nullable else "object")
        tree.setdefault("additionalProperties", False)
        tree = tree.setdefault("properties", {}).setdefault(keys[length], {})
    tree.update(schema)


def generated(stack: str, folder: Path) -> str:
    """The text of a chart's file."""
    return emit.json_text(Charted(stack, folder).document())


def table(newest: Schema, older: Mapping[str, Schema]) -> str:
    """The text of the releases' file; `older`: release → its schema, the newest first."""
    rows, before = {}, newest
    for release, after in older.items():
        rows[release], before = list(upstream.schema_changes(before, after)), after
    return upstream.releases_text(rows)


def main() -> int:
    """Write the files of both charts: the newest's values, and of every older release there is an archive of, what differs."""
    for stack, name in upstream.FILES.items():
        found: dict[str, Schema] = {}
        for version, archive in charts.archives(name):
            with tempfile.TemporaryDirectory() as into:
                found[version] = Charted(stack, charts.unpacked(archive, Path(into)), version).document()
        newest, *_ = found
        if newest != upstream.chart(stack).version:
            raise SystemExit(f"the newest archive of {name} is {newest}, the newest release with a chart is not")
        text = emit.json_text(found.pop(newest))
        (resources.upstream() / f"{name}.values.json").write_text(text, encoding="utf-8")
        if found:
            (resources.upstream() / f"{name}.releases.json").write_text(table(json.loads(text), found), encoding="utf-8")
        print(f"{name}: {newest}, {len(found)} before it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
