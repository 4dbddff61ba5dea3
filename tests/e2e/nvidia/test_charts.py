"""The tables of values say what NVIDIA's templates read, and the real charts take every example's values.

Needs `NVIDIA=FOLDER`; left out without it, and `make test-all` says so.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpushare.core import resources
from gpushare.facts.catalog import upstream
from tests.bench.figures import GPU_OPERATOR, figures
from tests.chart.conftest import run_helm  # noqa: F401 - a fixture
from tests.compiler.golden.update import examples
from tests.e2e.nvidia import charts, update

pytestmark = [
    pytest.mark.nvidia,
    pytest.mark.skipif(charts.folder() is None, reason="NVIDIA=FOLDER is not given"),
]

CHARTS = {"gpu-operator": "gpu-operator", "device-plugin": "nvidia-device-plugin"}


@pytest.fixture(scope="module")
def chart_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Stack → its chart."""
    return {stack: charts.unpack(name, tmp_path_factory.mktemp(stack)) for stack, name in CHARTS.items()}


def test_benchmark_figures_match_the_chart(chart_of: dict[str, Path], run_helm: Any) -> None:  # noqa: F811
    chart = chart_of["gpu-operator"]
    rendered = run_helm(4, "template", "gpu-operator", chart, "--namespace", "gpu-system").stdout
    assert figures(chart, rendered) == GPU_OPERATOR


def own_paths(stack: str) -> dict[str, upstream.ValueFact]:
    chart = upstream.chart(stack)
    return {path: fact for path, fact in upstream.paths(chart.name).items() if path.partition(".")[0] not in chart.subcharts}


@pytest.mark.parametrize("stack", CHARTS)
def test_every_value_that_a_template_reads_is_known(stack: str, chart_of: dict[str, Path]) -> None:
    read, whole = charts.read_paths(chart_of[stack])
    known, dropped = own_paths(stack), upstream.dropped(CHARTS[stack])
    leaves = {path for path in read if not any(other.startswith(f"{path}.") for other in read)}

    def is_told(path: str) -> bool:
        below = any(name.startswith(f"{path}.") for name in known)
        inside = any(path.startswith(f"{name}.") for name in known)
        return path in known or path in dropped or (path in whole and below) or inside

    assert [path for path in sorted(leaves | whole) if not is_told(path)] == []


@pytest.mark.parametrize("stack", CHARTS)
def test_every_value_that_is_known_is_read(stack: str, chart_of: dict[str, Path]) -> None:
    read, whole = charts.read_paths(chart_of[stack])
    assert [
        path
        for path in own_paths(stack)
        if path not in read and not any(path == name or path.startswith(f"{name}.") for name in whole)
    ] == []


@pytest.mark.parametrize("stack", CHARTS)
def test_every_default_matches_the_chart(stack: str, chart_of: dict[str, Path]) -> None:
    defaults = yaml.safe_load((chart_of[stack] / "values.yaml").read_text())
    differing = {
        path: (fact.default, at(defaults, path))
        for path, fact in own_paths(stack).items()
        if "default" in fact.schema and "/" not in path and at(defaults, path) != fact.default
    }
    differing.pop("image.tag", None)  # empty: the chart's own version
    assert differing == {}


def at(values: Any, path: str) -> Any:
    for key in path.split("."):
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def stack_of(example: Path) -> str | None:
    return next((stack for stack in CHARTS if (example / "bundle" / stack / "values.yaml").exists()), None)


EXAMPLES = [example for example in examples() if stack_of(example)]


@pytest.mark.parametrize("major", [3, 4])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_real_chart_takes_an_examples_values(
    example: Path,
    major: int,
    chart_of: dict[str, Path],
    run_helm: Any,  # noqa: F811
) -> None:
    stack = stack_of(example)
    assert stack
    values = example / "bundle" / stack / "values.yaml"
    said = run_helm(major, "template", CHARTS[stack], chart_of[stack], "--namespace", "gpu-system", "--values", values)
    objects = [document for document in yaml.safe_load_all(said.stdout) if document]
    assert objects
    if stack == "gpu-operator":
        (policy,) = (document for document in objects if document["kind"] == "ClusterPolicy")
        check_against_crd(policy, chart_of[stack])
    else:
        assert {document["metadata"]["name"] for document in objects if document["kind"] == "DaemonSet"} >= {
            "nvidia-device-plugin",
            "nvidia-device-plugin-gpu-feature-discovery",
            "nvidia-device-plugin-mps-control-daemon",
        }


def check_against_crd(policy: dict[str, Any], chart: Path) -> None:
    """What the API server would say of a ClusterPolicy, and what it would drop without a word."""
    crd = yaml.safe_load((chart / "crds/nvidia.com_clusterpolicies.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    jsonschema.Draft7Validator(schema).validate(policy["spec"])
    assert list(unknown(policy["spec"], schema)) == []


def unknown(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    properties = schema.get("properties")
    if isinstance(value, dict) and properties is not None and not schema.get("x-kubernetes-preserve-unknown-fields"):
        for key, item in value.items():
            if key in properties:
                yield from unknown(item, properties[key], f"{path}.{key}")
            elif "additionalProperties" not in schema:
                yield f"{path}.{key}"
    if isinstance(value, list):
        for item in value:
            yield from unknown(item, schema.get("items", {}), f"{path}[]")


@pytest.mark.parametrize("stack", CHARTS)
def test_committed_values_schema_is_current(stack: str, chart_of: dict[str, Path]) -> None:
    committed = (resources.upstream() / f"{CHARTS[stack]}.values.json").read_text()
    assert update.generated(stack, chart_of[stack]) == committed, "make upstream NVIDIA=FOLDER, and read the diff"
