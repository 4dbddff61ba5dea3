"""Leaving: the commands of the bundle's README and of the uninstallation, in order, none of which does harm if it fails."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.compiler.render.compiled import files
from tests.support.paths import ROOT

GITOPS = "  gitops: {%s: {%s: 'https://git.example.org/gpu.git', path: a/bundle}}\n"
IN_A_PROJECT = (GITOPS % ("argocd", "repoURL")).replace("path:", "project: gpus, path:")

KUBECTL = """#!/bin/sh
case "$*" in
*delete*) echo "$*" > deleted ;;
*) %s ;;
esac
"""


def leaving(**wanted: str) -> list[str]:
    return commands(files("hpc", **wanted))


def commands(bundle: dict[str, str]) -> list[str]:
    return re.findall(r"^    (.*)$", section(bundle), re.MULTILINE)


def section(bundle: dict[str, str]) -> str:
    return bundle["README.md"].partition("## Leaving\n\n")[2].partition("\n## ")[0]


def next_steps(bundle: dict[str, str]) -> list[str]:
    return list(yaml.safe_load(bundle["chart/values.yaml"])["uninstall"]["nextSteps"])


@pytest.mark.parametrize(
    ("platform", "more", "removes", "restores"),
    [
        ("{}", "", "helm uninstall gpushare", "--values gpu-operator/restore-values.yaml --timeout 10m"),
        ("{stack: device-plugin}", "", "helm uninstall gpushare", "--values device-plugin/restore-values.yaml --timeout 10m"),
        (
            "{}",
            GITOPS % ("flux", "url"),
            "delete kustomization test-cluster-gpus",
            "values.yaml=gpu-operator/restore-values.yaml",
        ),
        (
            "{}",
            GITOPS % ("argocd", "repoURL"),
            "delete application test-cluster-gpus-gpushare",
            "$values/a/bundle/gpu-operator/restore-values.yaml",
        ),
    ],
)
def test_readme_removes_gpushare_then_restores_the_plugin_then_deletes_its_configmap(
    platform: str, more: str, removes: str, restores: str
) -> None:
    steps = leaving(platform=platform, more=more)
    deletes = "kubectl --namespace gpu-system delete configmap gpushare-profiles;;"
    at = [next(number for number, step in enumerate(steps) if part in step) for part in (removes, restores, deletes)]
    assert at == sorted(at)


def test_the_uninstall_prints_the_readmes_steps_that_are_left() -> None:
    bundle = files("dense", platform="{partitioner: mig-manager, namespace: nvidia}")
    steps = next_steps(bundle)
    assert " kubectl --namespace nvidia delete configmap gpushare-profiles gpushare-mig-parted;;" in steps[-1]
    assert all(f"    {step}\n" in bundle["README.md"] for step in steps)
    assert "ConfigMaps `gpushare-profiles` and `gpushare-mig-parted` stay" in bundle["README.md"]


@pytest.mark.parametrize(
    ("reading", "code", "said", "is_deleted"),
    [
        ("echo 'kind: List'", 0, "", True),
        ("echo 'name: gpushare-profiles'", 0, "still in use: gpushare-profiles or gpushare-mig-parted\n", False),
        ("echo 'name: gpushare-mig-parted'", 0, "still in use: gpushare-profiles or gpushare-mig-parted\n", False),
        ("echo 'kind: List'; exit 1", 1, "", False),
        ("exit 1", 1, "", False),
    ],
    ids=["unused", "in use", "mig-manager's in use", "failing halfway", "failing"],
)
def test_configmaps_are_deleted_only_if_known_to_be_unused(
    tmp_path: Path, reading: str, code: int, said: str, is_deleted: bool
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL % reading)
    kubectl.chmod(0o755)
    command = leaving(platform="{partitioner: mig-manager}")[-1]
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, said)
    assert (tmp_path / "deleted").exists() is is_deleted


def test_any_path_in_the_repository_is_one_word_of_the_patch() -> None:
    path = f"it's/{'a/' * 480}bundle"
    bundle = files("hpc", more=f'  gitops: {{argocd: {{repoURL: "https://git.example.org/gpu.git", path: "{path}"}}}}\n')
    *_, patch = shlex.split(next(step for step in commands(bundle) if "--type json" in step))
    assert json.loads(patch)[0]["value"] == f"$values/{path}/gpu-operator/restore-values.yaml"
    schema = json.loads((ROOT / "charts/gpushare/values.schema.json").read_text())["properties"]["uninstall"]
    jsonschema.validate(yaml.safe_load(bundle["chart/values.yaml"])["uninstall"], schema)


def test_a_copy_of_the_configmap_is_deleted_too() -> None:
    *_, ours, copy = leaving(platform="{stack: existing}")
    assert " kubectl --namespace gpu-system delete " in ours
    assert " kubectl --namespace PLUGIN_NAMESPACE delete " in copy
    assert "PLUGIN_NAMESPACE" not in section(files("hpc", platform="{stack: existing, namespace: nvidia}"))


@pytest.mark.parametrize(("tool", "address", "title"), [("flux", "url", "Flux"), ("argocd", "repoURL", "Argo CD")])
def test_a_bundle_for_a_tool_has_helms_way_too(tool: str, address: str, title: str) -> None:
    bundle = files("hpc", more=GITOPS % (tool, address))
    text, helm = section(bundle), "helm upgrade --install gpu-operator gpu-operator"
    assert text.startswith(f"This keeps NVIDIA's chart. To remove it too, delete as section {title} says")
    assert "`helm uninstall gpushare --namespace gpu-system --timeout 10m`" in text
    assert f"`{helm}" in text
    assert any(f"if Helm installed NVIDIA's chart: {helm}" in step for step in next_steps(bundle))
    deletion = bundle["README.md"].partition(f"## {title}")[2].partition("\n## ")[0]
    assert commands(bundle)[-1 if tool == "argocd" else -2] in deletion


def test_every_object_of_a_tool_is_deleted_or_named() -> None:
    assert leaving(more=GITOPS % ("flux", "url"))[-1].endswith(" delete gitrepository test-cluster-gpus")
    assert any(step.endswith(" test-cluster-gpus-namespace") for step in leaving(more=IN_A_PROJECT))
    assert "the bundle in the repository, and AppProject `gpus`" in section(files("hpc", more=IN_A_PROJECT))
    alone = files("hpc", more=IN_A_PROJECT, platform="{stack: existing, namespace: nvidia}")
    assert "AppProject `gpus` stays. Delete it" in section(alone)


def test_readme_says_what_to_do_after_a_failed_uninstall() -> None:
    text = section(files("hpc"))
    assert "    kubectl --namespace gpu-system logs job/gpushare-uninstall\n" in text
    assert "`helm uninstall gpushare --namespace gpu-system --no-hooks`" in text


def test_gpus_of_amds_stay_as_they_are() -> None:
    parts = "{card: mi300x, nodes: {names: [n8]}, gpusPerNode: 8, sharing: {mode: exclusive}}"
    alone = section(files("parts", platform="{stack: amd-gpu-operator}", parts=parts))
    both = section(files("hpc", "parts", platform="{amd: {stack: amd-gpu-operator}}", parts=parts))
    assert "This makes every GPU of NVIDIA's whole." in both
    assert "GPU of NVIDIA's" not in alone
    assert "waits for nodes whose GPUs are in use" not in alone
    for text in (alone, both):
        assert "every GPU whole" not in text
        assert "GPUs of AMD's stay divided as they are, and no pod that uses them is waited for." in text
