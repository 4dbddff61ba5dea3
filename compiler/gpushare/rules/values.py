"""Rules on `platform.values`: every value must be one that the upstream chart reads (GS708 to GS711 and GS723).

GS710 also has values that every schema allows and the API server or Helm rejects: parts that contradict each other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gpushare.core.diagnostics import Finding, Path, Severity
from gpushare.core.wording import join_words
from gpushare.facts.catalog import upstream
from gpushare.facts.catalog.managed_values import ARGUMENTS, ENVIRONMENT, owned
from gpushare.facts.catalog.upstream import Dropped, Known, OpenMap, Unknown, UpstreamChart, VendorChart
from gpushare.intent.types import NvidiaStack, Platform
from gpushare.reading import schema
from gpushare.rules import fields
from gpushare.rules.rule import Problem, RuleContext, rule
from gpushare.rules.versions import judging_chart
from gpushare_node.contract import quantity
from gpushare_node.contract.policy import Partitioner

HERE = ("spec", "platform", "values")

Steps = tuple[str, ...]
Wrong = tuple[Path, str, str]
"""A contradiction: the path below the value, the message, and the hint."""
C = TypeVar("C", bound=UpstreamChart | VendorChart)


def _walk(chart: C, values: Mapping[str, Any], here: Path, above: Steps = ()) -> Iterator[tuple[C, Steps, Any, Any, Path]]:
    """Yield every value, and every section that is not a mapping: with how the chart reads it, and its path in the intent."""
    for key, value in values.items():
        path = (*above, str(key))
        verdict = chart.check_path(path) if isinstance(chart, VendorChart) else upstream.check_path(chart, path)
        if "." in path[-1] and not isinstance(verdict, OpenMap):  # one key with dots in it, which no template reads
            verdict = Unknown(path=path[-1], known={})
        if isinstance(verdict, Known) and verdict.fact is None and isinstance(value, Mapping):
            yield from _walk(chart, value, here, path)
        else:
            yield chart, path, value, verdict, (*here, *path)


def _of_nvidia(context: RuleContext) -> Iterator[tuple[UpstreamChart, Steps, Any, Any, Path]]:
    platform = context.intent.platform
    if platform.installs_chart:
        yield from _walk(judging_chart(platform), platform.values, HERE)


def _checked(context: RuleContext) -> Iterator[tuple[UpstreamChart | VendorChart, Steps, Any, Any, Path]]:
    yield from _of_nvidia(context)
    for vendor, one in context.intent.platform.others.items():
        if one.installs_chart:
            yield from _walk(upstream.vendor_chart(one.stack.value), one.values, context.stack_path(vendor, "values"))


@rule("GS708")
def check_known(context: RuleContext) -> Iterator[Problem]:
    """A value that the chart does not know. Helm would accept it, and it would have no effect."""
    for chart, path, _, verdict, at in _checked(context):
        if isinstance(verdict, Unknown):
            lists_all = f"`helm show values {chart.name}` lists all"
            hint = f"nearest: {join_words(verdict.nearest, 'or')}" if verdict.nearest else lists_all
            message = f"{_described(chart)} has no value {'.'.join(path)}"
            if "." in path[-1]:
                message, hint = _dotted(path[-1], chart.name)
            yield Problem(message=message, hints=(hint,), path=at, on_key=True)


def _described(chart: UpstreamChart | VendorChart) -> str:
    return f"{chart.name} {(isinstance(chart, UpstreamChart) and chart.described) or chart.version}"


def _dotted(key: str, chart: str) -> tuple[str, str]:
    """Return what is wrong with a key with dots, and `a.b.c` as YAML with a mapping for each step."""
    *above, last = key.split(".")
    nested = "".join(f"{step}: {{" for step in above) + f"{last}: …" + "}" * len(above)
    return f"{key!r} is one key, and {chart} has none with dots", f"write one mapping in the other: {nested}"


@rule("GS709")
def check_dropped(context: RuleContext) -> Iterator[Problem]:
    """A value that the chart had in an earlier version, or only seems to have."""
    for chart, _, _, verdict, at in _of_nvidia(context):
        if isinstance(verdict, Dropped):
            hint = f"write {verdict.replacement}" if verdict.replacement else "leave it out: nothing replaces it"
            message = f"{verdict.path} does nothing in {chart.name} {chart.described or chart.version}: {verdict.reason}"
            yield Problem(message=message, hints=(hint,), path=at, on_key=True)


@rule("GS710")
def check_type(context: RuleContext) -> Iterator[Problem]:
    """A value that the chart does not expect, or that the API server rejects."""
    fine = True
    for chart, path, value, verdict, where in _checked(context):
        if not isinstance(verdict, Known):
            continue
        found: list[Problem] = []
        if isinstance(chart, VendorChart) and verdict.fact is not None:
            found = [_problem(one) for one in schema.violations(value, verdict.fact.schema, where) if value is not None]
        elif isinstance(chart, UpstreamChart) and verdict.fact is not None:
            found = list(map(_problem, upstream.violations(chart, verdict.fact, value, where)))
            if not found and isinstance(value, list | tuple):
                found = list(_wrong(where, _contradictions_of_list(path[-1], value)))
        elif not (value is None and verdict.nullable):  # the chart's templates would read values below it, and fail
            message = f"{'.'.join(path)} contains other values"
            found = [Problem(message=message, hints=("write a mapping",), path=where)]
        yield from found
        fine = fine and (not found or isinstance(chart, VendorChart))
    if fine and context.intent.platform.installs_chart:
        yield from _mappings(judging_chart(context.intent.platform), context.intent.platform.values)


def _mappings(chart: UpstreamChart, values: Mapping[str, Any], above: Steps = ()) -> Iterator[Problem]:
    """Yield contradictions within mappings whose values are each correct, or with the chart's own part of them."""
    for key, value in values.items():
        path = (*above, key)
        if isinstance(value, Mapping) and path[0] not in chart.subcharts:
            fact = chart.path(".".join(path))
            yield from _wrong((*HERE, *path), _contradictions_of_mapping(key, value, fact.default or {} if fact else {}))
            yield from _mappings(chart, value, path)


