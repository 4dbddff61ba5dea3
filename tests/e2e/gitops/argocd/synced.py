"""The whole loop at hand: an intent is compiled and committed, and Argo CD brings the cluster to it."""

from tests.e2e.cluster.cluster_fixture import ClusterFixture, intent
from tests.e2e.cluster.images import RUNTIME
from tests.e2e.gitops import upstream
from tests.e2e.gitops.argocd.controllers import ArgoCd
from tests.e2e.gitops.repository import Repository

PATH = "clusters/tests/bundle"
ROOT, OURS, NVIDIAS = "tests-gpus", "tests-gpus-gpushare", "tests-gpus-gpu-operator"
OTHERS = ("tests-gpus-namespace", "tests-gpus-rights")
_REPOSITORY, _, _TAG = RUNTIME.rpartition(":")


class Synced:
    """A cluster, Argo CD, and the repository between them."""

    def __init__(self, cluster_fixture: ClusterFixture) -> None:
        self.cluster_fixture = cluster_fixture
        self.cluster = cluster_fixture.cluster
        self.argocd = ArgoCd(self.cluster, cluster_fixture.folder / "argocd")
        self.repository = Repository(cluster_fixture.folder / "repository")

    def start(self) -> None:
        """Argo CD and NVIDIA's repository of charts."""
        upstream.serve(self.cluster.network, self.cluster_fixture.folder / "charts")
        self.argocd.start()

    def commit(self, more: str = "", **pools: str) -> str:
        """Compile an intent of these pools, with more lines in its spec, and commit its bundle; the commit."""
        return self.commit_intent(self.intent(**pools) + more)

    def commit_intent(self, text: str) -> str:
        """Compile an intent and commit its bundle; the commit."""
        return self.repository.commit(self.cluster_fixture.compile(text), PATH)

    def intent(self, **pools: str) -> str:
        """The pools, and what Argo CD must know."""
        settings = f"repoURL: '{self.repository.address}', path: {PATH}, project: gpus"
        platform = f'charts: "{upstream.CHARTS}", image: {{repository: {_REPOSITORY}, tag: "{_TAG}"}}'
        return intent(**pools) + f"  platform: {{{platform}}}\n  gitops: {{argocd: {{{settings}}}}}\n"

    def apply(self, file: str) -> None:
        """As the bundle's README says."""
        self.cluster.kubectl("apply", "--filename", self.repository.folder / PATH / "argocd" / file)

    def await_commit(self, commit: str, health: str = "Healthy") -> None:
        """Until our chart is synced to the commit and has this health."""
        self.argocd.await_state(OURS, "Synced", health, revision=commit)
