"""The answers of an API server that says no."""


class Refusal(Exception):  # noqa: N818 - it is an answer, as good as others
    """A Status with its HTTP code. `retry_after` stands in the header of that name."""

    def __init__(self, status: int, reason: str, message: str, *, retry_after: int | None = None, cause: str = "") -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.cause = cause

    def document(self) -> dict[str, object]:
        details = {"details": {"causes": [{"reason": self.cause, "message": self.message}]}} if self.cause else {}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.status,
            **details,
        }


REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def not_found(what: str, name: str) -> Refusal:
    return Refusal(404, "NotFound", f'{what} "{name}" not found')


def conflict(message: str) -> Refusal:
    return Refusal(409, "Conflict", message)


def invalid(message: str) -> Refusal:
    return Refusal(422, "Invalid", message)


def expired(version: object) -> Refusal:
    return Refusal(410, "Expired", f"too old resource version: {version}")
