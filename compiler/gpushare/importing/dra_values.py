"""Values of NVIDIA's DRA driver's chart: how claims divide GPUs, where the GPU driver is, and on which nodes it runs.

Facts: chart dra-driver-nvidia-gpu 0.5.0. `consumableShares` counts only with the gate `ConsumableShares`; gates are in a map.
"""

import re
from collections.abc import Mapping

from gpushare.catalog import upstream
from gpushare.core.wording import join_words, pluralize, shorten
from gpushare.importing import chart_values
from gpushare.importing.accounting import shown
from gpushare.importing.draft import Draft
from gpushare.importing.facts import Settings
from gpushare.importing.parts import Notes, Part
from gpushare.intent.types import DraShares, DraVia
from gpushare.nodes.own_labels import BACKEND_LABEL

_KEYS = ("kubeletPlugin", "gpuResourcesEnabledOverride", "consumableShares")
_GATE = "ConsumableShares"
_INTERVALS = "TimeSlicingSettings"
_SHARING_GATES = {
    "DynamicMIG": "the driver would make and destroy instances by itself; gpushare's node runtime divides GPUs",
    "MPSSupport": "pools with mode: mps stay on the device plugin",
    "PassthroughSupport": "GPUs for virtual machines are pools with mode: vgpu, without DRA",
}
_CARRIED = (
    "consumableShares",
    "nvidiaDriverRoot",
    "gpuResourcesEnabledOverride",
    "resourceApiVersion",
    "resources.",
    "kubeletPlugin.nodeSelector",
    "kubeletPlugin.updateStrategy",
)
"""Values that an intent carries, or that its bundle has as well."""
_OLD = re.compile(r"v?0\.[0-4]\.\d+")


def is_values(part: Part) -> bool:
    """Whether a document without a kind is values of the chart."""
    return not part.has("kind") and any(part.has(key) for key in _KEYS)


def shares(settings: Settings) -> DraShares | None:
    """Return what divides GPUs among claims; None if nothing does."""
    if settings.part.at("featureGates", _GATE).truth is not True:
        return None
    value = settings.part.at("consumableShares")
    if value.text == DraShares.MEMORY:
        return DraShares.MEMORY
    return DraShares.COUNT if (value.count or 0) > 1 else None


def count(settings: Settings) -> int:
    """Return the number of shares that every device has."""
    return settings.part.at("consumableShares").count or 1 if shares(settings) is DraShares.COUNT else 1


def selects(settings: Settings, labels: Mapping[str, str]) -> bool | None:
    """Whether the driver runs on a node with these labels, by the values; None if they select none."""
    wanted = dict(settings.part.at("kubeletPlugin", "nodeSelector").labels().items())
    return all(labels.get(key) == value for key, value in wanted.items()) if wanted else None


def put_root(settings: Settings, draft: Draft) -> None:
    """Add where the GPU driver is, if the values name another folder than the root."""
    root = settings.part.at("nvidiaDriverRoot")
    if root.text.rstrip("/"):
        draft.put(("platform", "dra", "driverRoot"), root.text, root, f"from {settings.origin}")


def add(settings: Settings, draft: Draft, notes: Notes, *, is_replaced: bool) -> None:
    """Add the driver's settings to the platform. `is_replaced`: the bundle's release takes the place of this one."""
    path, chart = ("platform", "dra"), upstream.chart(upstream.DRA)
    values = chart_values.of(settings)
    chart_values.unknown(settings, values, notes)
    draft.put((*path, "via"), (DraVia.CHART if is_replaced else DraVia.EXISTING).value, settings.part)
    if (word := shares(settings)) is not None:
        draft.put((*path, "shares"), word.value, settings.part.at("consumableShares"), f"from {settings.origin}")
    put_root(settings, draft)
    version = settings.version
    if version is not None and version.text:
        if _OLD.match(version.text):
            notes.warn(
                "GS873",
                version,
                f"{chart.name} {shorten(version.text)} cannot share devices by memory or count: the intent has {chart.version}",
                "upgrade the release first",
            )
        else:
            draft.put((*path, "version"), version.text.removeprefix("v"), version)
    _gates(settings, notes)
    lines = [f"  {one.line}" for one in values]
    if is_replaced:
        _report_replaced(settings, [one for one in values if not one.name.startswith(_CARRIED) and not _is_gate(one)], notes)
        return
    draft.note(path, None, "\n".join([f"this intent changes nothing of {settings.origin}:", *lines]))
    if not settings.part.at("kubeletPlugin", "nodeSelector", BACKEND_LABEL).text:
        notes.warn(
            "GS873",
            settings.part,
            f"{settings.origin} has no node selector {BACKEND_LABEL}: dra, by which gpushare keeps device plugin and DRA "
            "driver apart",
            "install it with the values that the bundle's README lists before gpushare enforces",
            on_key=True,
        )


def _is_gate(value: chart_values.Value) -> bool:
    """Whether a value is the gates that shares and their intervals need, and no other."""
    gates = value.part.fresh().whole
    return value.name == "featureGates" and isinstance(gates, dict) and gates.keys() <= {_GATE, _INTERVALS}


def _report_replaced(settings: Settings, lost: list[chart_values.Value], notes: Notes) -> None:
    if lost:
        notes.warn(
            "GS871",
            lost[0].part,
            f"{pluralize(len(lost), 'setting')} of {settings.origin} not imported: {'; '.join(one.line for one in lost)}",
            "write dra: {via: existing}, and keep them beside those of the bundle",
            on_key=True,
        )


def _gates(settings: Settings, notes: Notes) -> None:
    on = {name: part for name, part in settings.part.at("featureGates").items() if part.truth}
    for name in sorted(on.keys() & _SHARING_GATES.keys()):
        notes.warn("GS861", on[name], f"no pool of an intent uses {name} of {settings.origin}", _SHARING_GATES[name])
    given = settings.part.at("consumableShares")
    if given.value is not None and shares(settings) is None and given.count != 1:
        why = f"without the gate {_GATE}" if _GATE not in on else "which is neither memory nor a number"
        notes.warn(
            "GS861",
            given,
            f"consumableShares: {shown(given.value)} has no effect, {why}",
            join_words(["write memory", "a number of shares"], "or"),
        )
