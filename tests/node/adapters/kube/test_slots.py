"""The pool's slots: who has one, who waits, and what a node that waits or is changed costs the API server."""

import itertools
from pathlib import Path

import pytest

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.rollout_slots import (
    ASK_SECONDS,
    DURATION_SECONDS,
    MAX_POLL_SECONDS,
    POLL_SECONDS,
    RENEW_SECONDS,
)
from tests.node.adapters.kube.kube_fixture import FakeClock
from tests.node.adapters.kube.slots import On, has_slot, holders, takes, verbs
from tests.support import scale
from tests.support.fake_api.server import ApiServer

WAITS = 1000 if scale.is_long else 200


def test_slots_are_limited_to_the_configured_number(api: ApiServer, connected: On) -> None:
    assert [takes(connected(f"n{number}"), 3) for number in range(5)] == [True, True, True, False, False]
    assert sorted(holders(api)) == ["gpushare-train.0", "gpushare-train.1", "gpushare-train.2"]
    assert sorted(holders(api).values()) == ["n0", "n1", "n2"]


def test_a_slot_that_is_given_back_is_free(api: ApiServer, connected: On) -> None:
    first, second = connected("n1"), connected("n2")
    assert has_slot(first)
    assert not has_slot(second)
    first.release_slot()
    assert api.leases() == []
    assert has_slot(second)


@pytest.mark.parametrize("waiting", [1, 200])
def test_requests_of_a_waiting_node_are_independent_of_the_number_waiting(
    api: ApiServer,
    connected: On,
    clock: FakeClock,
    waiting: int,
) -> None:
    clock.on_sleep = lambda: setattr(clock, "seconds", 1000.0)
    api.add_daemonset("gpushare-train", desired=100)
    for number in range(10):
        takes(connected(f"holder{number}"), "10%")
    others = [connected(f"n{number}") for number in range(waiting)]
    for one in others:
        assert not has_slot(one, "10%")
    api.forget_requests()
    for _ in range(10):
        position = others[0].take_slot("10%")
        assert not position.is_held
        assert 0.75 * POLL_SECONDS <= position.pause_seconds <= POLL_SECONDS
    asked = [(method, path.partition("?")[0].rpartition("/")[2]) for method, path in api.requests]
    assert len(asked) == 10
    assert all(method == "GET" and name.startswith("gpushare-train.") for method, name in asked), "one Lease, by its name"


def test_waiting_writes_nothing_and_a_slot_costs_two_writes(api: ApiServer, connected: On, clock: FakeClock) -> None:
    first, second = connected("n1"), connected("n2")
    first.take_slot(1)
    api.forget_requests()
    for _ in range(WAITS):
        clock.seconds += 100
        first.renew_slot()
        assert not has_slot(second)
    first.release_slot()
    assert has_slot(second)
    second.renew_slot()
    second.release_slot()
    assert verbs(api).count("PUT") == WAITS * 100 // RENEW_SECONDS, "of the first, and no other"
    assert [verb for verb in verbs(api) if verb != "PUT"] == ["DELETE", "POST", "DELETE"]


def test_losing_the_race_for_a_slot_doubles_the_backoff(api: ApiServer, connected: On, clock: FakeClock) -> None:
    """On a slow API server many see the same slot free: that must not cost more and more writes."""
    one, pauses = connected("n1"), []
    for number in range(8):
        rival = connected(f"rival{number}")
        api.before("POST", lambda rival=rival: has_slot(rival))
        pauses.append(one.take_slot(1).pause_seconds)
        rival.release_slot()
    assert all(0.75 * POLL_SECONDS * 2 ** min(lost, 4) <= pause for lost, pause in enumerate(pauses, start=1))
    assert max(pauses) <= MAX_POLL_SECONDS
    assert takes(one, 1)


def test_a_slot_that_another_node_has_just_taken_costs_no_write(api: ApiServer, connected: On) -> None:
    """What is read from a cache may be a moment old."""
    one, rival = connected("n1"), connected("n2")
    api.add_daemonset("gpushare-train")
    looks = itertools.count()
    api.before("daemonsets", lambda: next(looks) == 1 and has_slot(rival), times=9)  # when its owner is read
    assert not has_slot(one)
    assert list(holders(api).values()) == ["n2"]
    assert verbs(api).count("POST") == 1


