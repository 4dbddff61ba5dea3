"""The whole loop at hand: an intent is compiled and committed, and Flux brings the cluster to it."""

from tests.e2e.cluster.cluster_fixture import ClusterFixture, intent
from tests.e2e.cluster.images import RUNTIME
from tests.e2e.cluster.machine import MachineError
from tests.e2e.gitops import upstream
from tests.e2e.gitops.flux.controllers import Flux
from tests.e2e.gitops.repository import Repository

PATH = "clusters/tests/bundle"
SYNC, OURS, NVIDIAS = "tests-gpus", "tests-gpus-gpushare", "tests-gpus-gpu-operator"
_REPOSITORY, _, _TAG = RUNTIME.rpartition(":")


class Synced:
    """A cluster, Flux, and the repository between them."""

    def __init__(self, cluster_fixture: ClusterFixture) -> None:
        self.cluster_fixture = cluster_fixture
        self.cluster = cluster_fixture.cluster
        self.flux = Flux(self.cluster, cluster_fixture.folder / "flux")
        self._repository: Repository | None = None

    def start(self) -> None:
        """Flux and NVIDIA's repository of charts."""
        upstream.serve(self.cluster.network, self.cluster_fixture.folder / "charts")
        self.flux.start()
        self._repository = Repository(self.flux.folder / "repositories" / "gpu")

    @property
    def repository(self) -> Repository:
        """The one that Flux reads."""
        assert self._repository is not None
        return self._repository

    def commit(self, more: str = "", **pools: str) -> str:
        """Compile an intent of these pools, with more lines in its spec, and commit its bundle; the commit."""
        return self.commit_intent(self.intent(**pools) + more)

    def commit_intent(self, text: str) -> str:
        """Compile an intent and commit its bundle; the commit."""
        return self.repository.commit(self.cluster_fixture.compile(text), PATH)

    def intent(self, **pools: str) -> str:
        """The pools, and what Flux must know. It looks for commits as often as an intent may ask for."""
        settings = f"url: '{self.flux.address('gpu')}', path: {PATH}, interval: 10s"
        platform = f'charts: "{upstream.CHARTS}", image: {{repository: {_REPOSITORY}, tag: "{_TAG}"}}'
        return intent(**pools) + f"  platform: {{{platform}}}\n  gitops: {{flux: {{{settings}}}}}\n"

    def apply(self) -> None:
        """As the bundle's README says."""
        folder = self.repository.folder / PATH / "flux"
        self.cluster.kubectl("apply", "--filename", folder / "source.yaml", "--filename", folder / "sync.yaml")

    def await_commit(self, commit: str) -> None:
        """Until our release is that of the commit, and is Ready."""

        def is_there() -> bool:
            ready = self.flux.condition("helmreleases", OURS)
            return commit[:12] in ready.get("message", "") and ready["status"] == "True"

        try:
            self.cluster.wait(is_there, f"the release is that of {commit}")
        except MachineError as error:
            raise MachineError(f"{error}: {self.flux.explain()}") from error
