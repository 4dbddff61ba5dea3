"""A cluster that Argo CD brings to what is in a repository."""

from collections.abc import Mapping
from pathlib import Path

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster_fixture import ClusterFixture
from tests.e2e.gitops.argocd.controllers import ArgoCd
from tests.e2e.gitops.repository import Repository
from tests.e2e.gitops.synced import PATH, SyncedCluster

ROOT, OURS, NVIDIAS = "tests-gpus", "tests-gpus-gpushare", "tests-gpus-gpu-operator"
OTHERS = ("tests-gpus-namespace", "tests-gpus-rights")


class Synced(SyncedCluster):
    """A cluster, Argo CD, and the repository between them."""

    def __init__(self, cluster_fixture: ClusterFixture) -> None:
        super().__init__(cluster_fixture)
        self.argocd = ArgoCd(self.cluster, cluster_fixture.folder / "argocd")
        self._repository = Repository(cluster_fixture.folder / "repository")

    @property
    def repository(self) -> Repository:
        """The one that Argo CD reads."""
        return self._repository

    @property
    def settings(self) -> str:
        """The repository, and an AppProject of its own."""
        return f"argocd: {{repoURL: '{self.repository.address}', path: {PATH}, project: gpus}}"

    @property
    def logs(self) -> tuple[Path, ...]:
        """Of Argo CD's controllers."""
        return self.argocd.logs

    def start(self) -> None:
        """Argo CD and NVIDIA's repository of charts."""
        super().start()
        self.argocd.start()

    def apply(self, file: str) -> None:
        """As the bundle's README says."""
        self.cluster.kubectl("apply", "--filename", self.repository.folder / PATH / "argocd" / file)

    def await_commit(self, commit: str, health: str = "Healthy") -> None:
        """Until our chart is synced to the commit and has this health. The root is told of the commit as by a webhook."""
        self.argocd.refresh(ROOT)
        self.cluster.wait(lambda: self.argocd.revision(ROOT) == commit, f"the root is compared with {commit}")
        self.cluster.wait(lambda: self.argocd.application(OURS), "the root has made our Application")
        self.argocd.refresh(OURS)
        self.argocd.await_state(OURS, "Synced", health, revision=commit)

    def failures(self, pool: str) -> list[Mapping[str, str]]:
        """The conditions of a pool's DaemonSet that name a failing node."""
        status = self.cluster.get("daemonset", f"gpushare-{pool}", "--namespace", NAMESPACE)["status"]
        return [one for one in status.get("conditions", ()) if one["type"].startswith("GPUShareReady.")]
