"""The listening side of the API server's double: its socket, its thread, and the connections that are open."""

import contextlib
import ssl
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.support.fake_api.handler import Handler

if TYPE_CHECKING:
    from tests.support.fake_api.server import ApiServer


class Listener(ThreadingHTTPServer):
    """Listens from its making to `end`."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 256

    def __init__(self, api: "ApiServer", port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.api = api
        self._open: set[Any] = set()
        if api.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*map(str, api.certificate))
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), name="api-server")
        self._thread.start()

    def end(self) -> None:
        self.shutdown()
        self._thread.join()
        self.cut()
        self.server_close()

    def cut(self) -> None:
        with self.api.lock:
            connections = list(self._open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(2)

    @contextlib.contextmanager
    def open(self, connection: Any) -> Iterator[None]:
        """Know of a connection while it is served."""
        with self.api.lock:
            self._open.add(connection)
            self.api.connections += 1
        try:
            yield
        finally:
            with self.api.lock:
                self._open.discard(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to print; anything else is a fault of this double and must be seen."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
