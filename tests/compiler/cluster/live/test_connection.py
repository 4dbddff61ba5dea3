"""Finding and asking the API server: as kubectl does, with a way out of every failure."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpushare.cluster.live import connection
from gpushare.cluster.live.connection import Access
from gpushare.cluster.live.pages import NoClusterError, TooLargeError
from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.live.clusters import LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.support.certificates import certify
from tests.support.fake_api.server import ApiServer


def config(path: Path, *, server: str = "https://127.0.0.1:1", user: object = None, **more: object) -> Path:
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": user or {}}],
                **more,
            }
        )
    )
    return path


def refused(*arguments: object, cwd: Path, **environment: str) -> str:
    done = gpushare("status", *arguments, cwd=cwd, environment={"HOME": str(cwd), "KUBECONFIG": "", **environment})
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


def test_missing_kubeconfig_error_names_the_searched_path(tmp_path: Path) -> None:
    told = refused(cwd=tmp_path)
    assert f"there is no kubeconfig at {tmp_path}/.kube/config" in told
    assert "--kubeconfig" in told
    assert "there is no kubeconfig nowhere" in refused("--kubeconfig", "nowhere", cwd=tmp_path)


def test_unknown_context_error_suggests_known_contexts(tmp_path: Path) -> None:
    path = config(tmp_path / "config")
    told = refused("--kubeconfig", path, "--context", "her", cwd=tmp_path)
    assert "has no context 'her'" in told
    assert "did you mean here?" in told


@pytest.mark.parametrize("text", ["", "]", "[]", "7", "a: b", "contexts: 7", "users: [1]\ncontexts: [{name: x, context: 3}]"])
def test_invalid_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    refused("--kubeconfig", tmp_path / "config", cwd=tmp_path)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"clusters": []}, "has no cluster 'c', which context 'here' names"),
        ({"clusters": None}, "has no cluster 'c', which context 'here' names"),
        ({"contexts": [{"name": "here", "context": None}]}, "names no cluster"),
        ({"contexts": [{"name": "here", "context": {"cluster": "c", "user": "x"}}]}, "has no user 'x', which context"),
        ({"server": ""}, "cluster 'c' in {where} has no server"),
        ({"server": "api.example.org:6443"}, "has the server 'api.example.org:6443'"),
        ({"user": {"exec": []}}, "the plugin of user 'u' in {where} has no command"),
        ({"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}}, "has no command"),
    ],
)
def test_incomplete_kubeconfig_error_names_the_missing_part(tmp_path: Path, changed: dict[str, Any], told: str) -> None:
    path = config(tmp_path / "config", **changed)
    said = refused("--kubeconfig", path, cwd=tmp_path)
    assert told.format(where=path) in said
    assert "Warning" not in said


def test_unreachable_server_is_reported(tmp_path: Path) -> None:
    told = refused("--kubeconfig", config(tmp_path / "config"), cwd=tmp_path)
    assert "cannot reach context 'here' at https://127.0.0.1:1" in told
    assert "check the server's address" in told


def test_a_token_that_has_expired(api: ApiServer, tmp_path: Path) -> None:
    path = config(tmp_path / "config", server=api.url, user={"token": "old"})
    told = refused("--kubeconfig", path, cwd=tmp_path)
    assert "does not accept the credentials (401)" in told
    assert "log in again" in told
    assert "old" not in told.replace("--kubeconfig", "")


@pytest.mark.parametrize("user", [{"token": "hush\n"}, {"token": "hush\nhush"}, {"token": "hush\u20ac"}])
def test_a_token_that_no_header_can_have_is_not_printed(tmp_path: Path, user: dict[str, str]) -> None:
    told = refused("--kubeconfig", config(tmp_path / "config", user=user), cwd=tmp_path)
    assert "the credentials of context 'here' contain a line break" in told
    assert "hush" not in told


def test_proxy_error_names_the_missing_package(tmp_path: Path) -> None:
    cluster = {"server": "https://127.0.0.1:1", "proxy-url": "socks5://127.0.0.1:1"}
    path = config(tmp_path / "config", clusters=[{"name": "c", "cluster": cluster}])
    (tmp_path / "socks.py").write_text("raise ModuleNotFoundError('absent', name='socks')\n")  # also where it is installed
    told = refused("--kubeconfig", path, cwd=tmp_path, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    assert "pip install PySocks" in told
    assert "Warning" not in told


def test_a_certificate_of_an_unknown_authority(tmp_path: Path) -> None:
    with ApiServer(certificate=certify(tmp_path / "server.crt")) as api:
        told = refused("--kubeconfig", config(tmp_path / "config", server=api.url), cwd=tmp_path)
    assert "TLS failed" in told
    assert "certificate-authority" in told


def test_in_a_pod_its_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = certify(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("mounted")
    (tmp_path / "namespace").write_text("team")
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", str(certificate))
    monkeypatch.setattr(connection, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with ApiServer(certificate=(certificate, key), token="mounted") as api:
        api.add_node("n")
        host, port = api.url.removeprefix("https://").split(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        with connection.connected(Access()) as server:
            assert server.namespace == "team"
            assert [item["metadata"]["name"] for item in server.get("/api/v1/nodes")["items"]] == ["n"]
        (tmp_path / "token").unlink()
        with pytest.raises(NoClusterError, match="service account"), connection.connected(Access()):
            pass


def test_an_exec_plugin_that_is_not_installed(tmp_path: Path) -> None:
    plugin = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-login", "installHint": "get it at x"}
    }
    told = refused("--kubeconfig", config(tmp_path / "config", user=plugin), cwd=tmp_path)
    assert "plugin no-such-login is not installed" in told
    assert "get it at x" in told


def test_an_exec_plugin_that_fails_says_why(tmp_path: Path) -> None:
    script = tmp_path / "login"
    script.write_text("#!/bin/sh\necho 'session has ended' >&2\nexit 1\n")
    script.chmod(0o755)
    plugin = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}
    told = refused("--kubeconfig", config(tmp_path / "config", user=plugin), cwd=tmp_path)
    assert "gave no credentials" in told
    assert "session has ended" in told


def test_an_exec_plugin_gives_the_token(live: LiveCluster, api: ApiServer, tmp_path: Path) -> None:
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "secret"}}
    script = tmp_path / "login"
    script.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    script.chmod(0o755)
    plugin = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}
    path = config(tmp_path / "config", server=api.url, user=plugin)
    assert gpushare("status", "--kubeconfig", path, cwd=tmp_path).returncode == 0


def test_keys_of_the_kubeconfig_are_not_left_in_files(api: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    user = {"client-certificate-data": "eA==", "client-key-data": "eA=="}
    path = config(tmp_path / "config", server="https://127.0.0.1:1", user=user)
    refused("--kubeconfig", path, cwd=tmp_path, TMPDIR=str(tmp_path / "tmp"))
    assert not list((tmp_path / "tmp").iterdir())


def test_a_redirect_gets_no_credentials(live: LiveCluster, api: ApiServer, ask: Ask) -> None:
    api.fail("/nodes", 302)
    assert "could not read nodes: 302" in ask("status").stderr


def test_unencodable_page_token_does_not_crash(live: LiveCluster, api: ApiServer, ask: Ask) -> None:
    api.garble("/nodes?", json.dumps({"items": [], "metadata": {"continue": "\ud800"}}).encode(), times=1)
    assert ask("status").returncode == 0


def test_huge_error_response_is_truncated(api: ApiServer, tmp_path: Path) -> None:
    refusal = connection._reason(json.dumps({"message": "x" * (1 << 20)}).encode())
    assert len(refusal) < 1000


def test_only_reading_requests_are_sent(live: LiveCluster, api: ApiServer, ask: Ask) -> None:
    ask("status", "--kills")
    assert api.requests
    assert not api.writes()


def test_missing_response_is_reported_as_a_timeout(live: LiveCluster, api: ApiServer, ask: Ask) -> None:
    api.hang("/resourcequotas", 60)
    assert "could not read resourcequotas: no answer within 1 s" in ask("status", "--request-timeout", "1").stderr


class Trickle:
    """An answer that sends a byte each time it is asked, and moves the clock: the socket's own timeout never comes."""

    closed = False

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock

    def read1(self, _: int) -> bytes:
        self.clock[0] += 1
        return b"x"

    read = read1

    def close(self) -> None:
        self.closed = True


