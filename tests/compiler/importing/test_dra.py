"""Bundles with pools of DRA come back as the same pools and the same settings of the driver."""

import pytest

from gpushare import importing, pipeline
from gpushare.bundle import lock
from gpushare.core.diagnostics import is_error
from gpushare.importing import InputFile
from gpushare.intent.types import Backend
from gpushare.pipeline import Compilation
from gpushare.render.pools import pools_document
from tests.compiler.rules.intents import pool, written

A100 = {"card": "a100-pcie-40gb", "nodes": "{matchLabels: {node.example.org/flavour: gpu-a100}}", "backend": "dra"}
PLATFORM = "{{dra: {{{}}}, image: {{repository: registry.example.org/node-runtime}}}}"
SHARED = pool("shared", backend="dra", sizes="{large: 7680Mi, small: 1Gi}")

CASES = {
    "memory": (PLATFORM.format(""), [SHARED, pool("plugin", "l4", "{names: [a]}", "{mode: mps, replicas: 4}")]),
    "existing": (PLATFORM.format("via: existing"), [SHARED]),
    "version": (PLATFORM.format("version: 0.5.1, driverRoot: /run/nvidia/driver"), [SHARED]),
    "count": (PLATFORM.format("shares: count"), [pool("shared", backend="dra", requests="both")]),
    "plain": (
        PLATFORM.format("shares: count"),
        [pool("shared", backend="dra", requests="limits", sharing="{mode: time-slicing, replicas: 4, rename: false}")],
    ),
    "exclusive": (PLATFORM.format(""), [pool("whole", **A100, sharing="{mode: exclusive}", requests="limits")]),
    "mig": (
        PLATFORM.format(""),
        [pool("parts", **A100, sharing="{mode: mig, layout: {3g.20gb: 1, 1g.5gb: 3}}")],
    ),
    "single": (
        PLATFORM.format(""),
        [pool("parts", **A100, sharing="{mode: mig, layout: {1g.5gb: 7}, strategy: single}", requests="both")],
    ),
    "replicas": (PLATFORM.format(""), [pool("parts", **A100, sharing="{mode: mig, layout: {3g.20gb: 2}, replicas: 2}")]),
}


def compiled(text: str) -> Compilation:
    found = pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY)
    assert not [finding for finding in found.findings if is_error(finding)], found.findings
    return found


def imported(files: dict[str, str]) -> importing.Imported:
    return importing.build([InputFile(name=name, data=text.encode()) for name, text in files.items()])


@pytest.mark.parametrize("case", CASES)
def test_a_bundle_is_imported_as_the_same_pools(case: str) -> None:
    platform, pools = CASES[case]
    first = compiled(written(*pools, kubernetes='"1.36"', platform=platform))
    files = {file.path: file.text for file in first.artifacts}
    apart = ("/admission/", "/templates/")
    given = {name: text for name, text in files.items() if name.endswith(".yaml") and not any(one in name for one in apart)}
    found = imported(given | {"images.txt": files["images.txt"]})
    assert not [finding.message for finding in found.findings if is_error(finding)]
    again = compiled(found.text)
    assert again.plan is not None
    assert first.plan is not None
    assert again.plan.intent.platform.dra == first.plan.intent.platform.dra
    assert pools_document(again.plan) == pools_document(first.plan)
    made = {file.path: file.text for file in again.artifacts}
    written_again = [path for path in files if path.startswith(("chart/files/dra/", "chart/files/policies/", "dra-driver"))]
    assert {path: made[path] for path in written_again} == {path: files[path] for path in written_again}
    assert written_again


def test_a_cluster_without_such_pools_has_nothing_of_the_driver() -> None:
    files = {file.path: file.text for file in compiled(written(pool())).artifacts}
    spec = imported({"nodes/pools.yaml": files["nodes/pools.yaml"]}).draft.spec
    assert "dra" not in spec.get("platform", {})
    assert "kubernetes" not in spec
    assert all("backend" not in one for one in spec.get("pools", {}).values())


@pytest.mark.parametrize(("sharing", "needed"), [("{mode: exclusive}", "1.34"), ("{mode: time-slicing, replicas: 4}", "1.36")])
def test_the_kubernetes_that_the_pools_need_is_assumed(sharing: str, needed: str) -> None:
    first = compiled(written(pool(sharing=sharing, backend="dra"), kubernetes='"1.37"', platform="{dra: {}}"))
    files = {file.path: file.text for file in first.artifacts}
    found = imported({"nodes/pools.yaml": files["nodes/pools.yaml"]})
    assert found.draft.spec["kubernetes"] == needed
    again = compiled(found.text).plan
    assert again is not None
    assert again.intent.pools[0].backend is Backend.DRA
