"""How a slot is kept and how it ends: by renewal and expiry, by nobody's clock but the own."""

import pytest

from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.rollout_slots import ASK_SECONDS, DURATION_SECONDS, POLL_SECONDS, RENEW_SECONDS
from tests.node.adapters.kube.kube_fixture import FakeClock
from tests.node.adapters.kube.slots import On, has_slot, holders, verbs
from tests.support.fake_api.server import ApiServer


def test_unrenewed_slot_expires_by_the_observers_clock_and_is_reported(
    api: ApiServer,
    connected: On,
    clock: FakeClock,
) -> None:
    connected("n1").take_slot(1)
    second = connected("n2")
    clock.seconds += 10 * DURATION_SECONDS  # nobody has looked yet: how long it has been so is not known
    assert not has_slot(second)
    clock.seconds += DURATION_SECONDS
    assert not has_slot(second)
    clock.seconds += 1
    api.forget_requests()
    assert second.take_slot(1).former == "n1"
    assert verbs(api) == ["PUT"]
    assert holders(api) == {"gpushare-train.0": "n2"}
    second._events.deliver()
    (told,) = api.all("events")
    assert (told["reason"], "Node n1 stopped renewing its Lease" in told["message"]) == ("GPUTurnExpired", True)


def test_slot_of_a_deleted_node_is_free_within_a_minute(api: ApiServer, connected: On, clock: FakeClock) -> None:
    connected("n1").take_slot(1)
    second = connected("n2")
    for _ in range(3):
        clock.seconds += POLL_SECONDS
        assert not has_slot(second)
    api.remove("nodes", "n1")
    clock.seconds += ASK_SECONDS
    assert has_slot(second)


def test_node_existence_is_checked_at_most_once_a_minute(api: ApiServer, connected: On, clock: FakeClock) -> None:
    first, second = connected("n1"), connected("n2")
    first.take_slot(1)
    second.take_slot(1)
    api.forget_requests()
    for _ in range(60):
        clock.seconds += POLL_SECONDS
        second.take_slot(1)
        first.renew_slot()
    assert len([path for _, path in api.requests if path.startswith("/api/v1/nodes/")]) <= 60 * POLL_SECONDS / ASK_SECONDS


@pytest.mark.parametrize("year", ["1990", "2190"])
def test_a_holder_whose_clock_is_wrong_by_years_keeps_its_slot_while_it_renews(
    api: ApiServer,
    connected: On,
    clock: FakeClock,
    year: str,
) -> None:
    connected("n1").take_slot(1)
    second = connected("n2")
    for hour in range(5):
        time = f"{year}-01-01T0{hour}:00:00.000000Z"
        renewed = {"spec": {"acquireTime": time, "renewTime": time}}
        api.patch("leases", "gpushare-train.0", renewed, manager="n1", namespace="gpushare")
        assert not has_slot(second)
        clock.seconds += DURATION_SECONDS - 1


@pytest.mark.parametrize("attempts", [False, True], ids=["waiting", "trying again and again"])
def test_a_failed_node_that_runs_on_keeps_its_slot(connected: On, clock: FakeClock, attempts: bool) -> None:
    first, second = connected("n1"), connected("n2")
    first.take_slot(1)
    for _ in range(40):
        clock.seconds += 100
        assert not attempts or has_slot(first)
        first.renew_slot()
        assert not has_slot(second)


def test_renewing_writes_every_five_minutes_only(api: ApiServer, connected: On, clock: FakeClock) -> None:
    first = connected("n1")
    first.take_slot(1)
    for _ in range(600):
        clock.seconds += 1
        first.renew_slot()
    assert verbs(api) == ["POST", "PUT", "PUT"]


def test_renewal_with_a_lost_response_does_not_lose_the_slot(api: ApiServer, connected: On, clock: FakeClock) -> None:
    first = connected("n1")
    first.take_slot(1)
    clock.seconds += RENEW_SECONDS
    api.lose("PUT")
    with pytest.raises(ClusterError):
        first.renew_slot()
    first.renew_slot()
    api.patch("leases", "gpushare-train.0", {"spec": {"leaseTransitions": 7}}, manager="n1", namespace="gpushare")
    first.release_slot()
    assert api.leases() == []


def test_node_that_lost_its_slot_gets_an_error_and_waits_again(api: ApiServer, connected: On, clock: FakeClock) -> None:
    first, second = connected("n1"), connected("n2")
    first.take_slot(1)
    second.take_slot(1)
    clock.seconds += DURATION_SECONDS + 1
    assert has_slot(second)
    with pytest.raises(ClusterError) as told:
        first.renew_slot()
    assert told.value.status == 404
    assert not has_slot(first)
    assert has_slot(second)
    first.release_slot()
    assert holders(api) == {"gpushare-train.0": "n2"}


def test_a_holder_that_renews_in_the_moment_of_its_expiry_keeps_its_slot(
    api: ApiServer, connected: On, clock: FakeClock
) -> None:
    first, second = connected("n1"), connected("n2")
    first.take_slot(1)
    second.take_slot(1)
    clock.seconds += DURATION_SECONDS + 1
    api.before("PUT", first.renew_slot)
    assert not has_slot(second)
    assert has_slot(first)


def test_releasing_a_slot_taken_over_by_another_node_changes_nothing(api: ApiServer, connected: On, clock: FakeClock) -> None:
    first, second = connected("n1"), connected("n2")
    first.take_slot(1)
    second.take_slot(1)
    clock.seconds += DURATION_SECONDS + 1
    assert has_slot(second)
    first.release_slot()
    assert holders(api) == {"gpushare-train.0": "n2"}
