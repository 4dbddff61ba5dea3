"""Rules on `platform.values`, each value of which must be one that the upstream chart reads: GS708 to GS711."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpushare import upstream
from gpushare.diagnostics import Finding, Path
from gpushare.intent import Stack
from gpushare.owned_values import ARGUMENTS, ENVIRONMENT, owned
from gpushare.rules.phrases import listing
from gpushare.rules.rule import Context, Rule
from gpushare.upstream import Dropped, Known, OpenMap, Unknown, UpstreamChart, ValueKind

HERE = ("spec", "platform", "values")

Steps = tuple[str, ...]

_KINDS = {
    ValueKind.STRING: "a string",
    ValueKind.BOOL: "true or false",
    ValueKind.INTEGER: "a whole number",
    ValueKind.MAP: "a mapping",
    ValueKind.LIST: "a list",
}


def _walk(chart: UpstreamChart, values: Mapping[str, Any], above: Steps = ()) -> Iterator[tuple[Steps, Any, Any]]:
    """(path, value, what the chart makes of it) for every value, and for every section that is not a mapping."""
    for key, value in values.items():
        path = (*above, key)
        verdict = upstream.judge_path(chart, path)
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
            yield Finding(code="GS708", message=message, hints=(hint,), path=(*HERE, *path), on_key=True)


def check_dropped(context: Context) -> Iterator[Finding]:
    """GS709: a value that the chart once had, or only seems to have."""
    for chart, path, _, verdict in _judged(context):
        if isinstance(verdict, Dropped):
            hint = f"write {verdict.replacement}" if verdict.replacement else "leave it out: nothing replaces it"
            message = f"{verdict.path} does nothing in {chart.name} {chart.version}: {verdict.reason}"
            yield Finding(code="GS709", message=message, hints=(hint,), path=(*HERE, *path), on_key=True)


def check_type(context: Context) -> Iterator[Finding]:
    """GS710: a value of another type than the chart expects."""
    for _, path, value, verdict in _judged(context):
        if not isinstance(verdict, Known):
            continue
        if verdict.fact is None:  # even null: the chart's templates would look for values below it, and fail
            message, hint = f"{'.'.join(path)} holds other values", "write a mapping"
        elif not upstream.type_matches(verdict.fact, value):
            expected = _KINDS.get(verdict.fact.kind, "another type")
            message, hint = f"{'.'.join(path)} must be {expected}", f"its default is {_show(verdict.fact.default)}"
        else:
            yield from _bad_variables(path, value)
            continue
        yield Finding(code="GS710", message=message, hints=(hint,), path=(*HERE, *path))


def _bad_variables(path: Steps, value: object) -> Iterator[Finding]:
    """Lists of environment variables are merged with ours by name, so each entry must have one."""
    for number, entry in enumerate(value if path[-1] == "env" and isinstance(value, list | tuple) else ()):
        if not (isinstance(entry, Mapping) and isinstance(entry.get("name"), str)):
            yield Finding(
                code="GS710",
                message=f"an entry of {'.'.join(path)} must be a variable with a name",
                hints=('write {name: NAME, value: "text"}',),
                path=(*HERE, *path, number),
            )


def _show(default: object) -> str:
    from json import dumps  # noqa: PLC0415 - only an error pays for it

    return dumps(default)


def check_owned(context: Context) -> Iterator[Finding]:
    """GS711: a value that the compiler sets itself."""
    ours: Mapping[str, str] | None = None
    for chart, path, value, verdict in _judged(context):
        ours = owned(context.intent, chart) if ours is None else ours
        dotted = ".".join(path)
        taken = next((own for own in ours if f"{dotted}.".startswith(f"{own}.") or f"{own}.".startswith(f"{dotted}.")), None)
        is_value = isinstance(verdict, OpenMap) or (isinstance(verdict, Known) and verdict.fact is not None)
        if taken and is_value:
            message = f"gpushare sets {taken} itself"
            yield Finding(code="GS711", message=message, hints=(ours[taken],), path=(*HERE, *path), on_key=True)
        if context.intent.platform.stack is Stack.GPU_OPERATOR and isinstance(value, list | tuple):
            yield from _owned_entries(path, value)


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


RULES = (
    Rule(code="GS708", check=check_known),
    Rule(code="GS709", check=check_dropped),
    Rule(code="GS710", check=check_type),
    Rule(code="GS711", check=check_owned),
)
