"""Requests over real HTTP: credentials, what is repeated and what is not, what comes back as an error."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.connection import TOTAL_SECONDS, ApiRequest, Connection, find_endpoint, in_cluster
from tests.node.adapters.kube.kube_fixture import FakeClock, by_kubeconfig, connect
from tests.support.certificates import certify
from tests.support.fake_api.server import ApiServer

NODE = "/api/v1/nodes/n1"


@pytest.fixture
def one(api: ApiServer) -> ApiServer:
    api.add_node("n1")
    return api


@pytest.mark.parametrize("connect", [connect, by_kubeconfig])
def test_a_pod_and_a_kubeconfig_reach_the_server(
    one: ApiServer,
    tmp_path: Path,
    connect: Callable[[ApiServer, Path], Connection],
) -> None:
    one.token = "secret"
    wire = connect(one, tmp_path)
    assert wire.get(NODE)["metadata"]["name"] == "n1"
    wire.close()


@pytest.mark.failure_case(57)
def test_a_token_that_was_replaced_is_used_at_once(one: ApiServer, tmp_path: Path) -> None:
    one.token = "first"
    connection = connect(one, tmp_path)
    connection.get(NODE)
    one.token = "second"
    with pytest.raises(ClusterError) as told:
        connection.get(NODE)
    assert told.value.status == 401
    (tmp_path / "token").write_text("second\n")
    assert connection.get(NODE)["kind"] == "Node"
    connection.close()


@pytest.mark.failure_case(57)
@pytest.mark.parametrize("status", [429, 500, 503])
def test_transient_errors_are_retried(one: ApiServer, tmp_path: Path, status: int) -> None:
    one.fail("GET /api/v1/nodes", status, times=2)
    clock = FakeClock()
    connection = connect(one, tmp_path, clock)
    assert connection.get(NODE)["kind"] == "Node"
    assert 0.2 <= clock.pauses[0] < clock.pauses[1] <= 0.8
    connection.close()


@pytest.mark.failure_case(57)
def test_retry_after_header_is_respected(one: ApiServer, tmp_path: Path) -> None:
    one.fail("GET", 429, times=1, retry_after=4)
    clock = FakeClock()
    connection = connect(one, tmp_path, clock)
    connection.get(NODE)
    assert clock.pauses == [4.0]
    connection.close()


@pytest.mark.failure_case(57)
def test_request_retries_stop_at_the_total_time_limit(one: ApiServer, tmp_path: Path) -> None:
    one.fail("GET", 429, retry_after=600)
    clock = FakeClock()
    connection = connect(one, tmp_path, clock)
    with pytest.raises(ClusterError) as told:
        connection.get(NODE)
    assert told.value.status == 429
    assert sum(clock.pauses) < TOTAL_SECONDS
    connection.close()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_client_error_has_the_servers_message_and_is_not_retried(one: ApiServer, tmp_path: Path, status: int) -> None:
    one.fail("GET", status)
    connection = connect(one, tmp_path)
    with pytest.raises(ClusterError, match=rf"GET {NODE}: {status} injected") as told:
        connection.get(NODE)
    assert told.value.status == status
    assert len(one.requests) == 1
    connection.close()


@pytest.mark.failure_case(57)
def test_timeout_raises_an_error_without_a_status(one: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one.hang("GET", times=3)
    connection = connect(one, tmp_path)
    with monkeypatch.context() as hasty:
        hasty.setattr("gpushare_node.adapters.kube.connection.READ_SECONDS", 0.05)
        with pytest.raises(ClusterError, match="timed out") as told:
            connection.get(NODE)
    assert told.value.status is None
    assert connection.get(NODE)["kind"] == "Node"
    connection.close()


@pytest.mark.failure_case(29)
def test_unreachable_server_raises_an_error_and_is_reconnected_later(one: ApiServer, tmp_path: Path) -> None:
    connection = connect(one, tmp_path)
    connection.get(NODE)
    one.down()
    with pytest.raises(ClusterError) as told:
        connection.get(NODE)
    assert told.value.status is None
    one.up()
    assert connection.get(NODE)["kind"] == "Node"
    connection.close()


def test_only_idempotent_requests_are_retried_after_a_lost_response(one: ApiServer, tmp_path: Path) -> None:
    connection = connect(one, tmp_path)
    one.lose("PATCH")
    body = {"metadata": {"labels": {"a": "b"}}}
    connection.ask(ApiRequest(method="PATCH", path=NODE, body=body, content_type="application/merge-patch+json"))
    one.lose("POST")
    lease = ApiRequest(
        method="POST",
        path="/apis/coordination.k8s.io/v1/namespaces/x/leases",
        is_repeatable=False,
        body={"metadata": {"name": "one"}, "spec": {}},
    )
    with pytest.raises(ClusterError):
        connection.ask(lease)
    assert [method for method, _ in one.requests] == ["PATCH", "PATCH", "POST"]
    connection.close()


def test_connections_are_reused(one: ApiServer, tmp_path: Path) -> None:
    connection = connect(one, tmp_path)
    for _ in range(5):
        connection.get(NODE)
    one.fail("GET", 404, times=1)
    with pytest.raises(ClusterError):
        connection.get(NODE)
    connection.get(NODE)
    assert one.connections == 1
    connection.close()


def test_many_threads_share_the_connections_without_complaints(
    one: ApiServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = connect(one, tmp_path)
    one.hang(NODE, seconds=0.05)
    threads = [threading.Thread(target=connection.get, args=(NODE,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caplog.records == []
    connection.get(NODE)
    assert one.connections == 4
    connection.close()


def test_response_that_is_not_a_json_object_is_an_error(one: ApiServer, tmp_path: Path) -> None:
    connection = Connection(in_cluster(one.url + "/odd", _account(tmp_path)), FakeClock())
    one.garble("/odd", b"<html>")
    with pytest.raises(ClusterError, match=r"not .*JSON"):
        connection.get(NODE)
    connection.close()


def test_tls_is_checked_against_the_clusters_ca_and_a_new_ca_is_read(tmp_path: Path) -> None:
    certificate = certify(tmp_path / "server.crt")
    other = certify(tmp_path / "other.crt")
    with ApiServer(certificate=certificate) as api:
        api.add_node("n1")
        folder = _account(tmp_path)
        (folder / "ca.crt").write_text(other[0].read_text())
        port = api.url.rpartition(":")[2]
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        connection = Connection(find_endpoint(environ, folder), FakeClock())
        with pytest.raises(ClusterError, match=r"(?i)certificate"):
            connection.get(NODE)
        (folder / "ca.crt").write_text(certificate[0].read_text())
        assert connection.get(NODE)["kind"] == "Node"
        connection.close()


def test_an_ipv6_service_address_is_in_brackets(tmp_path: Path) -> None:
    address = find_endpoint({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert address.url == "https://[fd00::1]:443"


@pytest.mark.parametrize("environ", [{}, {"KUBECONFIG": "/nowhere/config"}])
def test_missing_cluster_config_raises_an_error_that_names_the_kubeconfig(environ: dict[str, str]) -> None:
    with pytest.raises(ClusterError, match=r"KUBECONFIG|kubeconfig"):
        find_endpoint(environ)


def test_neither_the_official_client_nor_its_models_are_loaded_in_a_pod(one: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("token")
    program = f"""
import pathlib, sys
from gpushare_node.core.clock import SystemClock
from gpushare_node.adapters.kube.connection import in_cluster
from gpushare_node.adapters.kube.connection import Connection
import gpushare_node.adapters.kube.node_client, gpushare_node.adapters.kube.informers
wire = Connection(in_cluster({one.url!r}, pathlib.Path({str(tmp_path)!r})), SystemClock())
assert "urllib3" not in sys.modules
assert wire.get({NODE!r})["kind"] == "Node"
assert "kubernetes" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def _account(folder: Path) -> Path:
    (folder / "token").write_text("token")
    return folder
