"""The pool's queue: as many turns as the limit, who came first has one, no write in vain, nobody's clock but the own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from gpushare_node.kube.cluster import ClusterError
from gpushare_node.kube.leases import DURATION_SECONDS, RENEW_SECONDS
from gpushare_node.kube.server import Server
from tests.node.api_refusals import Refusal
from tests.node.api_server import ApiServer
from tests.node.kube_scene import Skips, server


@pytest.fixture
def clock() -> Skips:
    return Skips()


@pytest.fixture
def on(api: ApiServer, tmp_path: Path, clock: Skips) -> Iterator[Callable[[str], Server]]:
    """The runtime of the node of that name, started anew."""
    made: list[Server] = []

    def start(node: str) -> Server:
        with suppress(Refusal):
            api.add_node(node)
        made.append(server(api, tmp_path, clock, node=node))
        return made[-1]

    yield start
    for one in made:
        one.close()


On = Callable[[str], Server]


def has_turn(one: Server, limit: int | str = 1) -> bool:
    return one.take_turn(limit).rounds == 0


def verbs(api: ApiServer) -> list[str]:
    return [method for method, _ in api.writes("leases")]


def test_as_many_nodes_have_a_turn_as_the_limit_says_and_the_others_know_how_far_they_are(api: ApiServer, on: On) -> None:
    assert [on(f"n{number}").take_turn(2).rounds for number in range(7)] == [0, 0, 1, 1, 2, 2, 3]
    assert {one["metadata"]["name"] for one in api.leases()} == {f"gpushare-train.n{number}" for number in range(7)}
    assert {one["spec"]["holderIdentity"] for one in api.leases()} == {f"n{number}" for number in range(7)}


def test_a_turn_that_is_given_back_is_the_nexts_in_the_order_of_their_coming(on: On) -> None:
    nodes = [on(f"n{number}") for number in (5, 1, 9, 3)]
    for one in nodes:
        one.take_turn(1)
    while nodes:
        assert [has_turn(one) for one in reversed(nodes)] == [False] * (len(nodes) - 1) + [True]
        nodes.pop(0).end_turn()


def test_a_node_waits_and_is_changed_for_two_writes(api: ApiServer, on: On, clock: Skips) -> None:
    first, second = on("n1"), on("n2")
    first.take_turn(1)
    api.forget_requests()
    for _ in range(1000):
        clock.seconds += 100
        first.renew_turn()
        assert not has_turn(second)
    first.end_turn()
    assert has_turn(second)
    second.renew_turn()
    second.end_turn()
    assert verbs(api).count("PUT") == 1000 * 100 // RENEW_SECONDS, "of the first, and no other"
    assert verbs(api)[0] == "POST"
    assert verbs(api)[-2:] == ["DELETE", "DELETE"]


def test_a_new_pod_finds_the_place_that_its_node_has(api: ApiServer, on: On) -> None:
    assert has_turn(on("n1"))
    assert not has_turn(on("n2"))
    assert has_turn(on("n1"))
    assert not has_turn(on("n2"))
    assert len(api.leases()) == 2
    assert on("n2").find_turn()
    assert not on("n3").find_turn()


def test_who_finds_its_turn_again_says_at_once_that_it_lives(api: ApiServer, on: On, clock: Skips) -> None:
    on("n1").take_turn(1)
    second = on("n2")
    second.take_turn(1)
    clock.seconds += DURATION_SECONDS - 1
    assert has_turn(on("n1"))
    clock.seconds += 2
    assert not has_turn(second)


def test_who_slept_says_that_it_lives_before_it_goes_on(api: ApiServer, on: On, clock: Skips) -> None:
    first, second = on("n1"), on("n2")
    first.take_turn(1)
    second.take_turn(1)
    clock.seconds += DURATION_SECONDS - 1
    api.forget_requests()
    assert has_turn(first)
    assert verbs(api) == ["PUT"]
    clock.seconds += 2
    assert not has_turn(second)


@pytest.mark.parametrize(
    ("limit", "nodes", "turns"), [("10%", 200, 20), ("10%", 19, 1), ("10%", 5, 1), ("50%", 0, 1), (3, 2, 3)])
def test_a_percentage_is_of_the_nodes_that_the_pool_has(
    api: ApiServer, on: On, limit: int | str, nodes: int, turns: int,
) -> None:
    api.add_daemonset("gpushare-train", desired=nodes)
    got = [has_turn(on(f"n{number}"), limit) for number in range(turns + 1)]
    assert got == [True] * turns + [False]


def test_a_turn_that_nobody_renews_expires_by_the_watchers_clock(api: ApiServer, on: On, clock: Skips) -> None:
    on("n1").take_turn(1)
    second = on("n2")
    clock.seconds += 10 * DURATION_SECONDS  # nobody has looked yet: how long it has been so is not known
    assert not has_turn(second)
    clock.seconds += DURATION_SECONDS
    assert not has_turn(second)
    clock.seconds += 1
    assert has_turn(second)
    assert [one["spec"]["holderIdentity"] for one in api.leases()] == ["n2"]


def test_the_turn_of_a_node_that_is_no_more_is_the_nexts_at_once(api: ApiServer, on: On) -> None:
    on("n1").take_turn(1)
    second = on("n2")
    assert not has_turn(second)
    api.remove("nodes", "n1")
    assert has_turn(second)


def test_who_waits_for_long_behind_others_does_not_expire(on: On, clock: Skips) -> None:
    first, second, third = on("n1"), on("n2"), on("n3")
    for one in (first, second, third):
        one.take_turn(1)
    clock.seconds += 3 * DURATION_SECONDS
    first.end_turn()
    assert not has_turn(third), "it waits no longer than the second has had its turn"
    clock.seconds += DURATION_SECONDS
    assert not has_turn(third)


@pytest.mark.parametrize("year", ["1990", "2190"])
def test_a_holder_whose_clock_is_wrong_by_years_keeps_its_turn_while_it_renews(
    api: ApiServer, on: On, clock: Skips, year: str,
) -> None:
    on("n1").take_turn(1)
    second = on("n2")
    for hour in range(5):
        time = f"{year}-01-01T0{hour}:00:00.000000Z"
        renewed = {"spec": {"acquireTime": time, "renewTime": time}}
        api.patch("leases", "gpushare-train.n1", renewed, manager="n1", namespace="gpushare")
        assert not has_turn(second)
        clock.seconds += DURATION_SECONDS - 1


@pytest.mark.parametrize("attempts", [False, True], ids=["waiting", "trying again and again"])
def test_a_failed_node_that_runs_on_keeps_its_turn(on: On, clock: Skips, attempts: bool) -> None:
    first, second = on("n1"), on("n2")
    first.take_turn(1)
    for _ in range(40):
        clock.seconds += 100
        assert not attempts or has_turn(first)
        first.renew_turn()
        assert not has_turn(second)


def test_renewing_writes_every_five_minutes_only(api: ApiServer, on: On, clock: Skips) -> None:
    first = on("n1")
    first.take_turn(1)
    for _ in range(600):
        clock.seconds += 1
        first.renew_turn()
    assert verbs(api) == ["POST", "PUT", "PUT"]


def test_who_lost_its_turn_is_told_and_queues_again(api: ApiServer, on: On, clock: Skips) -> None:
    first, second = on("n1"), on("n2")
    first.take_turn(1)
    second.take_turn(1)
    clock.seconds += DURATION_SECONDS + 1
    assert has_turn(second)
    with pytest.raises(ClusterError) as told:
        first.renew_turn()
    assert told.value.status == 404
    assert not has_turn(first)
    assert has_turn(second)
    first.end_turn()
    assert [one["spec"]["holderIdentity"] for one in api.leases()] == ["n2"]


def test_a_holder_that_renews_in_the_moment_of_its_expiry_keeps_its_turn(api: ApiServer, on: On, clock: Skips) -> None:
    first, second = on("n1"), on("n2")
    first.take_turn(1)
    second.take_turn(1)
    clock.seconds += DURATION_SECONDS + 1
    api.before("DELETE", first.renew_turn)
    assert not has_turn(second)
    assert has_turn(first)


def test_of_many_that_come_at_once_as_many_as_the_limit_have_a_turn(api: ApiServer, tmp_path: Path) -> None:
    got: list[int] = []

    def race(node: str) -> None:
        api.add_node(node)
        one = server(api, tmp_path, node=node)
        got.append(one.take_turn(2).rounds)
        one.close()

    threads = [threading.Thread(target=race, args=(f"r{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got.count(0) == 2
    assert verbs(api) == ["POST"] * 8


@pytest.mark.parametrize("seed", range(20))
def test_whatever_nodes_do_no_more_than_the_limit_are_changed_at_once(on: On, clock: Skips, seed: int) -> None:
    """Nodes come, are changed, die and come back in any order. A turn lives as long as its Lease is renewed."""
    random, limit = Random(seed), 3
    alive = {f"n{number}": on(f"n{number}") for number in range(9)}
    changing: set[str] = set()
    changed = 0
    for _ in range(300):
        clock.seconds += random.uniform(0, 60)
        node = random.choice(sorted(alive))
        for holder in changing:
            alive[holder].renew_turn()
        if node in changing and random.random() < 0.4:
            alive[node].end_turn()
            changing.remove(node)
            changed += 1
        elif random.random() < 0.05:
            # Its new pod does not go on with the change before it has found the turn again.
            alive[node] = on(node)
            changing.discard(node)
        elif has_turn(alive[node], limit):
            changing.add(node)
        else:
            assert node not in changing
        assert len(changing) <= limit
    assert changed >= 10


def test_a_smaller_limit_counts_the_turns_that_are_out(on: On) -> None:
    nodes = [on(f"n{number}") for number in (1, 2, 3)]
    assert [has_turn(one, 3) for one in nodes] == [True] * 3
    nodes[0].end_turn()
    late = on("n4")
    assert not has_turn(late, 1)
    assert has_turn(late, 3)


def test_a_lost_answer_makes_no_second_place(api: ApiServer, on: On) -> None:
    first = on("n1")
    api.lose("POST")
    with pytest.raises(ClusterError):
        first.take_turn(2)
    assert has_turn(first, 2)
    assert len(api.leases()) == 1


def test_the_queue_of_another_pool_is_not_counted(api: ApiServer, on: On) -> None:
    api.add("leases", "gpushare-train-b.x", {
        "metadata": {"labels": {"gpushare.dev/pool": "train-b"}}, "spec": {"holderIdentity": "x"}}, namespace="gpushare")
    assert has_turn(on("n1"))


@pytest.mark.parametrize("content", [{}, {"spec": {}}, {"spec": None}])
def test_a_lease_that_stands_for_no_node_has_no_turn(api: ApiServer, on: On, content: dict[str, object]) -> None:
    api.add("leases", "of-somebody", {"metadata": {"labels": {"gpushare.dev/pool": "train"}}, **content}, namespace="gpushare")
    assert has_turn(on("n1"))


def test_a_lease_of_our_name_that_is_not_of_the_queue_is_named(api: ApiServer, on: On) -> None:
    api.add("leases", "gpushare-train.n1", {"metadata": {}, "spec": {"holderIdentity": "n1"}}, namespace="gpushare")
    with pytest.raises(ClusterError, match=r"gpushare-train\.n1.*delete it"):
        on("n1").take_turn(1)


def test_a_lease_goes_with_its_daemonset(api: ApiServer, on: On) -> None:
    daemonset = api.add_daemonset("gpushare-train")
    on("n1").take_turn(1)
    (owner,) = api.leases()[0]["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gpushare-train",
                     "uid": daemonset["metadata"]["uid"], "blockOwnerDeletion": False}


def test_without_an_answer_there_is_no_turn(api: ApiServer, on: On) -> None:
    first = on("n1")
    api.fail("leases", 403)
    with pytest.raises(ClusterError):
        first.take_turn(1)
