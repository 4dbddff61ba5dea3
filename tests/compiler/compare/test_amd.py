"""A comparison reports every change of a field that concerns AMD's cards, and what becomes of nodes and pods."""

import copy
from typing import Any

import pytest
import yaml

from gpushare.compare.changes import Change, Comparison, PoolChange
from gpushare.compare.effects import EffectKind
from gpushare.report import effect_words
from gpushare.report.comparison import format_consequences
from gpushare.report.effect_words import verdict
from tests.compiler.compare.comparisons import comparison, compiled

INTENT = """
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: lab}
spec:
  platform: {amd: {stack: amd-gpu-operator, version: v1.5.1, namespace: kube-amd-gpu, values: {kmm: {watch: true}}}}
  pools:
    parts: {card: mi300x, nodes: {names: [n1, n2]}, gpusPerNode: 8, sharing: {mode: partition, compute: CPX, memory: NPS1}}
    unlike:
      card: mi300x
      nodes: {names: [n3]}
      gpusPerNode: 2
      sharing: {mode: partition, memory: NPS1, layouts: [{gpus: [0], compute: SPX}, {gpus: [1], compute: CPX}]}
    whole: {card: mi300x, nodes: {names: [n4]}, gpusPerNode: 8, sharing: {mode: exclusive}}
    shared: {card: t4, nodes: {names: [n5]}, gpusPerNode: 1, sharing: {mode: time-slicing, replicas: 2}}
"""
P = "spec/pools/parts/sharing"

CHANGES: tuple[tuple[str, Any, Change | None], ...] = (
    ("spec/platform/amd/stack", "existing", Change.RELABEL),
    ("spec/platform/amd/version", "v1.5.0", None),
    ("spec/platform/amd/namespace", "amd", None),
    ("spec/platform/amd/values", {"kmm": {"watch": False}}, None),
    (f"{P}/compute", "DPX", Change.REPARTITION),
    (f"{P}/memory", "NPS4", Change.REPARTITION),
    (f"{P}/strategy", "single", Change.RELABEL),
    ("spec/pools/unlike/sharing/layouts/1/compute", "QPX", Change.REPARTITION),
)
"""Every field that only AMD's cards have, and what a change of it is for the pool's nodes."""


