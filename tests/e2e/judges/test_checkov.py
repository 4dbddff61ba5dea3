"""checkov judges what Helm renders: every check that fails is an exception with its reason, and every exception is needed."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from tests.chart.reading import documents
from tests.e2e.judges import checkov
from tests.support.paths import ROOT

EXCEPTIONS: dict[str, Any] = yaml.safe_load(Path(checkov.__file__).with_name("exceptions.yaml").read_text(encoding="utf-8"))

# Whole GPUs, time-slicing and MIG; MPS; mig-manager; an existing device plugin; objects for monitoring; and one that observes.
EXAMPLES = ("01-heterogeneous", "03-mps-inference", "10-air-gapped-dgx", "13-existing-plugin", "17-monitoring")
OBSERVED = "01-heterogeneous"

Found = set[tuple[str, str]]


@pytest.fixture(scope="module")
def write(run_helm: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str, str], Path]:
    """Compiles the intent of an example, with a line more in its spec, and writes what Helm renders into a folder."""

    def run(folder: Path, example: str, more: str) -> Path:
        text = (ROOT / "examples" / example / "intent.yaml").read_text().replace("spec:\n", f"spec:\n  {more}\n", 1)
        chart = tmp_path_factory.mktemp("compiled")
        for artifact in pipeline.compile_intent(text.encode(), example, lock.EMPTY).artifacts:
            (chart / artifact.path).parent.mkdir(parents=True, exist_ok=True)
            (chart / artifact.path).write_text(artifact.text)
        values = yaml.safe_load((chart / "chart" / "values.yaml").read_text())
        rendered = run_helm(4, "template", "gpushare", chart / "chart", "--namespace", values["namespace"]).stdout
        file = folder / f"{example}{'-observed' if more else ''}.yaml"
        file.write_text(named_by_kind(rendered, values, bool(more)))
        return file

    return run


def named_by_kind(rendered: str, values: dict[str, Any], observes: bool) -> str:
    """The objects of pools under a name that says what may differ between pools: an exception covers no more than it must."""
    items = documents(rendered)
    for item in items:
        for pool, about in values["pools"].items():
            prefix = re.match(rf"(gpushare-(?:test-)?){re.escape(pool)}\Z", item["metadata"]["name"])
            if prefix:
                kind = "with-mig" if about["migCapable"] else "without-mig"
                # What is behind a dot tells them apart, and is no part of what an exception names.
                item["metadata"]["name"] = f"{prefix[1]}POOL-{kind}{'-observed' if observes else ''}.{pool}"
    return yaml.safe_dump_all(items)


def found_in(folder: Path) -> Found:
    """The failed checks, each with the kind and the name of its object and with the container, if it is about one."""
    return {(one["check_id"], " ".join(about(one, folder))) for one in checkov.failures(folder)}


def about(failure: dict[str, Any], folder: Path) -> Iterator[str]:
    kind, _, name = failure["resource"].split(".", 2)
    # Behind the name, a check of several objects writes the labels of the pod.
    yield from (kind, name.partition(".")[0])
    place = re.search(r"(containers|initContainers)/\[(\d+)\]", " ".join(failure["check_result"]["evaluated_keys"] or ()))
    if place:
        items = documents((folder / failure["file_path"].lstrip("/").removeprefix(f"{folder.name}/")).read_text())
        pod = next(one for one in items if (one["kind"], one["metadata"]["name"]) == (kind, name))["spec"]
        yield pod.get("template", {"spec": pod})["spec"][place[1]][int(place[2])]["name"]


@pytest.fixture(scope="module")
def found(write: Callable[[Path, str, str], Path], tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("rendered")
    for example in EXAMPLES:
        write(folder, example, "")
    write(folder, OBSERVED, "adoption: observe")
    return found_in(folder)


@pytest.mark.parametrize("check", EXCEPTIONS)
def test_an_exception_has_its_reason(check: str) -> None:
    assert EXCEPTIONS[check].keys() == {"asks", "reason", "where"}
    assert len(EXCEPTIONS[check]["reason"].split()) > 5
    assert len(set(EXCEPTIONS[check]["where"])) == len(EXCEPTIONS[check]["where"])


def test_failed_checks_and_exceptions_match(found: Found) -> None:
    listed = {(check, where) for check, exception in EXCEPTIONS.items() for where in exception["where"]}
    assert {"new": sorted(found - listed), "no longer needed": sorted(listed - found)} == {"new": [], "no longer needed": []}


def test_a_chart_that_is_made_less_secure_fails(write: Callable[[Path, str, str], Path], found: Found, tmp_path: Path) -> None:
    file = write(tmp_path, "03-mps-inference", "")
    items = documents(file.read_text())
    for item in items:
        if item["kind"] == "DaemonSet":
            for container in item["spec"]["template"]["spec"]["containers"]:
                container["securityContext"].update(privileged=True, readOnlyRootFilesystem=False)
    file.write_text(yaml.safe_dump_all(items))
    assert {
        ("CKV_K8S_16", "DaemonSet gpushare-POOL-without-mig enforce"),
        ("CKV_K8S_22", "DaemonSet gpushare-POOL-without-mig enforce"),
    } <= found_in(tmp_path) - found
