"""Use from a CSV: what can be used is, what cannot is named by its line, and what was assumed is said."""

import contextlib
import random
from collections.abc import Mapping

import pytest

from gpushare.advice import csv_history
from gpushare.advice.history import History, HistoryError
from tests.support import usage_series
from tests.support.usage_series import MIB, Shape

NOW = 1_800_000_000
HEAD = "time,namespace,pod,container,pool,device,used,cap\n"
GIB = 1 << 30


def read(text: str, head: str = HEAD) -> History:
    return csv_history.read((head + text).encode(), "use.csv", NOW)


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
        found = csv_history.read(usage_series.csv_text(made, shuffled=order).encode(), "use.csv", NOW)
        assert found.containers == made.containers
        assert (found.start, found.end, found.step_seconds) == (made.start, made.end, made.step_seconds)


@pytest.mark.parametrize(
    ("head", "cells", "expected"),
    [
        ("used", "3500Mi", 3500 * MIB),
        ("used", "3.5Gi", 3584 * MIB),
        ("used", "4294967296", 4 * GIB),
        ("used", "4.294967296e+09", 4 * GIB),
        ("used", "4GiB", 4 * GIB),
        ("used", "2 MiB", 2 * MIB),
        ("used", "0", 0),
        ("used", "0Mi", 0),
        ("used_mib", "3500", 3500 * MIB),
        ("used_mib", "0.5", MIB // 2),
        ("used_mib", "1234.567890123456", 1294538260),
        ("Used_GiB", "4", 4 * GIB),
        ("used_gb", "4", 4 * 10**9),
        ("used_bytes", "17", 17),
        ("USED", "5G", 5 * 10**9),
    ],
)
def test_units(head: str, cells: str, expected: int) -> None:
    found = read(f"0,a,p,{cells}\n60,a,p,{cells}\n", f"time,namespace,pod,{head}\n")
    assert {used for _, used in found.containers[0].points} == {expected}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (row(used="-1"), "used is negative"),
        (row(used="-4Gi"), "used is negative"),
        (row(used="NaN"), "used is not a number: not measured"),
        (row(used="+Inf"), "used is not a number: not measured"),
        (row(used=""), "used is empty"),
        (row(used="much"), "used is no quantity such as 3500Mi, and no number"),
        (row(used="1e99"), "used is more than any GPU has: in another unit?"),
        (row(used="4 GB"), "used is in GB or GiB, which it does not say: write 4Gi or 4G"),
        (row(used="3500"), "used is less than 1Mi and has no unit: 3500Mi, or a column used_mib"),
        (row(used="64Ti"), "used is more than any GPU has: in another unit?"),
        (row(cap="-3"), "cap is negative"),
        (row(cap="3500"), "cap is less than 1Mi and has no unit: 3500Mi, or a column cap_mib"),
        (row(at="yesterday"), "time is neither RFC 3339 nor seconds since 1970"),
        (row(at="-5"), "time is neither RFC 3339 nor seconds since 1970"),
        (row(at="1960-01-01T00:00:00Z"), "time is before 1970"),
        (row(at="0001-01-01T00:00:00+14:00"), "time is before 1970"),
        (row(at=1_790_000_000_000), "time is after the year 5000: seconds since 1970 are wanted, not milliseconds"),
        (row(at=NOW + 1), "time lies in the future: a wrong clock"),
        (row(at=0), "time is more than a year before the last row: a wrong clock, or another period"),
        (row(namespace="A b"), "namespace is not a valid name"),
        (row(namespace=""), "namespace is empty"),
        (row(pod="\x1b[2J"), "pod is not a valid name"),
        (row(container=""), "container is empty"),
        (row(pool="a/b"), "pool is not a valid name"),
        (row(device="\u202e"), "device is not a valid name"),
        (row()[:-1] + ",\n", "not as many columns as the header, which has 8"),
        ("1,2,3\n", "not as many columns as the header, which has 8"),
        ('"' + row(), "a quote is not closed, or not where a cell begins"),
        ("x" * 5000 + "\n", "the line is longer than 4096 bytes"),
    ],
)
def test_malformed_row_is_named_and_left_out(text: str, reason: str) -> None:
    good = rows("2Gi", "2Gi")
    found = read(good + text + text)
    assert found.left_out == (f"2 rows (lines 4, 5): {reason}",)
    assert found.containers == read(good).containers


def test_row_that_is_not_utf8_and_a_quote_that_is_never_closed_cost_one_row_each() -> None:
    data = (HEAD + rows("2Gi")).encode() + b'\xff\xfe\n"' + rows("1Gi", "3Gi").encode()
    found = csv_history.read(data, "use.csv", NOW)
    assert found.left_out == ("1 row (line 3): not UTF-8", "1 row (line 4): a quote is not closed, or not where a cell begins")
    assert [used for _, used in found.containers[0].points] == [2 * GIB, 3 * GIB]


def test_reasons_are_counted_and_the_most_frequent_is_first() -> None:
    found = read(rows("2Gi", "2Gi") + row(used="-1") + row(used="NaN") * 7)
    assert found.left_out == (
        "7 rows (lines 5, 6, 7, 8, 9, …): used is not a number: not measured",
        "1 row (line 4): used is negative",
    )


