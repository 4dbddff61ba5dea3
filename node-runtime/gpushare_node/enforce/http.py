"""HTTP: /metrics, /healthz and /readyz, read only. Listens in the pod's own network, so on the pod's address alone.

Nobody gets in: no other method, no path but these, no request body, no word about errors. Nobody holds it up either: a
connection has ten seconds in all, and when too many are open the oldest one goes.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gpushare_node.core.structs import Struct
from gpushare_node.reporting.metrics import CONTENT_TYPE

PORT = 9408
_LOG = logging.getLogger(__name__)
_DEADLINE_SECONDS = 10.0
_IDLE_SECONDS = 5.0
_MOST_CONNECTIONS = 32
_PLAIN = "text/plain; charset=utf-8"

Answer = tuple[bool, str]
"""Whether all is well, and a sentence."""


class Pages(Struct):
    """What is told. Each is called in a thread of its own."""

    metrics: Callable[[], str]
    health: Callable[[], Answer]
    readiness: Callable[[], Answer]


class _Handler(BaseHTTPRequestHandler):
    server: "HttpServer"
    server_version = "gpushare"
    sys_version = ""
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        pages = self.server.pages
        try:
            match self.path.partition("?")[0]:
                case "/metrics":
                    self._answer(HTTPStatus.OK, CONTENT_TYPE, pages.metrics())
                case "/healthz":
                    self._tell(pages.health())
                case "/readyz":
                    self._tell(pages.readiness())
                case _:
                    self._answer(HTTPStatus.NOT_FOUND, _PLAIN, "not found\n")
        except OSError:
            # The asker has gone, or has been shown the door.
            self.close_connection = True
        except Exception:
            _LOG.exception("a page could not be rendered")
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, "internal error\n")

    def _tell(self, answer: Answer) -> None:
        is_well, text = answer
        self._answer(HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, f"{text}\n")

    def _answer(self, status: HTTPStatus, content_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - theirs
        """In few words, without echoing anything of the request."""
        self._answer(HTTPStatus(code), _PLAIN, f"{HTTPStatus(code).phrase}\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - theirs
        """Probes come every few seconds: nothing is logged."""


class HttpServer(ThreadingHTTPServer):
    """The server. `port` 0 takes a free one; `start` returns at once."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, pages: Pages, *, address: str = "0.0.0.0", port: int = PORT) -> None:  # noqa: S104 - the pod's own network
        self.pages = pages
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__((address, port), _Handler)

    def start(self) -> None:
        """Serve on a thread of its own."""
        threading.Thread(target=self.serve_forever, name="http", daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Make room if there is none, then serve."""
        with self._lock:
            self._open[request] = time.monotonic()
            oldest = next(iter(self._open)) if len(self._open) > _MOST_CONNECTIONS else None
        if oldest is not None:
            _hang_up(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The connection is over."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Twice a second: end what has lasted too long."""
        with self._lock:
            overdue = [one for one, since in self._open.items() if time.monotonic() - since > _DEADLINE_SECONDS]
        for one in overdue:
            _hang_up(one)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is nobody's business; the log has no tracebacks of it."""


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It has ended by itself meanwhile.
        return
