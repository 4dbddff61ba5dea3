"""What is told: once, counted, in the right namespace, never in anybody's way."""

import pytest

from gpushare_node.adapters.kube.cluster import Event, EventCounts, EventType, PodView
from gpushare_node.adapters.kube.connection import Connection
from gpushare_node.adapters.kube.events import MAX_AT_ONCE, MAX_REMEMBERED, MAX_WAITING, EventRecorder
from gpushare_node.contract.struct import replace
from tests.node.adapters.kube.kube_fixture import FakeClock, place
from tests.support.fake_api.server import ApiServer

POD = PodView(
    uids=("uid-p",),
    namespace="team-a",
    name="notebook",
    labels={},
    phase="Running",
    is_terminating=False,
    owner="",
    containers={},
)
KILLED = Event(type=EventType.WARNING, reason="GPUProcessKilled", message="used 9000 of 8192 MiB", pod=POD)
DONE = Event(type=EventType.NORMAL, reason="Partitioned", message="7 instances")


def make(connection: Connection, clock: FakeClock | None = None) -> EventRecorder:
    return EventRecorder(connection, place(), clock or FakeClock())


def test_event_involves_its_pod_or_node_as_kubectl_expects(api: ApiServer, connection: Connection) -> None:
    events = make(connection)
    events.add(KILLED)
    events.add(DONE)
    assert events.drain(5)
    (pod,), (node,) = api.events("team-a"), api.events("default")
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": "team-a", "name": "notebook", "uid": "uid-p"}
    assert pod["involvedObject"] == about
    assert node["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert (pod["type"], pod["reason"], pod["message"], pod["count"]) == ("Warning", KILLED.reason, KILLED.message, 1)
    assert pod["source"] == {"component": "gpushare-node", "host": "n1"}


def test_equal_events_are_aggregated_into_one_count_across_restarts(api: ApiServer, connection: Connection) -> None:
    events = make(connection)
    for _ in range(3):
        events.add(KILLED)
    assert events.drain(5)
    events.add(KILLED)
    assert events.drain(5)
    again = make(connection)
    again.add(KILLED)
    again.add(KILLED)
    assert again.drain(5)
    (event,) = api.events()
    assert event["count"] == 6


def test_expired_event_is_recreated(api: ApiServer, connection: Connection) -> None:
    events = make(connection)
    events.add(DONE)
    assert events.drain(5)
    api.remove("events", api.events()[0]["metadata"]["name"], namespace="default")
    events.add(DONE)
    assert events.drain(5)
    assert api.events()[0]["count"] == 1


@pytest.mark.failure_case(70)
def test_events_are_counted_and_dropped_without_permission_to_write_them(api: ApiServer, connection: Connection) -> None:
    api.fail("/events", 403)
    events = make(connection)
    events.add(KILLED)
    events.add(DONE)
    assert events.drain(5)
    assert (events.event_counts().refused, events.event_counts().sent) == (2, 0)
    assert len(api.requests) == 2


@pytest.mark.failure_case(29)
def test_events_are_retried_while_the_api_server_is_still_loading_its_roles(
    api: ApiServer,
    connection: Connection,
) -> None:
    clock = FakeClock()
    events = make(connection, clock)
    events.add(KILLED)
    api.fail("/team-a/events", 403, times=3)
    events.deliver()
    events.add(DONE)
    events.deliver()
    assert [event["reason"] for event in api.events()] == [DONE.reason], "others are sent meanwhile"
    for _ in range(15):
        clock.sleep(1.0)
        events.deliver()
    assert {event["reason"] for event in api.events()} == {DONE.reason, KILLED.reason}
    assert events.event_counts().refused == 0


@pytest.mark.failure_case(70)
def test_event_is_dropped_after_being_forbidden_for_a_minute(api: ApiServer, connection: Connection) -> None:
    events = make(connection, FakeClock(limit_seconds=120))
    api.fail("/events", 403)
    events.add(KILLED)
    events.run()
    assert events.event_counts().refused == 1
    assert len(api.requests) == 13, "every five seconds"


@pytest.mark.failure_case(29)
def test_events_are_queued_with_growing_backoff_while_the_server_is_down(api: ApiServer, connection: Connection) -> None:
    clock = FakeClock(limit_seconds=600)
    events = make(connection, clock)
    events.add(KILLED)
    api.down()
    events.run()
    waits = [pause for pause in clock.pauses if pause >= 1.0]
    assert waits[0] <= 2.0
    assert max(waits) > 30.0
    assert max(waits) <= 60.0
    api.up()
    assert events.drain(5)
    assert api.events()[0]["count"] == 1


def test_lost_response_creates_no_duplicate_event(api: ApiServer, connection: Connection) -> None:
    events = make(connection)
    events.add(KILLED)
    api.lose("POST")
    assert events.drain(30)
    assert len(api.events()) == 1


def test_totals_never_fall_however_many_events_are_remembered(api: ApiServer, connection: Connection) -> None:
    events = make(connection)
    for number in range(MAX_REMEMBERED + 10):
        events.add(replace(KILLED, message=f"{number}"))
        assert events.drain(5)
    assert events.event_counts() == EventCounts(sent=MAX_REMEMBERED + 10)


def test_full_event_queue_drops_the_oldest_event_of_the_busiest_pod(api: ApiServer, connection: Connection) -> None:
    events = make(connection)
    events.add(DONE)
    events.add(KILLED)
    noisy = replace(POD, uids=("uid-noisy",), name="noisy")
    for number in range(MAX_WAITING + 50):
        events.add(replace(KILLED, pod=noisy, message=f"{number}"))
    assert events.event_counts().dropped == 52
    assert events.drain(5)
    assert len(api.events()) == MAX_WAITING
    messages = {event["message"] for event in api.events()}
    assert {DONE.message, KILLED.message, f"{MAX_WAITING + 49}"} <= messages
    assert "0" not in messages


def test_events_are_rate_limited_to_one_per_second(api: ApiServer, connection: Connection) -> None:
    clock = FakeClock(limit_seconds=20)
    events = make(connection, clock)
    for number in range(100):
        events.add(replace(DONE, message=f"{number}"))
    events.run()
    assert MAX_AT_ONCE + 18 <= len(api.events()) <= MAX_AT_ONCE + 22


def test_adding_an_event_does_not_block_on_the_server(api: ApiServer, connection: Connection) -> None:
    api.hang("/events")
    make(connection).add(KILLED)
    assert api.requests == []


def test_names_are_valid_for_the_longest_pods(api: ApiServer, connection: Connection) -> None:
    events = make(connection)
    events.add(replace(KILLED, pod=replace(POD, name="a" * 229 + "." + "b" * 23)))
    assert events.drain(5)
    name = api.events()[0]["metadata"]["name"]
    assert len(name) <= 253
    assert ".." not in name
