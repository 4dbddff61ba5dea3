"""What is wrong with a document that its schema does not accept, in the user's words: GS101 to GS108, one for each problem.

jsonschema finds the violations. This module owns wording, hints, and the choice among violations that have the same cause: also
what a person means by a value that an intent cannot have there, by the shapes of other programs' configurations and those that
follow from wrong indentation. Knows no positions.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema import Draft7Validator, FormatChecker, ValidationError, validators

from gpushare.core.diagnostics import Finding, Path
from gpushare.core.units import meant_sizes, parse_quantity
from gpushare.core.wording import join_words, nearest, shorten
from gpushare.reading.tree import resolve
from gpushare_node.contract.struct import Struct, replace

MAX_RAW = 400
"""How many violations are read: in a text with more, the user must fix the first ones before the rest is worth reading."""
MAX_FINDINGS = 100

_NAMES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}
_WORD_LIST = re.compile(r"\^\(([a-z|-]+)\)\$")
_OF_TYPE = {
    "object": ("write a mapping of fields",),
    "array": ("write a list",),
    "string": ("write text",),
    "boolean": ("write true or false",),
    "integer": ("write a whole number",),
}
# Of several violations of one value, the first in this order is the mistake and the others follow from it.
_RANK = (
    "not",
    "type",
    "const",
    "enum",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "uniqueItems",
)
_MAX_GUESS_LENGTH = 64
_MAX_RANGE = 16
_GOALS = ("most-instances", "balanced")


class SchemaViolation(Struct):
    """One error of a validator: which keyword with which argument rejects which value, at which path, in which schema."""

    keyword: str
    argument: Any
    value: Any
    schema: Any
    path: Path
    message: str


def violations(
    document: object,
    schema: Mapping[str, Any],
    keywords: Mapping[str, Callable[..., bool]],
    formats: Mapping[str, Callable[[str], bool]],
) -> Iterator[SchemaViolation]:
    """Yield the violations that jsonschema finds in the document, at most MAX_RAW. `keywords`, `formats`: those of `schema`."""

    def only_failing(keyword: str) -> Callable[..., Iterator[Any]]:
        """Return jsonschema's keyword, called only if ours fails: the valid parts of a large document then cost little."""
        original = Draft7Validator.VALIDATORS[keyword]

        def check(validator: Any, argument: Any, instance: Any, around: Any) -> Iterator[Any]:
            if keywords[keyword](argument, instance, around, schema):
                return
            if keyword == "additionalProperties" and argument:
                known = around.get("properties", {})
                for key in (key for key in instance if key not in known):  # in the text's order: jsonschema uses a set
                    yield from validator.descend(instance[key], argument, path=key)
            elif keyword in ("uniqueItems", "pattern"):
                yield ValidationError(keyword)  # checking it again would take long, or give another result
            else:
                yield from original(validator, argument, instance, around)

        return check

    checker = FormatChecker(formats=())
    for name, check_text in formats.items():
        checker.checks(name)(lambda text, check_text=check_text: not isinstance(text, str) or check_text(text))
    validator: Any = validators.extend(  # type: ignore[no-untyped-call]  # jsonschema has no annotation here
        Draft7Validator, {keyword: only_failing(keyword) for keyword in keywords}
    )
    for error in islice(validator(schema, format_checker=checker).iter_errors(document), MAX_RAW):
        yield SchemaViolation(
            keyword=str(error.validator),
            argument=error.validator_value,
            value=error.instance,
            schema=error.schema,
            path=tuple(error.absolute_path),
            message=error.message[:200],
        )


def findings(
    wrong: Iterable[SchemaViolation],
    document: object,
    schema: Mapping[str, Any],
    base: Path,
    written: Callable[[Path], str],
) -> list[Finding]:
    """Return at most MAX_FINDINGS findings and one with the number of the rest. `written` returns a value as written."""
    raw = list(wrong)
    wording = _Wording(document=document, root=schema, written=written, base=base)
    reported = [pair for violation in _first_causes(raw) for pair in wording.tell(violation)]
    # A field that is only missing because its key is misspelt is reported by that key's own finding.
    misspelt = set(wording.meant)
    kept = list(dict.fromkeys(finding for finding, wanted in reported if not misspelt.intersection(wanted)))
    placed = [replace(finding, path=(*base, *finding.path)) for finding in kept[:MAX_FINDINGS]]
    if len(kept) > MAX_FINDINGS:
        least = "at least " if len(raw) >= MAX_RAW else ""
        placed.append(replace(placed[-1], message=f"{least}{len(kept) - MAX_FINDINGS} more findings are not shown", hints=()))
    return placed


