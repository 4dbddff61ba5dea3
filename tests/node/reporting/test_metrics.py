"""The text that Prometheus reads, and the server that gives it out."""

import contextlib
import http.client
import math
import socket
import threading
from collections.abc import Iterator

import pytest

from gpushare_node.enforce.http import HttpServer, Pages
from gpushare_node.reporting.metrics import Registry
from tests.support.waiting import PATIENCE, wait_for


def test_every_metric_kind_is_written_in_prometheus_format() -> None:
    registry = Registry()
    registry.counter("kills_total", "Kills.", "signal").add("SIGTERM", by=2)
    registry.gauge("free", "A line\nand a \\.").set(0.5)
    registry.callback_gauge("age", "Age.", "pod", read=lambda: [(("a",), math.inf)])
    seconds = registry.histogram("seconds", "Time.", "call", bounds=(0.1, 1))
    for value in (0.1, 0.5, 7):
        seconds.observe(value, "list")
    assert registry.text().splitlines() == [
        "# HELP gpushare_kills_total Kills.",
        "# TYPE gpushare_kills_total counter",
        'gpushare_kills_total{signal="SIGTERM"} 2',
        r"# HELP gpushare_free A line\nand a \\.",
        "# TYPE gpushare_free gauge",
        "gpushare_free 0.5",
        "# HELP gpushare_age Age.",
        "# TYPE gpushare_age gauge",
        'gpushare_age{pod="a"} +Inf',
        "# HELP gpushare_seconds Time.",
        "# TYPE gpushare_seconds histogram",
        'gpushare_seconds_bucket{call="list",le="0.1"} 1',
        'gpushare_seconds_bucket{call="list",le="1"} 2',
        'gpushare_seconds_bucket{call="list",le="+Inf"} 3',
        'gpushare_seconds_sum{call="list"} 7.6',
        'gpushare_seconds_count{call="list"} 3',
    ]


def test_a_label_cannot_break_out_of_its_quotes() -> None:
    registry = Registry()
    registry.gauge("used", "Use.", "pod").set(1, 'a"} 9\nevil{b="\\')
    assert registry.text().splitlines()[2:] == [r'gpushare_used{pod="a\"} 9\nevil{b=\"\\"} 1']


@pytest.mark.failure_case(73)
def test_replaced_metric_series_are_removed() -> None:
    registry = Registry()
    gauge = registry.gauge("used", "Use.", "pod")
    gauge.replace([(("a",), 1), (("b",), 2)])
    gauge.replace([(("b",), 3)])
    assert registry.text().splitlines()[2:] == ['gpushare_used{pod="b"} 3']


def test_wrong_label_count_and_duplicate_metric_names_are_refused() -> None:
    registry = Registry()
    with pytest.raises(ValueError, match="labels"):
        registry.counter("a_total", "A.", "x").add()
    with pytest.raises(ValueError, match="already"):
        registry.gauge("a_total", "A.")


def broken() -> str:
    raise RuntimeError("secret")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    made = HttpServer(
        Pages(metrics=lambda: "gpushare_up 1\n", health=lambda: (False, "the driver hangs"), readiness=lambda: (True, "ok")),
        address="127.0.0.1",
        port=0,
    )
    made.start()
    yield made
    made.shutdown()
    made.server_close()


def ask(server: HttpServer, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=PATIENCE)
    connection.request(method, path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_only_the_three_pages_are_served(server: HttpServer) -> None:
    assert ask(server, "/metrics") == (200, "gpushare_up 1\n")
    assert ask(server, "/healthz") == (503, "the driver hangs\n")
    assert ask(server, "/readyz?verbose") == (200, "ok\n")
    assert ask(server, "/../etc/passwd") == (404, "not found\n")
    assert ask(server, "/metrics", "POST")[0] == 501


def test_internal_error_details_are_not_served(server: HttpServer) -> None:
    server.pages = Pages(metrics=broken, health=lambda: (True, ""), readiness=lambda: (True, ""))
    assert ask(server, "/metrics") == (500, "internal error\n")


def test_unfinished_requests_do_not_block_other_clients(server: HttpServer) -> None:
    before = set(threading.enumerate())
    with contextlib.ExitStack() as slow:
        for _ in range(80):
            slow.enter_context(socket.create_connection(("127.0.0.1", server.server_address[1]))).sendall(b"GET /met")
        assert ask(server, "/readyz")[0] == 200
        # Whoever was shown the door takes a moment to go.
        wait_for(lambda: len(set(threading.enumerate()) - before) <= 32)