def _problem(found: Finding) -> Problem:
    return Problem(message=found.message, hints=found.hints, path=found.path, on_key=found.on_key, causes=found.causes)


def _wrong(where: Path, wrong: Iterable[Wrong]) -> Iterator[Problem]:
    for below, message, hint in wrong:
        yield Problem(message=message, hints=(hint,), path=(*where, *below))


@rule("GS711")
def check_owned(context: RuleContext) -> Iterator[Problem]:
    """A value that the compiler sets itself."""
    for chart, path, _, verdict, at in _checked(context):
        ours = owned(context.intent, chart)
        taken = _taken(ours, path)
        is_value = isinstance(verdict, OpenMap) or (isinstance(verdict, Known) and verdict.fact is not None)
        if taken and is_value:
            yield Problem(message=f"gpushare sets {taken} itself", hints=(ours[taken],), path=at, on_key=True)
    if context.intent.platform.stack is NvidiaStack.GPU_OPERATOR:
        for _, path, value, _, _ in _of_nvidia(context):
            if isinstance(value, list | tuple):
                yield from _owned_entries(path, value)


def _taken(ours: Iterable[str], path: Steps) -> str | None:
    """Return the managed value that a path equals, lies below or would replace."""
    dotted = ".".join(path)
    return next((own for own in ours if f"{dotted}.".startswith(f"{own}.") or f"{own}.".startswith(f"{dotted}.")), None)


def _owned_entries(path: Steps, entries: Sequence[object]) -> Iterator[Problem]:
    """Report variables and command line flags with which a process would ignore the profiles."""
    variables, flags = ENVIRONMENT.get(".".join(path), ()), ARGUMENTS.get(".".join(path), ())
    for number, entry in enumerate(entries):
        where: Path = (*HERE, *path, number)
        if isinstance(entry, Mapping) and entry.get("name") in variables:
            message, hint = f"the variable {entry['name']}", "leave it out; other variables of this list are kept"
            yield Problem(message=f"gpushare sets {message} itself", hints=(hint,), path=(*where, "name"))
        elif isinstance(entry, str) and (flag := _flag(entry)) in flags:
            message, hint = f"{flag} would override every profile", "leave it out; gpushare's profiles set it"
            yield Problem(message=message, hints=(hint,), path=where)


def _flag(argument: str) -> str:
    """Return the flag of a command line argument with two hyphens, because Go programs accept one hyphen too."""
    return f"--{argument.lstrip('-').partition('=')[0]}"


@rule("GS723", Severity.WARNING)
def check_off(context: RuleContext) -> Iterator[Problem]:
    """A value of a component that is disabled, so that nothing reads it."""
    platform = context.intent.platform
    for chart, path, value, verdict, at in _of_nvidia(context):
        if not _is_read(chart, verdict, value) or _taken(owned(context.intent, chart), path):
            continue
        wanted = upstream.switches(chart, path)
        off = next((name for name in wanted if name != ".".join(path) and not _is_on(name, platform, chart)), None)
        if off:
            why, hint = _SWITCHED.get(off, (f"{off} is not true", "remove it, or enable that part"))
            yield Problem(message=f"{'.'.join(path)} has no effect: {why}", hints=(hint,), path=at, on_key=True)


