"""The platform of an imported cluster: which stack the intent has, and what its bundle would do to what runs there.

By default what runs stays: `stack: existing` with `adoption: observe`, so that a first bundle changes nothing; a comment shows
the values of the release. With a stack of NVIDIA's charts the bundle takes the place of the release: its values become
`platform.driver`, `platform.values` and tolerations of the pools, after the check that `platform.values` passes, and each
difference that is known is a finding. Every value is in one of these places.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.cluster.importing import node_objects
from gpushare.cluster.importing.accounting import dotted, shown
from gpushare.cluster.importing.draft import Draft
from gpushare.cluster.importing.facts import ChartSettings, Facts
from gpushare.cluster.importing.helm_values import OPERATOR, PLUGIN
from gpushare.cluster.importing.parts import FromProgram, Notes, Part
from gpushare.core.wording import join_first, join_words, pluralize, shorten
from gpushare.facts.catalog import managed_values, upstream
from gpushare.facts.catalog.upstream import Dropped, Known, Unknown, UpstreamChart
from gpushare.intent.types import NvidiaStack
from gpushare.offering import modes
from gpushare_node.contract.struct import Struct

EXISTING = "existing"
_OLDEST_KUBELET = (1, 30)
"""Bundles are made for Kubernetes 1.30 and newer (`spec.kubernetes`)."""


class Wanted(Struct):
    """What the caller wants of the platform. `stack` empty: `existing`, with `adoption: observe`.

    `backend`: that pools of the device plugin come to it.
    """

    stack: str = ""
    backend: str = ""
    observe: bool = False


def add(facts: Facts, draft: Draft, notes: Notes, wanted: Wanted) -> None:
    """Add stack, adoption and what the values say."""
    stacks = sorted({one.stack for one in facts.settings})
    if len(stacks) > 1:
        notes.error(
            "GS864",
            facts.settings[0].part,
            "values of both gpu-operator and nvidia-device-plugin were given",
            "give those of the chart that serves the GPUs",
            on_key=True,
        )
    stack = wanted.stack or EXISTING
    if stack == EXISTING:
        _existing(facts, draft, notes)
    else:
        _replacing(stack, facts, draft, notes)
    if wanted.observe or not wanted.stack:
        draft.put(("adoption",), "observe", None, "the bundle changes nothing yet; remove this line when it may")
    _kubelets(facts, notes)


def _existing(facts: Facts, draft: Draft, notes: Notes) -> None:
    comment = ["what serves the GPUs now stays; `--stack` writes an intent whose bundle takes its place"]
    for one in facts.settings:
        values = values_of(one)
        report_unread(one, values, notes)
        comment += kept_lines(one, values)
    draft.put(("platform", "stack"), EXISTING, facts.settings[0].part if facts.settings else None, "\n".join(comment))
    places = {one.namespace for one in (*facts.settings, *facts.dra_values)} | facts.plugin_namespaces
    if places := places - {"", "kube-system"}:
        draft.put(("platform", "namespaces"), sorted(places), None, "where the plugin and its configs are")
    for one in facts.settings:
        if name := _runtime_class(one):
            draft.put(("platform", "runtimeClass"), name, one.part, f"from {one.origin}")
    if _has_mig_manager(facts) and _has_mig(draft):
        draft.note(
            ("platform", "runtimeClass") if "runtimeClass" in draft.spec["platform"] else ("platform",),
            None,
            "mig-manager partitions the nodes now; disable it before gpushare enforces, which partitions itself",
        )


def _runtime_class(settings: ChartSettings) -> str:
    if settings.stack == OPERATOR:
        return settings.part.at("operator", "runtimeClass").text or "nvidia"
    return settings.part.at("runtimeClassName").text


def _replacing(stack: str, facts: Facts, draft: Draft, notes: Notes) -> None:
    draft.put(("platform", "stack"), stack, None, "as --stack says")
    if _has_mig_manager(facts) and stack == OPERATOR and _has_mig(draft):
        draft.put(
            ("platform", "partitioner"),
            "mig-manager",
            None,
            "from the label nvidia.com/mig.config of the nodes; gpushare is the other partitioner",
        )
    own = [one for one in facts.settings if one.stack == stack]
    _vgpu_manager(own, draft)
    for one in facts.settings:
        values = values_of(one)
        report_unread(one, values, notes)
        if one.stack == stack:
            carry(one, values, draft, notes)
            continue
        draft.note(("platform",), None, "\n".join(kept_lines(one, values)))
        notes.warn(
            "GS873",
            one.part,
            f"{one.origin} is of the other chart: the bundle's {stack} would run beside it",
            "uninstall that release first, or import with `--stack` of its own chart",
            on_key=True,
        )
    places = sorted({one.namespace for one in own} - {""})
    chart = upstream.chart(stack)
    where = own[0].part if own else Part(None, FromProgram(name="--stack"))
    if len(places) == 1:
        draft.put(("namespace",), places[0], None, f"from the release of {chart.name}, which the bundle's takes the place of")
    else:
        notes.warn(
            "GS873",
            where,
            f"no object states in which namespace {chart.name} is installed: in another one than "
            "spec.namespace, gpu-system, the bundle would install a second one",
            "write spec.namespace; `helm list -A` shows the release's",
            on_key=True,
        )
    if not own and stack == OPERATOR:
        notes.warn(
            "GS873",
            where,
            "no values were given, and without platform.driver the bundle says driver.enabled: false: "
            "nodes whose driver the operator installed lose it",
            "give the release's values, or write platform.driver",
            on_key=True,
        )
    if not own and stack in (OPERATOR, PLUGIN):
        notes.warn(
            "GS873",
            where,
            f"no object states the version of {chart.name}: the bundle would install {chart.version}",
            "write platform.version",
            on_key=True,
        )


def _vgpu_manager(own: list[ChartSettings], draft: Draft) -> None:
    if any(modes.named(pool["sharing"]["mode"]).serves_vms for pool in draft.pools.values()):
        for one in own:
            put_vgpu_manager(one, draft)


def put_vgpu_manager(settings: ChartSettings, draft: Draft) -> None:
    """Add the image of NVIDIA's vGPU manager that the values name."""
    manager = settings.part.at("vgpuManager")
    if manager.at("repository").text and manager.at("version").text:
        fields = {key: manager.at(key).text for key in ("repository", "image", "version") if manager.at(key).text}
        draft.put(("platform", "vgpuManager"), fields, manager, f"from {settings.origin}")