def changed(path: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(yaml.safe_load(INTENT))
    *above, last = path.split("/")
    place: Any = document
    for key in above:
        place = place[int(key)] if isinstance(place, list) else place[key]
    place[last] = value
    if path.endswith("amd/stack"):
        document["spec"]["platform"]["amd"] = {"stack": value}
    return document


BASE = compiled(yaml.safe_load(INTENT))


@pytest.mark.parametrize(("path", "value", "change"), CHANGES, ids=[path for path, *_ in CHANGES])
def test_every_change_is_reported(path: str, value: Any, change: Change | None) -> None:
    told = comparison(BASE, compiled(changed(path, value)))
    assert not told.is_empty
    assert told.files
    if change is not None:
        assert change in {one.change for one in told.pools}


def test_a_change_of_partitions_takes_as_long_as_the_config_manager_may() -> None:
    told = comparison(BASE, compiled(changed(f"{P}/compute", "DPX")))
    [outage] = told.outages
    assert (outage.pool, outage.nodes, outage.is_bound) == ("parts", 2, True)
    assert outage.seconds >= 30 * 60


def of(told: Comparison, name: str) -> PoolChange:
    return next(one for one in told.pools if one.name == name)


def effects(told: Comparison) -> set[tuple[EffectKind, str | None]]:
    return {(one.kind, one.pool) for one in told.effects}


UNLIKE = "spec/pools/unlike/sharing/layouts"
LESS = [{"gpus": [0, 1], "compute": "CPX"}]


@pytest.mark.parametrize(
    ("path", "value", "pool", "lost"),
    [
        (UNLIKE, LESS, "unlike", 9),
        ("spec/pools/parts/gpusPerNode", 4, "parts", 64),
        ("spec/pools/whole/gpusPerNode", 4, "whole", 8),
    ],
)
def test_the_config_manager_needs_a_node_without_pods(path: str, value: Any, pool: str, lost: int) -> None:
    told = comparison(BASE, compiled(changed(path, value)))
    assert of(told, pool).disturbed_per_node == lost
    assert {one for one in effects(told) if one[0] is EffectKind.TAINTED} == {(EffectKind.TAINTED, pool)}
    assert any("every pod on it that does not tolerate AMD's taint ends" in one for one in verdict(told))


def test_nodes_that_join_or_are_labelled_for_the_first_time_get_the_taint() -> None:
    document = changed("spec/pools/parts/nodes/names", ["n1", "n2", "n6"])
    assert (EffectKind.TAINTED, "parts") in effects(comparison(BASE, compiled(document)))
    document = yaml.safe_load(INTENT)
    removed = document["spec"]["pools"].pop("whole")
    without = compiled(document)
    assert (EffectKind.TAINTED, "whole") in effects(comparison(without, BASE))
    own = compiled(changed("spec/platform/amd/stack", "existing"))
    assert (EffectKind.TAINTED, "whole") in effects(comparison(own, BASE))
    assert EffectKind.TAINTED not in {kind for kind, _ in effects(comparison(BASE, own))}
    document["spec"]["pools"]["entire"] = removed
    assert EffectKind.TAINTED not in {kind for kind, _ in effects(comparison(BASE, compiled(document)))}


@pytest.mark.parametrize(("strategy", "lost"), [("mixed", 8), ("single", 0)])
def test_partitions_of_a_whole_gpu_change_names_alone(strategy: str, lost: int) -> None:
    sharing = {"mode": "partition", "compute": "SPX", "memory": "NPS1", "strategy": strategy}
    told = comparison(BASE, compiled(changed("spec/pools/whole/sharing", sharing)))
    assert of(told, "whole").change is Change.RELABEL
    assert of(told, "whole").disturbed_per_node == lost
    assert not any(one.is_bound for one in told.outages)
    assert EffectKind.TAINTED not in {kind for kind, _ in effects(told)}


def test_the_release_of_a_node_changes_no_gpu_and_waits_for_no_pod() -> None:
    document = yaml.safe_load(INTENT)
    del document["spec"]["pools"]["parts"]
    told = comparison(BASE, compiled(document))
    assert (of(told, "parts").disturbed, of(told, "parts").touched, told.outages) == (0, 2, ())
    lines = list(format_consequences(of(told, "parts")))
    assert lines[0] == "a node that gpushare releases keeps its GPUs as they are"


def amd_alone(platform: dict[str, str] | None = None) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(INTENT)
    del document["spec"]["pools"]["shared"]
    document["spec"]["platform"] = platform or document["spec"]["platform"]["amd"]
    return document


def words(told: Comparison, *kinds: EffectKind) -> list[str]:
    return [effect_words.format_effect(one) for one in told.effects if one.kind in kinds]


WHOLE, PARTS = {"mode": "exclusive"}, {"mode": "partition", "compute": "CPX", "memory": "NPS1"}


@pytest.mark.parametrize(
    ("pool", "sharing", "naming"),
    [
        ("parts", WHOLE, "mixed → single"),
        ("whole", PARTS, "single → mixed"),
        ("whole", {**PARTS, "strategy": "single"}, None),
        ("parts", {**PARTS, "compute": "DPX"}, None),
    ],
)
def test_other_names_hold_for_all_nodes_of_a_pool_at_once(pool: str, sharing: dict[str, str], naming: str | None) -> None:
    told = comparison(BASE, compiled(changed(f"spec/pools/{pool}/sharing", sharing)))
    assert [one.pool for one in told.effects if one.kind is EffectKind.RENAMED] == ([pool] if naming else [])
    for text in words(told, EffectKind.RENAMED):
        assert text.startswith(f"resource_naming_strategy {naming}: ")
        assert "make a new pool of other nodes, or keep strategy: single" in text
    assert EffectKind.VENDOR_UPSTREAM not in {kind for kind, _ in effects(told)}


def test_a_changed_device_config_restarts_amds_programs_on_all_nodes_of_its_pool() -> None:
    told = comparison(BASE, compiled(changed("spec/pools/parts/tolerations", [{"key": "spot", "operator": "Exists"}])))
    [text] = words(told, EffectKind.VENDOR_UPSTREAM)
    assert text.startswith("DeviceConfig: configManager, devicePlugin, metricsExporter: AMD's programs that read it restart")
    told = comparison(BASE, compiled(changed("spec/monitoring", {"serviceMonitor": True})))
    assert {pool for kind, pool in effects(told) if kind is EffectKind.VENDOR_UPSTREAM} == {"parts", "unlike", "whole"}


def test_images_and_values_are_those_of_their_vendor() -> None:
    mirrored = amd_alone()
    mirrored["spec"]["platform"]["registry"] = "mirror.example.org"
    told = comparison(compiled(amd_alone()), compiled(mirrored))
    assert EffectKind.UPSTREAM not in {kind for kind, _ in effects(told)}
    assert {one.pool for one in told.effects if one.kind is EffectKind.VENDOR_UPSTREAM} == {None}
    images = {one.subject: one for one in told.effects}["images"]
    assert {one.startswith("mirror.example.org/rocm/") for one in images.after} == {True, False}
    told = comparison(BASE, compiled(changed("spec/platform/amd/values", {"kmm": {"watch": False}})))
    assert [text.partition(":")[0] for text in words(told, EffectKind.VENDOR_UPSTREAM)] == ["kmm.watch true → false"]


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("spec/platform/amd/stack", "existing", "amd.stack amd-gpu-operator → existing"),
        ("spec/platform/amd/namespace", "amd", "amd.namespace kube-amd-gpu → amd"),
    ],
)
def test_another_release_of_amds_takes_its_programs_from_every_node(path: str, value: str, shown: str) -> None:
    told = comparison(BASE, compiled(changed(path, value)))
    [text] = words(told, EffectKind.VENDOR_REINSTALLED)
    assert text.startswith(f"{shown}: AMD's programs leave every node")
    assert text.endswith("uninstall the former release")
    assert not {EffectKind.REINSTALLED, EffectKind.WITHDRAWN, EffectKind.VENDOR_UPSTREAM} & {kind for kind, _ in effects(told)}
    assert "Nodes with AMD's GPUs offer none until a device plugin runs there again." in verdict(told)


