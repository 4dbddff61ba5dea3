"""Lists in pages: none is lost, none twice, and half a list is no list."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpushare.cluster.live import pages
from gpushare.cluster.live.pages import Lists, RequestError, TooLargeError


class Scripted:
    """Answers from a list of items, with errors before some requests."""

    def __init__(self, count: int, errors: Mapping[int, RequestError] | None = None, most: int = pages.LIMIT) -> None:
        self.count, self.errors, self.most = count, dict(errors or {}), most
        self.asked: list[Mapping[str, str]] = []

    def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        query = query or {}
        self.asked.append(query)
        error = self.errors.get(len(self.asked))
        if error is not None:
            raise error
        if int(query["limit"]) > self.most:
            raise TooLargeError("large")
        begin = int(query.get("continue", "0"))
        end = min(begin + int(query["limit"]), self.count)
        more = {"continue": str(end)} if end < self.count else {}
        return {"metadata": more, "items": [{"number": number} for number in range(begin, end)]}

    def read(self, *_: object, **__: object) -> bytes:
        raise AssertionError


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_PAUSE_SECONDS", 0)


def read(api: Scripted) -> tuple[tuple[int, ...], Lists]:
    lists = Lists(api)
    return lists.read("things", "/things", lambda item: int(item["number"]), lambda _: True, {}), lists


def test_all_pages_are_read_once() -> None:
    found, lists = read(Scripted(1234))
    assert found == tuple(range(1234))
    assert not lists.unseen


def test_a_list_that_expires_is_read_from_its_beginning() -> None:
    api = Scripted(1234, {3: RequestError("410: expired", 410)})
    assert read(api)[0] == tuple(range(1234))
    assert len(api.asked) == 6


def test_list_that_always_expires_is_reported_as_unread() -> None:
    api = Scripted(1234, {number: RequestError("410: expired", 410) for number in (2, 4, 6)})
    found, lists = read(api)
    assert found == ()
    assert [one.what for one in lists.unseen] == ["things"]


def test_partial_list_is_discarded() -> None:
    found, lists = read(Scripted(1234, {3: RequestError("403: no", 403)}))
    assert found == ()
    assert "gpushare rbac" in lists.unseen[0].hint


def test_transient_refusal_is_retried() -> None:
    assert read(Scripted(3, {1: RequestError("503: busy", 503), 2: RequestError("429: slower", 429)}))[0] == (0, 1, 2)


def test_too_large_page_is_requested_in_smaller_ones() -> None:
    api = Scripted(20, most=5)
    assert read(api)[0] == tuple(range(20))
    assert [query["limit"] for query in api.asked] == ["500", "50", "5", "5", "5", "5"]


def test_too_large_object_aborts_the_list() -> None:
    assert read(Scripted(20, most=0))[1].unseen


def test_server_that_repeats_a_page_does_not_loop_forever() -> None:
    class Looping(Scripted):
        turns, period = 0, 1

        def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
            self.turns += 1
            return {"metadata": {"continue": "ab"[self.turns % self.period]}, "items": []}

    for period in (1, 2):
        looping = Looping(0)
        looping.period = period
        assert "repeats a page" in read(looping)[1].unseen[0].why


def test_endless_list_is_reported_as_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Scripted):
        def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
            self.asked.append(query or {})
            return {"metadata": {"continue": str(len(self.asked))}, "items": [{"number": 1}]}

    monkeypatch.setattr(pages, "MAX_PAGES", 50)
    api = Endless(0)
    found, lists = read(api)
    assert (found, len(api.asked)) == ((), 50)
    assert "does not end after 50 pages" in lists.unseen[0].why


@pytest.mark.parametrize("answer", [{}, {"items": None}, {"items": {}}, {"kind": "Status"}, {"items": 7, "metadata": []}])
def test_invalid_list_response_is_reported_as_unread(answer: dict[str, Any]) -> None:
    class Odd(Scripted):
        def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
            return answer

    assert read(Odd(0))[1].unseen
