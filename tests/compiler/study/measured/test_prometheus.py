"""The client of Prometheus' HTTP API: whatever answers, there is a result or one clear error without a secret in it."""

import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpushare.study.measured.prometheus import Prometheus, PrometheusError
from tests.compiler.study.measured.prometheus_double import Double, Handler, serving
from tests.support.certificates import certify


@pytest.fixture
def double() -> Iterator[Double]:
    with serving() as server:
        yield server


def client(url: str, *, seconds: float = 5, token: str = "", ca_file: str = "", **headers: str) -> Prometheus:
    return Prometheus(url, headers, token=token, ca_file=ca_file, timeout_seconds=seconds)


def ask(url: str, seconds: float = 5) -> PrometheusError:
    with pytest.raises(PrometheusError) as problem:
        client(url, seconds=seconds).at("up", 7)
    return problem.value


def test_values_and_what_is_not_a_number(double: Double) -> None:
    double.values = lambda _: [({"pool": "a"}, 1.5), ({"pool": "b\x1b"}, "NaN"), ({}, "+Inf")]
    double.warnings = ["partial \x1b[31mresponse"]
    prometheus = client(f"{double.url}/prefix/")
    found = prometheus.at("sum(up)", 1700000000)
    assert [(dict(one.labels), one.points) for one in found] == [
        ({"pool": "a"}, ((1700000000, 1.5),)),
        ({"pool": "b\\x1b"}, ((1700000000, None),)),
        ({}, ((1700000000, None),)),
    ]
    assert double.requests[0][:2] == ("/prefix/api/v1/query", {"query": "sum(up)", "time": "1700000000"})
    assert list(prometheus.warnings) == ["partial \\x1b[31mresponse"]
    assert [time for time, _ in prometheus.between("up", 0, 120, 60)[0].points] == [0, 60, 120]


@pytest.mark.parametrize(
    ("address", "more", "sent"),
    [
        ("http://us%40er:p%3Aw@{}", {}, "Basic dXNAZXI6cDp3"),
        ("http://{}", {"token": "secret\n"}, "Bearer secret"),
        ("http://user:pw@{}", {"token": "secret"}, "Basic dXNlcjpwdw=="),
        ("http://{}", {"token": "secret", "authorization": "Own x"}, "Own x"),
    ],
)
def test_credentials_are_sent(double: Double, address: str, more: dict[str, Any], sent: str) -> None:
    client(address.format(f"127.0.0.1:{double.server_port}"), **more).at("up", 7)
    headers = {name.lower(): value for name, value in double.requests[0][2].items()}
    assert headers["authorization"] == sent


@pytest.mark.parametrize(
    ("answer", "message", "hint"),
    [
        (
            lambda handler: handler.send(422, '{"status":"error","errorType":"execution","error":"too many samples\\u001b"}'),
            "refuses the query (422, execution): too many samples\\x1b",
            "",
        ),
        (
            lambda handler: handler.send(401, "Unauthorized\n", "text/plain"),
            "not accept the credentials (401)",
            "PROMETHEUS_TOKEN",
        ),
        (
            lambda handler: handler.send(200, "<html></html>", "text/html"),
            "not answer as Prometheus: text/html",
            "/api/v1/query",
        ),
        (lambda handler: handler.send(404, "<html></html>", "text/html"), "answers with status 404 and text/html", "/api/v1"),
        (lambda handler: handler.send(503, "", "text/plain"), "answers with status 503", ""),
        (lambda handler: handler.send(302, "", Location="http://elsewhere.example/"), "redirects to another", "name that"),
        (lambda handler: handler.send(200, '{"status": "succ'), "half a JSON text", ""),
        (lambda handler: handler.send(200, "[" * 100000), "half a JSON text", ""),
        (lambda handler: handler.send(200, '{"status":"error"}'), "refuses the query (200, error) without a reason", ""),
        (lambda handler: handler.send(200, "[]"), "a JSON text without the status of a query", "/api/v1/query"),
        (
            lambda handler: handler.send(200, '{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}'),
            "no vector",
            "",
        ),
        (
            lambda handler: handler.send(200, '{"status":"success","data":{"resultType":"vector","result":[7]}}'),
            "no vector",
            "",
        ),
        (
            lambda handler: handler.send(
                200, '{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"x"]}]}}'
            ),
            "a sample that is not a time and a number",
            "",
        ),
    ],
)
def test_answer_that_is_no_result_is_a_clear_error(
    double: Double, answer: Callable[[Handler], None], message: str, hint: str
) -> None:
    double.answer = answer
    problem = ask(double.url.replace("//", "//user:hunter2@"))
    assert message in str(problem)
    assert hint in problem.hint
    assert "hunter2" not in str(problem) + problem.hint