def test_nodes_started_together_look_for_slots_staggered(api: ApiServer, connected: On, clock: FakeClock) -> None:
    api.add_daemonset("gpushare-train", desired=1000)
    for number in range(20):
        has_slot(connected(f"n{number}"), "10%")
    assert len({round(pause, 3) for pause in clock.pauses}) >= 10
    assert max(clock.pauses) <= 10


def test_a_new_pod_finds_the_slot_that_its_node_has(api: ApiServer, connected: On) -> None:
    assert takes(connected("n1"), 50)
    assert connected("n1").find_slot()
    assert has_slot(connected("n1"), 50)
    assert not connected("n3").find_slot()
    assert len(holders(api)) == 1


def test_pod_killed_before_taking_its_slot_finds_none(api: ApiServer, connected: On, tmp_path: Path) -> None:
    StateDir(tmp_path / "n1").keep_slot("gpushare-train.0")
    has_slot(connected("n2"))
    assert not connected("n1").find_slot()
    assert StateDir(tmp_path / "n1").slot() is None


def test_slot_of_another_pool_is_not_found(api: ApiServer, connected: On, tmp_path: Path) -> None:
    StateDir(tmp_path / "n1").keep_slot("gpushare-train-b.0")
    api.forget_requests()
    assert not connected("n1").find_slot()
    assert api.requests == []


def test_recovered_slot_is_renewed_immediately(api: ApiServer, connected: On, clock: FakeClock) -> None:
    connected("n1").take_slot(1)
    second = connected("n2")
    second.take_slot(1)
    clock.seconds += DURATION_SECONDS - 1
    assert has_slot(connected("n1"))
    clock.seconds += 2
    assert not has_slot(second)


def test_slot_is_renewed_first_after_a_long_pause(api: ApiServer, connected: On, clock: FakeClock) -> None:
    first, second = connected("n1"), connected("n2")
    first.take_slot(1)
    second.take_slot(1)
    clock.seconds += DURATION_SECONDS - 1
    api.forget_requests()
    assert has_slot(first)
    assert verbs(api) == ["PUT"]
    clock.seconds += 2
    assert not has_slot(second)


def test_lost_response_creates_no_second_slot(api: ApiServer, connected: On) -> None:
    first = connected("n1")
    api.lose("POST")
    with pytest.raises(ClusterError):
        first.take_slot(1)
    assert takes(first, 5)
    assert list(holders(api)) == ["gpushare-train.0"]


@pytest.mark.parametrize("content", [{}, {"spec": {}}, {"spec": None}, {"spec": {"holderIdentity": ""}}])
def test_a_lease_that_is_for_no_node_is_a_free_slot(api: ApiServer, connected: On, content: dict[str, object]) -> None:
    api.add("leases", "gpushare-train.0", {"metadata": {}, **content}, namespace="gpushare")
    assert has_slot(connected("n1"))
    assert holders(api) == {"gpushare-train.0": "n1"}


def test_lease_is_owned_by_its_daemonset(api: ApiServer, connected: On) -> None:
    daemonset = api.add_daemonset("gpushare-train")
    takes(connected("n1"), 9)
    for lease in api.leases():
        (owner,) = lease["metadata"]["ownerReferences"]
        assert owner == {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": "gpushare-train",
            "uid": daemonset["metadata"]["uid"],
            "blockOwnerDeletion": False,
        }


def test_server_error_while_taking_a_slot_is_raised(api: ApiServer, connected: On) -> None:
    first = connected("n1")
    api.fail("leases", 403)
    with pytest.raises(ClusterError):
        first.take_slot(1)


def test_slot_protocol_intervals_are_consistent() -> None:
    """A holder that misses two renewals has not expired, and a node that lost every race still looks before it does."""
    assert POLL_SECONDS < ASK_SECONDS < MAX_POLL_SECONDS < 2 * RENEW_SECONDS < DURATION_SECONDS