def _first_causes(raw: list[SchemaViolation]) -> Iterator[SchemaViolation]:
    """Yield, of the violations of one value, the one that ranks first, and none below a field that is not allowed at all."""
    best: dict[Path, tuple[int, int]] = {}
    for violation in raw:
        if violation.keyword in _RANK:
            best[violation.path] = min(best.get(violation.path, _rank(violation)), _rank(violation))
    forbidden = {path for path, rank in best.items() if rank[0] == 0}
    constants = {violation.path: violation for violation in raw if violation.keyword == "const"}
    if constants.keys() >= {("apiVersion",), ("kind",)}:
        yield constants["kind",]  # Another program's document: its fields are no mistakes.
        return
    for violation in raw:
        under = any(violation.path[:length] in forbidden for length in range(len(violation.path)))
        ranked = violation.keyword in _RANK
        # A value of the wrong type has no fields that could be missing or exclude each other: such violations follow from it.
        first = best.get(violation.path, (len(_RANK), 0))
        echo = first != _rank(violation) if ranked else first[0] <= _RANK.index("type")
        if not under and not echo:
            yield violation


def _rank(violation: SchemaViolation) -> tuple[int, int]:
    return _RANK.index(violation.keyword), len(violation.argument) if isinstance(violation.argument, list) else 0


Reported = Iterator[tuple[Finding, tuple[Path, ...]]]
"""Findings, each with the paths of the fields that it reports as missing."""


