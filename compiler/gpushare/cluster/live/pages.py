"""Lists of the API server, page by page: what to do when a page is refused, expires or is too large. Knows no kinds.

What can go wrong between us and the server are two exceptions: no cluster at all, and one request that failed.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from gpushare.cluster.live.objects import ReadFailure
from gpushare.core.diagnostics import HintedError
from gpushare.core.wording import clean, shorten


class NoClusterError(HintedError):
    """No request can succeed: no kubeconfig, no connection, no valid credentials."""


class RequestError(Exception):
    """The server refused one request, or its answer cannot be used; others may succeed. `status` None: no HTTP status."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class TooLargeError(RequestError):
    """The answer is longer than the caller reads."""


Json = dict[str, Any]
_T = TypeVar("_T")

LIMIT = 500
MAX_PAGES = 10_000
"""Of one list: five million objects. A server whose continue tokens never end would otherwise be read forever."""
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.5
_PASSING = frozenset({429, 500, 502, 503, 504})


class Api(Protocol):
    """What is needed of `connection.Server`."""

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """Return the object or list at the path. RequestError, NoClusterError."""
        ...

    def read(
        self, path: str, query: Mapping[str, str] | None = None, *, most_bytes: int, timeout_seconds: float | None
    ) -> bytes:
        """Return the body of an answer. RequestError, NoClusterError."""
        ...


class Lists:
    """Reads lists, and collects what could not be read. `rights` is the command that prints the rights for them."""

    def __init__(self, api: Api, rights: str = "gpushare rbac") -> None:
        self.api = api
        self._hints = {
            403: f"`{rights}` prints the rights that the commands need",
            404: "this server does not have that resource",
        }
        self.unseen: list[ReadFailure] = []

    def read(  # noqa: PLR0913 - what a request consists of
        self,
        what: str,
        path: str,
        view: Callable[[Json], _T],
        keep: Callable[[_T], bool],
        query: Mapping[str, str],
        *,
        may_lack: bool = False,
    ) -> tuple[_T, ...]:
        """Return the objects to keep. A list that was not read to its end is empty: half of it would be wrong sums.

        `may_lack`: a server without the resource has no objects of it.
        """
        try:
            return self._whole(path, view, keep, query)
        except RequestError as problem:
            if problem.status != 404 or not may_lack:
                self.miss(what, problem)
            return ()

    def one(self, what: str, path: str) -> Json | None:
        """Return one object; None if it does not exist or cannot be read."""
        try:
            return self._get(path, {})
        except RequestError as problem:
            if problem.status != 404:
                self.miss(what, problem)
            return None

    def miss(self, what: str, problem: RequestError) -> None:
        """Note that something was not read."""
        hint = self._hints.get(problem.status or 0, "")
        self.unseen.append(ReadFailure(what=what, why=clean(str(problem), 300), hint=hint))

    def _whole(
        self, path: str, view: Callable[[Json], _T], keep: Callable[[_T], bool], query: Mapping[str, str]
    ) -> tuple[_T, ...]:
        for attempt in range(_ATTEMPTS):
            try:
                return tuple(one for page in self._pages(path, query) for one in map(view, page) if keep(one))
            except RequestError as problem:
                if problem.status != 410 or attempt == _ATTEMPTS - 1:  # 410: the list changed for too long while we read it
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _pages(self, path: str, query: Mapping[str, str]) -> Iterator[list[Json]]:
        limit, more, before = LIMIT, "", {""}
        for _ in range(MAX_PAGES):
            page_query = {**query, "limit": str(limit), **({"continue": more} if more else {})}
            try:
                found = self._get(path, page_query)
            except TooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 10)
                continue
            items = found.get("items")
            if not isinstance(items, list):
                raise RequestError(f"the answer is not a list: {shorten(str(found.get('kind')))}")
            yield [item for item in items if isinstance(item, dict)]
            metadata = found.get("metadata")
            following = metadata.get("continue") if isinstance(metadata, dict) else None
            if not following:
                return
            more = str(following)
            if more in before:
                raise RequestError("the server repeats a page of the list")
            before.add(more)
        raise RequestError(f"the list does not end after {MAX_PAGES} pages")

    def _get(self, path: str, query: Mapping[str, str]) -> Json:
        for attempt in range(1, _ATTEMPTS):
            try:
                return self.api.get(path, query)
            except RequestError as problem:
                if problem.status not in _PASSING:
                    raise
                time.sleep(_PAUSE_SECONDS * attempt)
        return self.api.get(path, query)
