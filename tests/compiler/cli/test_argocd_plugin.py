"""The command of docs/pipelines/argocd-plugin.yaml with the environment that Argo CD's server of plugins gives it.

That server itself runs it in tests/e2e/gitops/argocd.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.compiler.cli.conftest import GOOD
from tests.compiler.cli.process import gpushare
from tests.support.paths import ROOT

PLUGIN = yaml.safe_load((ROOT / "docs" / "pipelines" / "argocd-plugin.yaml").read_text())
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The folder of an Application: an intent with its bundle, and two overlays, each for another number of shares."""
    (tmp_path / "intent.yaml").write_text(GOOD.replace("cap: 3Gi", "cap: 1Gi"))
    for replicas in (5, 6):
        (tmp_path / f"{replicas}.yaml").write_text(f"spec: {{pools: {{notebooks: {{sharing: {{replicas: {replicas}}}}}}}}}\n")
    assert gpushare("compile", "intent.yaml", cwd=tmp_path).returncode == 0
    return tmp_path


def generate(folder: Path, **parameters: str) -> Done:
    """A run of the plugin."""
    program = folder / ".bin" / "gpushare"
    if not program.exists():
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpushare "$@"\n')
        program.chmod(0o755)
    how = PLUGIN["spec"]["generate"]
    environment = {**os.environ, **parameters, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [*how["command"], *how["args"]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def shares(done: Done) -> int:
    """The shares of a node of pool `notebooks`, which has two GPUs."""
    assert done.returncode == 0, done.stderr
    [number] = re.findall(r"^ +nvidia.com/gpu.shared: (\d+)$", done.stdout, re.MULTILINE)
    return int(number)


def test_without_parameters_the_intent_alone_is_compiled(source: Path) -> None:
    done = generate(source)
    assert shares(done) == 8
    assert done.stdout == gpushare("compile", "--manifests", "--hook", "uninstall", "intent.yaml", cwd=source).stdout


def test_overlays_are_merged_in_their_order(source: Path) -> None:
    assert shares(generate(source, PARAM_OVERLAYS_0="5.yaml")) == 10
    assert shares(generate(source, PARAM_OVERLAYS_0="5.yaml", PARAM_OVERLAYS_1="6.yaml")) == 12
    assert shares(generate(source, PARAM_OVERLAYS_0="6.yaml", PARAM_OVERLAYS_1="5.yaml")) == 10
    many = {f"PARAM_OVERLAYS_{number}": "5.yaml" for number in range(11)}
    listed = '[{"name":"intent","string":"intent.yaml"},{"array":["5.yaml","6.yaml"],"name":"overlays"}]'
    given = {"PARAM_INTENT": "intent.yaml", "PARAM_OVERLAYS_0": "5.yaml", "PARAM_OVERLAYS_1": "6.yaml"}
    assert shares(generate(source, ARGOCD_APP_PARAMETERS=listed, **given)) == 12
    assert shares(generate(source, **{**many, "PARAM_OVERLAYS_11": "6.yaml"})) == 12


@pytest.mark.parametrize("parameters", [
    {"PARAM_OVERLAYS": "6.yaml"},
    {"PARAM_OVERLAYS_0": "5.yaml", "PARAM_OVERLAYS_1": "", "PARAM_OVERLAYS_2": "6.yaml"},
    {"PARAM_OVERLAYS_0": ""},
    {"PARAM_OVERLAYS_0": "5.yaml", "PARAM_OVERLAYS_2": "6.yaml"},
    {"PARAM_OVERLAYS_1": "6.yaml"}, {"PARAM_OVERLAYS_00": "6.yaml"}, {"PARAM_OVERLAYS_PROD": "6.yaml"},
    {"PARAM_OVERLAY_0": "6.yaml"}, {"PARAM_INTEND": "intent.yaml"}, {"PARAM_INTENT": ""}, {"PARAM_INTENT_0": "intent.yaml"},
    {"PARAM_BUNDLE": ""}, {"PARAM_BUNDLE_0": "bundle"}, {"PARAM_HOOK": "test"},
    {"ARGOCD_APP_PARAMETERS": '[{"name":"overlays"}]'},
    {"ARGOCD_APP_PARAMETERS": '[{"array":["5.yaml"],"name":"overlays"},{"array":["6.yaml"],"name":"overlays"}]',
     "PARAM_OVERLAYS_0": "6.yaml"},
    {"PARAM_INTENT": "../intent.yaml"}, {"PARAM_OVERLAYS_0": "/6.yaml"}, {"PARAM_BUNDLE": "bundle/../../bundle"},
], ids=str)
def test_a_parameter_that_is_not_understood_makes_nothing(parameters: dict[str, str], source: Path) -> None:
    """What is made without it would be synced, and the rest pruned."""
    done = generate(source, **parameters)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("parameter ")
    assert "of plugin gpushare: " in done.stderr


def test_a_base_that_clusters_share_has_its_locks_where_bundle_says(source: Path) -> None:
    over = source / "clusters" / "north" / "over.yaml"
    over.parent.mkdir(parents=True)
    over.write_text("spec: {pools: {notebooks: {sharing: {replicas: 7}}}}\n")
    compiled = gpushare("compile", "intent.yaml", "--overlay", over, "-o", over.parent / "bundle", cwd=source)
    assert compiled.returncode == 0, compiled.stderr
    over.write_text(over.read_text().replace("7", "9"))
    done = generate(source, PARAM_OVERLAYS_0="clusters/north/over.yaml", PARAM_BUNDLE="clusters/north/bundle")
    assert shares(done) == 18
    # Each profile has two names, and a node may still have one of those of the cluster's bundle.
    for profile in (over.parent / "bundle" / "chart" / "files" / "profiles").iterdir():
        assert f"  {profile.stem}" in done.stdout
    done = generate(source, PARAM_OVERLAYS_0="clusters/north/over.yaml", PARAM_BUNDLE="clusters/south/bundle")
    assert (done.returncode, done.stdout) == (2, "")
    assert "clusters/south/bundle/gpushare.lock.yaml is missing" in done.stderr