def _has_mig_manager(facts: Facts) -> bool:
    return any("nvidia.com/mig.config" in node.labels for node in facts.nodes)


def _has_mig(draft: Draft) -> bool:
    return any(modes.named(pool["sharing"]["mode"]).is_partitioned for pool in draft.pools.values())


def _kubelets(facts: Facts, notes: Notes) -> None:
    old = []
    for node in facts.nodes:
        version = node_objects.kubelet(node)
        if version is not None and version < _OLDEST_KUBELET:
            part = node.part.at("status", "nodeInfo", "kubeletVersion")
            old.append((part, f"{shorten(node.name)} ({shorten(part.text)})"))
    if old:
        notes.warn(
            "GS873",
            old[0][0],
            f"kubelets are older than 1.30, the oldest that bundles are made for: "
            f"{join_first([words for _, words in old], 10)}",
            "upgrade these nodes first",
        )


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


def values_of(settings: ChartSettings) -> list[Value]:
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


def report_unread(settings: ChartSettings, values: list[Value], notes: Notes) -> None:
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


def kept_lines(settings: ChartSettings, values: list[Value]) -> list[str]:
    """Return the lines of a comment on a release that stays as it is."""
    version = [f"the chart's version: {shown(settings.version.value)}"] if settings.version and settings.version.value else []
    lines = version + [one.line for one in values]
    if not lines:
        return []
    return [
        f"this intent changes nothing of {settings.origin} (`--stack {settings.stack}` takes them over):",
        *(f"  {line}" for line in lines),
    ]


def carry(settings: ChartSettings, values: list[Value], draft: Draft, notes: Notes) -> None:
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


def _report(settings: ChartSettings, lost: list[tuple[Value, str]], notes: Notes) -> None:
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


def _driver(settings: ChartSettings, draft: Draft) -> None:
    driver = settings.part.at("driver")
    if driver.at("enabled").truth is False:
        draft.note(("platform", "stack"), None, f"{settings.origin}: driver.enabled: false, the nodes have their driver")
        return
    fields = {field: driver.at(field).text or str(driver.at(field).value) for field in _DRIVER if driver.at(field).value}
    draft.put(("platform", "driver"), fields, driver, f"from {settings.origin}")


def _version(settings: ChartSettings, draft: Draft, notes: Notes) -> None:
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