def _is_read(chart: UpstreamChart, verdict: object, value: object) -> bool:
    """Whether the chart knows the value, and it has the right type and is not the default: no other rule reports it."""
    if isinstance(verdict, Known) and verdict.fact is not None:
        return not upstream.violations(chart, verdict.fact, value, ()) and value != verdict.fact.default
    return isinstance(verdict, OpenMap)


_OF_VGPUS = ("sandboxWorkloads.enabled", "vgpuManager.enabled", "vgpuDeviceManager.enabled", "sandboxDevicePlugin.enabled")
"""Switches that pools with mode vgpu turn on."""

_SWITCHED = {
    "driver.enabled": ("without platform.driver the operator installs no driver", "remove it, or write platform.driver"),
    "gpuCluster.deployCR": (
        "gpushare does not use the operator's DRA driver",
        "remove it; a pool with backend: dra has NVIDIA's own chart of the driver",
    ),
    "migManager.enabled": (
        "mig-manager runs with platform.partitioner: mig-manager only",
        "remove it, or write platform.partitioner: mig-manager",
    ),
}
"""Switches that are not the user's: why they are off, and what to do."""


def _is_on(switch: str, platform: Platform, chart: UpstreamChart) -> bool:
    """Whether a switch is true in the generated values with the intent's own values merged in."""
    ours = {
        "driver.enabled": platform.driver is not None,
        "migManager.enabled": platform.partitioner is Partitioner.MIG_MANAGER,
        "gfd.enabled": True,
    }
    if platform.vgpu_manager is not None:
        ours |= dict.fromkeys(_OF_VGPUS, True)
    if switch in ours:
        return ours[switch]
    found: Any = platform.values
    for key in switch.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    fact = chart.path(switch)
    return bool(found if found is not None else fact.default if fact else True)


def _contradictions_of_list(name: str, entries: Sequence[Any]) -> Iterator[Wrong]:
    """Check tolerations as Kubernetes validates them, variables set twice, objects with half an action of a template."""
    names: set[str] = set()
    for number, entry in enumerate(entries):
        if name == "tolerations":
            for field, message, hint in fields.wrong_in_toleration(entry):
                yield (number, field), message, hint
        elif name == "env":
            if "valueFrom" in entry and "value" in entry:
                yield (number,), f"{entry['name']} has both value and valueFrom", "leave one of the two out"
            elif entry["name"] in names:
                yield (number,), f"{entry['name']} is listed twice", "leave one of the two out"
            names.add(entry["name"])
        elif name == "extraObjects":
            for path, text in _texts(entry, (number,)):
                if text.rfind("{{") > text.rfind("}}"):
                    hint = 'close it with }}, or write {{ "{{" }} for the text itself: Helm reads these objects as templates'
                    yield path, "{{ opens an action of a Helm template, and no }} closes it", hint


def _contradictions_of_mapping(name: str, given: Mapping[str, Any], default: Mapping[str, Any]) -> Iterator[Wrong]:
    """Check a mapping named `name`; Helm merges what is `given` into the chart's `default`."""
    if name == "resources":
        yield from _above_limits(given, default)
    elif name == "securityContext":
        yield from _privileges({**default, **given})
    elif name == "config" and given.get("create") is True and given.get("data") and not given.get("name", default.get("name")):
        yield ("create",), "create makes a ConfigMap, and needs a name for it", "add name"


def _above_limits(given: Mapping[str, Any], default: Mapping[str, Any]) -> Iterator[Wrong]:
    kept = {key: value for key, value in default.items() if given.get(key, value) is not None}  # Helm removes null values
    requests, limits = ({**_mapping(kept, key), **_mapping(given, key)} for key in ("requests", "limits"))
    for resource, request in requests.items():
        requested, limit = quantity.billionths(request), quantity.billionths(limits.get(resource))
        if requested is not None and limit is not None and requested > limit:
            key = "requests" if resource in _mapping(given, "requests") else "limits"
            message = f"{resource}: a request of {request} is above the limit of {limits[resource]}"
            chart = " (the chart's default)" if resource not in _mapping(given, "limits") else ""
            yield (key, resource), message + chart, f"write limits: {{{resource}: {request}}}, or a smaller request"


def _privileges(context: Mapping[str, Any]) -> Iterator[Wrong]:
    if context.get("allowPrivilegeEscalation") is False:
        added = _mapping(context, "capabilities").get("add") or ()
        what = "privileged: true" if context.get("privileged") is True else "CAP_SYS_ADMIN" if "CAP_SYS_ADMIN" in added else ""
        if what:
            message = f"{what} and allowPrivilegeEscalation: false exclude each other"
            yield (), message, "leave allowPrivilegeEscalation out"


def _mapping(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = of.get(key)
    return found if isinstance(found, Mapping) else {}


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping | list | tuple):
        for step, below in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _texts(below, (*path, step))
