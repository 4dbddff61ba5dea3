"""The commands of docs/gitops.md on Argo CD, in their order."""

from pathlib import Path

from tests.e2e.cluster.cluster_fixture import SHARED
from tests.e2e.gitops import page
from tests.e2e.gitops.argocd.synced import Synced


def test_the_commands_of_the_page_install_change_and_remove(synced: Synced, tmp_path: Path) -> None:
    cluster_fixture = synced.cluster_fixture
    cluster_fixture.choose(node_1="notebooks", node_2=None)
    origin = cluster_fixture.folder / "origin.git"
    reader = page.Reader(synced.cluster, origin, f"file://{origin}", tmp_path)
    reader.write(page.INTENT)
    said = []
    for command in page.commands(page.ARGO_CD):
        if command.startswith("sed"):
            assert cluster_fixture.offer("node-1") == {SHARED: 8}, "the Application is healthy, so the shares are there"
        if command.startswith("kubectl get nodes"):
            synced.cluster.wait(lambda: cluster_fixture.offer("node-1") == {SHARED: 12}, "the commit is on the node")
        said.append(reader.run(command))
    assert any("The GPUs have the pool's layout" in text for text in said)
    cluster_fixture.await_no_trace()
