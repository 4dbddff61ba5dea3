"""The commands of docs/gitops.md, in their order, against a repository to which they push."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster.cluster_fixture import POOL, SHARED
from tests.e2e.cluster.images import RUNTIME
from tests.e2e.gitops.argocd.synced import Synced
from tests.e2e.gitops.repository import IDENTITY
from tests.support import helm
from tests.support.paths import ROOT

pytestmark = pytest.mark.gitops

PAGE = (ROOT / "docs" / "gitops.md").read_text().partition("\n## Flux\n")[0]


def test_the_commands_of_the_page_install_change_and_remove(synced: Synced, tmp_path: Path) -> None:
    cluster_fixture = synced.cluster_fixture
    cluster_fixture.choose(node_1="notebooks", node_2=None)
    origin, folder, programs = cluster_fixture.folder / "origin.git", tmp_path / "clone", tmp_path / "bin"
    repository, _, tag = RUNTIME.rpartition(":")
    [text] = re.findall(r"```yaml\n# intent.yaml\n(.*?)```", PAGE, re.DOTALL)
    for ours, theirs in (
        ("https://git.example.org/gpu.git", f"file://{origin}"), ("registry.example.org/gpushare/node-runtime", repository),
        ('tag: "0.1.0"', f'tag: "{tag}"'), ("example.org/pool", POOL),
    ):
        assert ours in text
        text = text.replace(ours, theirs)
    programs.mkdir()
    network = " ".join(map(str, synced.cluster.network.command(helm.kubectl())))
    (programs / "kubectl").write_text(f'#!/bin/sh\nexec {network} "$@"\n')
    (programs / "kubectl").chmod(0o755)
    environment = {
        **os.environ, **IDENTITY, "KUBECONFIG": str(synced.cluster.control_plane.folder / "admin.kubeconfig"),
        "PATH": f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    for command in (f"git init --quiet --bare --initial-branch=main {origin}", f"git clone --quiet {origin} {folder}"):
        subprocess.run(["sh", "-c", command], env=environment, check=True, capture_output=True)
    (folder / "intent.yaml").write_text(text)
    said = []
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL):
        for command in re.findall(r"^\$ (.*)", block, re.MULTILINE):
            if command.startswith("sed"):
                assert cluster_fixture.offer("node-1") == {SHARED: 8}, "the Application is healthy, so the shares are there"
            if command.startswith("kubectl get nodes"):
                synced.cluster.wait(lambda: cluster_fixture.offer("node-1") == {SHARED: 12}, "the commit is on the node")
            done = subprocess.run(
                ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            said.append(done.stdout)
    assert any("The GPUs have the pool's layout" in text for text in said)
    assert cluster_fixture.traces() == []
