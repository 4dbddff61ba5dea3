"""Rules on `platform.values`, each value of which must be one that the upstream chart reads: GS708 to GS711 and GS723."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpushare import upstream
from gpushare.diagnostics import Finding, Path, Severity
from gpushare.intent import Partitioner, Platform, Stack
from gpushare.owned_values import ARGUMENTS, ENVIRONMENT, owned
from gpushare.rules.phrases import listing
from gpushare.rules.rule import Context, Rule
from gpushare.units import is_dns_subdomain, is_host_path
from gpushare.upstream import Dropped, Known, OpenMap, Unknown, UpstreamChart, ValueKind

HERE = ("spec", "platform", "values")

_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"

_QUANTITY = re.compile(rf"[+-]?{_NUMBER}([KMGTP]i|[numkMGTP]|[eE][+-]?{_NUMBER})?\Z")
"""As the ClusterPolicy writes it: it is narrower than Kubernetes' own."""

MOST = (1 << 31) - 1
"""What Kubernetes keeps counts and seconds in."""

Steps = tuple[str, ...]

_KINDS = {
    ValueKind.STRING: "a string",
    ValueKind.BOOL: "true or false",
    ValueKind.INTEGER: "a whole number",
    ValueKind.INT_OR_STRING: "a whole number or a string",
    ValueKind.MAP: "a mapping",
    ValueKind.LIST: "a list",
}


def _walk(chart: UpstreamChart, values: Mapping[str, Any], above: Steps = ()) -> Iterator[tuple[Steps, Any, Any]]:
    """(path, value, what the chart makes of it) for every value, and for every section that is not a mapping."""
    for key, value in values.items():
        path = (*above, key)
        verdict = upstream.judge_path(chart, path)
        if "." in key and not isinstance(verdict, OpenMap):  # one key with dots in it, which no template looks for
            verdict = Unknown(path=key, known={})
        if isinstance(verdict, Known) and verdict.fact is None and isinstance(value, Mapping):
            yield from _walk(chart, value, path)
        else:
            yield path, value, verdict


def _judged(context: Context) -> Iterator[tuple[UpstreamChart, Steps, Any, Any]]:
    platform = context.intent.platform
    if platform.stack is Stack.EXISTING:
        return
    chart = upstream.chart(platform.stack.value)
    yield from ((chart, *found) for found in _walk(chart, platform.values))


def check_known(context: Context) -> Iterator[Finding]:
    """GS708: a value that the chart does not know. Helm would accept it, and nothing would happen."""
    for chart, path, _, verdict in _judged(context):
        if isinstance(verdict, Unknown):
            lists_all = f"`helm show values {chart.name}` lists all"
            hint = f"nearest: {listing(verdict.nearest, 'or')}" if verdict.nearest else lists_all
            message = f"{chart.name} {chart.version} has no value {'.'.join(path)}"
            if "." in path[-1]:
                message = f"{path[-1]!r} is one key, and {chart.name} has none with dots"
                hint = f"write one mapping in the other: {_nested(path[-1])}"
            yield Finding(code="GS708", message=message, hints=(hint,), path=(*HERE, *path), on_key=True)


def _nested(dotted: str) -> str:
    """`a.b.c` as YAML with a mapping for each step."""
    *above, last = dotted.split(".")
    return "".join(f"{key}: {{" for key in above) + f"{last}: …" + "}" * len(above)


def check_dropped(context: Context) -> Iterator[Finding]:
    """GS709: a value that the chart once had, or only seems to have."""
    for chart, path, _, verdict in _judged(context):
        if isinstance(verdict, Dropped):
            hint = f"write {verdict.replacement}" if verdict.replacement else "leave it out: nothing replaces it"
            message = f"{verdict.path} does nothing in {chart.name} {chart.version}: {verdict.reason}"
            yield Finding(code="GS709", message=message, hints=(hint,), path=(*HERE, *path), on_key=True)


def check_type(context: Context) -> Iterator[Finding]:
    """GS710: a value of another type than the chart expects."""
    for chart, path, value, verdict in _judged(context):
        if not isinstance(verdict, Known):
            continue
        if verdict.fact is None:  # even null: the chart's templates would look for values below it, and fail
            message, hint = f"{'.'.join(path)} holds other values", "write a mapping"
        elif not upstream.type_matches(verdict.fact, value):
            expected = _KINDS.get(verdict.fact.kind, "another type")
            message, hint = f"{'.'.join(path)} must be {expected}", f"its default is {_show(verdict.fact.default)}"
        elif isinstance(value, str) and (wrong := _unusable(path, value)):
            message, hint = f"{'.'.join(path)}: {value!r} {wrong[0]}", wrong[1]
        else:
            yield from _bad_inside(chart, path, value)
            continue
        yield Finding(code="GS710", message=message, hints=(hint,), path=(*HERE, *path))


