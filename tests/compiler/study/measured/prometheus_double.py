"""A small HTTP server that answers queries as a test says, with Prometheus' forms."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Samples = list[tuple[dict[str, str], Any]]


class Double(ThreadingHTTPServer):
    """`answer` is called with each request's handler, and writes it; by default `values` is asked for each query's samples."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.values: Callable[[str], Samples] = lambda _: []
        self.answer: Callable[[Handler], None] = self.answer_as_prometheus
        self.requests: list[tuple[str, dict[str, str], dict[str, str]]] = []
        self.warnings: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer_as_prometheus(self, handler: "Handler") -> None:
        path, query, _ = self.requests[-1]
        samples = self.values(query["query"])
        result: list[dict[str, Any]]
        if path.endswith("/query_range"):
            times = range(int(query["start"]), int(query["end"]) + 1, int(query["step"]))
            result = [{"metric": labels, "values": [[time, str(value)] for time in times]} for labels, value in samples]
        else:
            result = [{"metric": labels, "value": [int(query["time"]), str(value)]} for labels, value in samples]
        kind = "matrix" if path.endswith("/query_range") else "vector"
        document = {"status": "success", "data": {"resultType": kind, "result": result}, "warnings": self.warnings}
        handler.send(200, json.dumps(document))


class Handler(BaseHTTPRequestHandler):
    server: Double

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.server.requests.append((parts.path, query, dict(self.headers)))
        self.server.answer(self)

    def send(self, status: int, text: str, media: str = "application/json", **headers: str) -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": media, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def serving() -> Iterator[Double]:
    with Double() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def usual(numbers: Mapping[str, Samples]) -> Callable[[str], Samples]:
    """Samples of every scrape, and of each query that begins so or, after `sum by`, has these labels."""
    scraped: dict[str, Samples] = {
        "count_over_time(group(": [({}, 12)],
        "count_over_time(group by (pool)": [({"pool": "notebooks"}, 12)],
        "group by (cluster)": [({}, 1)],
    }
    every = {**numbers, **scraped, **numbers}  # a test's come first
    return lambda query: next((found for start, found in every.items() if query.startswith(start)), [])
