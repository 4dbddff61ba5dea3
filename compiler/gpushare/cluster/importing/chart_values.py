"""The values of a chart's release: which the intent carries, which gpushare sets itself, and which the chart does not read.

With `stack: existing` the release keeps them all: a comment shows them. With the chart's stack they become `platform.driver`,
`platform.values` and tolerations of the pools, after the check that `platform.values` passes. Every value is in one of these
places.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.cluster.importing.accounting import dotted, shown
from gpushare.cluster.importing.draft import Draft
from gpushare.cluster.importing.facts import Settings
from gpushare.cluster.importing.helm_values import OPERATOR
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.wording import join_words, pluralize, shorten
from gpushare.facts.catalog import managed_values, upstream
from gpushare.facts.catalog.upstream import Dropped, Known, Unknown, UpstreamChart
from gpushare.intent.types import NvidiaStack
from gpushare_node.contract.struct import Struct

_TOLERATIONS = ("daemonsets.tolerations", "tolerations", "node-feature-discovery.worker.tolerations", "nfd.worker.tolerations")
_CONFIGS = ("devicePlugin.config.data", "config.map", "migManager.config.data")
_OF_POOLS = ("mig.strategy", "devicePlugin.config", "migManager.config", "migManager.enabled", "migStrategy", "config")
"""What becomes of these is said by the pools' comments."""
_DRIVER = ("repository", "image", "version")
_OF_THE_DRIVER = ("driver.enabled", *(f"driver.{field}" for field in _DRIVER))
_EXACT = re.compile(r"v?\d{1,9}\.\d{1,9}\.\d{1,9}(?:-[0-9A-Za-z.-]+)?\Z")


class Value(Struct):
    """One value, with what the chart does with it."""

    path: tuple[str, ...]
    part: Part
    verdict: object

    @property
    def name(self) -> str:
        """The dotted path."""
        return ".".join(self.path)

    @property
    def line(self) -> str:
        """Path and value, as findings and comments list them."""
        return f"{dotted(self.path)}: {shown(self.part.whole)}"


def of(settings: Settings) -> list[Value]:
    """Return every value of a release, after a finding on those that its chart does not read."""
    chart = upstream.chart(settings.stack)
    return [Value(path=path, part=part, verdict=verdict) for path, part, verdict in _walk(chart, settings.part)]


def _walk(chart: UpstreamChart, part: Part, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Part, object]]:
    for key, value in part.items():
        path = (*above, key)
        if ".".join(path) in _CONFIGS:
            continue  # each config is an object of its own
        verdict = upstream.check_path(chart, path)
        if isinstance(verdict, Known) and verdict.fact is None and isinstance(value.value, dict):
            yield from _walk(chart, value, path)
        elif value.value is not None:
            yield path, value, verdict


def unknown(settings: Settings, values: list[Value], notes: Notes) -> None:
    """Report what the chart does not read."""
    chart = upstream.chart(settings.stack)
    lines, hints = [], []
    wrong = [one for one in values if isinstance(one.verdict, Unknown | Dropped)]
    for one in wrong:
        lines.append(one.line)
        match one.verdict:
            case Dropped(path=path, replacement=replacement, reason=reason):
                hints.append(f"{path}: {reason}; " + (f"write {replacement}" if replacement else "nothing replaces it"))
            case Unknown(nearest=nearest) if nearest:
                hints.append(f"{one.name}: nearest is {join_words(nearest, 'or')}")
    if wrong:
        notes.warn(
            "GS871",
            wrong[0].part,
            f"{pluralize(len(wrong), 'setting')} of {settings.origin} not imported, which "
            f"{chart.name} {chart.version} does not read: {'; '.join(lines)}",
            *(hints or [f"`helm show values {chart.name}` lists all"]),
            on_key=True,
        )


def kept(settings: Settings, values: list[Value]) -> list[str]:
    """Return the lines of a comment on a release that stays as it is."""
    version = [f"the chart's version: {shown(settings.version.value)}"] if settings.version and settings.version.value else []
    lines = version + [one.line for one in values]
    if not lines:
        return []
    return [
        f"this intent changes nothing of {settings.origin} (`--stack {settings.stack}` takes them over):",
        *(f"  {line}" for line in lines),
    ]


