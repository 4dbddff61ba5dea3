"""The whole loop at hand: an intent is compiled and committed, and a tool of GitOps brings the cluster to it."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.cluster.cluster_fixture import A100, T4, ClusterFixture, intent
from tests.e2e.cluster.conftest import claimed_name
from tests.e2e.cluster.images import RUNTIME
from tests.e2e.gitops import upstream
from tests.e2e.gitops.repository import Repository

PATH = "clusters/tests/bundle"
_REPOSITORY, _, _TAG = RUNTIME.rpartition(":")


@contextmanager
def two_nodes() -> Iterator[ClusterFixture]:
    """A cluster with T4s on node-1 and A100s on node-2."""
    with claimed_name() as name:
        cluster_fixture = ClusterFixture(name)
        try:
            cluster_fixture.up()
            cluster_fixture.equip("node-1", T4)
            cluster_fixture.equip("node-2", A100)
            yield cluster_fixture
        finally:
            cluster_fixture.down()


class SyncedCluster(ABC):
    """A cluster, a tool of GitOps, and the repository between them."""

    def __init__(self, cluster_fixture: ClusterFixture) -> None:
        self.cluster_fixture = cluster_fixture
        self.cluster = cluster_fixture.cluster

    @property
    @abstractmethod
    def repository(self) -> Repository:
        """The one that the tool reads."""

    @property
    @abstractmethod
    def settings(self) -> str:
        """What `gitops` in the intent says of the tool."""

    @property
    @abstractmethod
    def logs(self) -> tuple[Path, ...]:
        """The logs of the tool's controllers that tell of an outage."""

    @abstractmethod
    def await_commit(self, commit: str) -> None:
        """Until our chart is that of the commit, and ready."""

    def leave(self, *, since: str) -> None:
        """Run the commands with which the bundle's README lets gpushare go and NVIDIA's chart stay, from this one on."""
        bundle = self.repository.folder / PATH
        commands = re.findall(r"^    (.*)$", (bundle / "README.md").read_text().partition("## Leaving")[2], re.MULTILINE)
        for command in commands[next(number for number, one in enumerate(commands) if since in one) :]:
            done = self.cluster_fixture.shell(command, bundle)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            if "selector gpushare.dev/pool" in command:
                assert done.stdout == ""

    def await_config_map(self, name: str) -> None:
        """Until the values of NVIDIA's chart name this ConfigMap for the device plugin."""

        def is_named() -> bool:
            policy = self.cluster.get("clusterpolicy", "cluster-policy")
            return bool(policy["spec"]["devicePlugin"]["config"]["name"] == name)

        self.cluster.wait(is_named, f"NVIDIA's chart names ConfigMap {name!r}")

    @contextmanager
    def outage(self) -> Iterator[None]:
        """The API server is away, and the controllers have noticed it."""
        for node in ("node-1", "node-2"):
            self.cluster_fixture.await_no_former_resources(node)
        before = {log: log.stat().st_size for log in self.logs}
        self.cluster.control_plane.stop_api_server()
        try:
            for log, size in before.items():
                self.cluster.wait(lambda at=log, seen=size: _is_refused(at, seen), f"{log.name} tells of the outage")
            yield
        finally:
            self.cluster.control_plane.start_api_server()

    def start(self) -> None:
        """Serve NVIDIA's repository of charts."""
        upstream.serve(self.cluster.network, self.charts)

    @property
    def charts(self) -> Path:
        """The folder of that repository."""
        return self.cluster_fixture.folder / "charts"

    def commit(self, more: str = "", **pools: str) -> str:
        """Compile an intent of these pools, with more lines in its spec, and commit its bundle; the commit."""
        return self.commit_intent(self.intent(**pools) + more)

    def commit_intent(self, text: str) -> str:
        """Compile an intent and commit its bundle; the commit."""
        return self.repository.commit(self.cluster_fixture.compile(text), PATH)

    def intent(self, **pools: str) -> str:
        """The pools, and what the tool must know."""
        platform = f'charts: "{upstream.CHARTS}", image: {{repository: {_REPOSITORY}, tag: "{_TAG}"}}'
        return intent(**pools) + f"  platform: {{{platform}}}\n  gitops: {{{self.settings}}}\n"


def _is_refused(log: Path, seen: int) -> bool:
    """Whether what a log has beyond the bytes that are seen tells of a server that does not listen."""
    return b"connection refused" in log.read_bytes()[seen:]
