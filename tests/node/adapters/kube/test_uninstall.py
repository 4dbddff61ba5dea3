"""The uninstall Job: every node is asked and waited for, then the DaemonSets go; or else everything is as it was."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.connection import Connection
from gpushare_node.adapters.kube.uninstall import Uninstall
from gpushare_node.contract.names import BACKEND_LABEL, NOT_READY_TAINTS, POOL_LABEL, REPARTITIONING_TAINTS
from tests.node.adapters.kube.kube_fixture import LABELS, FakeClock, add_runtimes, connect
from tests.support.fake_api.server import ApiServer

REQUEST = "gpushare-uninstall-x/uid-x"


@pytest.fixture
def connection(api: ApiServer, tmp_path: Path, clock: FakeClock) -> Iterator[Connection]:
    add_runtimes(api, "n1", "n2", "n3")
    api.add_node("cpu")
    made = connect(api, tmp_path, clock)
    yield made
    made.close()


def annotations(api: ApiServer, name: str) -> dict[str, str]:
    found: dict[str, str] = api.node(name)["metadata"]["annotations"]
    return found


def answer(api: ApiServer, *names: str) -> None:
    """What the nodes' runtimes do when they are asked."""
    for name in names:
        if annotations(api, name).get("gpushare.dev/release") == REQUEST:
            released = {"labels": {"gpushare.dev/pool": None}, "annotations": {"gpushare.dev/released": "exclusive"}}
            api.patch("nodes", name, {"metadata": released}, manager="gpushare-node")


def run(connection: Connection, clock: FakeClock) -> tuple[Uninstall, list[str]]:
    said: list[str] = []
    return Uninstall(connection, "gpushare", REQUEST, clock, said.append), said


def test_daemonsets_are_deleted_after_all_nodes_answer_annotations_last(
    api: ApiServer,
    connection: Connection,
    clock: FakeClock,
) -> None:
    clock.on_sleep = lambda: answer(api, "n1", "n2", "n3")
    uninstall, _ = run(connection, clock)
    done = uninstall.run(timeout_seconds=600, goes_on=False)
    assert (done.is_done, done.released, done.silent, done.remaining) == (True, ("n1", "n2", "n3"), (), ())
    assert api.all("daemonsets") == []
    assert [annotations(api, name) for name in ("n1", "n2", "n3", "cpu")] == [{}] * 4
    deleted = api.requests.index(("DELETE", "/apis/apps/v1/namespaces/gpushare/daemonsets/gpushare-train"))
    assert all(method == "GET" or path.startswith("/api/v1/nodes") for method, path in api.requests[deleted + 1 :])
    assert ("PATCH", "/api/v1/nodes/cpu") not in api.requests


def test_claim_templates_of_the_release_are_deleted_in_every_namespace(
    api: ApiServer, connection: Connection, clock: FakeClock
) -> None:
    ours = {"metadata": {"labels": {"app.kubernetes.io/name": "gpushare"}}}
    api.add("resourceclaimtemplates", "gpushare-train.gpu", ours, namespace="course")
    api.add("resourceclaimtemplates", "gpushare-train.gpu", ours, namespace="lab")
    api.add("resourceclaimtemplates", "gpushare-train.mine", {}, namespace="lab")
    uninstall, _ = run(connection, clock)
    uninstall.delete_templates()
    assert [one["metadata"]["name"] for one in api.all("resourceclaimtemplates")] == ["gpushare-train.mine"]


def test_unresponsive_node_is_reported_and_nothing_is_uninstalled(
    api: ApiServer, connection: Connection, clock: FakeClock
) -> None:
    clock.on_sleep = lambda: answer(api, "n1")
    uninstall, said = run(connection, clock)
    done = uninstall.run(timeout_seconds=60, goes_on=False)
    assert (done.is_done, done.released, done.silent) == (False, ("n1",), ("n2", "n3"))
    assert 60 <= sum(clock.pauses) <= 66
    assert len(api.all("daemonsets")) == 1
    assert [annotations(api, name) for name in ("n2", "n3")] == [{}, {}]
    assert "n2, n3" in said[-1]


def test_go_on_uninstalls_despite_unresponsive_nodes(api: ApiServer, connection: Connection, clock: FakeClock) -> None:
    uninstall, _ = run(connection, clock)
    done = uninstall.run(timeout_seconds=60, goes_on=True)
    assert (done.is_done, done.silent) == (True, ("n1", "n2", "n3"))
    assert api.all("daemonsets") == []
    assert annotations(api, "n1") == {}


