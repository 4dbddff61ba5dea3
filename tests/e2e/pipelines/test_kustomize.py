"""`gpushare krm` as kustomize itself runs it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.compiler.cli.conftest import GOOD
from tests.compiler.cli.process import gpushare
from tests.e2e.pipelines.kustomize import program

FUNCTION = f"config.kubernetes.io/function: |\n      exec: {{path: {sys.executable}, args: [-m, gpushare, krm]}}\n"


def annotated(annotation: str) -> str:
    """The good intent with an annotation."""
    assert "metadata: {name: lab}\n" in GOOD
    return GOOD.replace("metadata: {name: lab}\n", f"metadata:\n  name: lab\n  annotations:\n    {annotation}")


def build(folder: Path, **kustomization: list[str]) -> subprocess.CompletedProcess[str]:
    """What kustomize says of a folder."""
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    command = [str(program()), "build", "--enable-alpha-plugins", "--enable-exec", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def objects(text: str) -> dict[tuple[str, str], Any]:
    """The objects by kind and name."""
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}


def test_as_a_generator_it_makes_what_compile_prints_with_the_lock_of_the_bundle(tmp_path: Path) -> None:
    intent = tmp_path / "intent.yaml"
    intent.write_text(annotated(FUNCTION))
    assert gpushare("compile", intent).returncode == 0
    intent.write_text(annotated(FUNCTION).replace("replicas: 4", "replicas: 3"))
    done = build(tmp_path, generators=["intent.yaml"])
    assert done.returncode == 0, done.stderr
    made = objects(done.stdout)
    assert made == objects(gpushare("compile", "--manifests", intent).stdout)
    # Each profile has two names, and those of the committed bundle are still there: nodes may have them.
    committed = list((tmp_path / "bundle/chart/files/profiles").iterdir())
    assert len(made["ConfigMap", "gpushare-profiles"]["data"]) == 2 * (len(committed) + 1)


def test_an_intent_with_an_error_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "intent.yaml").write_text(annotated(FUNCTION).replace("replicas: 4", "replicas: 1"))
    done = build(tmp_path, generators=["intent.yaml"])
    assert (done.returncode, done.stdout) == (1, "")
    assert "error GS" in done.stderr
    assert "exit status 1" in done.stderr


def test_as_a_transformer_it_checks_intents_and_changes_nothing(tmp_path: Path) -> None:
    """kustomize refuses every function under `validators`: it adds an annotation to what comes back, and finds it changed."""
    (tmp_path / "check.yaml").write_text(
        f"apiVersion: gpushare.dev/v1\nkind: Check\nmetadata:\n  name: check\n  annotations:\n    {FUNCTION}"
    )
    intent, other = tmp_path / "intent.yaml", tmp_path / "other.yaml"
    intent.write_text(annotated('config.kubernetes.io/local-config: "true"\n'))
    other.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {a: 'on', b: '0644'}\n")
    plain = build(tmp_path, resources=["intent.yaml", "other.yaml"])
    done = build(tmp_path, resources=["intent.yaml", "other.yaml"], transformers=["check.yaml"])
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    assert set(objects(done.stdout)) == {("ConfigMap", "other")}
    intent.write_text(intent.read_text().replace("replicas: 4", "replicas: 1"))
    assert build(tmp_path, resources=["intent.yaml", "other.yaml"], transformers=["check.yaml"]).returncode == 1
    none = build(tmp_path, resources=["other.yaml"], transformers=["check.yaml"])
    assert none.returncode == 1
    assert "the ResourceList has no ClusterIntent" in none.stderr
