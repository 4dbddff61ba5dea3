"""Metrics: counters, gauges and histograms, and the text that Prometheus reads (exposition format 0.0.4). Thread-safe.

Owns the format only; the callers decide what to count. Written by hand: the official client would be one more package
in a privileged image, for a page of code.
"""

import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "gpushare_"
SECONDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0)
"""Buckets for calls to the driver: from the duration of a healthy call to one that only a hung call reaches."""

Sample = tuple[tuple[str, ...], float]
"""Label values in the order of the family's labels, and the value."""


class _Family:
    """What all kinds of metrics share: a name, a help text and label names."""

    kind = "untyped"

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self.name = PREFIX + name
        self.text = text
        self.labels = tuple(labels)
        self._lock = threading.Lock()
        self._values: dict[tuple[str, ...], float] = {}

    def _check(self, labels: tuple[str, ...]) -> None:
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {labels}")

    def lines(self) -> Iterator[str]:
        """Yield the samples as Prometheus reads them."""
        with self._lock:
            samples = list(self._values.items())
        for labels, value in samples:
            yield _line(self.name, zip(self.labels, labels, strict=True), value)


class Counter(_Family):
    """A value that only grows."""

    kind = "counter"

    def add(self, *labels: str, by: float = 1) -> None:
        """Add to the counter."""
        self._check(labels)
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + by

    def value(self, *labels: str) -> float:
        """Return the current count."""
        with self._lock:
            return self._values.get(labels, 0)


class Gauge(_Family):
    """A value that can go up and down."""

    kind = "gauge"

    def set(self, value: float, *labels: str) -> None:
        """Set the value of one series."""
        self._check(labels)
        with self._lock:
            self._values[labels] = value

    def replace(self, samples: Iterable[Sample]) -> None:
        """Replace all series: those that are not given disappear."""
        values = dict(samples)
        for labels in values:
            self._check(labels)
        with self._lock:
            self._values = values


class CallbackGauge(_Family):
    """A gauge that is computed at each scrape: no work in between, and no series that outlives its subject."""

    kind = "gauge"

    def __init__(self, name: str, text: str, labels: Sequence[str], read: Callable[[], Iterable[Sample]]) -> None:
        super().__init__(name, text, labels)
        self._gather = read

    def lines(self) -> Iterator[str]:
        """Yield the samples of this moment."""
        for labels, value in self._gather():
            yield _line(self.name, zip(self.labels, labels, strict=True), value)


class Histogram(_Family):
    """A distribution of values: counts by upper bound, with the sum and the number of values."""

    kind = "histogram"

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        super().__init__(name, text, labels)
        self._bounds = tuple(bounds)
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *labels: str) -> None:
        """Add a value."""
        self._check(labels)
        with self._lock:
            if labels not in self._counts:
                self._counts[labels], self._sums[labels] = [0] * (len(self._bounds) + 1), 0.0
            self._counts[labels][bisect_left(self._bounds, value)] += 1
            self._sums[labels] += value

    def lines(self) -> Iterator[str]:
        """Yield the cumulative buckets, then the sum and the count."""
        with self._lock:
            taken = [(labels, tuple(counts), self._sums[labels]) for labels, counts in self._counts.items()]
        for labels, counts, total in taken:
            named = tuple(zip(self.labels, labels, strict=True))
            below = 0
            for bound, count in zip((*self._bounds, math.inf), counts, strict=True):
                below += count
                yield _line(f"{self.name}_bucket", (*named, ("le", _number(bound))), below)
            yield _line(f"{self.name}_sum", named, total)
            yield _line(f"{self.name}_count", named, below)


_F = TypeVar("_F", bound=_Family)


class Registry:
    """All metric families of a program, in the order of their creation."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Return a new counter; its name should end in `_total`."""
        return self._keep(Counter(name, text, labels))

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Return a new gauge."""
        return self._keep(Gauge(name, text, labels))

    def callback_gauge(self, name: str, text: str, *labels: str, read: Callable[[], Iterable[Sample]]) -> CallbackGauge:
        """Return a new gauge that is computed at each scrape. `gather` is called in the thread that serves the scrape."""
        return self._keep(CallbackGauge(name, text, labels, read))

    def histogram(self, name: str, text: str, *labels: str, bounds: Sequence[float] = SECONDS) -> Histogram:
        """Return a new histogram."""
        return self._keep(Histogram(name, text, labels, bounds))

    def _keep(self, family: _F) -> _F:
        if family.name in self._families:
            raise ValueError(f"{family.name} is already registered")
        self._families[family.name] = family
        return family

    def __iter__(self) -> Iterator[_Family]:
        return iter(self._families.values())

    def text(self) -> str:
        """Return all families in the text format of Prometheus."""
        lines: list[str] = []
        for family in self:
            lines += (f"# HELP {family.name} {_escape_help(family.text)}", f"# TYPE {family.name} {family.kind}")
            lines += family.lines()
        return "\n".join(lines) + "\n"


def _line(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    named = ",".join(f'{label}="{_escape(text)}"' for label, text in labels)
    return f"{name}{{{named}}} {_number(value)}" if named else f"{name} {_number(value)}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else str(int(value)) if value == int(value) else repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