def test_answer_to_an_earlier_release_request_does_not_count(api: ApiServer, connection: Connection, clock: FakeClock) -> None:
    api.patch("nodes", "n1", {"metadata": {"annotations": {"gpushare.dev/released": "exclusive"}}}, manager="x")
    clock.on_sleep = lambda: answer(api, "n2", "n3")
    uninstall, _ = run(connection, clock)
    assert uninstall.run(timeout_seconds=60, goes_on=False).silent == ("n1",)


@pytest.mark.parametrize("key", [*NOT_READY_TAINTS, *REPARTITIONING_TAINTS])
def test_node_still_in_its_first_partitioning_is_asked_to_release(
    api: ApiServer,
    connection: Connection,
    clock: FakeClock,
    key: str,
) -> None:
    api.add_node("new", taints=[{"key": key, "effect": "NoSchedule"}])
    api.add_pod("gpushare-train-new", namespace="gpushare", node="new", labels=LABELS)
    clock.on_sleep = lambda: answer(api, "n1", "n2", "n3")
    uninstall, _ = run(connection, clock)
    assert uninstall.run(timeout_seconds=60, goes_on=False).silent == ("new",)


def test_a_node_without_our_pool_that_has_our_back_end_has_not_answered(
    api: ApiServer, connection: Connection, clock: FakeClock
) -> None:
    """The pool's label alone does not say that the device plugin may run again."""
    api.edit("nodes", "n1", lambda node: node["metadata"]["labels"].update({BACKEND_LABEL: "none"}))

    def act() -> None:
        answer(api, "n2", "n3")
        api.edit("nodes", "n1", lambda node: node["metadata"]["labels"].pop(POOL_LABEL, None))

    clock.on_sleep = act
    uninstall, _ = run(connection, clock)
    assert uninstall.run(timeout_seconds=60, goes_on=False).silent == ("n1",)


def test_a_node_that_is_deleted_meanwhile_is_not_waited_for(api: ApiServer, connection: Connection, clock: FakeClock) -> None:
    def act() -> None:
        for name in ("n1", "n2"):
            answer(api, name)
        if any(node["metadata"]["name"] == "n3" for node in api.all("nodes")):
            api.remove("nodes", "n3")

    clock.on_sleep = act
    uninstall, _ = run(connection, clock)
    assert uninstall.run(timeout_seconds=60, goes_on=False).is_done


def test_release_request_stays_until_the_runtime_pods_have_terminated(
    api: ApiServer, connection: Connection, clock: FakeClock
) -> None:
    api.lingers = True
    pods = [pod["metadata"]["name"] for pod in api.all("pods")]

    def act() -> None:
        for name in ("n1", "n2", "n3"):
            answer(api, name)
        if any(one["metadata"].get("deletionTimestamp") for one in api.all("daemonsets")) and pods:
            assert annotations(api, "n1")["gpushare.dev/release"] == REQUEST
            api.remove("pods", pods.pop(), namespace="gpushare")

    clock.on_sleep = act
    uninstall, _ = run(connection, clock)
    assert uninstall.run(timeout_seconds=600, goes_on=False).remaining == ()
    assert pods == []
    assert annotations(api, "n1") == {}


def test_server_failure_during_uninstall_leaves_no_release_request(
    api: ApiServer, connection: Connection, clock: FakeClock
) -> None:
    clock.on_sleep = lambda: api.fail("GET", 403)
    uninstall, _ = run(connection, clock)
    with pytest.raises(ClusterError):
        uninstall.run(timeout_seconds=600, goes_on=False)
    assert [annotations(api, name) for name in ("n1", "n2", "n3")] == [{}] * 3
    assert len(api.all("daemonsets")) == 1


def test_uninstall_retries_a_temporarily_unavailable_server(api: ApiServer, connection: Connection, clock: FakeClock) -> None:
    api.fail("GET /api/v1/nodes", 503, times=6)
    clock.on_sleep = lambda: answer(api, "n1", "n2", "n3")
    uninstall, said = run(connection, clock)
    assert uninstall.run(timeout_seconds=600, goes_on=False).is_done
    assert any("retrying" in line for line in said)


def test_nothing_is_uninstalled_while_the_server_is_unavailable(
    api: ApiServer, connection: Connection, clock: FakeClock
) -> None:
    api.fail("GET /api/v1/nodes", 503)
    uninstall, _ = run(connection, clock)
    with pytest.raises(ClusterError):
        uninstall.run(timeout_seconds=60, goes_on=True)
    assert len(api.all("daemonsets")) == 1


