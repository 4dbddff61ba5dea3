"""What tests of every tool use: each tool has its own `synced`."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster.dra.agents import Agents, with_agents
from tests.e2e.gitops.agents_charts import add_agents
from tests.e2e.gitops.synced import SyncedCluster


@pytest.fixture(scope="module")
def agents(synced: SyncedCluster) -> Iterator[Agents]:
    """Both back ends, as charts that the tool installs."""
    with with_agents(synced.cluster_fixture) as agents:
        add_agents(agents, synced.charts)
        synced.cluster_fixture.choose(node_1="notebooks", node_2="training")
        yield agents