def carry(settings: Settings, values: list[Value], draft: Draft, notes: Notes) -> None:
    """Carry the values of a release into an intent whose bundle takes the release's place."""
    owned = managed_values.always(NvidiaStack(settings.stack))
    if "vgpuManager" in draft.spec.get("platform", {}):
        owned = {**owned, **managed_values.VGPUS}
    lost: list[tuple[Value, str]] = []
    before: list[str] = []
    for one in values:
        if isinstance(one.verdict, Unknown | Dropped):
            continue
        dotted_name = f"{one.name}."
        taken = next((own for own in owned if dotted_name.startswith(f"{own}.") or f"{own}.".startswith(dotted_name)), None)
        if one.name in _TOLERATIONS:
            _tolerate(one.part, draft)
        elif settings.stack == OPERATOR and one.name in _OF_THE_DRIVER:
            continue  # see `_driver`
        elif taken and (taken in _OF_POOLS or taken in managed_values.VGPUS):
            before.append(one.line)
        elif taken:
            lost.append((one, owned[taken]))
        else:
            _put(one, draft, lost)
    _report(settings, lost, notes)
    if settings.stack == OPERATOR:
        _driver(settings, draft)
    _version(settings, draft, notes)
    if before:
        draft.note(
            ("platform",),
            None,
            "\n".join(
                ["before, the release had these values, which follow from the pools now:", *(f"  {line}" for line in before)]
            ),
        )


def _put(one: Value, draft: Draft, lost: list[tuple[Value, str]]) -> None:
    """Write a value into platform.values, without the entries of a list that gpushare sets itself."""
    value = one.part.whole
    variables = managed_values.ENVIRONMENT.get(one.name, ())
    flags = managed_values.ARGUMENTS.get(one.name, ())
    if isinstance(value, list) and (variables or flags):
        ours = [entry for entry in one.part.entries() if _is_ours(entry.whole, variables, flags)]
        lost += [
            (Value(path=(*one.path, str(entry.path[-1])), part=entry, verdict=one.verdict), "gpushare sets it itself")
            for entry in ours
        ]
        value = [entry for entry in value if not _is_ours(entry, variables, flags)]
        if not value:
            return
    draft.put(("platform", "values", *one.path), value, one.part)


def _is_ours(entry: object, variables: tuple[str, ...], flags: tuple[str, ...]) -> bool:
    if isinstance(entry, Mapping):
        return entry.get("name") in variables
    return isinstance(entry, str) and f"--{entry.lstrip('-').partition('=')[0]}" in flags


def _report(settings: Settings, lost: list[tuple[Value, str]], notes: Notes) -> None:
    if lost:
        lines = "; ".join(one.line for one, _ in lost)
        notes.warn(
            "GS871",
            lost[0][0].part,
            f"{pluralize(len(lost), 'setting')} of {settings.origin} not imported, which gpushare sets itself: {lines}",
            *dict.fromkeys(f"{one.name}: {why}" for one, why in lost),
            on_key=True,
        )


def _tolerate(part: Part, draft: Draft) -> None:
    entries = part.whole if isinstance(part.value, list) else []
    for name, pool in draft.pools.items():
        known: list[Any] = pool.setdefault("tolerations", [])
        known += [
            entry
            for entry in entries
            if entry not in known and isinstance(entry, dict) and not str(entry.get("key")).startswith("gpushare.dev/")
        ]
        if not known:
            del pool["tolerations"]
        draft.note(("pools", name, "tolerations"), part, "from the taints of the nodes and the tolerations of the release")


def _driver(settings: Settings, draft: Draft) -> None:
    driver = settings.part.at("driver")
    if driver.at("enabled").truth is False:
        draft.note(("platform", "stack"), None, f"{settings.origin}: driver.enabled: false, the nodes have their driver")
        return
    fields = {field: driver.at(field).text or str(driver.at(field).value) for field in _DRIVER if driver.at(field).value}
    draft.put(("platform", "driver"), fields, driver, f"from {settings.origin}")


def _version(settings: Settings, draft: Draft, notes: Notes) -> None:
    given = settings.version.text.removeprefix("gpu-operator-") if settings.version else ""
    chart = upstream.chart(settings.stack)
    if _EXACT.match(given):
        plain = given.removeprefix("v")
        version = f"v{plain}" if settings.stack == OPERATOR else plain
        draft.put(("platform", "version"), version, settings.version, f"from {settings.origin}")
        return
    problem = f"{shorten(given)} is not one version" if given else "no object states the version of the release"
    part = settings.version if given and settings.version else settings.part
    notes.warn(
        "GS873",
        part,
        f"{problem}: the bundle would install {chart.name} {chart.version} in its place",
        f"write platform.version; `helm list -A` shows the version of {settings.origin}",
        on_key=True,
    )
