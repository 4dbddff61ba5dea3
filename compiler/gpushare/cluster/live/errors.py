"""What can go wrong between us and an API server, as two exceptions: no cluster at all, and one request that failed."""

from gpushare.core.diagnostics import HintedError


class NoClusterError(HintedError):
    """No request can succeed: no kubeconfig, no connection, no valid credentials."""


class RequestError(Exception):
    """The server refused one request, or its answer cannot be used; others may succeed. `status` None: no HTTP status."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class TooLargeError(RequestError):
    """The answer is longer than the caller reads."""
