"""The pods and the node, watched over real HTTP, through everything that can happen to a watch."""

import gc
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpushare_node.adapters.kube.cluster import ClusterError, PodView
from gpushare_node.adapters.kube.connection import Connection
from gpushare_node.adapters.kube.informers import (
    MAX_PAUSE_SECONDS,
    RELIST_SECONDS,
    START_SECONDS,
    NodeInformer,
    PodInformer,
    SliceInformer,
)
from gpushare_node.adapters.kube.node_client import read_node_slices
from gpushare_node.adapters.kube.pod_identity import find_identity
from gpushare_node.adapters.kube.views import view_pod
from gpushare_node.cli.wiring import News, WatchedSlices
from gpushare_node.core.clock import SystemClock
from tests.node.adapters.kube.kube_fixture import FakeClock, await_that, connect
from tests.support.fake_api.server import ApiServer
from tests.support.waiting import PATIENCE


class Quick(SystemClock):
    """Real time, and pauses that are over at once; they are noted."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        super().sleep(min(seconds, 0.01))


@pytest.fixture
def clock() -> Quick:
    return Quick()


@pytest.fixture
def connection(api: ApiServer, tmp_path: Path) -> Iterator[Connection]:
    made = connect(api, tmp_path)
    yield made
    made.close()


@pytest.fixture
def pods(api: ApiServer, connection: Connection, clock: Quick) -> Iterator[PodInformer]:
    """Watched, until the test ends."""
    api.add_pod("first", node="n1", uid="u1")
    api.add_pod("elsewhere", node="n2")
    made = PodInformer(connection, "n1", clock)
    thread = made.start()
    yield made
    clock.stop()
    api.down()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def names(pods: PodInformer) -> set[str]:
    return {pod.name for pod in pods.pods()}


def find(pods: PodInformer, uid: str) -> PodView:
    pod = pods.find(uid)
    assert pod is not None
    return pod


def is_open(pods: PodInformer) -> bool:
    return pods.age_seconds == 0.0


def test_pods_of_the_node_are_added_updated_and_removed(api: ApiServer, pods: PodInformer) -> None:
    await_that(lambda: names(pods) == {"first"})
    api.add_pod("second", node="n1", uid="u2", containers={"main": "containerd://" + "a" * 64}, phase="Pending")
    api.add_pod("other", node="n2")
    await_that(lambda: names(pods) == {"first", "second"})
    api.patch("pods", "second", {"status": {"phase": "Failed"}}, manager="kubelet", namespace="default")
    await_that(lambda: (pod := pods.find("u2")) is not None and pod.has_ended)
    api.remove("pods", "first", namespace="default")
    await_that(lambda: names(pods) == {"second"})
    assert pods.find("u1") is None


@pytest.mark.failure_case(56)
def test_container_id_that_appears_later_is_read(api: ApiServer, pods: PodInformer) -> None:
    api.add_pod("late", node="n1", uid="u2", containers={"main": ""})
    await_that(lambda: pods.find("u2") is not None)
    assert find(pods, "u2").containers == {}
    status = {
        "containerStatuses": [{"name": "main", "containerID": "cri-o://" + "b" * 64}],
        "ephemeralContainerStatuses": [{"name": "debug", "containerID": "containerd://" + "c" * 64}],
    }
    api.patch("pods", "late", {"status": status}, manager="kubelet", namespace="default")
    await_that(lambda: find(pods, "u2").containers == {"b" * 64: "main", "c" * 64: "debug"})


def test_start_time_is_reported_for_running_containers_only() -> None:
    states: tuple[dict[str, dict[str, str]], ...] = (
        {"running": {"startedAt": "2026-11-22T08:00:00Z"}},
        {"terminated": {"startedAt": "2026-11-22T08:00:00Z"}},
        {},
        {"running": {"startedAt": "soon"}},
        {"running": {}},
    )
    statuses = [{"name": f"c{at}", "containerID": f"containerd://{at}", "state": state} for at, state in enumerate(states)]
    metadata = {"uid": "u", "namespace": "n", "name": "p"}
    assert view_pod({"metadata": metadata, "status": {"containerStatuses": statuses}}).started == {"0": 1795334400.0}


def test_each_container_has_the_requests_of_claims_that_the_pod_names_for_it() -> None:
    """By a claim's own name, by one made from a template, and by the one that the scheduler makes for extended resources."""
    spec = {
        "initContainers": [{"name": "setup", "resources": {"claims": [{"name": "made"}]}}],
        "containers": [
            {"name": "main", "resources": {"claims": [{"name": "named", "request": "a"}, {"name": "named", "request": "b"}]}},
            {"name": "side", "resources": {"claims": [{"name": "named"}], "limits": {"nvidia.com/gpu": 1}}},
            {"name": "none", "resources": {"limits": {"nvidia.com/gpu": "0"}}},
            {"name": "plugged", "resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 1}}},
        ],
        "resourceClaims": [
            {"name": "named", "resourceClaimName": "shared"},
            {"name": "made", "resourceClaimTemplateName": "t"},
            {"name": "needless", "resourceClaimTemplateName": "t"},
            {"name": "late", "resourceClaimTemplateName": "t"},
        ],
    }
    mappings = [
        {"containerName": name, "resourceName": resource, "requestName": f"{name}-{resource[-3:]}"}
        for name, resource in (
            ("side", "nvidia.com/gpu"),
            ("side", "nvidia.com/other"),
            ("none", "nvidia.com/gpu"),
            ("plugged", "nvidia.com/gpu"),
        )
    ]
    status = {
        "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}, {"name": "needless"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "p-extended", "requestMappings": mappings},
    }
    found = view_pod({"metadata": {"uid": "u", "namespace": "n", "name": "p"}, "spec": spec, "status": status})
    assert {(one.name, name, request) for one in found.claims for name, some in one.requests.items() for request in some} == {
        ("shared", "main", "a"),
        ("shared", "main", "b"),
        ("shared", "side", ""),
        ("p-made-x", "setup", ""),
        ("p-extended", "side", "side-gpu"),
        ("p-extended", "plugged", "plugged-gpu"),
    }
    assert found.resources == {"nvidia.com/gpu.shared"}
    assert [one.name for one in found.claims] == ["shared", "p-made-x", "", "p-extended"]
    assert view_pod({"metadata": {"uid": "u", "namespace": "n", "name": "p"}}).claims == ()


@pytest.mark.failure_case(54)
def test_a_static_pod_is_found_by_both_of_its_uids(api: ApiServer, pods: PodInformer) -> None:
    hashed = "0123456789abcdef0123456789abcdef"
    api.add_pod(
        "etcd-n1",
        namespace="kube-system",
        node="n1",
        uid="mirror",
        annotations={"kubernetes.io/config.hash": hashed, "kubernetes.io/config.mirror": hashed},
    )
    await_that(lambda: pods.find("mirror") is not None)
    pod = pods.find(hashed)
    assert pod is pods.find("mirror")
    assert pod is not None
    assert pod.uids == ("mirror", hashed)
    api.remove("pods", "etcd-n1", namespace="kube-system")
    await_that(lambda: pods.find(hashed) is None)


@pytest.mark.failure_case(54)
def test_pod_with_a_forged_uid_annotation_does_not_hide_another_pod(api: ApiServer, pods: PodInformer) -> None:
    await_that(lambda: pods.find("u1") is not None)
    forged = {"kubernetes.io/config.hash": "u1"}
    api.add_pod("forger", node="n1", uid="f", annotations=forged)
    api.add_pod("false-mirror", node="n1", uid="g", annotations={**forged, "kubernetes.io/config.mirror": "u1"})
    await_that(lambda: pods.find("g") is not None)
    assert find(pods, "u1").name == "first"
    assert [find(pods, uid).uids for uid in "fg"] == [("f",), ("g",)]


@pytest.mark.failure_case(55)
def test_terminating_pod_is_reported_as_terminating(api: ApiServer, pods: PodInformer) -> None:
    await_that(lambda: pods.find("u1") is not None)
    api.patch("pods", "first", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, manager="x", namespace="default")
    await_that(lambda: find(pods, "u1").is_terminating)


def test_a_pod_is_reported_with_its_controller(api: ApiServer, pods: PodInformer) -> None:
    owner = {"kind": "DaemonSet", "name": "plugin", "uid": "d", "controller": True}
    api.add_pod("plugin", namespace="gpu", node="n1", uid="u2", owner=owner)
    await_that(lambda: pods.find("u2") is not None)
    assert find(pods, "u2").owner == "d"


@pytest.mark.failure_case(57)
@pytest.mark.parametrize("by_event", [True, False])
def test_list_is_reread_after_410_with_a_random_delay(
    api: ApiServer,
    pods: PodInformer,
    clock: Quick,
    by_event: bool,
) -> None:
    await_that(lambda: is_open(pods))
    api.gone_by_event = by_event
    api.fail("watch=1", 500, times=1)
    api.cut()
    api.forget()
    api.remove("pods", "first", namespace="default")
    api.add_pod("second", node="n1")
    api.forget()
    await_that(lambda: names(pods) == {"second"})
    assert all(pause <= max(RELIST_SECONDS, MAX_PAUSE_SECONDS) for pause in clock.pauses)


@pytest.mark.failure_case(57)
def test_interrupted_watch_resumes_from_its_resource_version(api: ApiServer, pods: PodInformer) -> None:
    await_that(lambda: is_open(pods))
    api.bookmark()
    api.forget_requests()
    api.cut()
    api.add_pod("second", node="n1")
    await_that(lambda: names(pods) == {"first", "second"})
    assert all("watch=1" in line for line in api.lines)


def test_watch_records_the_resource_version_of_a_bookmark(api: ApiServer, pods: PodInformer) -> None:
    await_that(lambda: is_open(pods))
    version = str(api.store.version + 1)
    api.bookmark()
    await_that(lambda: pods.watching.version == version)


@pytest.mark.failure_case(57)
@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_known_pods_are_kept_and_their_age_grows_while_the_server_fails(
    api: ApiServer,
    pods: PodInformer,
    clock: Quick,
    status: int,
) -> None:
    await_that(lambda: is_open(pods))
    api.fail("/api/v1/pods", status)
    api.cut()
    await_that(lambda: pods.watching.errors >= 3)
    assert names(pods) == {"first"}
    assert 0 < pods.age_seconds < 5
    api.heal()
    await_that(lambda: is_open(pods))


@pytest.mark.failure_case(57)
def test_unreachable_server_is_retried_with_growing_backoff(api: ApiServer, connection: Connection) -> None:
    clock = FakeClock(limit_seconds=300)
    api.down()
    pods = PodInformer(connection, "n1", clock)
    pods.watching.run()
    start, *pauses = clock.pauses
    assert start <= START_SECONDS
    assert max(pauses) <= MAX_PAUSE_SECONDS
    assert max(pauses) > MAX_PAUSE_SECONDS / 2
    assert len(pauses) < 30
    assert pods.age_seconds == float("inf")
    assert pods.pods() == ()


def test_watch_that_always_ends_immediately_is_retried_with_pauses(api: ApiServer, connection: Connection) -> None:
    clock = FakeClock(limit_seconds=200)
    api.garble("watch=1", b"")
    PodInformer(connection, "n1", clock).watching.run()
    assert len(api.requests) < 25


def test_nodes_started_together_send_their_first_requests_staggered(api: ApiServer, connection: Connection) -> None:
    api.down()
    starts = []
    for number in range(200):
        clock = FakeClock(limit_seconds=0.001)
        PodInformer(connection, f"n{number}", clock).watching.run()
        starts.append(clock.pauses[0])
    starts.sort()
    assert max(sum(1 for one in starts if begin <= one < begin + 0.1) for begin in starts) < 30


def test_an_object_that_cannot_be_read_does_not_end_the_watch(
    api: ApiServer, connection: Connection, pods: PodInformer
) -> None:
    await_that(lambda: is_open(pods))
    api.garble("/api/v1/pods", json.dumps({"metadata": {}, "items": [{}]}).encode(), times=3)
    api.forget()
    api.add_pod("second", node="n1")
    await_that(lambda: names(pods) == {"first", "second"})


def test_only_views_are_kept_of_many_pods(api: ApiServer, connection: Connection) -> None:
    for number in range(50):
        api.add_pod(f"p{number}", node="n1", annotations={"big": "x" * 20_000})
    pods = PodInformer(connection, "n1", FakeClock(limit_seconds=1))
    api.fail("watch=1", 500)
    pods.watching.run()
    gc.collect()
    assert len(pods.pods()) == 50
    assert "x" * 20_000 not in repr(pods.pods())


def test_node_watch_notifies_only_when_labels_or_annotations_change(api: ApiServer, connection: Connection) -> None:
    api.add_node("n1")
    api.add_node("n2")
    clock = Quick()
    told = threading.Semaphore(0)
    watched = NodeInformer(connection, "n1", clock, told.release)
    thread = watched.start()
    assert told.acquire(timeout=PATIENCE)
    await_that(lambda: watched.watching.age_seconds == 0)
    api.patch("nodes", "n1", {"status": {"nodeInfo": {"bootID": "x"}}}, manager="kubelet")
    api.patch("nodes", "n1", {"metadata": {"annotations": {"theirs": "x"}}}, manager="x")
    api.patch("nodes", "n2", {"metadata": {"labels": {"a": "b"}}}, manager="x")
    asked = ({"annotations": {name: "requested"}} for name in ("gpushare.dev/release", "gpushare.dev/retry"))
    for change in ({"labels": {"team": "b"}}, *asked):
        api.patch("nodes", "n1", {"metadata": change}, manager="x")
        assert told.acquire(timeout=PATIENCE)
    await_that(lambda: watched.version() == api.node("n1")["metadata"]["resourceVersion"])
    before = watched.version()
    api.patch("nodes", "n1", {"status": {"allocatable": {"nvidia.com/gpu": "1"}}}, manager="kubelet")
    await_that(lambda: watched.version() not in (None, before))
    # What is told is told in order: had the others been told, these were too many.
    assert not told.acquire(blocking=False)
    clock.stop()
    api.down()
    thread.join(PATIENCE)
    assert watched.version() is None, "what may be outdated is no knowledge"


@pytest.mark.failure_case(103)
def test_watched_node_reports_a_change_once_and_an_unwatched_one_always(api: ApiServer, connection: Connection) -> None:
    api.add_node("n1")
    clock = Quick()
    api_of_n1 = SimpleNamespace(connection=connection, identity=SimpleNamespace(node="n1"))
    news = News(api=api_of_n1, clock=clock)  # type: ignore[arg-type]
    assert news.has_changed()
    await_that(lambda: not news.has_changed())
    api.patch("nodes", "n1", {"metadata": {"annotations": {"gpushare.dev/retry": "now"}}}, manager="x")
    await_that(news.has_changed)
    assert not news.has_changed()
    api.down()
    await_that(lambda: news.has_changed() and news.has_changed())
    clock.stop()


def test_node_watch_requests_metadata_only(api: ApiServer, connection: Connection) -> None:
    """The whole object, with its images and conditions, would come with each of kubelet's heartbeats."""
    api.add_node("n1")
    clock, told = Quick(), threading.Semaphore(0)
    thread = NodeInformer(connection, "n1", clock, told.release).start()
    assert told.acquire(timeout=PATIENCE)
    await_that(lambda: any("watch=1" in line for line in api.lines))
    assert all("as=PartialObjectMetadata" in form for form in api.forms)
    api.patch("nodes", "n1", {"metadata": {"labels": {"team": "b"}}}, manager="x")
    assert told.acquire(timeout=PATIENCE), "metadata is enough"
    clock.stop()
    api.down()
    thread.join(PATIENCE)


def test_slices_at_rest_cost_no_request_and_a_lost_watch_is_no_knowledge(api: ApiServer, connection: Connection) -> None:
    def add(name: str, node: str = "n1") -> None:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        api.add("resourceslices", name, {"spec": {"driver": "gpu.nvidia.com", "nodeName": node, "pool": pool, "devices": []}})

    def known() -> set[str]:
        return {one.name for one in slices.read()}

    clock = Quick()
    watched = SliceInformer(connection, "n1", "gpu.nvidia.com", clock)
    slices = WatchedSlices(watched, partial(read_node_slices, connection, "n1", "gpu.nvidia.com"))
    add("first")
    add("neighbour", "n2")
    assert known() == {"first"}
    await_that(lambda: watched.slices() is not None)
    api.forget_requests()
    assert [known() for _ in range(20)] == [{"first"}] * 20
    assert api.lines == []
    add("second")
    api.remove("resourceslices", "first")
    await_that(lambda: known() == {"second"})
    assert api.lines == []
    api.down()
    await_that(lambda: watched.slices() is None)
    with pytest.raises(ClusterError):
        slices.read()
    clock.stop()


def test_identity_is_read_from_the_pods_environment() -> None:
    environ = {"NODE_NAME": "n1", "POD_NAME": "p", "POD_NAMESPACE": "ns", "POD_UID": "u"}
    place = find_identity(environ, "train")
    assert (place.node, place.pod, place.namespace, place.pod_uid) == ("n1", "p", "ns", "u")
    assert find_identity({}, "").node