def _unusable(path: Steps, value: str) -> tuple[str, str] | None:
    """What is wrong with a text, and what to write, where it becomes a name or a path in our own objects as well."""
    if ".".join(path) in ("operator.runtimeClass", "runtimeClassName") and value and not is_dns_subdomain(value):
        return "is no name for a RuntimeClass", "write lower-case letters, digits, inner hyphens and dots"
    if path[0] == "hostPaths" and (not is_host_path(value) or (value == "/" and path[-1] == "kubeletRootDir")):
        return "is no folder on the nodes", "write an absolute path without .., such as /var/lib/kubelet"
    return None


def _bad_inside(chart: UpstreamChart, path: Steps, value: object) -> Iterator[Finding]:
    """Words, numbers and entries that the API server refuses, also in mappings of which the templates print everything."""
    dotted = ".".join(path)
    held, fact, pattern = upstream.inside(chart, dotted), chart.path(dotted), upstream.pattern(chart, dotted)
    if fact and fact.words and value is not None and value not in fact.words:
        yield _refused(path, f"cannot be {value!r}", f"write {listing(fact.words, 'or')}")
    elif fact and fact.least is not None and value is not None and not _is_count(value, fact.least):
        yield _refused(path, f"cannot be {value!r}", f"write a number from {fact.least} to {MOST}")
    elif pattern and isinstance(value, str) and not re.fullmatch(pattern, value):
        yield _refused(path, f"cannot be {value!r}", f"write what matches {pattern}")
    elif path[-1] == "env":
        yield from _bad_variables(path, value, closed=held == "variables")
    elif held:
        yield from _bad_entries(held, path, value)
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _bad_inside(chart, (*path, key), below)


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST


def _refused(path: Sequence[str | int], message: str, hint: str) -> Finding:
    shown = ".".join(map(str, path))
    return Finding(code="GS710", message=f"{shown} {message}", hints=(hint,), path=(*HERE, *path))


def _bad_entries(held: str, path: Steps, value: object) -> Iterator[Finding]:
    entries: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, Mapping):
        entries = value.items()
    elif isinstance(value, list | tuple):
        entries = enumerate(value)
    for key, entry in entries:
        if held == "quantities":
            text = str(entry) if isinstance(entry, int) and not isinstance(entry, bool) else entry
            if not (entry is None or (isinstance(text, str) and _QUANTITY.match(text))):
                yield _refused((*path, key), f"cannot be {entry!r}", "write a quantity, such as 500m or 2Gi, in quotes")
        elif not (isinstance(entry, str) or entry is None):
            yield _refused((*path, key), "must be a string", f"write it in quotes: \"{_plain(entry)}\"")


def _plain(entry: object) -> str:
    """A number or a bool as YAML writes it; for anything else a placeholder."""
    return _show(entry) if isinstance(entry, int | float) else "text"


def _bad_variables(path: Steps, value: object, *, closed: bool) -> Iterator[Finding]:
    """Lists of environment variables are merged with ours by name, so each entry must have one; its value must be text.

    `closed`: the API server knows nothing but these two.
    """
    for number, entry in enumerate(value if path[-1] == "env" and isinstance(value, list | tuple) else ()):
        where: Path = (*HERE, *path, number)
        if not (isinstance(entry, Mapping) and isinstance(entry.get("name"), str) and entry["name"]):
            message, hint = f"an entry of {'.'.join(path)} must be a variable with a name", 'write {name: NAME, value: "text"}'
            yield Finding(code="GS710", message=message, hints=(hint,), path=where)
        elif not isinstance(entry.get("value", ""), str):
            message, hint = f"the value of {entry['name']} must be text", f"write it in quotes: \"{_show(entry['value'])}\""
            yield Finding(code="GS710", message=message, hints=(hint,), path=(*where, "value"))
        elif closed and (others := [key for key in entry if key not in ("name", "value")]):
            message = f"{'.'.join(path)} takes only name and value, not {listing(others)}"
            hint = 'write {name: NAME, value: "text"}'
            yield Finding(code="GS710", message=message, hints=(hint,), path=(*where, others[0]), on_key=True)
        elif "valueFrom" in entry and "value" in entry:
            message, hint = f"{entry['name']} has both value and valueFrom", "leave one of the two out"
            yield Finding(code="GS710", message=message, hints=(hint,), path=where)


def _show(default: object) -> str:
    from json import dumps  # noqa: PLC0415 - only an error pays for it

    return dumps(default)


