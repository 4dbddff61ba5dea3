"""A CSV as a workload: what its columns mean, and what is said of rows that cannot be used."""

import pytest

from gpushare.study.workload import Workload, WorkloadError, csv_pods, load
from gpushare.study.workload.requests import PodRequest

GIB = 1 << 30


def loaded(text: str | bytes) -> Workload:
    return load(text if isinstance(text, bytes) else text.encode(), "pods.csv")


def left_out(text: str | bytes) -> list[tuple[int, int, str]]:
    """What is left out of a table of which a last row can be used."""
    return [(one.line, one.column, one.reason) for one in loaded(text).left_out]


def test_columns_in_any_order_and_only_those_that_are_used() -> None:
    found = loaded(
        "duration,Memory,cost centre,namespace,arrival,name,pool,card\n"
        "2h,4Gi,17,physics,90s,a,notebooks,T4|l4\n"
        "1d,500M,,biology,0,b,,\n"
    )
    assert found.pods == (
        PodRequest(
            namespace="physics",
            name="a",
            memory_bytes=4 * GIB,
            pool="notebooks",
            cards=("t4", "l4"),
            arrival=90,
            duration=7200,
            line=2,
        ),
        PodRequest(namespace="biology", name="b", memory_bytes=500_000_000, duration=86_400, line=3),
    )
    assert (found.left_out, found.unused) == ((), ("cost centre",))
    assert found.assumed == ("memory in units of 1000 (1 row) and of 1024: 4G is less than 4Gi",)


@pytest.mark.parametrize(
    ("share", "milli"),
    [("0.25", 250), ("1/4", 250), ("25%", 250), ("12.5 %", 125), ("1", 1000), ("1/3", 333), ("2 / 3", 666), ("0.3339", 333)],
)
def test_share_is_thousandths_of_a_gpu(share: str, milli: int) -> None:
    found = loaded(f"name,share,duration,arrival,namespace\na,{share},1,0,n\n")
    assert found.pods[0].milli == milli
    assert bool(found.assumed) == (share in {"1/3", "2 / 3", "0.3339"})


def test_whole_gpus_and_resources_by_name() -> None:
    found = loaded("gpus,resource,count\n2,,\n,nvidia.com/mig-1g.5gb,\n,amd.com/gpu,3\n")
    assert [(pod.gpus, pod.resource, pod.count) for pod in found.pods] == [
        (2, None, 1),
        (None, "nvidia.com/mig-1g.5gb", 1),
        (None, "amd.com/gpu", 3),
    ]


def test_what_the_file_does_not_say_is_assumed_and_said() -> None:
    found = loaded("memory\n4Gi\n8589934592\n")
    assert [(pod.namespace, pod.name, pod.arrival, pod.duration) for pod in found.pods] == [
        ("default", "row-2", 0, None),
        ("default", "row-3", 0, None),
    ]
    assert found.assumed == (
        "2 rows without a namespace: default",
        "2 rows without a name: named by the line",
        "2 rows without an arrival: at the beginning",
        "2 rows without a duration: the pod stays",
        "1 row with memory as a bare number: bytes",
    )
    small = loaded("memory\n8589934592\n16777216\n")
    assert small.assumed[-1] == "2 rows with memory as a bare number: bytes, 1 of them less than 128Mi"


def test_same_name_twice_is_two_pods() -> None:
    found = loaded("name,share,arrival,duration,namespace\na,1/2,0,60,n\na,1/2,60,60,n\nb,1/2,60,60,n\n")
    assert len(found.pods) == 3
    assert found.assumed == ("1 name in several rows, such as n/a: each row is a pod",)


