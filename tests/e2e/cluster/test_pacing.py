"""120 simulated nodes against a real control plane: never more than maxUnavailable out, few writes a node, no list storms."""

import json
from typing import Any

import pytest

from tests.e2e.cluster.cluster import Cluster
from tests.e2e.scale.rollout import rolled_out

NODES = 120
MAX_OUT = NODES // 10


@pytest.fixture(scope="module")
def figures(api: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """A first installation, and then a change that would disturb tenants, on all nodes."""
    return rolled_out(api, NODES, tmp_path_factory.mktemp("scale"))


@pytest.mark.parametrize("number", [0, 1], ids=["first installation", "change"])
def test_rollout_is_paced_and_sends_few_requests(figures: list[dict[str, Any]], number: int) -> None:
    found = figures[number]
    print(json.dumps(found))
    assert found["ready"] == NODES
    assert 1 < found["most_out"] <= MAX_OUT
    assert found["most_writes"] <= 8
    # Races for a slot: refused, so nothing was written and nobody told.
    assert found["writes_in_vain"] <= NODES / 20
    assert found["requests"]["GET pods"] <= 20 * NODES
    assert "GET leases" in found["requests"]
