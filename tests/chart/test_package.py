"""The chart as a package: lint, schema, archive, version."""

import copy
import json
import tarfile
from typing import Any

import pytest
import yaml

from gpushare import __version__
from gpushare.core import emit, resources
from tests.chart.bundles import MODES, ONE
from tests.support import helm, scale
from tests.support.paths import ROOT

every_major = pytest.mark.parametrize("major", helm.MAJORS)

NONSENSE = [
    ("unknown", True),
    ("pools/only/unknown", 1),
    ("image/unknown", "x"),
    ("migParted/unknown", "x"),
    ("pools/only/terms/0/unknown", []),
    ("pools/only/tolerations", [{"unknown": "x"}]),
    ("pools/only/tolerations", [{}]),
    ("pools/only/tolerations", [{"key": "a", "value": 1}]),
    ("pools/only/terms", [{}]),
    ("pools/only/terms", [{"matchExpressions": []}]),
    ("cluster", 5),
    ("cluster", "Not A Label"),
    ("stack", "operator"),
    ("partitioner", "none"),
    ("image", "ghcr.io/gpushare/node-runtime:0.1.0"),
    ("image/tag", 0.1),
    ("image/tag", ""),
    ("image/digest", "sha256:12"),
    ("image/registry", "https://registry.example.org"),
    ("image/pullPolicy", "Sometimes"),
    ("imagePullSecrets", ["mirror"]),
    ("imagePullSecrets", [{"name": "A Secret"}]),
    ("runtimeClassName", 5),
    ("runtimeClassName", "Not A Name"),
    ("migParted/enabled", "yes"),
    ("pools", [{"name": "only"}]),
    ("pools/Upper", "copy of only"),
    ("pools/release", "copy of only"),
    ("pools/" + "a" * 49, "copy of only"),
    ("pools/only/mode", "Shared mode"),
    ("pools/only/mig", "true"),
    ("pools/only/maxUnavailable", 1),
    ("kubeletRoot", ""),
    ("kubeletRoot", "var/lib/kubelet"),
    ("kubeletRoot", "/var/lib/kubelet/"),
    ("networkPolicy/enabled", "yes"),
    ("networkPolicy/from", [{}]),
    ("pools/only/terms", []),
    ("pools/only/terms/0/matchExpressions/0/operator", "in"),
    ("pools/only/terms/0/matchExpressions/0/values", [5]),
    ("pools/only/terms/0/matchFields", [{"key": "metadata.name", "operator": "In", "values": ["gpu-01", "gpu-02"]}]),
    ("pools/only/terms/0/matchFields", [{"key": "metadata.name", "operator": "Exists", "values": ["gpu-01"]}]),
    ("pools/only/terms/0/matchFields", [{"key": "spec.unschedulable", "operator": "In", "values": ["gpu-01"]}]),
    ("pools/only/policy", 12345678),
    ("pools/only/policy", "1A2B3C4D"),
    ("quotas/atlas", {"nvidia.com/gpu": 1}),
    ("quotas/atlas", {"requests.nvidia.com/gpu": "1"}),
    ("quotas/atlas", {"requests.nvidia.com/gpu": -1}),
    ("quotas/atlas", {}),
]


def changed(path: str, value: Any) -> dict[str, Any]:
    """The values of a small bundle with one place changed or added."""
    values = copy.deepcopy(ONE.values)
    place: Any = values
    *folders, last = path.split("/")
    for step in folders:
        place = place[int(step) if step.isdigit() else step]
    place[last] = copy.deepcopy(values["pools"]["only"]) if value == "copy of only" else value
    return values


@pytest.fixture(scope="session")
def template(tmp_path_factory, run_helm):
    """A small chart, rendered with other values."""
    folder = tmp_path_factory.mktemp("small")
    chart = ONE.write(folder / "chart")

    def run(major: int, values: dict[str, Any]):
        file = folder / "values.yaml"
        file.write_text(emit.yaml_text(values))
        return run_helm(major, "template", "gpushare", chart, "--values", file, check=False)

    return run


@pytest.mark.parametrize(
    ("path", "value", "major"),
    [
        (*case, major)
        for number, case in enumerate(NONSENSE)
        for major in helm.MAJORS
        if scale.is_long != (major == helm.MAJORS[number % 2])
    ],
    ids=lambda part: str(part)[:48],
)
def test_schema_refuses_invalid_values(path: str, value: Any, major: int, template) -> None:
    result = template(major, changed(path, value))
    assert result.returncode != 0
    assert "schema" in result.stderr


@every_major
def test_schema_accepts_valid_values(major: int, template) -> None:
    assert template(major, ONE.values).returncode == 0
    assert template(major, changed("global", {"an": "umbrella's"})).returncode == 0
    assert template(major, changed("kubeletRoot", "/var/snap/microk8s/common/var/lib/kubelet")).returncode == 0


def test_schema_is_draft_07_without_external_references() -> None:
    schema = json.loads((resources.chart() / "values.schema.json").read_text())
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    references = [part for part in json.dumps(schema).split('"') if part.startswith("#/")]
    assert references
    assert all(reference.removeprefix("#/definitions/") in schema["definitions"] for reference in references)


def test_the_charts_own_values_have_the_keys_that_a_bundle_has() -> None:
    own = yaml.safe_load((resources.chart() / "values.yaml").read_text())
    assert own.keys() == MODES.values.keys()
    assert own["image"].keys() == MODES.values["image"].keys()


@every_major
@pytest.mark.parametrize("which", ["static", "bundle"])
def test_helm_lint_reports_nothing(major: int, which: str, chart_of, run_helm) -> None:
    folder = resources.chart() if which == "static" else chart_of(MODES)
    result = run_helm(major, "lint", "--strict", folder, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "[WARNING]" not in result.stdout


@every_major
def test_chart_package_has_all_template_inputs_and_renders_equally(major: int, chart_of, render, run_helm, tmp_path) -> None:
    run_helm(major, "package", chart_of(MODES), "--destination", tmp_path)
    archive = tmp_path / f"gpushare-{__version__}.tgz"
    with tarfile.open(archive) as package:
        names = {name.removeprefix("gpushare/") for name in package.getnames()}
    assert {"Chart.yaml", "values.yaml", "values.schema.json", "README.md", *MODES.files} <= names
    again = run_helm(major, "template", "gpushare", archive, "--namespace", "gpu-system").stdout
    assert again == render(MODES, major)


def test_the_notes_name_the_pools(chart_of, run_helm) -> None:
    notes = run_helm(4, "install", "gpushare", chart_of(MODES), "--dry-run=client", "--namespace", "gpu-system").stdout
    assert "notebooks: t4, time-slicing" in notes


def test_chart_program_and_image_have_one_version() -> None:
    chart = yaml.safe_load((resources.chart() / "Chart.yaml").read_text())
    values = yaml.safe_load((resources.chart() / "values.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == values["image"]["tag"] == __version__


def test_admission_calls_nothing_that_the_oldest_kubernetes_lacks() -> None:
    """`flatten` of lists is there from Kubernetes 1.35 on: 1.34 refuses the whole chart."""
    policies = sorted((ROOT / "charts/gpushare/admission").glob("*.yaml"))
    assert len(policies) > 5
    assert [path.name for path in policies if ".flatten(" in path.read_text(encoding="utf-8")] == []
