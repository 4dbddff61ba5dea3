"""How many slots there are: as many as the limit says, whatever nodes do at once, and however it changes."""

import threading
from pathlib import Path
from random import Random

import pytest

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.kube.rollout_slots import DURATION_SECONDS
from tests.node.adapters.kube.kube_fixture import FakeClock, server
from tests.node.adapters.kube.slots import On, has_slot, holders, takes
from tests.support import scale
from tests.support.fake_api.server import ApiServer


@pytest.mark.parametrize(
    ("limit", "nodes", "slots"), [("10%", 200, 20), ("10%", 19, 1), ("10%", 5, 1), ("50%", 0, 1), (3, 2, 3)]
)
def test_a_percentage_is_of_the_nodes_that_the_pool_has(
    api: ApiServer,
    connected: On,
    limit: int | str,
    nodes: int,
    slots: int,
) -> None:
    api.add_daemonset("gpushare-train", desired=nodes)
    got = [takes(connected(f"n{number}"), limit) for number in range(slots + 1)]
    assert got == [True] * slots + [False]


@pytest.mark.usefixtures("connected")  # so that slots are looked at in order
def test_concurrent_nodes_take_only_as_many_slots_as_the_limit(api: ApiServer, tmp_path: Path) -> None:
    got: list[bool] = []

    def race(node: str) -> None:
        api.add_node(node)
        one = server(api, tmp_path, node=node, store=StateDir(tmp_path / node))
        got.append(takes(one, 2))
        one.close()

    threads = [threading.Thread(target=race, args=(f"r{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got.count(True) == 2
    assert len(holders(api)) == 2


@pytest.mark.parametrize("seed", scale.part(range(20), 10))
def test_nodes_changing_at_once_never_exceed_the_limit(connected: On, clock: FakeClock, seed: int) -> None:
    """Nodes come, are changed, die and come back in any order. A slot lives as long as its Lease is renewed."""
    random, limit = Random(seed), 3
    alive = {f"n{number}": connected(f"n{number}") for number in range(9)}
    changing: set[str] = set()
    changed = 0
    for _ in range(300):
        clock.seconds += random.uniform(0, 60)
        node = random.choice(sorted(alive))
        for holder in changing:
            alive[holder].renew_slot()
        if node in changing and random.random() < 0.4:
            alive[node].release_slot()
            changing.remove(node)
            changed += 1
        elif random.random() < 0.05:
            # Its new pod does not go on with the change before it has found the slot again.
            alive[node] = connected(node)
            changing.discard(node)
        elif has_slot(alive[node], limit):
            changing.add(node)
        else:
            assert node not in changing
        assert len(changing) <= limit
    assert changed >= 10


@pytest.mark.parametrize("smaller", [1, 2, 5])
def test_a_smaller_limit_counts_the_slots_that_are_out(api: ApiServer, connected: On, smaller: int) -> None:
    nodes = [connected(f"n{number}") for number in range(12)]
    assert [takes(one, 12) for one in nodes] == [True] * 12
    numbers = {name.rpartition(".")[2]: node for name, node in holders(api).items()}
    late = connected("late")
    for slot in (*range(11), 11):
        assert not takes(late, smaller), slot
        nodes[int(numbers[str(slot)].removeprefix("n"))].release_slot()
    assert takes(late, smaller)
    assert [takes(connected(f"later{number}"), smaller) for number in range(smaller)] == [True] * (smaller - 1) + [False]


def test_raised_limit_takes_effect_immediately(api: ApiServer, connected: On) -> None:
    assert takes(connected("n1"), 1)
    assert [takes(connected(f"m{number}"), 4) for number in range(4)] == [True] * 3 + [False]


def test_lowered_limit_costs_few_requests_per_attempt(api: ApiServer, connected: On) -> None:
    """From 500 to 5: it is looked at bit by bit."""
    for number in range(20):
        has_slot(connected(f"n{number}"), 500)
    late = connected("late")
    has_slot(late, 5)
    api.forget_requests()
    for _ in range(10):
        before = len(api.requests)
        has_slot(late, 5)
        assert len(api.requests) - before <= 6


def test_an_expired_slot_beyond_a_smaller_limit_does_not_count(connected: On, clock: FakeClock) -> None:
    dead = [connected(f"n{number}") for number in range(4)]
    assert all(takes(one, 4) for one in dead)
    late = connected("late")
    assert not takes(late, 1)
    clock.seconds += DURATION_SECONDS + 1

    def takes_or_waits() -> bool:
        if takes(late, 1):
            return True
        clock.sleep(DURATION_SECONDS)
        return False

    assert any(takes_or_waits() for _ in range(4))


def test_the_slots_of_another_pool_are_not_counted(api: ApiServer, connected: On) -> None:
    api.add(
        "leases",
        "gpushare-train-b.0",
        {"metadata": {"labels": {"gpushare.dev/pool": "train-b"}}, "spec": {"holderIdentity": "x"}},
        namespace="gpushare",
    )
    assert has_slot(connected("n1"))


def test_no_number_in_a_lease_stops_a_pool(api: ApiServer, connected: On) -> None:
    """Every node's token may write Leases of its namespace: how many slots there are is in the policy only."""
    for name in ("slots", "x", "²", "-3"):
        api.add(
            "leases",
            f"gpushare-train.{name}",
            {
                "metadata": {"labels": {"gpushare.dev/pool": "train"}, "annotations": {"gpushare.dev/slots": "99999"}},
                "spec": {"holderIdentity": "n9"},
            },
            namespace="gpushare",
        )
    assert [takes(connected(f"n{number}"), 3) for number in range(4)] == [True, True, True, False]


def test_waiting_node_learns_which_node_holds_the_slot(connected: On) -> None:
    assert takes(connected("n1"), 1)
    late = connected("late").take_slot(1)
    assert (late.is_held, late.holder) == (False, "n1")