@pytest.mark.parametrize("warnings", ["5", '"partial"', "[5]", '{"a": "b"}'])
def test_warnings_are_a_list_of_texts(double: Double, warnings: str) -> None:
    answer = f'{{"status":"success","data":{{"resultType":"vector","result":[]}},"warnings":{warnings}}}'
    double.answer = lambda handler: handler.send(200, answer)
    assert "the warnings are no list of texts" in str(ask(double.url))


@pytest.mark.parametrize("time", ['"inf"', '"nan"', "1" + "0" * 400, "null"])
def test_time_of_a_sample_is_a_number(double: Double, time: str) -> None:
    values = f'[{{"metric":{{}},"values":[[{time},"1"]]}}]'
    answer = f'{{"status":"success","data":{{"resultType":"matrix","result":{values}}}}}'
    double.answer = lambda handler: handler.send(200, answer)
    with pytest.raises(PrometheusError, match="a sample that is not a time and a number"):
        client(double.url).between("up", 0, 60, 60)


def test_answer_that_breaks_off_or_never_ends(double: Double) -> None:
    def half(handler: Handler) -> None:
        handler.send(200, '{"status":"success"', **{"Content-Length": "1000"})
        handler.close_connection = True

    def drip(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b" ")
            time.sleep(0.05)

    double.answer = half
    assert "breaks off" in str(ask(double.url))
    double.answer = drip
    problem = ask(double.url, seconds=0.3)
    assert ("no complete answer within 0.3 s" in str(problem), "--timeout" in problem.hint) == (True, True)
    assert len(double.requests) == 2, "nothing is asked again"


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("", "the URL of Prometheus is empty", "/api/v1/query"),
        ("http://host/\u00e9", "characters outside ASCII", "%XX"),
        ("http://a..b/", "the host in the URL of Prometheus is not a name", ""),
        ("http://host:x", "its port is not a number", ""),
        ("ho st", "must begin with http://", "/api/v1/query"),
        ("localhost:9090", "must begin with http://", "write http://localhost:9090"),
        ("ftp://host", "must begin with http://", "/api/v1/query"),
        ("http://", "must begin with http://", ""),
        ("http://host:99999", "cannot be read", ""),
        ("http://[::1", "cannot be read", ""),
        ("http://host/?query=up", "a query or a fragment", ""),
        ("http://ho st/", "must begin", ""),
        ("http://127.0.0.1:1", "cannot reach http://127.0.0.1:1", "port-forward"),
    ],
)
def test_address_that_cannot_be_asked(url: str, message: str, hint: str) -> None:
    problem = ask(url)
    assert message in str(problem)
    assert hint in problem.hint


def test_token_that_no_header_can_have_is_not_printed() -> None:
    with pytest.raises(PrometheusError) as problem:
        client("http://host", token="hunter\n2")
    assert "Authorization contains a line break" in str(problem.value)
    assert "hunter" not in str(problem.value)


def test_certificate_is_checked_with_the_given_authority(double: Double, tmp_path: Path) -> None:
    certificate, key = certify(tmp_path / "ca.crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    double.socket = context.wrap_socket(double.socket, server_side=True)
    url = double.url.replace("http:", "https:")
    problem = ask(url)
    assert ("TLS failed" in str(problem), "--cacert" in problem.hint) == (True, True)
    assert client(url, ca_file=str(certificate)).at("up", 7) == []
    with pytest.raises(PrometheusError, match=r"cannot read .*none\.pem"):
        client(url, ca_file=str(tmp_path / "none.pem"))