def test_uninstall_job_ends_when_its_permissions_are_removed(api: ApiServer, connection: Connection, clock: FakeClock) -> None:
    """Helm has given up. That its pod has ended is what tells the nodes. It looks once more: see the next test."""
    clock.on_sleep = lambda: api.fail(" ", 403)
    uninstall, _ = run(connection, clock)
    with pytest.raises(ClusterError):
        uninstall.run(timeout_seconds=600, goes_on=False)
    assert sum(clock.pauses) <= 10
    assert len([line for line in api.requests if line[0] == "PATCH"]) == 3 + 1, "the first refusal is enough"


def test_uninstall_retries_while_the_api_server_is_still_loading_its_roles(
    api: ApiServer,
    connection: Connection,
    clock: FakeClock,
) -> None:
    api.fail("GET /api/v1/nodes", 403, times=1, after=1)
    clock.on_sleep = lambda: answer(api, "n1", "n2", "n3")
    uninstall, said = run(connection, clock)
    assert uninstall.run(timeout_seconds=600, goes_on=False).is_done
    assert any("retrying" in line for line in said)


def test_reinstalled_release_is_not_uninstalled(
    api: ApiServer,
    connection: Connection,
    clock: FakeClock,
) -> None:
    def act() -> None:
        if len(clock.pauses) == 2:
            api.remove("daemonsets", "gpushare-train", namespace="gpushare")
            api.add_daemonset("gpushare-train", labels=LABELS)

    clock.on_sleep = act
    uninstall, _ = run(connection, clock)
    done = uninstall.run(timeout_seconds=600, goes_on=True)
    assert (done.is_done, done.is_replaced) == (False, True)
    assert len(api.all("daemonsets")) == 1
    assert annotations(api, "n2") == {}


def test_nodes_are_listed_in_pages_with_metadata_only(api: ApiServer, connection: Connection, clock: FakeClock) -> None:
    for number in range(600):
        api.add_node(f"more-{number}", labels={"gpushare.dev/pool": "train"})
    clock.on_sleep = lambda: answer(api, *(node["metadata"]["name"] for node in api.all("nodes")))
    uninstall, _ = run(connection, clock)
    assert len(uninstall.run(timeout_seconds=600, goes_on=False).released) == 603
    lists = [
        form
        for (method, path), form in zip(api.requests, api.forms, strict=True)
        if method == "GET" and path.partition("?")[0] in {"/api/v1/nodes", "/apis/apps/v1/namespaces/gpushare/daemonsets"}
    ]
    assert len(lists) > 3
    assert all("as=PartialObjectMetadataList" in form for form in lists)


@pytest.fixture
def observed(api: ApiServer, connection: Connection) -> Connection:
    """Nodes on which a runtime that only observes has written; n3 was of a pool before that."""
    told = {"type": "GPUShareReady", "status": "False", "reason": "Observing", "message": ""}
    for name in ("n1", "n2", "n3"):
        api.edit("nodes", name, lambda node: node["status"]["conditions"].append(dict(told)))
        api.edit("nodes", name, lambda node: node["metadata"]["annotations"].update({"gpushare.dev/would": "{}", "other": "1"}))
    return connection


def test_uninstall_from_observe_removes_only_the_condition_and_annotation(
    api: ApiServer, observed: Connection, clock: FakeClock
) -> None:
    before = {name: api.node(name) for name in ("n1", "n2", "n3", "cpu")}
    uninstall, _ = run(observed, clock)
    done = uninstall.forget()
    assert (done.is_done, done.released, api.all("daemonsets"), api.all("pods", namespace="gpushare")) == (
        True,
        ("n1", "n2", "n3"),
        [],
        [],
    )
    for name, node in before.items():
        now = api.node(name)
        assert annotations(api, name) == ({} if name == "cpu" else {"other": "1"})
        assert now["metadata"]["labels"] == node["metadata"]["labels"]
        assert now["status"]["conditions"] == [one for one in node["status"]["conditions"] if one["type"] == "Ready"]
        assert now["spec"] == node["spec"]
    assert ("PATCH", "/api/v1/nodes/cpu/status") not in api.requests
    assert all(path.endswith("/status") for method, path in api.requests if method == "PATCH")


def test_from_observe_a_node_that_refuses_is_named_and_the_others_are_cleaned(
    api: ApiServer, observed: Connection, clock: FakeClock
) -> None:
    api.fail("PATCH /api/v1/nodes/n2", 500)
    uninstall, _ = run(observed, clock)
    done = uninstall.forget()
    assert (done.is_done, done.released, done.silent) == (False, ("n1", "n3"), ("n2",))


def test_uninstall_from_observe_fails_without_permission(api: ApiServer, observed: Connection, clock: FakeClock) -> None:
    api.fail("/status", 403)
    uninstall, _ = run(observed, clock)
    with pytest.raises(ClusterError):
        uninstall.forget()
