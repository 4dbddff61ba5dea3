"""The pool's turns: as many as the limit, whatever waits behind them; few writes in vain, nobody's clock but the own."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from gpushare_node.host.folder import Folder
from gpushare_node.kube import leases
from gpushare_node.kube.cluster import ClusterError
from gpushare_node.kube.leases import ASK_SECONDS, DURATION_SECONDS, MAX_POLL_SECONDS, POLL_SECONDS, RENEW_SECONDS
from gpushare_node.kube.server import Server
from tests.node.api_refusals import Refusal
from tests.node.api_server import ApiServer
from tests.node.kube_scene import Skips, server


@pytest.fixture
def clock() -> Skips:
    return Skips()


@pytest.fixture
def on(api: ApiServer, tmp_path: Path, clock: Skips) -> Iterator[Callable[[str], Server]]:
    """The runtime of the node of that name, started anew; what its folder remembers is its own."""
    made: list[Server] = []

    def start(node: str) -> Server:
        with suppress(Refusal):
            api.add_node(node)
        made.append(server(api, tmp_path, clock, node=node, memory=Folder(tmp_path / node)))
        return made[-1]

    yield start
    for one in made:
        one.close()


On = Callable[[str], Server]


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are looked at one after the other in place of at random."""
    looks = itertools.count()
    monkeypatch.setattr(leases.random, "randrange", lambda slots: next(looks) % slots)


def has_turn(one: Server, limit: int | str = 1) -> bool:
    return one.take_turn(limit).is_held


def takes(one: Server, limit: int | str) -> bool:
    """Whether it finds a free slot, if it looks at every slot a few times."""
    tries = 3 * limit if isinstance(limit, int) else 60
    return any(has_turn(one, limit) for _ in range(tries))


def verbs(api: ApiServer) -> list[str]:
    return [method for method, _ in api.writes("leases")]


def holders(api: ApiServer) -> dict[str, str]:
    return {one["metadata"]["name"]: one["spec"]["holderIdentity"] for one in api.leases() if "holderIdentity" in one["spec"]}


def test_as_many_nodes_have_a_turn_as_the_limit_says(api: ApiServer, on: On) -> None:
    assert [takes(on(f"n{number}"), 3) for number in range(5)] == [True, True, True, False, False]
    assert sorted(holders(api)) == ["gpushare-train.0", "gpushare-train.1", "gpushare-train.2"]
    assert sorted(holders(api).values()) == ["n0", "n1", "n2"]


def test_a_turn_that_is_given_back_is_free(api: ApiServer, on: On) -> None:
    first, second = on("n1"), on("n2")
    assert has_turn(first)
    assert not has_turn(second)
    first.end_turn()
    assert api.leases() == []
    assert has_turn(second)


@pytest.mark.parametrize("waiting", [1, 200])
def test_what_a_waiting_node_costs_does_not_grow_with_the_number_of_those_that_wait(
    api: ApiServer, on: On, clock: Skips, waiting: int,
) -> None:
    clock.on_sleep = lambda: setattr(clock, "seconds", 1000.0)
    api.add_daemonset("gpushare-train", desired=100)
    for number in range(10):
        takes(on(f"holder{number}"), "10%")
    others = [on(f"n{number}") for number in range(waiting)]
    for one in others:
        assert not has_turn(one, "10%")
    api.forget_requests()
    for _ in range(10):
        turn = others[0].take_turn("10%")
        assert not turn.is_held
        assert 0.75 * POLL_SECONDS <= turn.pause_seconds <= POLL_SECONDS
    asked = [(method, path.partition("?")[0].rpartition("/")[2]) for method, path in api.requests]
    assert len(asked) == 10
    assert all(method == "GET" and name.startswith("gpushare-train.") for method, name in asked), "one Lease, by its name"


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
    assert [verb for verb in verbs(api) if verb != "PUT"] == ["DELETE", "POST", "DELETE"]


def test_who_loses_the_race_for_a_slot_waits_twice_as_long_each_time(api: ApiServer, on: On, clock: Skips) -> None:
    """On a slow API server many see the same slot free: that must not cost more and more writes."""
    one, pauses = on("n1"), []
    for number in range(8):
        rival = on(f"rival{number}")
        api.before("POST", lambda rival=rival: has_turn(rival))
        pauses.append(one.take_turn(1).pause_seconds)
        rival.end_turn()
    assert all(0.75 * POLL_SECONDS * 2 ** min(lost, 4) <= pause for lost, pause in enumerate(pauses, start=1))
    assert max(pauses) <= MAX_POLL_SECONDS
    assert takes(one, 1)


def test_a_slot_that_another_node_has_just_taken_costs_no_write(api: ApiServer, on: On) -> None:
    """What is read from a cache may be a moment old."""
    one, rival = on("n1"), on("n2")
    api.add_daemonset("gpushare-train")
    looks = itertools.count()
    api.before("daemonsets", lambda: next(looks) == 1 and has_turn(rival), times=9)  # when its owner is read
    assert not has_turn(one)
    assert list(holders(api).values()) == ["n2"]
    assert verbs(api).count("POST") == 1