@pytest.mark.parametrize(
    ("arrivals", "seconds", "assumed"),
    [
        (("90", "2m", "1h30m", "0.9"), (90, 120, 5400, 0), ""),
        (("2026-10-01T06:00:00Z", "2026-10-01T08:00:00+02:00", "2026-10-01t06:01:00.9z"), (0, 0, 60), "earliest"),
        (("2026-10-01 06:00", "2026-10-01 07:00"), (0, 3600), "2 arrivals without a time zone: UTC"),
        (("1790000000", "1790000060", "2026-09-21T14:15:00Z"), (0, 60, 100), "earliest"),
    ],
)
def test_arrivals(arrivals: tuple[str, ...], seconds: tuple[int, ...], assumed: str) -> None:
    found = loaded(
        "arrival,share,name,namespace,duration\n" + "".join(f"{one},0.5,a{at},n,60\n" for at, one in enumerate(arrivals))
    )
    earliest = min(pod.arrival for pod in found.pods)
    assert tuple(pod.arrival for pod in found.pods) == seconds
    assert assumed in "; ".join(found.assumed)
    assert earliest == min(seconds)


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("memory", "4096", "4096 is less than 1Mi: a bare number counts bytes; for MiB write 4096Mi, for GiB 4096Gi"),
        ("memory", "4GB", "'4GB' is no quantity of memory: write 4Gi or 4G"),
        ("memory", "512 MiB", "'512 MiB' is no quantity of memory: write 512Mi"),
        ("memory", "4m", "'4m' is no quantity of memory: write 4Mi or 4M"),
        ("memory", "-4Gi", "'-4Gi' is no quantity of memory: write it as in an intent, such as 4Gi or 3500Mi"),
        ("memory", "nan", "'nan' is no quantity of memory: write it as in an intent, such as 4Gi or 3500Mi"),
        ("memory", "12Ki", "12Ki is less than 1Mi: write it in Mi or Gi"),
        ("share", "25", "25 is more than a GPU: write 25%, or 25 in a column gpus"),
        ("share", "810", "810 is more than a GPU"),
        ("share", "1/0", "'1/0' divides by 0"),
        ("share", "0", "0 is less than a thousandth of a GPU"),
        ("share", "-0.5", "'-0.5' is no share: write 0.25, 1/4 or 25%"),
        ("share", "half", "'half' is no share: write 0.25, 1/4 or 25%"),
        ("gpus", "0.5", "0.5 is a part of a GPU: write it in a column share"),
        ("gpus", "0", "'0' is no number of GPUs from 1 to 10000"),
        ("gpus", "\u0663", "'\u0663' is no number of GPUs from 1 to 10000"),
        ("resource", "gpu", "'gpu' is no resource: write its whole name, such as nvidia.com/gpu"),
    ],
)
def test_amount_that_cannot_be_read_is_named_by_line_and_column(column: str, cell: str, reason: str) -> None:
    good = {"memory": "4Gi", "share": "1/2", "gpus": "1", "resource": "nvidia.com/gpu"}[column]
    assert left_out(f"name,{column}\na,{cell}\nb,{good}\n") == [(2, 3, f"{column}: {reason}")]


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("arrival", "yesterday", "'yesterday' is no time: write seconds, 90s, 2h or 2026-10-01T06:00:00Z"),
        ("arrival", "-5", "'-5' is no time: write seconds, 90s, 2h or 2026-10-01T06:00:00Z"),
        ("arrival", "1790000000000", "1790000000000 seconds are no time: are they milliseconds?"),
        ("arrival", "2026-02-30T00:00:00Z", "2026-02-30T00:00:00Z does not exist in the calendar"),
        ("arrival", "1970-01-01T00:00:07Z", "1970-01-01T00:00:07Z is before the year 2000: a clock that was not set"),
        ("arrival", "2026-02-01T00:00:00Z", "times of the calendar and times from the beginning are mixed"),
        ("duration", "0", "0 is no duration: leave it empty for a pod that stays"),
        ("duration", "1w", "'1w' is no duration: write seconds, 90s, 5m, 2h or 1d"),
        ("duration", "86400000000", "86400000000 is more than 100 years: is it in milliseconds?"),
        ("namespace", "Physics", "'Physics' cannot be a name: it has lower-case letters, digits and -"),
        ("pool", "a b", "'a b' cannot be a name: it has lower-case letters, digits and -"),
        ("name", "x" * 254, "it has more than 253 characters"),
        ("name", "a\x1b[31m", "the cell has control characters"),
        ("count", "2", "count belongs to resource, not to share"),
        ("count", "two", "'two' is no number of the resource from 1 to 10000"),
    ],
)
def test_other_cell_that_cannot_be_read(column: str, cell: str, reason: str) -> None:
    good = "60" if column == "arrival" else ""
    shown = reason if reason.startswith("count") else f"{column}: {reason}"
    assert left_out(f"share,{column}\n1/2,{good}\n1/2,{cell}\n") == [(3, 5, shown)]


