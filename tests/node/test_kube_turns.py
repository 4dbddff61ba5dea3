"""The pool's turns: as many as the limit, one to each node, nobody's clock but the own."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpushare_node.kube.cluster import ClusterError, Turn
from gpushare_node.kube.leases import DURATION_SECONDS, RENEW_SECONDS
from gpushare_node.kube.server import Server
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
        made.append(server(api, tmp_path, clock, node=node))
        return made[-1]

    yield start
    for one in made:
        one.close()


On = Callable[[str], Server]


def holders(api: ApiServer) -> dict[str, str]:
    return {one["metadata"]["name"]: one["spec"].get("holderIdentity", "") for one in api.leases()}


def test_as_many_nodes_have_a_turn_as_the_limit_says(api: ApiServer, on: On) -> None:
    turns = [on(f"n{number}").take_turn(2) for number in range(4)]
    first, second, *others = turns
    assert first is not None
    assert second is not None
    assert others == [None, None]
    assert holders(api) == {first.name: "n0", second.name: "n1"}
    assert holders(api).keys() == {"gpushare-train-turn-0", "gpushare-train-turn-1"}


def test_a_turn_that_is_given_back_is_the_nexts(api: ApiServer, on: On) -> None:
    first, second = on("n1"), on("n2")
    turn = first.take_turn(1)
    assert turn is not None
    assert second.take_turn(1) is None
    first.end_turn(turn)
    assert second.take_turn(1) == turn
    assert holders(api) == {"gpushare-train-turn-0": "n2"}


def test_a_new_pod_finds_the_turn_that_its_node_has(api: ApiServer, on: On) -> None:
    turn = on("n1").take_turn(2)
    assert on("n1").take_turn(2) == turn
    assert len(api.leases()) == 1


@pytest.mark.parametrize(
    ("limit", "nodes", "turns"), [("10%", 200, 20), ("10%", 19, 1), ("10%", 5, 1), ("50%", 0, 1), (3, 2, 3)])
def test_a_percentage_is_of_the_nodes_that_the_pool_has(
    api: ApiServer, on: On, limit: int | str, nodes: int, turns: int,
) -> None:
    api.add_daemonset("gpushare-train", desired=nodes)
    got = [on(f"n{number}").take_turn(limit) for number in range(turns + 1)]
    assert [turn is not None for turn in got] == [True] * turns + [False]


def test_a_turn_that_nobody_renews_expires_by_the_watchers_clock(api: ApiServer, on: On, clock: Skips) -> None:
    on("n1").take_turn(1)
    second = on("n2")
    clock.seconds += 10 * DURATION_SECONDS  # nobody has looked yet: how long it has been so is not known
    assert second.take_turn(1) is None
    clock.seconds += DURATION_SECONDS
    assert second.take_turn(1) is None
    clock.seconds += 1
    assert second.take_turn(1) is not None
    assert api.leases()[0]["spec"]["leaseTransitions"] == 1


@pytest.mark.parametrize("year", ["1990", "2190"])
def test_a_holder_whose_clock_is_wrong_by_years_keeps_its_turn_while_it_renews(
    api: ApiServer, on: On, clock: Skips, year: str,
) -> None:
    on("n1").take_turn(1)
    second = on("n2")
    for hour in range(5):
        time = f"{year}-01-01T0{hour}:00:00.000000Z"
        renewed = {"spec": {"renewTime": time}}
        api.patch("leases", "gpushare-train-turn-0", renewed, manager="n1", namespace="gpushare")
        assert second.take_turn(1) is None
        clock.seconds += DURATION_SECONDS - 1


def test_a_failed_node_that_renews_keeps_its_turn(on: On, clock: Skips) -> None:
    first, second = on("n1"), on("n2")
    turn = first.take_turn(1)
    assert turn is not None
    for _ in range(20):
        clock.seconds += RENEW_SECONDS
        first.renew_turn(turn)
        assert second.take_turn(1) is None


def test_renewing_writes_every_five_minutes_only(api: ApiServer, on: On, clock: Skips) -> None:
    first = on("n1")
    turn = first.take_turn(1)
    assert turn is not None
    for _ in range(600):
        clock.seconds += 1
        first.renew_turn(turn)
    assert [method for method, _ in api.writes("leases")] == ["POST", "PUT", "PUT"]


def test_who_lost_its_turn_is_told_and_gives_nothing_back(api: ApiServer, on: On, clock: Skips) -> None:
    first, second = on("n1"), on("n2")
    turn = first.take_turn(1)
    assert turn is not None
    assert second.take_turn(1) is None
    clock.seconds += DURATION_SECONDS + 1
    assert second.take_turn(1) == turn
    with pytest.raises(ClusterError, match="n2 has it now") as told:
        first.renew_turn(turn)
    assert told.value.status == 409
    first.end_turn(turn)
    assert holders(api) == {"gpushare-train-turn-0": "n2"}


@pytest.mark.parametrize("exists", [False, True])
def test_of_many_that_are_after_one_turn_at_once_one_gets_it(api: ApiServer, tmp_path: Path, exists: bool) -> None:
    if exists:
        before = server(api, tmp_path, node="n0")
        before.end_turn(before.take_turn(1) or Turn(name=""))
        before.close()
    got: list[Turn | None] = []

    def race(node: str) -> None:
        one = server(api, tmp_path, node=node)
        got.append(one.take_turn(1))
        one.close()

    threads = [threading.Thread(target=race, args=(f"r{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([turn for turn in got if turn is not None]) == 1
    assert len(api.leases()) == 1


def test_a_free_turn_that_another_takes_first_is_not_taken_from_it(api: ApiServer, on: On) -> None:
    before, slow, quick = on("n0"), on("n1"), on("n2")
    before.end_turn(before.take_turn(1) or Turn(name=""))
    api.before("PUT", lambda: quick.take_turn(1))
    assert slow.take_turn(1) is None
    assert holders(api) == {"gpushare-train-turn-0": "n2"}


def test_a_smaller_limit_counts_the_turns_that_are_out(on: On) -> None:
    first = on("n1")
    turn = first.take_turn(3)
    for node in ("n2", "n3"):
        assert on(node).take_turn(3) is not None
    first.end_turn(turn or Turn(name=""))
    assert on("n4").take_turn(1) is None
    assert on("n4").take_turn(3) == turn


def test_a_lost_answer_makes_no_second_turn(api: ApiServer, on: On) -> None:
    first = on("n1")
    api.lose("POST")
    with pytest.raises(ClusterError):
        first.take_turn(2)
    turn = first.take_turn(2)
    (lease,) = api.leases()
    assert turn == Turn(name=lease["metadata"]["name"])


def test_turns_of_another_pool_are_not_counted(api: ApiServer, on: On) -> None:
    api.add("leases", "gpushare-train-b-turn-0", {
        "metadata": {"labels": {"gpushare.dev/pool": "train-b"}}, "spec": {"holderIdentity": "x"}}, namespace="gpushare")
    assert on("n1").take_turn(1) == Turn(name="gpushare-train-turn-0")


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