def test_nodes_that_start_together_look_apart(api: ApiServer, on: On, clock: Skips) -> None:
    api.add_daemonset("gpushare-train", desired=1000)
    for number in range(20):
        has_turn(on(f"n{number}"), "10%")
    assert len({round(pause, 3) for pause in clock.pauses}) >= 10
    assert max(clock.pauses) <= 10


def test_a_new_pod_finds_the_turn_that_its_node_has(api: ApiServer, on: On) -> None:
    assert takes(on("n1"), 50)
    assert on("n1").find_turn()
    assert has_turn(on("n1"), 50)
    assert not on("n3").find_turn()
    assert len(holders(api)) == 1


def test_a_pod_that_died_before_it_took_its_turn_finds_none(api: ApiServer, on: On, tmp_path: Path) -> None:
    Folder(tmp_path / "n1").keep_turn("gpushare-train.0")
    has_turn(on("n2"))
    assert not on("n1").find_turn()
    assert Folder(tmp_path / "n1").turn() is None


def test_the_turn_of_another_pool_is_not_this_ones(api: ApiServer, on: On, tmp_path: Path) -> None:
    Folder(tmp_path / "n1").keep_turn("gpushare-train-b.0")
    api.forget_requests()
    assert not on("n1").find_turn()
    assert api.requests == []


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
    got = [takes(on(f"n{number}"), limit) for number in range(turns + 1)]
    assert got == [True] * turns + [False]


def test_a_turn_that_nobody_renews_expires_by_the_watchers_clock_and_that_is_told(
    api: ApiServer, on: On, clock: Skips,
) -> None:
    on("n1").take_turn(1)
    second = on("n2")
    clock.seconds += 10 * DURATION_SECONDS  # nobody has looked yet: how long it has been so is not known
    assert not has_turn(second)
    clock.seconds += DURATION_SECONDS
    assert not has_turn(second)
    clock.seconds += 1
    api.forget_requests()
    assert second.take_turn(1).former == "n1"
    assert verbs(api) == ["PUT"]
    assert holders(api) == {"gpushare-train.0": "n2"}
    second._events.deliver()
    (told,) = api.all("events")
    assert (told["reason"], "Node n1 stopped renewing its turn" in told["message"]) == ("GPUTurnExpired", True)


def test_the_turn_of_a_node_that_is_no_more_is_free_within_a_minute(api: ApiServer, on: On, clock: Skips) -> None:
    on("n1").take_turn(1)
    second = on("n2")
    for _ in range(3):
        clock.seconds += POLL_SECONDS
        assert not has_turn(second)
    api.remove("nodes", "n1")
    clock.seconds += ASK_SECONDS
    assert has_turn(second)


def test_whether_a_node_still_exists_is_asked_once_a_minute_at_most(api: ApiServer, on: On, clock: Skips) -> None:
    first, second = on("n1"), on("n2")
    first.take_turn(1)
    second.take_turn(1)
    api.forget_requests()
    for _ in range(60):
        clock.seconds += POLL_SECONDS
        second.take_turn(1)
        first.renew_turn()
    assert len([path for _, path in api.requests if path.startswith("/api/v1/nodes/")]) <= 60 * POLL_SECONDS / ASK_SECONDS


@pytest.mark.parametrize("year", ["1990", "2190"])
def test_a_holder_whose_clock_is_wrong_by_years_keeps_its_turn_while_it_renews(
    api: ApiServer, on: On, clock: Skips, year: str,
) -> None:
    on("n1").take_turn(1)
    second = on("n2")
    for hour in range(5):
        time = f"{year}-01-01T0{hour}:00:00.000000Z"
        renewed = {"spec": {"acquireTime": time, "renewTime": time}}
        api.patch("leases", "gpushare-train.0", renewed, manager="n1", namespace="gpushare")
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


def test_a_renewal_whose_answer_was_lost_is_no_lost_turn(api: ApiServer, on: On, clock: Skips) -> None:
    first = on("n1")
    first.take_turn(1)
    clock.seconds += RENEW_SECONDS
    api.lose("PUT")
    with pytest.raises(ClusterError):
        first.renew_turn()
    first.renew_turn()
    api.patch("leases", "gpushare-train.0", {"spec": {"leaseTransitions": 7}}, manager="n1", namespace="gpushare")
    first.end_turn()
    assert api.leases() == []


def test_who_lost_its_turn_is_told_and_waits_again(api: ApiServer, on: On, clock: Skips) -> None:
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
    assert holders(api) == {"gpushare-train.0": "n2"}


def test_a_holder_that_renews_in_the_moment_of_its_expiry_keeps_its_turn(api: ApiServer, on: On, clock: Skips) -> None:
    first, second = on("n1"), on("n2")
    first.take_turn(1)
    second.take_turn(1)
    clock.seconds += DURATION_SECONDS + 1
    api.before("PUT", first.renew_turn)
    assert not has_turn(second)
    assert has_turn(first)