def test_of_two_rows_of_one_time_the_larger_counts() -> None:
    found = read(rows("2Gi", "1Gi") + rows("2Gi", "3Gi"))
    assert [used for _, used in found.containers[0].points] == [2 * GIB, 3 * GIB]
    assert found.left_out == (
        "1 row (line 4): repeats another row",
        "1 row (line 5): another use at the same time, for the same container and device: the larger counts",
    )


def test_clock_that_is_set_back_is_said() -> None:
    found = read(row(60) + row(120) + row(30) + row(90))
    assert [at for at, _ in found.containers[0].points] == [30, 60, 90, 120]
    assert "rows not in the order of time were sorted: the file is unsorted, or a clock was set back" in found.assumed


@pytest.mark.parametrize(
    ("head", "text", "assumed"),
    [
        (HEAD, row("2026-09-21T14:15:20") + row("2026-09-21 14:16:20"), ["times without a zone are UTC"]),
        (HEAD, row(0, 2 * GIB) + row(60, 2 * GIB), ["numbers without a unit in column used are bytes"]),
        (HEAD, row(0, cap="3Gi") + row(60, cap="4Gi"), ["of several caps of one container, the smallest was in force"]),
        (HEAD, row(0, cap="none") + row(60, cap=""), []),
        (
            "time,namespace,pod,used\n",
            "0,a,p,2Gi\n60,a,p,2Gi\n",
            [
                "each pod has one container: there is no column container",
                "each container has one device: there is no column device",
                "no container had a cap: there is no column cap",
            ],
        ),
    ],
)
def test_what_is_assumed_is_said(head: str, text: str, assumed: list[str]) -> None:
    every = [*assumed, "use is sampled every 60 s: the median of the distances of two samples"]
    assert sorted(read(text, head).assumed) == sorted(every)


def test_caps_of_a_container_are_the_smallest_and_without_any_none() -> None:
    caps: Mapping[str, int | None] = {"3Gi": 3 * GIB, "none": 4 * GIB}
    for first, expected in caps.items():
        assert read(row(0, cap=first) + row(60, cap="4Gi")).containers[0].cap_bytes == expected
    assert read(row(0, cap="none") + row(60, cap="-")).containers[0].cap_bytes is None


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_other_delimiters_quotes_line_ends_and_unknown_columns(delimiter: str) -> None:
    head = delimiter.join(["Timestamp", "namespace", "pod", "gpu", "used_mib", "colour"])
    lines = [delimiter.join([str(at), "a", '"p"', "GPU-1", "5", "red"]) for at in (0, 60)]
    found = csv_history.read(("\ufeff" + "\r\n".join([head, *lines, ""])).encode(), "use.csv", NOW)
    assert found.containers[0].points == ((0, 5 * MIB), (60, 5 * MIB))
    assert (found.containers[0].pod, found.containers[0].device) == ("p", "GPU-1")
    assert found.left_out == ("columns that are not known: colour",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1: no column time, namespace, pod or used"),
        (HEAD.encode(), "none of 0 rows can be used"),
        ((HEAD + row(used="-1")).encode(), r"none of 1 row can be used; 1 row \(line 2\): used is negative"),
        ((HEAD + row()).encode(), "no container has two samples"),
        (b"time,namespace,pod\n", "line 1: no column used"),
        (b"time,namespace,pod,used,used_mib\n", "line 1: the columns used and used_mib are both its used"),
        (b"time,timestamp,namespace,pod,used\n", "line 1: the columns time and timestamp are both its time"),
        (b'"time,namespace\n', "line 1, the header: a quote is not closed"),
        ("time,namespace".encode("utf-16"), "use.csv is UTF-16"),
        (b"\x00\x01\x02", "line 1: no column"),
    ],
)
def test_file_that_says_nothing_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(HistoryError, match=message) as problem:
        csv_history.read(data, "use.csv", NOW)
    assert problem.value.hint


def test_file_that_is_too_large_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_history, "MAX_BYTES", 10)
    with pytest.raises(HistoryError, match="larger than"):
        csv_history.read(b"x" * 11, "use.csv", NOW)


def test_more_containers_than_are_read_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_history, "_MAX_CONTAINERS", 2)
    found = read(rows("2Gi", "2Gi") + row(pod="q") + row(pod="r"))
    assert [one.pod for one in found.containers] == ["p", "q"]
    assert found.left_out == ("1 row (line 5): a container more than the 2 that are read: shorten the window",)


def test_containers_that_are_sampled_less_often_are_named() -> None:
    often = "".join(row(60 * number) for number in range(50))
    seldom = "".join(row(3600 * number, pod="q") for number in range(5))
    assert read(often + seldom).warnings == ("1 container of 2 sampled less than every 180 s: mostly gaps",)


def test_no_bytes_break_the_reader() -> None:
    source = random.Random(5)
    good = (HEAD + rows("2Gi", "3500Mi", 5 * GIB, "NaN")).encode()
    for _ in range(400):
        data = bytearray(good)
        for _ in range(source.randrange(1, 6)):
            data[source.randrange(len(data))] = source.choice(b'",\n\r\x00\xff-e.0 ZT')
        with contextlib.suppress(HistoryError):  # a broken header
            found = csv_history.read(bytes(data), "use.csv", NOW)
            assert all(text.isprintable() for text in (*found.left_out, *found.assumed, *found.warnings))
            assert all(one.points == tuple(sorted(dict(one.points).items())) for one in found.containers)
