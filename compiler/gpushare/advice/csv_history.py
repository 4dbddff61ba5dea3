"""Measured use from a CSV: a row for each sample. Rows that cannot be used are named by line and left out; nothing is guessed.

Each line is a row, so that a quote that is never closed costs one row. Memory and time grow with the rows, at most MAX_BYTES.
"""

import csv
import math
import re
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from io import BytesIO
from itertools import pairwise

from gpushare.advice.history import ContainerUse, History, HistoryError
from gpushare.core.printable import visible
from gpushare.core.units import MIB, is_dns_label, is_dns_subdomain, is_label_value, meant_sizes, parse_quantity
from gpushare.core.wording import join_first, join_words, pluralize, shorten
from gpushare_node.contract.struct import Struct

MAX_BYTES = 512 << 20
_MAX_LINE = 4096
_MAX_USED = 1 << 44
"""More memory than any GPU has: a number in another unit than the column's name says."""
_MAX_SECONDS = 366 * 86400
_MAX_CACHED = 200_000
_MAX_CONTAINERS = 200_000
"""On their devices; each takes a kilobyte."""
_MILLISECONDS = 1e11
_FEW = 5
_UNITS = {
    "bytes": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
_SIZES = tuple(f"{name}{unit}" for name in ("used", "cap") for unit in ("", *(f"_{unit}" for unit in _UNITS)))
_NAMES = {"time": "time", "timestamp": "time", "gpu": "device", **{name: name for name in _SIZES}}
_KEY = ("namespace", "pod", "container", "pool", "device")
_NAMES |= {name: name for name in _KEY}
_REQUIRED = ("time", "namespace", "pod", "used")
_FORM = "columns: time, namespace, pod, container, pool, device, used or used_mib …, cap; required: time, namespace, pod, used"
_NUMBER = re.compile(r"\+?[0-9]{1,18}(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,2})?\Z")
_IN_BYTES = {column: f"numbers without a unit in column {column} are bytes" for column in ("used", "cap")}
_NO_CAP = frozenset({"", "-", "none", "None", "0"})


class _Columns(Struct):
    """Where the columns are, `names` those of _KEY; None: there is none.

    `used_unit` and `cap_unit` are the bytes of 1; 0: the cell says its unit.
    """

    time: int
    names: tuple[int | None, ...]
    used: int
    used_unit: int
    cap: int | None
    cap_unit: int
    number: int
    delimiter: str
    unknown: tuple[str, ...]


class _Samples:
    """The samples of one container on one device, in the order of the file, and its caps."""

    __slots__ = ("caps", "lines", "times", "used")

    def __init__(self) -> None:
        self.times, self.used, self.lines = array("q"), array("q"), array("q")
        self.caps: set[int] = set()


class _MalformedError(ValueError):
    """Why a row is left out."""


def read(data: bytes, name: str, now: float | None = None) -> History:
    """Return the history in a CSV. HistoryError if nothing of it can be used. Rows later than `now` are left out."""
    if len(data) > MAX_BYTES:
        raise HistoryError(f"{visible(name)} is larger than {MAX_BYTES >> 20} MiB", "shorten the window")
    return _Reading(data, visible(name), time.time() if now is None else now).history()


class _Reading:
    """One file: its samples by container and device, the rows that are left out, and what was assumed."""

    def __init__(self, data: bytes, name: str, now: float) -> None:
        self._name, self._now = name, int(now)
        self._lines = enumerate(BytesIO(data), 1)
        self._columns = self._header()
        self._found: dict[tuple[str, ...], _Samples] = {}
        self._by_cells: dict[tuple[str | None, ...], _Samples] = {}
        self._times: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self._caps: dict[str, int] = {}
        self._left_out: dict[str, array[int]] = {}
        self._assumed: set[str] = set()

    def history(self) -> History:
        line = 1
        for line, raw in self._lines:
            try:
                self._row(line, raw)
            except _MalformedError as problem:
                self._leave_out(str(problem), line)
        if not self._found:
            raise self._nothing(f"none of {pluralize(line - 1, 'row')} can be used")
        self._cut()
        containers = [self._use(key, self._found[key]) for key in sorted(self._found)]
        if not containers:
            raise self._nothing("no row can be used")
        step = self._step(containers)
        return History(
            source=self._name,
            start=min(one.points[0][0] for one in containers),
            end=max(one.points[-1][0] for one in containers) + step,
            step_seconds=step,
            containers=tuple(containers),
            left_out=tuple(self._reasons()),
            warnings=tuple(_irregular(containers, step)),
            assumed=tuple(self._assumptions()),
        )

    def _header(self) -> _Columns:
        _, raw = next(self._lines, (0, b""))
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise HistoryError(f"{self._name} is UTF-16", "save it as UTF-8")
        text = raw.decode("utf-8-sig", "replace").strip("\r\n")
        delimiter = next((one for one in ",;\t" if one in text), ",")
        try:
            names = [cell.strip().lower() for cell in _cells(text, delimiter)]
        except _MalformedError as problem:
            raise HistoryError(f"{self._name}: line 1, the header: {problem}", _FORM) from problem
        return self._chosen(names, delimiter)

    def _chosen(self, names: list[str], delimiter: str) -> _Columns:
        at: dict[str, int] = {}
        units: dict[str, int] = {}
        for index, name in enumerate(names):
            known = _NAMES.get(name)
            if known is None:
                continue
            field, _, unit = known.partition("_")
            if field in at:
                both = f"the columns {names[at[field]]} and {name} are both its {field}"
                raise HistoryError(f"{self._name}: line 1: {both}", _FORM)
            at[field], units[field] = index, _UNITS.get(unit, 0)
        lacks = [field for field in _REQUIRED if field not in at]
        if lacks:
            raise HistoryError(f"{self._name}: line 1: no column {join_words(lacks, 'or')}", _FORM)
        return _Columns(
            time=at["time"],
            names=tuple(at.get(field) for field in _KEY),
            used=at["used"],
            cap=at.get("cap"),
            used_unit=units["used"],
            cap_unit=units.get("cap", 0),
            number=len(names),
            delimiter=delimiter,
            unknown=tuple(visible(shorten(name)) for name in names if name not in _NAMES),
        )

    def _row(self, line: int, raw: bytes) -> None:
        if len(raw) > _MAX_LINE:
            raise _MalformedError(f"the line is longer than {_MAX_LINE} bytes")
        try:
            text = raw.decode().rstrip("\r\n")
        except UnicodeDecodeError as problem:
            raise _MalformedError("not UTF-8") from problem
        if not text.strip():
            return
        columns = self._columns
        cells = _cells(text, columns.delimiter)
        if len(cells) != columns.number:
            raise _MalformedError(f"not as many columns as the header, which has {columns.number}")
        at = self._time(cells[columns.time])
        used = self._size(cells[columns.used], columns.used_unit, "used", self._used)
        cap = 0 if columns.cap is None else self._size(cells[columns.cap], columns.cap_unit, "cap", self._caps)
        samples = self._samples(cells)
        samples.times.append(at)
        samples.used.append(used)
        samples.lines.append(line)
        if cap:
            samples.caps.add(cap)

    def _samples(self, cells: list[str]) -> _Samples:
        raw = tuple([None if index is None else cells[index] for index in self._columns.names])
        samples = self._by_cells.get(raw)
        if samples is None:
            key = tuple([None if cell is None else cell.strip() for cell in raw])
            _check_names(key)
            if len(self._by_cells) >= _MAX_CONTAINERS:
                raise _MalformedError(f"a container more than the {_MAX_CONTAINERS:,} that are read: shorten the window")
            samples = self._by_cells[raw] = self._found.setdefault(tuple([cell or "" for cell in key]), _Samples())
        return samples

    def _time(self, cell: str) -> int:
        at = self._times.get(cell)
        if at is None:
            at = self._parsed_time(cell.strip())
            if len(self._times) < _MAX_CACHED:
                self._times[cell] = at
        return at

    def _parsed_time(self, text: str) -> int:
        if _NUMBER.match(text):
            seconds = float(text)
            if seconds >= _MILLISECONDS:
                raise _MalformedError("time is after the year 5000: seconds since 1970 are wanted, not milliseconds")
        else:
            try:
                moment = datetime.fromisoformat(text)
                seconds = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
            except (ValueError, OverflowError) as problem:
                raise _MalformedError("time is neither RFC 3339 nor seconds since 1970") from problem
            if moment.tzinfo is None:
                self._assumed.add("times without a zone are UTC")
        if seconds < 0:
            raise _MalformedError("time is before 1970")
        if seconds > self._now:
            raise _MalformedError("time lies in the future: a wrong clock")
        return int(seconds)

    def _size(self, cell: str, unit: int, column: str, known: dict[str, int]) -> int:
        size = known.get(cell)
        if size is None:
            size = self._parsed_size(cell.strip(), unit, column)
            if len(known) < _MAX_CACHED:
                known[cell] = size
        return size

    def _parsed_size(self, text: str, unit: int, column: str) -> int:
        """Return the bytes; 0 for no cap. `unit` 0: the cell says its own, or has bytes."""
        if column == "cap" and text in _NO_CAP:
            return 0
        if text.isascii() and text.isdigit() and len(text) < 19:
            size = int(text) * (unit or 1)
        elif _NUMBER.match(text):
            size = math.ceil(float(text) * (unit or 1))
        else:
            return _quantity(text, unit, column)
        if not unit and size:
            if size < MIB:
                raise _MalformedError(f"{column} is less than 1Mi and has no unit: 3500Mi, or a column {column}_mib")
            self._assumed.add(_IN_BYTES[column])
        return _plausible(size, column)

    def _leave_out(self, reason: str, line: int) -> None:
        self._left_out.setdefault(reason, array("q")).append(line)

    def _cut(self) -> None:
        """Leave out rows that are more than a year before the last: a clock that began in 1970 would stretch the window."""
        first = max(max(samples.times) for samples in self._found.values()) - _MAX_SECONDS
        for key, samples in list(self._found.items()):
            if min(samples.times) >= first:
                continue
            kept = _Samples()
            kept.caps = samples.caps
            for at, used, line in zip(samples.times, samples.used, samples.lines, strict=True):
                if at < first:
                    self._leave_out("time is more than a year before the last row: a wrong clock, or another period", line)
                    continue
                kept.times.append(at)
                kept.used.append(used)
                kept.lines.append(line)
            self._found[key] = kept
            if not kept.times:
                del self._found[key]

    def _use(self, key: tuple[str, ...], samples: _Samples) -> ContainerUse:
        """Return the samples by time, one for each. Frees those that it has read."""
        times, used, lines = samples.times, samples.used, samples.lines
        order: Iterable[int] = range(len(times))
        if any(one > other for one, other in pairwise(times)):
            self._assumed.add("rows not in the order of time were sorted: the file is unsorted, or a clock was set back")
            order = sorted(order, key=times.__getitem__)
        points: list[tuple[int, int]] = []
        for index in order:
            point = times[index], used[index]
            if not points or points[-1][0] != point[0]:
                points.append(point)
                continue
            self._leave_out(
                "repeats another row"
                if points[-1] == point
                else "another use at the same time, for the same container and device: the larger counts",
                lines[index],
            )
            points[-1] = max(points[-1], point)
        if len(samples.caps) > 1:
            self._assumed.add("of several caps of one container, the smallest was in force")
        namespace, pod, container, pool, device = key
        samples.times, samples.used, samples.lines = array("q"), array("q"), array("q")
        return ContainerUse(
            namespace=namespace,
            pod=pod,
            container=container,
            pool=pool,
            device=device,
            points=tuple(points),
            cap_bytes=min(samples.caps, default=None),
        )

    def _step(self, containers: list[ContainerUse]) -> int:
        between = Counter(step for one in containers for step in _steps(one))
        if not between:
            raise self._nothing("no container has two samples", "a history needs the use of a container at several times")
        step = _median(between)
        self._assumed.add(f"use is sampled every {step} s: the median of the distances of two samples")
        return step

    def _reasons(self) -> Iterator[str]:
        for reason, lines in sorted(self._left_out.items(), key=lambda item: (-len(item[1]), item[1][0])):
            where = ", ".join(map(str, lines[:_FEW])) + (", …" if len(lines) > _FEW else "")
            yield f"{pluralize(len(lines), 'row')} (line{'s' if len(lines) > 1 else ''} {where}): {reason}"
        if self._columns.unknown:
            yield f"columns that are not known: {join_first(self._columns.unknown, _FEW)}"

    def _assumptions(self) -> Iterator[str]:
        without = {name for name, index in zip(_KEY, self._columns.names, strict=True) if index is None}
        if "container" in without:
            yield "each pod has one container: there is no column container"
        if "device" in without:
            yield "each container has one device: there is no column device"
        if self._columns.cap is None:
            yield "no container had a cap: there is no column cap"
        yield from sorted(self._assumed)

    def _nothing(self, why: str, hint: str = "") -> HistoryError:
        first = next(self._reasons(), "")
        return HistoryError(f"{self._name}: {why}{first and f'; {first}'}", hint or _FORM)


def _cells(text: str, delimiter: str) -> list[str]:
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except csv.Error as problem:
        raise _MalformedError("a quote is not closed, or not where a cell begins") from problem


_IS_NAME: Mapping[str, Callable[[str], bool]] = {
    "namespace": is_dns_label,
    "pod": is_dns_subdomain,
    "container": is_dns_label,
    "pool": is_label_value,
    "device": lambda text: text.isprintable() and len(text) <= 200,
}


def _check_names(key: tuple[str | None, ...]) -> None:
    for (name, is_name), text in zip(_IS_NAME.items(), key, strict=True):
        if text is not None and not is_name(text):
            raise _MalformedError(f"{name} is not a valid name" if text else f"{name} is empty")


def _quantity(text: str, unit: int, column: str) -> int:
    if text.lower() in {"", "nan", "null", "none", "inf", "+inf", "-inf", "-"}:
        raise _MalformedError(f"{column} is not a number: not measured" if text else f"{column} is empty")
    if text.startswith("-"):
        raise _MalformedError(f"{column} is negative")
    meant = meant_sizes(text)
    size = 0 if re.fullmatch(r"0+(\.0+)?[KMGTkmgt]i?B?", text) else parse_quantity(meant[0] if len(meant) == 1 else text)
    if size is None and len(meant) > 1:
        raise _MalformedError(f"{column} is in GB or GiB, which it does not say: write {join_words(meant, 'or')}")
    if size is None:
        raise _MalformedError(f"{column} is no quantity such as 3500Mi, and no number")
    if unit:
        raise _MalformedError(f"{column} has a unit, and so has the column's name")
    return _plausible(size, column)


def _plausible(size: int, column: str) -> int:
    if size > _MAX_USED:
        raise _MalformedError(f"{column} is more than any GPU has: in another unit?")
    return size


def _steps(use: ContainerUse) -> Iterator[int]:
    return (later[0] - earlier[0] for earlier, later in pairwise(use.points))


def _median(counts: Counter[int]) -> int:
    left = (counts.total() + 1) // 2
    for value in sorted(counts):
        left -= counts[value]
        if left <= 0:
            return value
    raise ValueError(counts)


def _irregular(containers: list[ContainerUse], step: int) -> Iterator[str]:
    """Yield that some containers are sampled so much less often than others that their use would be all gaps."""
    sparse = [one for one in containers if len(one.points) > 1 and _median(Counter(_steps(one))) > 3 * step]
    if sparse:
        yield f"{pluralize(len(sparse), 'container')} of {len(containers)} sampled less than every {3 * step} s: mostly gaps"