def check_owned(context: Context) -> Iterator[Finding]:
    """GS711: a value that the compiler sets itself."""
    ours: Mapping[str, str] | None = None
    for chart, path, value, verdict in _judged(context):
        ours = owned(context.intent, chart) if ours is None else ours
        taken = _taken(ours, path)
        is_value = isinstance(verdict, OpenMap) or (isinstance(verdict, Known) and verdict.fact is not None)
        if taken and is_value:
            message = f"gpushare sets {taken} itself"
            yield Finding(code="GS711", message=message, hints=(ours[taken],), path=(*HERE, *path), on_key=True)
        if context.intent.platform.stack is Stack.GPU_OPERATOR and isinstance(value, list | tuple):
            yield from _owned_entries(path, value)


def _taken(ours: Iterable[str], path: Steps) -> str | None:
    """The value of ours that a path is, lies below or would replace."""
    dotted = ".".join(path)
    return next((own for own in ours if f"{dotted}.".startswith(f"{own}.") or f"{own}.".startswith(f"{dotted}.")), None)


def _owned_entries(path: Steps, entries: Sequence[object]) -> Iterator[Finding]:
    """Variables and command line flags by which a process would leave the profiles."""
    variables, flags = ENVIRONMENT.get(".".join(path), ()), ARGUMENTS.get(".".join(path), ())
    for number, entry in enumerate(entries):
        where: Path = (*HERE, *path, number)
        if isinstance(entry, Mapping) and entry.get("name") in variables:
            message, hint = f"the variable {entry['name']}", "leave it out; other variables of this list are kept"
            yield Finding(code="GS711", message=f"gpushare sets {message} itself", hints=(hint,), path=(*where, "name"))
        elif isinstance(entry, str) and (flag := _flag(entry)) in flags:
            message, hint = f"{flag} would win over every profile", "leave it out; gpushare's profiles decide it"
            yield Finding(code="GS711", message=message, hints=(hint,), path=where)


def _flag(argument: str) -> str:
    """The flag of a command line argument with two hyphens, as Go programs read one as well."""
    return f"--{argument.lstrip('-').partition('=')[0]}"


def check_off(context: Context) -> Iterator[Finding]:
    """GS723: a value of a part that is off, so that nothing reads it."""
    platform = context.intent.platform
    ours: Mapping[str, str] | None = None
    for chart, path, value, verdict in _judged(context):
        ours = owned(context.intent, chart) if ours is None else ours
        if not _is_read(verdict, value) or _taken(ours, path):
            continue
        wanted = upstream.switches(chart, path)
        off = next((name for name in wanted if name != ".".join(path) and not _is_on(name, platform, chart)), None)
        if off:
            why, hint = _SWITCHED.get(off, (f"{off} is not true", "remove it, or switch that part on"))
            yield Finding(
                code="GS723",
                severity=Severity.WARNING,
                message=f"{'.'.join(path)} has no effect: {why}",
                hints=(hint,),
                path=(*HERE, *path),
                on_key=True,
            )


def _is_read(verdict: object, value: object) -> bool:
    """Whether the chart knows the value, and it is of the right type and not the default: no other rule speaks of it."""
    if isinstance(verdict, Known) and verdict.fact is not None:
        return upstream.type_matches(verdict.fact, value) and value != verdict.fact.default
    return isinstance(verdict, OpenMap)


_SWITCHED = {
    "driver.enabled": ("without platform.driver the operator installs no driver", "remove it, or write platform.driver"),
    "gpuCluster.deployCR": ("gpushare's pools need the device plugin, not the DRA driver", "remove it"),
    "migManager.enabled": (
        "mig-manager runs with platform.partitioner: mig-manager only",
        "remove it, or write platform.partitioner: mig-manager",
    ),
}
"""Switches that are not the user's: why they are off, and what to do."""


def _is_on(switch: str, platform: Platform, chart: UpstreamChart) -> bool:
    """Whether a switch is true in the generated values with the intent's own merged in."""
    ours = {
        "driver.enabled": platform.driver is not None,
        "migManager.enabled": platform.partitioner is Partitioner.MIG_MANAGER,
        "gfd.enabled": True,
    }
    if switch in ours:
        return ours[switch]
    found: Any = platform.values
    for key in switch.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    fact = chart.path(switch)
    return bool(found if found is not None else fact.default if fact else True)


RULES = (
    Rule(code="GS708", check=check_known),
    Rule(code="GS709", check=check_dropped),
    Rule(code="GS710", check=check_type),
    Rule(code="GS711", check=check_owned),
    Rule(code="GS723", check=check_off),
)
