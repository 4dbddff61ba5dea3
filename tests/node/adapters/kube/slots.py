"""What the tests of the pool's slots share: runtimes of nodes that want one, and who has which."""

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.kube.node_client import NodeClient
from tests.node.adapters.kube.kube_fixture import FakeClock, server
from tests.support.fake_api.refusals import Refusal
from tests.support.fake_api.server import ApiServer

On = Callable[[str], NodeClient]


@contextmanager
def runtimes(api: ApiServer, folder: Path, clock: FakeClock) -> Iterator[On]:
    """The runtime of the node of that name, started anew; what its folder remembers is its own.

    Slots are looked at one after the other in place of at random.
    """
    made: list[NodeClient] = []
    looks = itertools.count()

    def start(node: str) -> NodeClient:
        with suppress(Refusal):
            api.add_node(node)
        made.append(server(api, folder, clock, node=node, store=StateDir(folder / node)))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random, "randrange", lambda slots: next(looks) % slots)
        yield start
    for one in made:
        one.close()


def has_slot(one: NodeClient, limit: int | str = 1) -> bool:
    return one.take_slot(limit).is_held


def takes(one: NodeClient, limit: int | str) -> bool:
    """Whether it finds a free slot, if it looks at every slot a few times."""
    tries = 3 * limit if isinstance(limit, int) else 60
    return any(has_slot(one, limit) for _ in range(tries))


def verbs(api: ApiServer) -> list[str]:
    return [method for method, _ in api.writes("leases")]


def holders(api: ApiServer) -> dict[str, str]:
    return {
        lease["metadata"]["name"]: lease["spec"]["holderIdentity"]
        for lease in api.leases()
        if "holderIdentity" in lease["spec"]
    }
