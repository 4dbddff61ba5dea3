"""What Helm renders from a bundle's HelmRelease, and kustomize from its folder for Flux. Flux's own controllers are not run."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from tests.chart.reading import by_identity, documents
from tests.support import helm
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "16-flux" / "intent.yaml"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the example's bundle in the folder that its intent names."""
    root = tmp_path_factory.mktemp("repository")
    for artifact in pipeline.compile_intent(EXAMPLE.read_bytes(), "intent.yaml", lock.EMPTY).artifacts:
        file = root / "clusters/physics/bundle" / artifact.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(artifact.text)
    return root


def built(folder: Path) -> list[dict[str, Any]]:
    """What kustomize makes of a folder, without any file outside of it."""
    done = subprocess.run([str(helm.kubectl()), "kustomize", str(folder)], capture_output=True, text=True, check=True)
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def synced(repository: Path) -> list[dict[str, Any]]:
    """The objects of the folder that the bundle's Kustomization names."""
    sync = yaml.safe_load((repository / "clusters/physics/bundle/flux/sync.yaml").read_text())
    return built(repository / sync["spec"]["path"])


def test_kustomize_builds_exactly_the_files_of_the_folder(repository: Path) -> None:
    folder = repository / "clusters/physics/bundle/flux/apps"
    written = [yaml.safe_load(file.read_text()) for file in folder.glob("*.yaml") if file.name != "kustomization.yaml"]
    assert by_identity(synced(repository)) == by_identity(written)
    kinds = sorted(item["kind"] for item in written)
    assert kinds == ["ConfigMap", "HelmRelease", "HelmRelease", "HelmRepository", "Namespace"]


@pytest.mark.parametrize("major", [3, 4])
def test_helmrelease_renders_like_a_plain_installation(repository: Path, run_helm, major: int) -> None:
    [release] = [
        item["spec"]
        for item in synced(repository)
        if item["kind"] == "HelmRelease" and item["spec"]["releaseName"] == "gpushare"
    ]
    assert "values" not in release
    assert "valuesFrom" not in release
    chart, namespace = repository / release["chart"]["spec"]["chart"], release["targetNamespace"]
    plain = run_helm(major, "template", "gpushare", repository / "clusters/physics/bundle/chart", "--namespace", "gpu-system")
    theirs = run_helm(major, "template", release["releaseName"], chart, "--namespace", namespace)
    assert theirs.stdout == plain.stdout


@pytest.mark.parametrize("major", [3, 4])
def test_unrelated_commit_restarts_no_pod(repository: Path, run_helm, tmp_path: Path, major: int) -> None:
    """With `reconcileStrategy: Revision` source-controller appends the commit to the chart's version."""
    objects = []
    for name, commit in (("old", "0a1b2c3d4e5f"), ("new", "f5e4d3c2b1a0")):
        chart = shutil.copytree(repository / "clusters/physics/bundle/chart", tmp_path / name)
        file = chart / "Chart.yaml"
        version = yaml.safe_load(file.read_text())["version"]
        file.write_text(file.read_text().replace(f"\nversion: {version}\n", f"\nversion: {version}+{commit}\n"))
        objects.append(documents(run_helm(major, "template", "gpushare", chart, "--namespace", "gpu-system").stdout))
    before, after = objects
    assert before != after, "the label helm.sh/chart names the version"
    for item in (*before, *after):
        del item["metadata"]["labels"]["helm.sh/chart"]
    assert before == after
