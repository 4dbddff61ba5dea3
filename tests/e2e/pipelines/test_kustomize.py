"""kustomize itself renders the chart of a bundle, by the kustomization of docs/gitops.md."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from tests.chart.reading import by_identity
from tests.compiler.cli.conftest import GOOD
from tests.e2e.pipelines.kustomize import program
from tests.support import helm, rendering
from tests.support.paths import ROOT

SECTION = (ROOT / "docs" / "gitops.md").read_text().partition("\n## kustomize\n")[2]


@pytest.mark.parametrize("major", helm.MAJORS)
def test_kustomize_renders_what_helm_installs_without_hooks(major: int, tmp_path: Path) -> None:
    [kustomization] = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
    (tmp_path / "kustomization.yaml").write_text(kustomization)
    bundle = {one.path: one.text for one in pipeline.compile_intent(GOOD.encode(), "intent.yaml", lock.EMPTY).artifacts}
    for path, text in bundle.items():
        file = tmp_path / "bundle" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    command = [str(program()), "build", "--enable-helm", "--helm-command", str(helm.helm(major)), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert by_identity(yaml.safe_load_all(done.stdout)) == by_identity(rendering.objects(bundle))
