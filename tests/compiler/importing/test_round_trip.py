"""An intent compiled, its bundle imported: the same pools, as far as the bundle's files say."""

from pathlib import Path

import pytest

from gpushare import importing, pipeline
from gpushare.bundle import lock
from gpushare.core.diagnostics import is_error
from gpushare.importing import InputFile
from gpushare.render import pools
from tests.support.paths import ROOT

EXAMPLES = sorted(ROOT.glob("examples/*/intent.yaml"))
READ = (
    "nodes/",
    "namespace.yaml",
    "chart/files/",
    "chart/values.yaml",
    "gpu-operator/",
    "device-plugin/",
    "dra-driver-nvidia-gpu/",
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_bundle_of_an_example_is_imported_as_the_same_pools(path: Path) -> None:
    first = pipeline.compile_intent(path.read_bytes(), "intent.yaml", lock.EMPTY)
    files = [(file.path, file.text) for file in first.artifacts if file.path.startswith(READ) and file.path.endswith(".yaml")]
    found = importing.build([InputFile(name=name, data=text.encode()) for name, text in files])
    assert not [finding.message for finding in found.findings if is_error(finding)]
    again = pipeline.compile_intent(found.text.encode(), "imported.yaml", lock.EMPTY)
    assert first.plan is not None
    assert again.plan is not None, [finding.message for finding in again.findings]
    assert pools.pools_document(again.plan) == pools.pools_document(first.plan)
    ours, theirs = again.plan.intent, first.plan.intent
    assert (ours.namespace, ours.platform.stack, ours.platform.partitioner) == (
        theirs.namespace,
        theirs.platform.stack,
        theirs.platform.partitioner,
    )
    profiles = [
        {file.path: file.text for file in one.artifacts if "/files/profiles/" in file.path or "mig-parted" in file.path}
        for one in (first, again)
    ]
    assert profiles[0] == profiles[1]


def test_values_only_in_the_bundles_charts_are_imported() -> None:
    text = (ROOT / "examples/10-air-gapped-dgx/intent.yaml").read_bytes()
    first = pipeline.compile_intent(text, "intent.yaml", lock.EMPTY)
    files = [file for file in first.artifacts if file.path.endswith(".yaml") and file.path.startswith((*READ, "chart/"))]
    found = importing.build([InputFile(name=file.path, data=file.text.encode()) for file in files])
    assert first.plan is not None
    driver = first.plan.intent.platform.driver
    assert driver is not None
    assert found.draft.spec["platform"]["driver"] == {
        "repository": driver.repository,
        "image": driver.image,
        "version": driver.version,
    }
    assert found.draft.spec["platform"]["image"]["repository"].endswith("node-runtime")
    assert "adoption" not in found.draft.spec


def test_the_namespaces_of_the_bundle_and_of_nvidias_chart_come_back() -> None:
    text = (ROOT / "examples/11-rtx-pro-6000/intent.yaml").read_bytes()
    files = [
        file
        for file in pipeline.compile_intent(text, "intent.yaml", lock.EMPTY).artifacts
        if file.path.startswith((*READ, "platform-namespace.yaml", "chart/values.yaml")) and file.path.endswith(".yaml")
    ]
    spec = importing.build([InputFile(name=file.path, data=file.text.encode()) for file in files]).draft.spec
    assert (spec["namespace"], spec["platform"]["namespace"]) == ("gpu-system", "gpu-operator")
    assert "namespaces" not in spec["platform"]


def test_prices_come_back() -> None:
    text = (ROOT / "examples/02-t4-notebooks/intent.yaml").read_text().replace("spec:", "spec:\n  prices: {t4: 0.35 EUR/h}", 1)
    files = pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY).artifacts
    inputs = [InputFile(name=one.path, data=one.text.encode()) for one in files if one.path.startswith("nodes/pools")]
    assert importing.build(inputs).draft.spec["prices"] == {"t4": "0.35 EUR/h"}


def test_a_value_that_was_edited_in_a_bundle_is_reported_by_its_file_and_path() -> None:
    first = pipeline.compile_intent((ROOT / "examples/02-t4-notebooks/intent.yaml").read_bytes(), "intent.yaml", lock.EMPTY)
    files = {file.path: file.text for file in first.artifacts}
    inputs = [
        InputFile(name=name, data=files[name].replace("kubeletRoot: /var", "kubeletRoot: /data").encode())
        for name in files
        if name.startswith(READ) or name == "chart/values.yaml"
    ]
    found = importing.build([one for one in inputs if one.name.endswith(".yaml")])
    made = pipeline.compile_intent(found.text.encode(), "", lock.EMPTY).artifacts
    again = found.compared(inputs, {file.path: file.text for file in made})
    said = [one.message for one in again.findings if one.code == "GS871" and "chart/values.yaml" in one.message]
    assert any('kubeletRoot: "/data/lib/kubelet"' in message for message in said)