def test_who_gives_back_what_was_taken_over_meanwhile_leaves_it_alone(api: ApiServer, on: On, clock: Skips) -> None:
    first, second = on("n1"), on("n2")
    first.take_turn(1)
    second.take_turn(1)
    clock.seconds += DURATION_SECONDS + 1
    assert has_turn(second)
    first.end_turn()
    assert holders(api) == {"gpushare-train.0": "n2"}


def test_of_many_that_come_at_once_as_many_as_the_limit_have_a_turn(api: ApiServer, tmp_path: Path) -> None:
    got: list[bool] = []

    def race(node: str) -> None:
        api.add_node(node)
        one = server(api, tmp_path, node=node, memory=Folder(tmp_path / node))
        got.append(takes(one, 2))
        one.close()

    threads = [threading.Thread(target=race, args=(f"r{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got.count(True) == 2
    assert len(holders(api)) == 2


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


@pytest.mark.parametrize("smaller", [1, 2, 5])
def test_a_smaller_limit_counts_the_turns_that_are_out(api: ApiServer, on: On, smaller: int) -> None:
    nodes = [on(f"n{number}") for number in range(12)]
    assert [takes(one, 12) for one in nodes] == [True] * 12
    numbers = {name.rpartition(".")[2]: node for name, node in holders(api).items()}
    late = on("late")
    for slot in (*range(11), 11):
        assert not takes(late, smaller), slot
        nodes[int(numbers[str(slot)].removeprefix("n"))].end_turn()
    assert takes(late, smaller)
    assert [takes(on(f"later{number}"), smaller) for number in range(smaller)] == [True] * (smaller - 1) + [False]


def test_a_larger_limit_is_in_force_at_once(api: ApiServer, on: On) -> None:
    assert takes(on("n1"), 1)
    assert [takes(on(f"m{number}"), 4) for number in range(4)] == [True] * 3 + [False]


def test_a_smaller_limit_costs_few_requests_at_one_look(api: ApiServer, on: On) -> None:
    """From 500 to 5: it is looked at bit by bit."""
    for number in range(20):
        has_turn(on(f"n{number}"), 500)
    late = on("late")
    has_turn(late, 5)
    api.forget_requests()
    for _ in range(10):
        before = len(api.requests)
        has_turn(late, 5)
        assert len(api.requests) - before <= 6


def test_an_expired_turn_beyond_a_smaller_limit_does_not_count(on: On, clock: Skips) -> None:
    dead = [on(f"n{number}") for number in range(4)]
    assert all(takes(one, 4) for one in dead)
    late = on("late")
    for _ in range(3):
        assert not takes(late, 1)
        clock.seconds += DURATION_SECONDS + 1
    assert any(takes(late, 1) or clock.sleep(DURATION_SECONDS) for _ in range(4))


def test_a_lost_answer_makes_no_second_turn(api: ApiServer, on: On) -> None:
    first = on("n1")
    api.lose("POST")
    with pytest.raises(ClusterError):
        first.take_turn(1)
    assert takes(first, 5)
    assert list(holders(api)) == ["gpushare-train.0"]


def test_the_turns_of_another_pool_are_not_counted(api: ApiServer, on: On) -> None:
    api.add("leases", "gpushare-train-b.0", {
        "metadata": {"labels": {"gpushare.dev/pool": "train-b"}}, "spec": {"holderIdentity": "x"}}, namespace="gpushare")
    assert has_turn(on("n1"))


@pytest.mark.parametrize("content", [{}, {"spec": {}}, {"spec": None}, {"spec": {"holderIdentity": ""}}])
def test_a_lease_that_stands_for_no_node_is_a_free_slot(api: ApiServer, on: On, content: dict[str, object]) -> None:
    api.add("leases", "gpushare-train.0", {"metadata": {}, **content}, namespace="gpushare")
    assert has_turn(on("n1"))
    assert holders(api) == {"gpushare-train.0": "n1"}


@pytest.mark.parametrize("text", ["", "x", "-3", "9" * 400, "²"])
def test_a_number_of_slots_that_nobody_can_read_is_written_anew(api: ApiServer, on: On, text: str) -> None:
    api.add("leases", "gpushare-train.slots", {"metadata": {"annotations": {"gpushare.dev/slots": text}}}, namespace="gpushare")
    assert [takes(on(f"n{number}"), 3) for number in range(4)] == [True, True, True, False]


def test_a_lease_goes_with_its_daemonset(api: ApiServer, on: On) -> None:
    daemonset = api.add_daemonset("gpushare-train")
    takes(on("n1"), 9)
    for lease in api.leases():
        (owner,) = lease["metadata"]["ownerReferences"]
        assert owner == {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gpushare-train",
                         "uid": daemonset["metadata"]["uid"], "blockOwnerDeletion": False}


def test_without_an_answer_there_is_no_turn(api: ApiServer, on: On) -> None:
    first = on("n1")
    api.fail("leases", 403)
    with pytest.raises(ClusterError):
        first.take_turn(1)


def test_the_pauses_of_the_protocol_fit_each_other() -> None:
    """A holder that misses two renewals has not expired, and a node that lost every race still looks before it does."""
    assert POLL_SECONDS < ASK_SECONDS < MAX_POLL_SECONDS < 2 * RENEW_SECONDS < DURATION_SECONDS
