"""A cluster that Flux brings to what is in a repository."""

from pathlib import Path

from tests.e2e.cluster.cluster_fixture import ClusterFixture
from tests.e2e.cluster.machine import MachineError
from tests.e2e.gitops.flux.controllers import Flux
from tests.e2e.gitops.repository import Repository
from tests.e2e.gitops.synced import PATH, SyncedCluster

SYNC, OURS, NVIDIAS = "tests-gpus", "tests-gpus-gpushare", "tests-gpus-gpu-operator"


class Synced(SyncedCluster):
    """A cluster, Flux, and the repository between them."""

    def __init__(self, cluster_fixture: ClusterFixture) -> None:
        super().__init__(cluster_fixture)
        self.flux = Flux(self.cluster, cluster_fixture.folder / "flux")
        self._repository: Repository | None = None

    @property
    def repository(self) -> Repository:
        """The one that Flux reads: it is in a folder of Flux's."""
        assert self._repository is not None
        return self._repository

    @property
    def settings(self) -> str:
        """The repository. Flux looks for commits as often as an intent may ask for."""
        return f"flux: {{url: '{self.flux.address('gpu')}', path: {PATH}, interval: 10s}}"

    @property
    def logs(self) -> tuple[Path, ...]:
        """None: source-controller tells of no outage, and kustomize-controller only when it has something to apply."""
        return ()

    def start(self) -> None:
        """Flux and NVIDIA's repository of charts."""
        super().start()
        self.flux.start()
        self._repository = Repository(self.flux.folder / "repositories" / "gpu")

    def apply(self) -> None:
        """As the bundle's README says."""
        folder = self.repository.folder / PATH / "flux"
        self.cluster.kubectl("apply", "--filename", folder / "source.yaml", "--filename", folder / "sync.yaml")

    def await_commit(self, commit: str) -> None:
        """Until our release is that of the commit, and is Ready. Flux is told of the commit as by a webhook."""
        self.flux.ask("gitrepositories", SYNC)

        def is_there() -> bool:
            ready = self.flux.condition("helmreleases", OURS)
            return commit[:12] in ready.get("message", "") and ready["status"] == "True"

        try:
            self.cluster.wait(is_there, f"the release is that of {commit}")
        except MachineError as error:
            raise MachineError(f"{error}: {self.flux.explain()}") from error
