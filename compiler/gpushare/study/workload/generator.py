"""A workload from parameters: sizes with weights, arrivals, durations, and a seed.

Only `random()` of a generator with a whole number as seed is used: it alone gives the same numbers in every version of Python.
Each aspect has a sequence of its own, so that other durations leave the sizes as they are.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from gpushare import vendors
from gpushare.core.diagnostics import Finding, Path
from gpushare.core.units import is_label_key
from gpushare.core.wording import pluralize
from gpushare.reading import schema
from gpushare.reading.source import Source
from gpushare.study.workload import requests
from gpushare.study.workload.requests import PodRequest, Workload, WorkloadError
from gpushare_node.contract.struct import Struct

DAY = 86_400
_AMOUNTS = ("memory", "share", "gpus", "resource")
_HINT = "gpushare schema workload prints what a Workload may have"
_P95 = 1.6448536269514722
"""95 % of a standard normal distribution are below."""


class Size(Struct):
    """What pods of one size ask for, as in PodRequest, and the weight of the size."""

    memory_bytes: int | None = None
    milli: int | None = None
    gpus: int | None = None
    resource: str | None = None
    count: int = 1
    pool: str = ""
    cards: tuple[str, ...] = ()
    weight: int = 1


class Daily(Struct):
    """A rate that follows the day: `quietest` is the lowest rate as a part of the highest, which is at `busiest_hour`."""

    per_day: float
    busiest_hour: int = 14
    quietest: float = 0.2


class Lognormal(Struct):
    """Durations in seconds of which half are shorter than `median`, and 95 % shorter than `p95`."""

    median: int
    p95: int


class Parameters(Struct):
    """What a workload is generated from.

    `arrivals` are the pods of an hour on average, or follow the day, or None: all at once. `durations` are the mean of
    exponential ones in seconds, or lognormal; `fixed` is the duration of every pod; neither: the pods stay.
    """

    name: str
    pods: int
    sizes: tuple[Size, ...]
    seed: int = 1
    namespaces: tuple[tuple[str, int], ...] = (("default", 1),)
    arrivals: float | Daily | None = None
    durations: int | Lognormal | None = None
    fixed: int | None = None


def generate(parameters: Parameters) -> Workload:
    """Return the workload; equal parameters give equal workloads. No pod runs for less than a second or over a century."""
    sizes = _choices(parameters, 0, [size.weight for size in parameters.sizes])
    namespaces = _choices(parameters, 1, [weight for _, weight in parameters.namespaces])
    arrivals = _arrivals(parameters)
    durations = _durations(parameters)
    digits = len(str(parameters.pods))
    pods = []
    for number in range(1, parameters.pods + 1):
        size = parameters.sizes[next(sizes)]
        pods.append(
            PodRequest(
                namespace=parameters.namespaces[next(namespaces)][0],
                name=f"pod-{number:0{digits}}",
                memory_bytes=size.memory_bytes,
                milli=size.milli,
                gpus=size.gpus,
                resource=size.resource,
                count=size.count,
                pool=size.pool,
                cards=size.cards,
                arrival=next(arrivals),
                duration=next(durations),
            )
        )
    assumed = (f"{pluralize(parameters.pods, 'pod')} generated with the seed {parameters.seed}",)
    return Workload(source=parameters.name, pods=tuple(pods), assumed=assumed)


def _uniform(parameters: Parameters, aspect: int) -> Callable[[], float]:
    """Return the source of numbers from 0 up to, but not including, 1 for one aspect."""
    return random.Random(parameters.seed * 4 + aspect).random  # noqa: S311 - nothing secret


def _choices(parameters: Parameters, aspect: int, weights: Sequence[int]) -> Iterator[int]:
    """Yield indexes by weight."""
    bounds, draw = list(accumulate(weights)), _uniform(parameters, aspect)
    while True:
        yield bisect_right(bounds, int(draw() * bounds[-1]))


def _arrivals(parameters: Parameters) -> Iterator[int]:
    draw, rule, at = _uniform(parameters, 2), parameters.arrivals, 0.0
    while rule is None:
        yield 0
    daily = rule if isinstance(rule, Daily) else Daily(per_day=24 * rule, quietest=1.0)
    swing = (1 - daily.quietest) / (1 + daily.quietest)
    highest = daily.per_day / DAY * (1 + swing)
    while True:
        at -= math.log(1 - draw()) / highest
        angle = 2 * math.pi * (at / DAY - daily.busiest_hour / 24)
        if draw() * (1 + swing) < 1 + swing * math.cos(angle):  # candidates at the highest rate, thinned out
            yield int(at)


def _durations(parameters: Parameters) -> Iterator[int | None]:
    draw, rule = _uniform(parameters, 3), parameters.durations
    while rule is None:
        yield parameters.fixed
    while True:
        if isinstance(rule, Lognormal):
            normal = math.sqrt(-2 * math.log(1 - draw())) * math.cos(2 * math.pi * draw())
            seconds = rule.median * math.exp(math.log(rule.p95 / rule.median) / _P95 * normal)
        else:
            seconds = -math.log(1 - draw()) * rule
        yield min(max(1, round(seconds)), requests.MAX_SECONDS)


def load(read: Source) -> Workload:
    """Return the workload of a document with `kind: Workload`. Raises WorkloadError."""
    found = list(read.findings) or schema.violations(read.data, "workload.v1", ())
    if found:
        raise _error(read, found[0])
    return generate(_parameters(read))


def _error(read: Source, finding: Finding) -> WorkloadError:
    at = read.locate(finding)
    place = f"{read.file}:{at.span.line}:{at.span.column}" if at.span else read.file
    return WorkloadError(f"{place}: {at.message}", "; ".join(at.hints) or _HINT)


def _parameters(read: Source) -> Parameters:
    spec: Mapping[str, Any] = read.data["spec"]
    arrivals: Mapping[str, Any] = spec.get("arrivals", {})
    durations: Mapping[str, Any] = spec.get("durations", {})
    rule: float | Daily | None = None
    if "daily" in arrivals:
        daily = arrivals["daily"]
        rule = Daily(per_day=daily["perDay"], busiest_hour=daily.get("busiestHour", 14), quietest=daily.get("quietest", 0.2))
    elif "poisson" in arrivals:
        rule = arrivals["poisson"]["perHour"]
    lasting: int | Lognormal | None = None
    path: Path = ("spec", "durations")
    if "lognormal" in durations:
        median, p95 = (_seconds(read, (*path, "lognormal", name)) for name in ("median", "p95"))
        if p95 <= median:
            raise _error(
                read, Finding(code="GS103", message="p95 is not more than the median", path=(*path, "lognormal", "p95"))
            )
        lasting = Lognormal(median=median, p95=p95)
    elif "exponential" in durations:
        lasting = _seconds(read, (*path, "exponential", "mean"))
    return Parameters(
        name=read.file,
        pods=int(spec["pods"]),
        sizes=tuple(_size(read, at) for at in range(len(spec["sizes"]))),
        seed=int(spec.get("seed", 1)),
        namespaces=tuple((name, int(weight)) for name, weight in spec.get("namespaces", {"default": 1}).items()),
        arrivals=rule,
        durations=lasting,
        fixed=_seconds(read, (*path, "fixed")) if "fixed" in durations else None,
    )


def _seconds(read: Source, path: Path) -> int:
    return _checked(read, path, requests.parse_duration)


def _checked(read: Source, path: Path, parse: Callable[[str], int]) -> int:
    value = read.data
    for step in path:
        value = value[step]
    try:
        return parse(str(value))
    except requests.BadCellError as problem:
        raise _error(read, Finding(code="GS103", message=str(problem), path=path)) from problem


def _size(read: Source, at: int) -> Size:
    path: Path = ("spec", "sizes", at)
    given: Mapping[str, Any] = read.data["spec"]["sizes"][at]
    if len([name for name in _AMOUNTS if name in given]) != 1:
        message = "a size has one of memory, share, gpus and resource"
        raise _error(read, Finding(code="GS103", message=message, path=path))
    resource = given.get("resource")
    if resource is not None and not (is_label_key(resource) and "/" in resource):
        message = f"this is no resource: write its whole name, such as {vendors.GPU_RESOURCES[0]}"
        raise _error(read, Finding(code="GS103", message=message, path=(*path, "resource")))
    if "count" in given and resource is None:
        raise _error(read, Finding(code="GS103", message="count belongs to resource", path=(*path, "count")))
    return Size(
        memory_bytes=_checked(read, (*path, "memory"), requests.parse_memory) if "memory" in given else None,
        milli=_checked(read, (*path, "share"), requests.parse_share) if "share" in given else None,
        gpus=int(given["gpus"]) if "gpus" in given else None,
        resource=resource,
        count=int(given.get("count", 1)),
        pool=given.get("pool", ""),
        cards=tuple(dict.fromkeys(given.get("card", "").lower().split())),
        weight=int(given.get("weight", 1)),
    )
