"""HTTP: /metrics, /healthz and /readyz, read only. Listens in the pod's own network, so only on the pod's address.

Serves no other method and no other path, reads no request body, and returns no details of errors. A client cannot block it: a
connection lasts ten seconds at most, and if too many are open the server closes the oldest.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gpushare_node.contract.struct import Struct
from gpushare_node.reporting.metrics import CONTENT_TYPE

PORT = 9408
_LOG = logging.getLogger(__name__)
_DEADLINE_SECONDS = 10.0
_IDLE_SECONDS = 5.0
_MAX_CONNECTIONS = 32
_PLAIN = "text/plain; charset=utf-8"

Answer = tuple[bool, str]
"""Whether the check passed, and a sentence."""


class Pages(Struct):
    """What the pages contain. Each is called in the thread of its request."""

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
                    self._answer_check(pages.health())
                case "/readyz":
                    self._answer_check(pages.readiness())
                case _:
                    self._answer(HTTPStatus.NOT_FOUND, _PLAIN, "not found\n")
        except OSError:
            # The client disconnected, or was disconnected.
            self.close_connection = True
        except Exception:
            _LOG.exception("a page could not be rendered")
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, "internal error\n")

    def _answer_check(self, answer: Answer) -> None:
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
        """Send the status and its phrase alone, without echoing any part of the request."""
        self._answer(HTTPStatus(code), _PLAIN, f"{HTTPStatus(code).phrase}\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - theirs
        """Log nothing: probes arrive every few seconds."""


class HttpServer(ThreadingHTTPServer):
    """The server. `port` 0 selects a free one; `start` returns at once."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, pages: Pages, *, address: str = "0.0.0.0", port: int = PORT) -> None:  # noqa: S104 - the pod's own network
        self.pages = pages
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__((address, port), _Handler)

    def start(self) -> None:
        """Start serving on a separate thread."""
        threading.Thread(target=self.serve_forever, name="http", daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Disconnect the oldest connection if too many are open, then serve."""
        with self._lock:
            self._open[request] = time.monotonic()
            oldest = next(iter(self._open)) if len(self._open) > _MAX_CONNECTIONS else None
        if oldest is not None:
            _hang_up(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection: it has ended."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Disconnect overdue connections; the base class calls this twice a second."""
        with self._lock:
            overdue = [one for one, since in self._open.items() if time.monotonic() - since > _DEADLINE_SECONDS]
        for one in overdue:
            _hang_up(one)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections, to keep their tracebacks out of the log."""


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It has already ended.
        return
