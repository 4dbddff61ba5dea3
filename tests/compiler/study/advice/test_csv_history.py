"""Use from a CSV: what can be used is, what cannot is named by its line, and what was assumed is said."""

import contextlib
import random
from collections.abc import Mapping

import pytest

from gpushare.study.advice import history
from gpushare.study.advice.history import History, HistoryError
from tests.support import usage_series
from tests.support.usage_series import MIB, Shape

NOW = 1_800_000_000
HEAD = "time,namespace,pod,container,pool,device,used,cap\n"
GIB = 1 << 30
SIZE = "is no use of a GPU's memory such as 3500Mi, or bytes"
EARLY = "time is before 1970, or in milliseconds: seconds since 1970 are wanted"
NAMELESS = "namespace or pod is empty, or a name cannot be printed"


def read(text: str, head: str = HEAD) -> History:
    return history.read_csv((head + text).encode(), "use.csv", NOW)


def row(at: object = 1_790_000_000, used: object = "2Gi", **more: object) -> str:
    cells = {"time": at, "namespace": "a", "pod": "p", "container": "c", "pool": "notebooks", "device": "GPU-1"}
    return ",".join(str(cell) for cell in (cells | {"used": used, "cap": "3500Mi"} | more).values()) + "\n"


def rows(*used: object, step: int = 60) -> str:
    return "".join(row(1_790_000_000 + step * number, one) for number, one in enumerate(used))


def test_containers_and_their_use_by_time() -> None:
    text = (
        row(1_790_000_060, "2Gi") + row(1_790_000_000, "1024Mi") + row(1_790_000_000, 0, pod="q") + row("2026-09-21T14:15:20Z")
    )
    found = read(text)
    assert [(one.namespace, one.pod, one.container, one.pool, one.device, one.cap_bytes) for one in found.containers] == [
        ("a", "p", "c", "notebooks", "GPU-1", 3500 * MIB),
        ("a", "q", "c", "notebooks", "GPU-1", 3500 * MIB),
    ]
    assert found.containers[0].points == ((1_790_000_000, GIB), (1_790_000_060, 2 * GIB), (1_790_000_120, 2 * GIB))
    assert found.containers[1].points == ((1_790_000_000, 0),)
    assert (found.start, found.end, found.step_seconds) == (1_790_000_000, 1_790_000_180, 60)
    assert found.left_out == ()


def test_generated_history_is_read_back_however_it_is_sorted() -> None:
    made = usage_series.history([("a", 3, Shape(restarts=20, cap_mib=2500)), ("b", 2, Shape(leak_mib=4))], days=0.5)
    for order in (None, random.Random(3)):
        found = history.read_csv(usage_series.csv_text(made, shuffled=order).encode(), "use.csv", NOW)
        assert found.containers == made.containers
        assert (found.start, found.end, found.step_seconds) == (made.start, made.end, made.step_seconds)


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ("3500Mi", 3500 * MIB),
        ("3.5Gi", 3584 * MIB),
        ("4294967296", 4 * GIB),
        ("4.294967296e+09", 4 * GIB),
        ("5G", 5 * 10**9),
        ("0", 0),
        ("0Mi", 0),
    ],
)
def test_sizes(used: str, expected: int) -> None:
    found = read(rows(used, used))
    assert {size for _, size in found.containers[0].points} == {expected}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *[(row(used=one), f"used {SIZE}") for one in ("-1", "-4Gi", "NaN", "+Inf", "", "much", "1e99", "4 GB", "3500", "64Ti")],
        *[(row(cap=one), f"cap {SIZE}") for one in ("-3", "3500", "3500.5", "x")],
        *[(row(at=one), "time is neither RFC 3339 nor seconds since 1970") for one in ("yesterday", "-5", "")],
        *[(row(at=one), EARLY) for one in ("1960-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", 1_790_000_000_000)],
        (row(at=NOW + 1), "time lies in the future: a wrong clock"),
        *[(row(**{name: ""}), NAMELESS) for name in ("namespace", "pod")],
        *[(row(**{name: text}), NAMELESS) for name in ("pod", "device") for text in ("\x1b[2J", "\u202e", "x" * 254)],
        (row()[:-1] + ",\n", "not as many columns as the header, which has 8"),
        ("1,2,3\n", "not as many columns as the header, which has 8"),
        ('"' + row(), "unexpected end of data"),
        ("x" * 5000 + "\n", "the line is longer than 4096 bytes"),
    ],
)
def test_malformed_row_is_named_and_left_out(text: str, reason: str) -> None:
    good = rows("2Gi", "2Gi")
    found = read(good + text + text)
    assert found.left_out == (f"2 rows (lines 4 and 5): {reason}",)
    assert found.containers == read(good).containers