def test_nodes_of_a_removed_pool_offer_nothing() -> None:
    document = yaml.safe_load(INTENT)
    entry = document["spec"]["pools"].pop("parts")
    [text] = words(comparison(BASE, compiled(document)), EffectKind.WITHDRAWN)
    assert text.startswith("amd-gpu-operator: AMD's device plugin leaves these nodes")
    fewer = comparison(BASE, compiled(changed("spec/pools/parts/nodes/names", ["n1"])))
    assert [one.pool for one in fewer.effects if one.kind is EffectKind.WITHDRAWN] == ["parts"]
    assert fewer.outages == ()
    document["spec"]["pools"]["pieces"] = entry
    assert (EffectKind.WITHDRAWN, "parts") in effects(comparison(BASE, compiled(document)))
    of_amd = {"stack": "amd-device-plugin"}
    pools_of = {"parts": {**entry, "sharing": {**entry["sharing"], "strategy": "single"}}, "own": yaml.safe_load(OWN)}
    before = {**document, "spec": {"platform": of_amd, "pools": pools_of}}
    renamed = {**document, "spec": {"platform": of_amd, "pools": {"pieces": pools_of["parts"], "own": pools_of["own"]}}}
    gone = {**document, "spec": {"platform": of_amd, "pools": {"own": pools_of["own"]}}}
    assert EffectKind.WITHDRAWN not in {kind for kind, _ in effects(comparison(compiled(before), compiled(renamed)))}
    assert (EffectKind.WITHDRAWN, "parts") in effects(comparison(compiled(before), compiled(gone)))


OWN = "{card: mi210, nodes: {names: [n9]}, gpusPerNode: 2, sharing: {mode: exclusive}}"


def test_a_chart_that_comes_has_no_effect_and_one_that_goes_is_uninstalled_afterwards() -> None:
    of_amd = compiled(amd_alone())
    other = yaml.safe_load(INTENT)
    other["spec"]["pools"] = {"shared": other["spec"]["pools"]["shared"]}
    del other["spec"]["platform"]["amd"]
    of_nvidia = compiled(other)
    gone = comparison(BASE, of_amd), comparison(BASE, of_nvidia)
    shown = [text.partition(":")[0] for told in gone for text in words(told, EffectKind.UNINSTALLED)]
    assert shown == ["gpu-operator", "amd-gpu-operator"]
    releases = {EffectKind.REINSTALLED, EffectKind.VENDOR_REINSTALLED, EffectKind.UNINSTALLED}
    existing = compiled(amd_alone({"stack": "existing"}))
    for told in (comparison(of_amd, BASE), comparison(of_nvidia, BASE)):
        assert not releases & {kind for kind, _ in effects(told)}
    [taken_over] = words(comparison(existing, BASE), *releases)
    assert taken_over.startswith("amd.stack existing → amd-gpu-operator: AMD's programs leave every node")
    handed_over = comparison(of_amd, existing)
    assert EffectKind.UPSTREAM not in {kind for kind, _ in effects(handed_over)}
    for told in (*gone, comparison(of_amd, BASE), handed_over):
        assert not [text for text in words(told, *EffectKind) if text.startswith("stack ")]
