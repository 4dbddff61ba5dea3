"""Measured use of GPU memory: ContainerUse and History, from Prometheus or, by `read_csv`, from a CSV.

The CSV has a row for each sample. Rows that cannot be used are named by line and left out; nothing is guessed. Each line is a
row, so that a quote that is never closed costs one row.
"""

import csv
import time
from array import array
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from statistics import median_low

from gpushare.core.diagnostics import HintedError
from gpushare.core.units import MIB, parse_quantity
from gpushare.core.wording import join_first, pluralize, visible
from gpushare_node.contract.struct import NOTHING, Struct


class HistoryError(HintedError):
    """Nothing of a source can be used."""


class ContainerUse(Struct):
    """What one container used of one device. `points` are (seconds since 1970, bytes), by time; a use holds until the next.

    `pool` is empty if the history does not name it. A gap is where two points are further apart than `History.gap_seconds`:
    what was used between is not known. `cap_bytes` is the cap that was in force; None: none, or not known.
    """

    namespace: str
    pod: str
    container: str
    pool: str
    device: str
    points: tuple[tuple[int, int], ...]
    cap_bytes: int | None = None


class History(Struct):
    """Use in a window from `start` to `end`, in seconds since 1970, sampled every `step_seconds`.

    `left_out` says in words which rows or series are not used, and why, the most frequent first; `warnings` what the source
    says about the completeness of its answers; `assumed` what it does not say and was assumed. `missing` is by pool the part
    of the window (0 to 1) in which the source has no sample of it; a pool that is not named: not known.
    """

    source: str
    start: int
    end: int
    step_seconds: int
    containers: tuple[ContainerUse, ...]
    left_out: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    missing: Mapping[str, float] = NOTHING

    @property
    def gap_seconds(self) -> int:
        """The longest distance of two points between which the use is known."""
        return 3 * self.step_seconds


HEADER = "time,namespace,pod,container,pool,device,used,cap"
MAX_BYTES = 512 << 20
_MAX_LINE, _MAX_CONTAINERS = 4096, 200_000
_MAX_SECONDS = 366 * 86400
"""How much older than the last a row may be: a clock that began in 1970 would stretch the window."""
_MAX_USED = 1 << 44
"""More memory than any GPU has: a number in another unit."""


class _Samples:
    """One container on one device, in the order of the file: 16 bytes for a row, of which a file may have ten million."""

    def __init__(self) -> None:
        self.times, self.used, self.caps = array("q"), array("q"), set[int]()


def read_csv(data: bytes, name: str, now: float | None = None) -> History:
    """Return the history in a CSV. HistoryError if nothing of it can be used. Rows later than `now` are left out."""
    source, now = visible(name), time.time() if now is None else now
    if len(data) > MAX_BYTES:
        raise HistoryError(f"{source} is larger than {MAX_BYTES >> 20} MiB", "shorten the window")
    lines = enumerate(BytesIO(data), 1)
    if next(lines, (1, b""))[1].decode("utf-8-sig", "replace").strip() != HEADER:
        raise HistoryError(f"{source}: line 1 is not the header of a history of use", f"write {HEADER}")
    found: dict[tuple[str, ...], _Samples] = {}
    left_out: dict[str, array[int]] = {}
    for line, raw in lines:
        try:
            if raw.strip():
                _add(raw, found, now)
        except (ValueError, csv.Error) as problem:
            reason = "not UTF-8" if isinstance(problem, UnicodeDecodeError) else str(problem)
            left_out.setdefault(reason, array("q")).append(line)
    first = max((max(one.times) for one in found.values()), default=0) - _MAX_SECONDS
    uses = [use for key in sorted(found) if (use := _use(key, found[key], first)).points]
    reasons = [
        f"{pluralize(len(at), 'row')} (line{'s' if len(at) > 1 else ''} {join_first(at, 5)}): {reason}"
        for reason, at in sorted(left_out.items(), key=lambda item: (-len(item[1]), item[1][0]))
    ]
    if old := sum(at < first for one in found.values() for at in one.times):
        reasons.append(f"{pluralize(old, 'row')}: more than a year before the last: a wrong clock, or another period")
    distances = [later[0] - earlier[0] for use in uses for earlier, later in pairwise(use.points)]
    if not distances:
        why = "; ".join(["no container has two samples" if uses else "no row can be used", *reasons[:1]])
        raise HistoryError(f"{source}: {why}", "a history has the use of a container at several times")
    step = median_low(distances)
    return History(
        source=source,
        start=min(use.points[0][0] for use in uses),
        end=max(use.points[-1][0] for use in uses) + step,
        step_seconds=step,
        containers=tuple(uses),
        left_out=tuple(reasons),
        assumed=(
            f"use is sampled every {step} s: the median of the distances of two samples",
            "of several uses of a container at one time the largest counts, of several caps the smallest",
        ),
    )


def _add(raw: bytes, found: dict[tuple[str, ...], _Samples], now: float) -> None:
    """Add a row to the samples. Raises ValueError or csv.Error for one that cannot be used."""
    if len(raw) > _MAX_LINE:
        raise ValueError(f"the line is longer than {_MAX_LINE} bytes")
    text = raw.decode().strip("\r\n")
    cells = list(map(str.strip, next(csv.reader([text], strict=True)) if '"' in text else text.split(",")))
    if len(cells) != 8:
        raise ValueError("not as many columns as the header, which has 8")
    at, key, used = _seconds(cells[0]), tuple(cells[1:6]), _size(cells[6], "used")
    cap = _size(cells[7], "cap") if cells[7] not in ("", "none") else 0
    if at > now:
        raise ValueError("time lies in the future: a wrong clock")
    if key not in found and not (key[0] and key[1] and all(cell.isprintable() and len(cell) <= 253 for cell in key)):
        raise ValueError("namespace or pod is empty, or a name cannot be printed")
    if key not in found and len(found) >= _MAX_CONTAINERS:
        raise ValueError(f"a container more than the {_MAX_CONTAINERS:,} that are read: shorten the window")
    samples = found.setdefault(key, _Samples())
    samples.times.append(at)
    samples.used.append(used)
    samples.caps.update([cap] if cap else [])


@lru_cache(100_000)
def _seconds(text: str) -> int:
    try:
        moment = None if text.isdecimal() and len(text) < 19 else datetime.fromisoformat(text)
        seconds = int(text) if moment is None else int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
    except (ValueError, OverflowError) as problem:
        raise ValueError("time is neither RFC 3339 nor seconds since 1970") from problem
    if not 0 <= seconds < 10**11:
        raise ValueError("time is before 1970, or in milliseconds: seconds since 1970 are wanted")
    return seconds


@lru_cache(100_000)
def _size(text: str, column: str) -> int:
    size = 0 if text in ("0", "0Mi") else parse_quantity(text)
    if size is None or size > _MAX_USED or (text[-1].isdecimal() and 0 < size < MIB):
        raise ValueError(f"{column} is no use of a GPU's memory such as 3500Mi, or bytes")
    return size


def _use(key: tuple[str, ...], samples: _Samples, first: int) -> ContainerUse:
    """Return the samples from `first` on by time, one for each."""
    points = {at: size for at, size in sorted(zip(samples.times, samples.used, strict=True)) if at >= first}
    namespace, pod, container, pool, device = key
    return ContainerUse(
        namespace=namespace,
        pod=pod,
        container=container,
        pool=pool,
        device=device,
        points=tuple(points.items()),
        cap_bytes=min(samples.caps, default=None),
    )