def test_rows_of_another_shape() -> None:
    assert left_out("memory,share,name\n1Gi,1/2,a\n,,b\n1Gi,,c,d\n\n   \n1Gi\n") == [
        (2, 5, "memory and share are set: a pod asks for one of them"),
        (3, 0, "it asks for nothing: memory and share are empty"),
        (4, 8, "the row has 4 cells, the header 3"),
    ]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_delimiters_byte_order_marks_quotes_and_line_breaks(mark: str, end: str) -> None:
    rows = [["name", "note", "memory"], ['"a"', f'"x{mark}y{end}""z"""', ' "4Gi" '], ["b", "", "wrong"]]
    found = loaded("\ufeff" + end.join(mark.join(row) for row in rows) + end)
    assert [(pod.name, pod.memory_bytes, pod.line) for pod in found.pods] == [("a", 4 * GIB, 2)]
    assert [(one.line, one.column) for one in found.left_out] == [(4, 4)]


def test_cell_behind_a_line_break_in_quotes_is_named_by_its_own_line() -> None:
    assert left_out('note,memory\n"x\ny", 4GB\n,4Gi\n')[0][:2] == (3, 5)


def test_quote_that_is_not_closed_costs_its_own_row_alone() -> None:
    assert left_out('name,memory\n"a,4Gi\nb,4Gi\n' + "c,4Gi\n" * 60) == [(2, 0, "a quote is not closed")]


def test_decimal_comma_is_explained() -> None:
    assert left_out("name;share\na;0,25\nb;1/2\n")[0][2] == "share: '0,25' is no share: write 0.25"


def test_bytes_that_are_not_text_cost_their_row_alone() -> None:
    assert left_out(b"name,memory\n\xff,4Gi\na\x00,4Gi\nb,4Gi\n") == [
        (2, 1, "name: the cell has bytes that are not UTF-8"),
        (3, 1, "name: the cell has control characters"),
    ]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (b"", "pods.csv is empty", "a workload is a CSV"),
        (b" \n\n", "pods.csv is empty", "a workload is a CSV"),
        ("name,memory\n", "pods.csv has a header and no rows", "the first line names the columns"),
        ("a,b\n1,2\n", "pods.csv has no known column in its first line", "the first line names the columns"),
        ("name,milli\na,3\n", "pods.csv has no column memory, share, gpus or resource", "the first line"),
        (
            "name,memory_mib\na,3\n",
            "pods.csv has no column memory, share, gpus or resource",
            "rename memory_mib if that is meant",
        ),
        ("memory,Memory\n1Gi,1Gi\n", "pods.csv:1: there are two columns memory", "the first line"),
        ('"memory\n1Gi\n', "pods.csv:1: a quote is not closed", "the first line"),
        (
            "memory\n4096\n4097\n\n4GB\n4GB\n",
            "no row of pods.csv can be used: all 4 are left out, 2 of them as line 5: memory: '4GB' is no quantity of memory",
            "the first line",
        ),
        ("memory\n1Gi\n".encode("utf-16"), "pods.csv is UTF-16, not UTF-8", "save the file as UTF-8 text"),
        (b"memory\n" * (10 << 20), "pods.csv has more than 64 MiB, which is the limit", "simulate a part of it"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_file_of_which_nothing_can_be_used(text: str | bytes, message: str, hint: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        loaded(text)
    assert str(caught.value).startswith(message)
    assert hint in caught.value.hint


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_pods, "MAX_PODS", 3)
    assert len(loaded("gpus\n1\n1\nx\n").pods) == 2
    with pytest.raises(WorkloadError, match="has more than 3 rows"):
        loaded("gpus\n1\n1\nx\n1\n")