class _Wording:
    """Turns violations into findings. `meant` collects the fields that misspelt keys probably mean."""

    def __init__(self, *, document: object, root: Mapping[str, Any], written: Callable[[Path], str], base: Path) -> None:
        self.document = document
        self.base = base
        self.root = root
        self.written = written
        self.meant: list[Path] = []

    def tell(self, violation: SchemaViolation) -> Reported:
        """Yield the findings of one violation."""
        match violation.keyword:
            case "required":
                for name in violation.argument:
                    if name not in violation.value:
                        path = (*violation.path, name)
                        message, hints = f"{self._subject(violation.path)} needs {name}", self._add(violation.schema, name)
                        yield Finding(code="GS101", message=message, hints=hints, path=path), (path,)
            case "additionalProperties":
                yield from ((finding, ()) for finding in self._unknown(violation))
            case "oneOf" | "anyOf":
                yield from _alternatives(violation, self._subject(violation.path))
            case "not":
                message = f"{violation.path[-1]} does not belong to {self._chosen(violation.path[:-1])}"
                hint = self._meant_by(violation.path[:-1], str(violation.path[-1]), violation.value) or "leave it out"
                yield Finding(code="GS108", message=message, hints=(hint,), path=violation.path, on_key=True), ()
            case _:
                code, message, hints = self._value(violation)
                path = violation.path
                if violation.keyword == "uniqueItems":
                    path = (*path, _repeated(violation.value))
                meant = _meant_by_value((*self.base, *path), violation.value, self.document)
                if not hints or violation.keyword != "type":
                    hints = (meant,) if meant else hints or self._hints(violation.schema, message)
                yield Finding(code=code, message=f"{self._subject(violation.path)} {message}", hints=hints, path=path), ()

    def _subject(self, path: Path) -> str:
        return _subject((*self.base, *path))

    def _meant_by(self, path: Path, key: str, value: object) -> str:
        return _meant_by_field((*self.base, *path), key, value)

    def _add(self, around: Mapping[str, Any], name: str) -> tuple[str, ...]:
        """Return hints on how to write a missing field."""
        field: Mapping[str, Any] = around.get("properties", {}).get(name, {})
        legal = [hint for hint in self._legal(field) if (hint,) not in _OF_TYPE.values()]
        added = (
            f"add {name}: {hint.removeprefix('write ')}" if hint.startswith("write ") else f"add {name}, {hint}"
            for hint in legal
        )
        return tuple(added) or (f"add {name}",)

    def _hints(self, field: Mapping[str, Any], message: str) -> tuple[str, ...]:
        """Return hints on legal values; if the message contains them already, on the field's meaning and default."""
        legal = self._legal(field)
        if not any(hint.removeprefix("write ").removeprefix("such as ") in message for hint in legal):
            return legal
        message = f"meaning: {field['description'].rstrip('.')}" if "description" in field else ""
        default = f"its default is {_as_written(field['default'])}" if "default" in field else ""
        return tuple(filter(None, (message, default))) or legal

    def _legal(self, field: Mapping[str, Any]) -> tuple[str, ...]:
        """Return hints on legal values: the schema's own examples, words or bounds."""
        field = self._resolved(field)
        if "enum" in field or "const" in field:
            return (f"write {join_words([_shown(word) for word in field.get('enum', [field.get('const')])], 'or')}",)
        default = [field["default"]] if field.get("default") not in (None, "") else []
        examples = [_as_written(example) for example in field.get("examples", default)]
        if examples:
            return (f"such as {join_words(examples, 'or')}",)
        kinds, described = field.get("type", ""), field.get("patternErrorMessage", "")
        if described.startswith("must be "):
            return (f"write {described.removeprefix('must be ')}",)
        bounded = "minimum" in field and "integer" in kinds
        if bounded:
            return (f"write a whole number{_range(field)}",)
        return _OF_TYPE.get(kinds if isinstance(kinds, str) else kinds[0], ())

    def _chosen(self, path: Path) -> str:
        """Return the choice of the mapping at the path: the value on which its other fields depend, such as its mode."""
        mapping: Any = self.document
        for step in path:
            mapping = mapping[step]
        choices = ("layout", "mode", "operator") if mapping.get("layout") == "on-demand" else ("mode", "operator")
        choice = next((name for name in choices if name in mapping), "")
        return f"{choice} {_shown(mapping[choice])}" if choice else "this choice"

    def _unknown(self, violation: SchemaViolation) -> Iterator[Finding]:
        known = violation.schema.get("properties", {})
        for key in list(violation.value)[: MAX_RAW + len(known)]:
            if key not in known:
                free = [name for name in known if name not in violation.value]
                apart = self._apart(key, violation.value[key], {name: known[name] for name in free})
                near = "" if apart else _nearest(key, free)
                given = "" if near or apart else _nearest(key, [name for name in known if name in violation.value])
                if near or apart:
                    self.meant.append((*violation.path, near or apart.partition(":")[0]))
                meant = "" if near or given or apart else self._meant_by(violation.path, key, violation.value[key])
                if meant:
                    self.meant.extend((*violation.path, name) for name in known if name in meant)
                hint = meant or self._elsewhere(key, known) or f"known fields: {', '.join(known)}"
                hint = f"did you mean {near or apart}?" if near or apart else hint
                if given:
                    hint = f"the field is called {given} and is already set: remove this one"
                message = f"unknown field {shorten(key)} in {self._subject(violation.path)}"
                yield Finding(code="GS102", message=message, hints=(hint,), path=(*violation.path, key), on_key=True)

    def _apart(self, key: str, value: object, known: Mapping[str, Any]) -> str:
        """Return how to write `replicas:4`, which lacks a space, or `memoryCap: 4Gi`; empty if the key is no such thing."""
        word, colon, rest = key.partition(":")
        if colon and value is None and rest and word in known:
            return f"{word}: {shorten(rest)}"
        plain = re.sub(r"[^a-z]", "", key.lower())
        for name, part in known.items():
            for inner in self._resolved(part).get("properties", {}):
                if plain == f"{name}{inner}".lower():
                    return f"{name}: {{{inner}: {_as_written(value)}}}"
        return ""

    def _resolved(self, field: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the field with what the definition that it refers to says."""
        return {**self.root.get("definitions", {}).get(field.get("$ref", "").removeprefix("#/definitions/"), {}), **field}

    def _elsewhere(self, key: str, known: Mapping[str, Any]) -> str:
        """Return a hint if the mapping of a neighbouring field has the key; else an empty string."""
        for name, part in known.items():
            if key in self._resolved(part).get("properties", {}):
                return f"{key} belongs in {name}"
        return ""

    def _value(self, violation: SchemaViolation) -> tuple[str, str, tuple[str, ...]]:
        """Return code, predicate and hints for a value that is wrong by itself."""
        argument, value = violation.argument, violation.value
        match violation.keyword:
            case "type":
                return self._type(violation)
            case "const":
                code, message, _ = _words([argument], value)
                hint = f"write {_shown(argument)}"
                if argument == "ClusterIntent":
                    hint += "; `gpushare import` makes an intent of a cluster's objects, and of values of NVIDIA's charts"
                return code, message, (hint,)
            case "enum":
                return _words(argument, value)
            case "pattern" if words := _WORD_LIST.match(argument):
                code, message, hints = _words(words[1].split("|"), value)
                described = violation.schema.get("patternErrorMessage")
                return code, f"{described}, not {_shown(value)}" if described else message, hints
            case "pattern" | "format":
                described = violation.schema.get("patternErrorMessage") or f"does not have the form {argument}"
                return "GS105", f"{described}, not {_shown(value)}", _meant_size(value)
            case "minimum" | "maximum":
                return "GS106", f"must be {_bounds(violation.schema)}, not {_shown(value)}", ()
            case "minItems" | "minProperties":
                words = _WORD_LIST.match(violation.schema.get("pattern", ""))
                choices = join_words(words[1].split("|"), "or") if words and "none" in words[1] else ""
                hints = (f"write {choices} to have nothing in it",) if choices else ()
                return "GS107", f"needs at least {'one entry' if argument == 1 else f'{argument} entries'}", hints
            case "maxItems" | "maxProperties":
                if argument > 1:
                    return "GS107", f"takes at most {argument} entries, not {len(value)}", ()
                given = " and ".join(map(_shown, list(value)[:5]))
                return "GS107", f"takes at most {argument}, not {given} together", ("keep one of them",)
            case "uniqueItems":
                again = value[_repeated(value)]
                hint = f"leave this one out: it is entry {value.index(again) + 1} too"
                return "GS107", f"has {_shown(again)} more than once", (hint,)
            case _:
                return "GS105", f"is malformed: {violation.message}", ()

    def _type(self, violation: SchemaViolation) -> tuple[str, str, tuple[str, ...]]:
        types = [violation.argument] if isinstance(violation.argument, str) else list(violation.argument)
        value, described = violation.value, violation.schema.get("patternErrorMessage")
        wanted = described if described and "string" in types else "must be " + " or ".join(_NAMES[name] for name in types)
        hints: tuple[str, ...] = ()
        text = self.written(violation.path) or _shown(value)
        if types == ["string"] and isinstance(value, bool):
            hints = (f'write it in quotes: "{shorten(text)}"',)
        elif types == ["boolean"] and value in ("true", "false"):
            hints = (f"write it without quotes: {value}",)
        elif types == ["string"] and isinstance(value, int | float) and re.search(violation.schema.get("pattern", ""), text):
            hints = (f'write it in quotes: "{shorten(text)}"',)
        elif "integer" in types and isinstance(value, str) and value.strip().isdecimal():
            hints = (f"write it without quotes: {shorten(value.strip())}",)
        elif types == ["object"] and (inner := self._only_field(violation.schema, value)):
            hints = (f"write {inner}",)
        elif "array" in types and isinstance(value, str | int):
            hints = (_list_of(value, violation.schema),)
        elif "object" in types and value in _GOALS:
            hints = (f"{value} is a goal: write goal: {value} in place of the layout",)
        elif types == ["integer"] and isinstance(value, dict) and len(set(map(str, value.values()))) == 1:
            hints = (f"here every GPU is shared alike: write the number alone, {_shown(next(iter(value.values())))}",)
        given = f"the number {shorten(text)}" if isinstance(value, float) else _kind(value)
        return "GS103", f"{wanted}, not {given}", hints

    def _only_field(self, schema: Mapping[str, Any], value: object) -> str:
        """Return a scalar as the mapping with the first field that takes it: `{cap: 4Gi}`; empty if that is not enough."""
        word, colon, rest = value.partition(":") if isinstance(value, str) else ("", "", "")
        fields = {name: self._resolved(part) for name, part in schema.get("properties", {}).items()}
        if colon and word in fields and rest and not rest[0].isspace():
            return f"{word}: {shorten(rest)}, with a space after the colon"
        for name, field in fields.items():
            if set(schema.get("required", ())) - {name}:
                continue
            words, pattern = field.get("enum", ()), field.get("pattern")
            if value in words or (pattern and isinstance(value, str) and re.search(pattern, value)):
                return f"{{{name}: {_as_written(value)}}}"
        return ""


def _list_of(value: str | float, schema: Mapping[str, Any]) -> str:
    """Return a hint on how to write the value as a list, with the entries that the list accepts."""
    if schema.get("items", {}).get("type") != "integer":
        return f"write a list of one: [{_shown(value)}]"
    first, dash, last = str(value).replace(" ", "").partition("-")
    if first.isdecimal() and (last.isdecimal() or not dash) and int(last or first) - int(first) in range(_MAX_RANGE):
        return f"write each number: {list(range(int(first), int(last or first) + 1))}"
    return "write each number, from 0 on: [0, 1, 2, 3]; for all GPUs alike write layout in place of layouts"


def _alternatives(violation: SchemaViolation, subject: str) -> Reported:
    """Yield findings on fields of which exactly one (oneOf) or at least one (anyOf) is required."""
    names = [part["required"][0] for part in violation.argument]
    given = [key for key in violation.value if key in names]
    if len(given) > 1:
        message = f"{given[-1]} cannot be combined with {given[0]}: {subject} takes one of {join_words(names, 'or')}"
        yield Finding(code="GS108", message=message, hints=("keep one of them",), path=(*violation.path, given[-1])), ()
        return
    code = "GS108" if violation.keyword == "oneOf" else "GS101"
    number = "exactly one" if violation.keyword == "oneOf" else "at least one"
    missing = tuple((*violation.path, name) for name in names)
    message = f"{subject} needs {number} of {join_words(names, 'or')}"
    yield Finding(code=code, message=message, hints=(f"add {names[0]}",), path=violation.path, on_key=True), missing


def _meant_size(value: object) -> tuple[str, ...]:
    """Return a hint with the size in Kubernetes' form, if it was written in the form of other programs: 4GiB, 512 MB."""
    # A zero is of the right form already.
    forms = tuple(form for form in meant_sizes(value) if form != value) if isinstance(value, str) else ()
    return (f"write it as Kubernetes does: {', or for powers of ten '.join(forms)}",) if forms else ()


def _words(allowed: list[Any], value: object) -> tuple[str, str, tuple[str, ...]]:
    words = [_shown(word) for word in allowed]
    message = f"must be {join_words(words, 'or')}, not {_shown(value)}"
    if isinstance(value, str):
        if value == "dra" and words != ["none"]:
            return "GS104", message, ("dra is a back end: write backend: dra in the pool, and a mode of sharing",)
        if value in _GOALS and words[:1] == ["none"]:
            return "GS104", message, (f"{value} is a goal: write goal: {value} in place of the layout",)
        near = _nearest(value, words)
        return "GS104", message, (f"did you mean {near}?",) if near else ()
    return "GS104", message, ()


def _nearest(word: str, known: list[str]) -> str:
    if len(word) > _MAX_GUESS_LENGTH:
        return ""
    plain = {name.lower(): name for name in known}
    near = nearest(word.lower().replace("_", "").replace(" ", "-"), plain, 1)
    return plain[near[0]] if near else ""


def _subject(path: Path) -> str:
    """Return how a person names the value at the path: its key; with the list's name for an entry; a pool by its name."""
    if not path:
        return "the document"
    last = path[-1]
    if isinstance(last, int):
        return f"{_subject(path[:-1])}[{last}]"
    return f"pool {shorten(last)}" if path[:-1] == ("spec", "pools") else shorten(last)


def _bounds(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is None or high > 1 << 32:
        return f"at least {low}"
    return f"at most {high}" if low is None else f"from {low} to {high}"


def _range(schema: Mapping[str, Any]) -> str:
    bounds = _bounds(schema)
    return f" {bounds}" if bounds.startswith("from") else f" of {bounds}"


def _repeated(items: list[Any]) -> int:
    """Return the index of the first entry that repeats an earlier one. True and 1 are different, as in JSON."""
    seen: set[object] = set()
    for index, item in enumerate(items):
        if not isinstance(item, dict | list):
            if (isinstance(item, bool), item) in seen:
                return index
            seen.add((isinstance(item, bool), item))
    return 0


def _as_written(value: object) -> str:
    """Return a value in YAML's flow style, as written in an intent."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_as_written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_as_written, value)) + "]"
    return f'"{value}"' if isinstance(value, str) and resolve(value) != (value, "") else _shown(value)


def _kind(value: object) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return f'the text "{shorten(value)}"' if isinstance(value, str) else _shown(value)


def _shown(value: object) -> str:
    """Return a value in a form that its author recognises."""
    if isinstance(value, str):
        return shorten(value) or "empty text"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return shorten(value) if isinstance(value, int | float) else _kind(value)


ONE_MODEL = "a node has one card model: make a pool for each model, of different nodes: two in one node cannot be described"
ALIKE = "the device plugin shares all GPUs of a node alike: write one number for all, or make another pool of other nodes"
_OF_ONE_GPU = {"gpu", "gpus", "device", "devices", "index", "indexes", "indices"}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DURATIONS = {"duration", "drainTimeout", "grace", "notice", "interval"}
_LONG = re.compile(r"([0-9]{1,4})([dw])")
_OF_A_POOL = {"card", "nodes", "gpusPerNode", "sharing", "memory", "enforcement", "rollout"}


def _meant_by_value(path: Path, value: object, document: object) -> str:
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


def _meant_by_field(path: Path, key: str, value: object) -> str:
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
