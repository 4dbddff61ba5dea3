"""The power of a whole pool goes and comes back: every node recovers by itself, at once, behind nobody's slot."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare_node.contract.reasons import ConditionReason
from tests.node.reconcile import loop_node
from tests.node.reconcile.loop_node import SEVEN, LoopNode, mig, rollout, take_slot
from tests.support.fake_api.server import ApiServer

NODES = 12
OUTAGE_SECONDS = 300.0
DESIRED = rollout(mig(SEVEN), max_unavailable=1)


class Pool:
    """Nodes of one pool. They share the API server and nothing else, so each is run for itself, in a time of its own."""

    def __init__(self, folder: Path, api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.api = api
        self._nodes: dict[str, LoopNode] = {}
        for name in (f"n{number}" for number in range(NODES)):
            monkeypatch.setattr(loop_node, "NAME", name)
            self._nodes[name] = LoopNode(folder / name, api)

    def __iter__(self) -> Iterator[LoopNode]:
        """Each node, as the one whose program runs."""
        for name, node in self._nodes.items():
            self._monkeypatch.setattr(loop_node, "NAME", name)
            node.fake_nvml.load()
            yield node


@pytest.fixture
def pool(tmp_path: Path, api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Pool:
    made = Pool(tmp_path, api, monkeypatch)
    for node in made:
        assert node.run(DESIRED).reason is ConditionReason.READY
    return made


@pytest.mark.failure_case(105)
def test_a_whole_pool_recovers_in_the_time_of_one_node(pool: Pool) -> None:
    """The mode is lost with the instances, as on Hopper. A node that had the only slot is gone; the API server is late."""
    for node in pool:
        node.gpus.reboot()
        node.fake_nvml.set_mode(0, False)
        node.enumerate()
    take_slot(node, "lost")
    pool.api.forget_requests()
    seconds = []
    for node in pool:
        begun = node.clock.now()
        pool.api.down()

        def come_back(time: float, begun: float = begun) -> None:
            if time > begun + OUTAGE_SECONDS:
                pool.api.up()

        node.on_tick = come_back
        assert node.run(DESIRED, hold=True).reason is ConditionReason.READY
        assert (node.gpus.stands(0), node.taints()) == (set(SEVEN), set())
        seconds.append(node.clock.now() - begun)
    assert pool.api.writes("leases") == []
    assert max(seconds) <= OUTAGE_SECONDS + 120