def test_row_that_is_not_utf8_and_a_quote_that_is_never_closed_cost_one_row_each() -> None:
    data = (HEAD + rows("2Gi")).encode() + b'\xff\xfe\n"' + rows("1Gi", "3Gi").encode()
    found = history.read_csv(data, "use.csv", NOW)
    assert found.left_out == ("1 row (line 3): not UTF-8", "1 row (line 4): unexpected end of data")
    assert [used for _, used in found.containers[0].points] == [2 * GIB, 3 * GIB]


def test_reasons_are_counted_and_the_most_frequent_is_first() -> None:
    found = read(rows("2Gi", "2Gi") + row(used="-1") + row(at="x") * 7)
    assert found.left_out == (
        "7 rows (lines 5, 6, 7, 8, 9 and 2 more): time is neither RFC 3339 nor seconds since 1970",
        f"1 row (line 4): used {SIZE}",
    )


def test_rows_of_a_clock_that_began_in_1970_do_not_stretch_the_window() -> None:
    good = rows("2Gi", "2Gi")
    found = read(row(at=0) + good + row(at=5, pod="q"))
    assert found.left_out == ("2 rows: more than a year before the last: a wrong clock, or another period",)
    assert found.containers == read(good).containers


def test_of_two_rows_of_one_time_the_larger_counts() -> None:
    found = read(rows("2Gi", "1Gi") + rows("1Gi", "3Gi"))
    assert [used for _, used in found.containers[0].points] == [2 * GIB, 3 * GIB]
    assert any("the largest counts" in one for one in found.assumed)


def test_rows_may_be_in_any_order() -> None:
    found = read(row(60) + row(120) + row(30) + row(90))
    assert [at for at, _ in found.containers[0].points] == [30, 60, 90, 120]
    assert found.assumed[0] == "use is sampled every 30 s: the median of the distances of two samples"


def test_times_without_a_zone_are_utc() -> None:
    found = read(row("2026-09-21T14:15:20") + row("2026-09-21 14:16:20Z"))
    assert [at for at, _ in found.containers[0].points] == [1_790_000_120, 1_790_000_180]


def test_caps_of_a_container_are_the_smallest_and_without_any_none() -> None:
    caps: Mapping[str, int | None] = {"3Gi": 3 * GIB, "none": 4 * GIB}
    for first, expected in caps.items():
        assert read(row(0, cap=first) + row(60, cap="4Gi")).containers[0].cap_bytes == expected
    assert read(row(0, cap="none") + row(60, cap="")).containers[0].cap_bytes is None


def test_quotes_line_ends_and_empty_cells() -> None:
    lines = [f'{at},a,"p",,,,5Mi,' for at in (0, 60)]
    found = history.read_csv(("\ufeff" + "\r\n".join([HEAD.strip(), *lines, ""])).encode(), "use.csv", NOW)
    [only] = found.containers
    assert (only.points, only.pod, only.container, only.pool) == (((0, 5 * MIB), (60, 5 * MIB)), "p", "", "")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1 is not the header"),
        (b"time,namespace,pod,used\n", "line 1 is not the header"),
        ("time,namespace".encode("utf-16"), "line 1 is not the header"),
        (b"\x00\x01\x02", "line 1 is not the header"),
        (HEAD.encode(), "no row can be used"),
        ((HEAD + row(used="-1")).encode(), rf"no row can be used; 1 row \(line 2\): used {SIZE}"),
        ((HEAD + row()).encode(), "no container has two samples"),
    ],
)
def test_file_that_says_nothing_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(HistoryError, match=message) as problem:
        history.read_csv(data, "use.csv", NOW)
    assert problem.value.hint


def test_file_that_is_too_large_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 10)
    with pytest.raises(HistoryError, match="larger than"):
        history.read_csv(b"x" * 11, "use.csv", NOW)


def test_more_containers_than_are_read_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_MAX_CONTAINERS", 2)
    found = read(rows("2Gi", "2Gi") + row(pod="q") + row(pod="r"))
    assert [one.pod for one in found.containers] == ["p", "q"]
    assert found.left_out == ("1 row (line 5): a container more than the 2 that are read: shorten the window",)


def test_no_bytes_break_the_reader() -> None:
    source = random.Random(5)
    good = (HEAD + rows("2Gi", "3500Mi", 5 * GIB, "NaN")).encode()
    for _ in range(400):
        data = bytearray(good)
        for _ in range(source.randrange(1, 6)):
            data[source.randrange(len(data))] = source.choice(b'",\n\r\x00\xff-e.0 ZT')
        with contextlib.suppress(HistoryError):  # a broken header
            found = history.read_csv(bytes(data), "use.csv", NOW)
            assert all(text.isprintable() for text in (*found.left_out, *found.assumed, *found.warnings))
            assert all(one.points == tuple(sorted(dict(one.points).items())) for one in found.containers)
