"""The ApplicationSet of docs/gitops.md: a folder of a repository for each cluster, of which Argo CD knows none here."""

import re
from pathlib import Path

from tests.e2e.cluster.bundles import compiled
from tests.e2e.cluster.cluster_fixture import NOTEBOOKS, intent
from tests.e2e.gitops.argocd.controllers import NAMESPACE
from tests.e2e.gitops.argocd.synced import Synced
from tests.e2e.gitops.repository import Repository
from tests.support.paths import ROOT

CLUSTERS = [f"cluster-{number}" for number in range(10)]
OF_THE_PAGE = "https://git.example.org/gpu.git"


def test_each_folder_is_a_cluster_with_its_own_applications(synced: Synced, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "many")
    for name in CLUSTERS:
        settings = f"{{repoURL: '{repository.address}', path: clusters/{name}/bundle, server: 'https://{name}.example.org'}}"
        text = intent(notebooks=NOTEBOOKS).replace("name: tests", f"name: {name}") + f"  gitops: {{argocd: {settings}}}\n"
        repository.commit(compiled(text, tmp_path / name), f"clusters/{name}/bundle")
    page = (ROOT / "docs" / "gitops.md").read_text()
    [text] = re.findall(r"```yaml\n# clusters.yaml\n(.*?)```", page, re.DOTALL)
    synced.cluster.kubectl("apply", "--filename", "-", stdin=text.replace(OF_THE_PAGE, repository.address))
    for name in CLUSTERS:
        synced.argocd.await_state(f"{name}-gpus", "Synced", "Healthy")
        ours = synced.argocd.application(f"{name}-gpus-gpushare")
        assert ours is not None
        assert ours["spec"]["destination"]["server"] == f"https://{name}.example.org"
    synced.cluster.kubectl("delete", "applicationset", "gpus", "--namespace", NAMESPACE)
    names = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/applications"
    synced.cluster.wait(lambda: not synced.cluster.read(names)["items"], "no Application is left")
