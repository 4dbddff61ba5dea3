"""The platform of an imported cluster: which stack the intent has, and what its bundle would do to what runs there.

By default what runs stays: `stack: existing` with `adoption: observe`, so that a first bundle changes nothing. With a stack of
NVIDIA's charts the bundle takes the place of the release, and each difference that is known is a finding.
"""

import re

from gpushare.cluster.importing import chart_values
from gpushare.cluster.importing.draft import Draft
from gpushare.cluster.importing.facts import Facts, Settings
from gpushare.cluster.importing.helm_values import OPERATOR, PLUGIN
from gpushare.cluster.importing.parts import FromProgram, Notes, Part
from gpushare.core.wording import join_first, shorten
from gpushare.facts.catalog import upstream
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
        values = chart_values.of(one)
        chart_values.unknown(one, values, notes)
        comment += chart_values.kept(one, values)
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


def _runtime_class(settings: Settings) -> str:
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
        values = chart_values.of(one)
        chart_values.unknown(one, values, notes)
        if one.stack == stack:
            chart_values.carry(one, values, draft, notes)
            continue
        draft.note(("platform",), None, "\n".join(chart_values.kept(one, values)))
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


def _vgpu_manager(own: list[Settings], draft: Draft) -> None:
    if any(modes.named(pool["sharing"]["mode"]).serves_vms for pool in draft.pools.values()):
        for one in own:
            put_vgpu_manager(one, draft)


def put_vgpu_manager(settings: Settings, draft: Draft) -> None:
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
        version = node.part.at("status", "nodeInfo", "kubeletVersion")
        found = re.match(r"v?(\d{1,4})\.(\d{1,4})", version.text)
        if found and (int(found[1]), int(found[2])) < _OLDEST_KUBELET:
            old.append((version, f"{shorten(node.name)} ({shorten(version.text)})"))
    if old:
        notes.warn(
            "GS873",
            old[0][0],
            f"kubelets are older than 1.30, the oldest that bundles are made for: "
            f"{join_first([words for _, words in old], 10)}",
            "upgrade these nodes first",
        )
