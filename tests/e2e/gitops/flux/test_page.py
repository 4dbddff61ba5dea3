"""The commands of docs/gitops.md on Flux, in their order."""

import re
from pathlib import Path

from tests.e2e.cluster.cluster_fixture import SHARED
from tests.e2e.gitops import page
from tests.e2e.gitops.flux.synced import Synced


def test_the_commands_of_the_page_install_change_and_remove(synced: Synced, tmp_path: Path) -> None:
    cluster_fixture = synced.cluster_fixture
    cluster_fixture.choose(node_1="notebooks", node_2=None)
    origin = synced.flux.folder / "repositories" / "page.git"
    reader = page.Reader(synced.cluster, origin, synced.flux.address("page.git"), tmp_path)
    [settings] = re.findall(r"```yaml\n# flux\n(.*?)```", page.FLUX, re.DOTALL)
    reader.write(re.sub(r"    argocd: .*\n", settings, page.INTENT))
    said = []
    for command in page.commands(page.FLUX):
        if command.startswith("sed"):
            assert cluster_fixture.offer("node-1") == {SHARED: 8}, "the Kustomization is Ready, so the shares are there"
        if command.endswith("get helmrelease physics-gpus-gpushare"):
            # As a webhook does: otherwise a commit is seen after ten minutes.
            synced.flux.reconcile("gitrepositories", "physics-gpus")
            synced.cluster.wait(lambda: cluster_fixture.offer("node-1") == {SHARED: 12}, "the commit is on the node")
        said.append(reader.run(command))
    assert any("The GPUs have the pool's layout" in text for text in said)
    cluster_fixture.await_no_trace()
