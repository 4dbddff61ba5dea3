"""Metrics: counters, gauges and histograms, and the text that Prometheus reads (exposition format 0.0.4). Safe for threads.

Owns the form only; who counts what is the business of others. Written by hand: the official client would be one more package
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
"""Buckets for calls to the driver: from what a healthy one takes to what only a hung one does."""

Sample = tuple[tuple[str, ...], float]
"""Label values in the order of the family's labels, and the value."""


class _Family:
    """What all kinds have in common: a name, a help text and label names."""

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
        """The samples as Prometheus reads them."""
        with self._lock:
            samples = list(self._values.items())
        for labels, value in samples:
            yield _line(self.name, zip(self.labels, labels, strict=True), value)


class Counter(_Family):
    """Something that only grows."""

    kind = "counter"

    def add(self, *labels: str, by: float = 1) -> None:
        """Count once more."""
        self._check(labels)
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + by

    def value(self, *labels: str) -> float:
        """How far it has come."""
        with self._lock:
            return self._values.get(labels, 0)


class Gauge(_Family):
    """Something that is as it is now."""

    kind = "gauge"

    def set(self, value: float, *labels: str) -> None:
        """It is this now."""
        self._check(labels)
        with self._lock:
            self._values[labels] = value

    def replace(self, samples: Iterable[Sample]) -> None:
        """These are all the series there are: others vanish."""
        values = dict(samples)
        for labels in values:
            self._check(labels)
        with self._lock:
            self._values = values


class CallbackGauge(_Family):
    """Gauges that are worked out when somebody asks: nothing to do in between, and no series that outlives its subject."""

    kind = "gauge"

    def __init__(self, name: str, text: str, labels: Sequence[str], gather: Callable[[], Iterable[Sample]]) -> None:
        super().__init__(name, text, labels)
        self._gather = gather

    def lines(self) -> Iterator[str]:
        """The samples of this moment."""
        for labels, value in self._gather():
            yield _line(self.name, zip(self.labels, labels, strict=True), value)


class Histogram(_Family):
    """How values are spread: by upper bounds, with their sum and number."""

    kind = "histogram"

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        super().__init__(name, text, labels)
        self._bounds = tuple(bounds)
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *labels: str) -> None:
        """One more value."""
        self._check(labels)
        with self._lock:
            if labels not in self._counts:
                self._counts[labels], self._sums[labels] = [0] * (len(self._bounds) + 1), 0.0
            self._counts[labels][bisect_left(self._bounds, value)] += 1
            self._sums[labels] += value

    def lines(self) -> Iterator[str]:
        """Buckets, each with all that is below it, then sum and number."""
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
    """All families of a program, in the order in which they were made."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """A new counter; its name should end in `_total`."""
        return self._keep(Counter(name, text, labels))

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """A new gauge."""
        return self._keep(Gauge(name, text, labels))

    def gathered(self, name: str, text: str, *labels: str, gather: Callable[[], Iterable[Sample]]) -> CallbackGauge:
        """A new gauge that is worked out when somebody asks. `gather` is called in the asker's thread."""
        return self._keep(CallbackGauge(name, text, labels, gather))

    def histogram(self, name: str, text: str, *labels: str, bounds: Sequence[float] = SECONDS) -> Histogram:
        """A new histogram."""
        return self._keep(Histogram(name, text, labels, bounds))

    def _keep(self, family: _F) -> _F:
        if family.name in self._families:
            raise ValueError(f"{family.name} is there already")
        self._families[family.name] = family
        return family

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        lines: list[str] = []
        for family in self._families.values():
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
