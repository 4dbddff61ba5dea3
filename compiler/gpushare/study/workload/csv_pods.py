"""A CSV to a workload: what each column means, what a row needs, and what is assumed where the file does not say it.

The standard library's reader does not tell where a cell begins, and a quote that is never closed makes it swallow all rows
that follow. Here such a row ends with its line.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

from gpushare import vendors
from gpushare.core.units import MIB, is_dns_label, is_label_key, show_bytes
from gpushare.core.wording import join_first, join_words, nearest, pluralize, shorten, visible
from gpushare.study.workload import requests
from gpushare.study.workload.requests import MAX_PODS, BadCellError, LeftOut, PodRequest, Workload, WorkloadError

DELIMITERS = (",", ";", "\t", "|")
_LINE = re.compile(r"[^\r\n]*")
_MOST_LINES = 50
"""Over which a cell in quotes may extend."""


class Row:
    """One row: the texts of its cells, without quotes and the space around them.

    `problem` is empty, or why its cells cannot be told apart; then it has none.
    """

    __slots__ = ("_ends", "_record", "line", "problem", "texts")

    def __init__(self, line: int, record: str, texts: list[str], ends: list[int], problem: str = "") -> None:
        self.line = line
        self.texts = texts
        self.problem = problem
        self._record = record
        self._ends = ends

    def place(self, index: int) -> tuple[int, int]:
        """Return the line and the column where a cell begins, both counted from 1."""
        at = self._ends[index - 1] + 1 if index else 0
        at += len(self._record[at:]) - len(self._record[at:].lstrip(" "))
        return self.line + self._record.count("\n", 0, at), at - self._record.rfind("\n", 0, at)


def delimiter(text: str, known: Sequence[str]) -> str:
    """Return the delimiter by which most known names are found in the first line that is not empty."""
    start = re.search(r"\S", text)
    line = _LINE.match(text, start.start()) if start else None
    header = line[0] if line else ""

    def names(one: str) -> int:
        return len({name.strip().strip('"').lower() for name in header.split(one)} & set(known))

    return max(DELIMITERS, key=names)


def rows(text: str, mark: str) -> Iterator[Row]:
    """Yield the rows that are not empty, with `mark` between their cells. A line break in quotes belongs to its cell."""
    lines = re.split(r"\r\n|\n|\r", text)
    pattern = re.compile(rf' *"((?:[^"]|"")*)" *(?={re.escape(mark)}|\Z)|([^{re.escape(mark)}]*)')
    number = 0
    while number < len(lines):
        first = number + 1
        record = lines[number]
        number += 1
        if not record.strip():
            continue
        if '"' not in record:
            parts = record.split(mark)
            yield Row(
                first,
                record,
                [part.strip() for part in parts],
                [end - 1 for end in accumulate(len(part) + 1 for part in parts)],
            )
            continue
        whole, used = record, 0
        quotes = record.count('"')
        while quotes % 2 and used < _MOST_LINES and number + used < len(lines):
            following = lines[number + used]
            whole, used, quotes = f"{whole}\n{following}", used + 1, quotes + following.count('"')
        if quotes % 2:
            yield Row(first, record, [], [], "a quote is not closed")
            continue
        number += used
        yield Row(first, whole, *_quoted(whole, pattern))


def _quoted(record: str, pattern: re.Pattern[str]) -> tuple[list[str], list[int]]:
    """Return the texts of cells of which some are in quotes, and the offset behind each."""
    texts: list[str] = []
    ends: list[int] = []
    at = 0
    while at <= len(record) and (found := pattern.match(record, at)):
        text = found[2] if found[1] is None else found[1].replace('""', '"')
        texts.append(text.strip())
        at = found.end() + 1
        ends.append(at - 1)
    return texts, ends


AMOUNTS = ("memory", "share", "gpus", "resource")
COLUMNS = ("namespace", "name", *AMOUNTS, "count", "pool", "card", "arrival", "duration")
FORM = (
    "the first line names the columns: namespace,name,memory,arrival,duration, for example; "
    "in place of memory there may be share, gpus or resource"
)
_NAMESPACE = "default"
_MAX_NAME = 253
_SMALL = 128 * MIB
"""No program on a GPU needs less: a bare number below is more likely one of KiB."""


Values = dict[str, Any]
"""What the cells of a row mean, by column; those that are not empty."""


class _BadRowError(Exception):
    """Why a row cannot be used; `index` is that of the cell concerned, None for the whole row."""

    def __init__(self, index: int | None, reason: str) -> None:
        super().__init__(reason)
        self.index = index


def read(text: str, name: str) -> Workload:
    """Return the workload of a CSV. Raises WorkloadError if no row of it can be used."""
    found = rows(text, delimiter(text, COLUMNS))
    header = next(found, None)
    places = _places(header, name)
    table = _Table(places, len(header.texts) if header else 0)
    for number, row in enumerate(found, 1):
        if number > MAX_PODS:
            raise WorkloadError(f"{name} has more than {MAX_PODS:,} rows", "simulate a part of it, such as one day")
        table.take(row)
    if not table.pods:
        raise _nothing(name, table.left)
    unused = [cell for cell in header.texts if cell and cell.lower() not in places] if header else []
    pods = table.timed()
    return Workload(
        source=name,
        pods=tuple(pods),
        left_out=tuple(table.left),
        assumed=tuple(table.assumptions(pods)),
        unused=tuple(visible(shorten(one)) for one in unused),
    )


def _places(header: Row | None, name: str) -> Mapping[str, int]:
    """Return the index of each column that is known. Raises WorkloadError."""
    if header is None:
        raise WorkloadError(f"{name} is empty", FORM)
    if header.problem:
        raise WorkloadError(f"{name}:{header.line}: {header.problem}", FORM)
    names = [one.lower() for one in header.texts]
    twice = next((one for one, number in Counter(names).items() if number > 1 and one in COLUMNS), None)
    if twice:
        raise WorkloadError(f"{name}:{header.line}: there are two columns {twice}", FORM)
    places = {one: at for at, one in enumerate(names) if one in COLUMNS}
    if not any(one in places for one in AMOUNTS):
        close = [visible(shorten(one)) for one in names if nearest(one, AMOUNTS) or any(part in one for part in AMOUNTS)]
        meant = f"; rename {join_first(close)} if that is meant" if close and places else ""
        what = f"no column {join_words(AMOUNTS, 'or')}" if places else "no known column in its first line"
        raise WorkloadError(f"{name} has {what}", FORM + meant)
    return places


def _nothing(name: str, left: list[LeftOut]) -> WorkloadError:
    if not left:
        return WorkloadError(f"{name} has a header and no rows", FORM)
    reason, number = Counter(one.reason for one in left).most_common(1)[0]
    first = next(one for one in left if one.reason == reason)
    return WorkloadError(
        f"no row of {name} can be used: all {len(left)} are left out, {number} of them as line {first.line}: {reason}", FORM
    )


class _Table:
    """The rows that can be used and those that cannot, and a count of what rows do not say."""

    def __init__(self, places: Mapping[str, int], width: int) -> None:
        self.left: list[LeftOut] = []
        self.pods: list[tuple[int, Values]] = []
        self._places = places
        self._width = width
        self._kind: bool | None = None
        self._seen: Counter[str] = Counter()

    def take(self, row: Row) -> None:
        """Use a row, or leave it out. The first time in the table decides whether all are of the calendar."""
        try:
            values = self._values(row)
        except _BadRowError as bad:
            line, column = (row.line, 0) if bad.index is None else row.place(bad.index)
            self.left.append(LeftOut(line=line, column=column, reason=str(bad)))
        else:
            self.pods.append((row.line, values))

    def _values(self, row: Row) -> Values:
        if row.problem:
            raise _BadRowError(None, row.problem)
        texts = row.texts
        for at, text in enumerate(texts[self._width :], self._width):
            if text:
                raise _BadRowError(at, f"the row has {len(texts)} cells, the header {self._width}")
        cells = {name: texts[at] for name, at in self._places.items() if at < len(texts) and texts[at]}
        amount = [name for name in AMOUNTS if name in cells]
        if len(amount) != 1:
            if amount:
                raise _BadRowError(self._places[amount[1]], f"{join_words(amount)} are set: a pod asks for one of them")
            empty = join_words([one for one in AMOUNTS if one in self._places])
            raise _BadRowError(None, f"it asks for nothing: {empty} {'are' if ' ' in empty else 'is'} empty")
        values: Values = {}
        for name, text in cells.items():
            try:
                values[name] = _value(name, text)
            except BadCellError as problem:
                raise _BadRowError(self._places[name], f"{name}: {problem}") from problem
        if values.get("count", 1) != 1 and amount[0] != "resource":
            raise _BadRowError(self._places["count"], f"count belongs to resource, not to {amount[0]}")
        moment = values.get("arrival")
        if moment is not None:
            if self._kind not in (None, moment.is_calendar):
                reason = "arrival: times of the calendar and times from the beginning are mixed"
                raise _BadRowError(self._places["arrival"], reason)
            self._kind = moment.is_calendar
        self._note(cells, values)
        return values

    def _note(self, cells: Mapping[str, str], values: Values) -> None:
        """Count what a row that is used leaves open."""
        self._seen.update(name for name in ("namespace", "name", "arrival", "duration") if name not in cells)
        if "memory" in cells:
            unit = cells["memory"].lstrip("+0123456789.")
            self._seen["bytes" if not unit else "binary" if unit.endswith("i") else "decimal"] += 1
            self._seen["small"] += not unit and values["memory"] < _SMALL
        elif "share" in cells and not requests.is_exact(cells["share"], values["share"]):
            self._seen["rounded"] += 1
        if "arrival" in values and not values["arrival"].has_zone:
            self._seen["zone"] += 1

    def timed(self) -> list[PodRequest]:
        """Return the pods. The beginning is the earliest arrival if all are of the calendar."""
        moments = (values["arrival"].seconds for _, values in self.pods if "arrival" in values)
        earliest = min(moments, default=0) if self._kind else 0
        return [_pod(line, values, earliest) for line, values in self.pods]

    def assumptions(self, pods: list[PodRequest]) -> Iterator[str]:
        """Yield what is assumed, in words."""
        seen = self._seen
        if number := seen["namespace"]:
            yield f"{pluralize(number, 'row')} without a namespace: {_NAMESPACE}"
        if number := seen["name"]:
            yield f"{pluralize(number, 'row')} without a name: named by the line"
        twice = [key for key, number in Counter((pod.namespace, pod.name) for pod in pods).items() if number > 1]
        if twice:
            yield f"{pluralize(len(twice), 'name')} in several rows, such as {'/'.join(twice[0])}: each row is a pod"
        if number := seen["arrival"]:
            yield f"{pluralize(number, 'row')} without an arrival: at the beginning"
        if number := seen["duration"]:
            yield f"{pluralize(number, 'row')} without a duration: the pod stays"
        if self._kind:
            yield "the beginning is the earliest arrival"
        if number := seen["zone"]:
            yield f"{pluralize(number, 'arrival')} without a time zone: UTC"
        if number := seen["rounded"]:
            yield f"{pluralize(number, 'share')} rounded down to a thousandth of a GPU"
        if number := seen["bytes"]:
            small = f", {seen['small']:,} of them less than {show_bytes(_SMALL)}" if seen["small"] else ""
            yield f"{pluralize(number, 'row')} with memory as a bare number: bytes{small}"
        if seen["binary"] and seen["decimal"]:
            yield f"memory in units of 1000 ({pluralize(seen['decimal'], 'row')}) and of 1024: 4G is less than 4Gi"


def _pod(line: int, values: Values, earliest: int) -> PodRequest:
    arrival = values.get("arrival")
    return PodRequest(
        namespace=values.get("namespace", _NAMESPACE),
        name=values.get("name", f"row-{line}"),
        memory_bytes=values.get("memory"),
        milli=values.get("share"),
        gpus=values.get("gpus"),
        resource=values.get("resource"),
        count=values.get("count", 1),
        pool=values.get("pool", ""),
        cards=values.get("card", ()),
        arrival=0 if arrival is None else arrival.seconds - earliest,
        duration=values.get("duration"),
        line=line,
    )


def _of_text(name: str) -> Callable[[str], str]:
    """Return the check of a column that is a name."""

    def checked(text: str) -> str:
        if name == "resource" and not (is_label_key(text) and "/" in text):
            raise BadCellError(f"{shorten(text)!r} is no resource: write its whole name, such as {vendors.GPU_RESOURCES[0]}")
        if name in ("namespace", "pool") and not is_dns_label(text):
            raise BadCellError(f"{shorten(text)!r} cannot be a name: it has lower-case letters, digits and -")
        if len(text) > _MAX_NAME:
            raise BadCellError(f"it has more than {_MAX_NAME} characters")
        return text

    return checked


_MEANINGS: Mapping[str, Callable[[str], object]] = {
    "memory": requests.parse_memory,
    "share": requests.parse_share,
    "gpus": lambda text: requests.parse_count(text, "GPUs"),
    "count": lambda text: requests.parse_count(text, "the resource"),
    "arrival": requests.parse_moment,
    "duration": requests.parse_duration,
    "card": lambda text: tuple(dict.fromkeys(text.lower().replace("|", " ").split())),
} | {name: _of_text(name) for name in ("namespace", "name", "resource", "pool")}


@lru_cache(1 << 12)
def _value(name: str, text: str) -> object:
    """Return what a cell means: rows repeat themselves. Raises BadCellError."""
    if not text.isprintable() and visible(text) != text:
        what = "bytes that are not UTF-8" if any("\ud800" <= one <= "\udfff" for one in text) else "control characters"
        raise BadCellError(f"the cell has {what}")
    return _MEANINGS[name](text)