def test_endless_response_body_is_aborted_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    answer = Trickle(clock)
    with pytest.raises(TimeoutError):
        connection._bounded(answer, 1 << 30, 130.0)
    assert answer.closed
    assert 130 < clock[0] < 133
    with pytest.raises(TooLargeError):
        connection._bounded(Trickle(clock), 20, None)


@pytest.mark.parametrize("option", [("--request-timeout", "soon"), ("-n", "Not_A_Name"), ("--release-namespace", "../x")])
def test_invalid_option_values_are_refused(tmp_path: Path, option: tuple[str, str]) -> None:
    assert "Usage" in refused(*option, cwd=tmp_path)


def test_impersonation_is_that_of_the_call_or_of_the_kubeconfig() -> None:
    user = {"as": "ann", "as-groups": ["ops"]}
    assert connection.impersonated(Access(), user) == [("Impersonate-User", "ann"), ("Impersonate-Group", "ops")]
    assert connection.impersonated(Access(user="bob"), user) == [("Impersonate-User", "bob")]
    assert connection.impersonated(Access(), {}) == []
    for wrong in (7, "ops", {"ops": 1}, None):
        assert connection.impersonated(Access(), {"as": "ann", "as-groups": wrong}) == [("Impersonate-User", "ann")]
    with pytest.raises(NoClusterError, match="--as"):
        connection.impersonated(Access(groups=("ops",)), {})
