"""Synthetic use of GPU memory for tests: a base, bursts, a trend, a leak that a restart ends, by the minute. Seeded."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from gpushare.study.advice.history import ContainerUse, History

MIB = 1 << 20
DAY, MINUTE = 86400, 60
START = 1_790_000_000 // DAY * DAY


@dataclass(frozen=True)
class Shape:
    """How containers of one kind use memory, in MiB.

    The base of each is `base_mib` ± `spread` (a part of it). A burst of up to `burst_mib` begins `bursts` times a day and lasts
    `burst_minutes`. The base grows by `trend_mib` a day. A leak adds `leak_mib` an hour until the next of `restarts` a week,
    which takes `down_minutes`. `cap_mib` cuts off what is above it.
    """

    base_mib: int = 2000
    spread: float = 0.2
    bursts: float = 2.0
    burst_mib: int = 1000
    burst_minutes: int = 5
    trend_mib: float = 0.0
    leak_mib: float = 0.0
    restarts: float = 0.0
    down_minutes: int = 3
    cap_mib: int | None = None


def history(  # noqa: PLR0917 - what a history consists of
    shapes: Iterable[tuple[str, int, Shape]],
    seed: int = 1,
    days: float = 14,
    pool: str = "notebooks",
    step_seconds: int = MINUTE,
    gaps: Iterable[tuple[int, int]] = (),
) -> History:
    """A history of (namespace, number of containers, shape). `gaps` are seconds from its start in which nothing was sampled."""
    source = random.Random(seed)
    missing = [(START + begin, START + end) for begin, end in gaps]
    containers = [
        ContainerUse(
            namespace=namespace,
            pod=f"pod-{number}",
            container="main",
            pool=pool,
            device=f"GPU-{number}",
            points=tuple(
                (at, used)
                for at, used in points(shape, random.Random(source.random()), days, step_seconds)
                if not any(begin <= at < end for begin, end in missing)
            ),
            cap_bytes=None if shape.cap_mib is None else shape.cap_mib * MIB,
        )
        for namespace, count, shape in shapes
        for number in range(count)
    ]
    return History(
        source="generated",
        start=START,
        end=START + int(days * DAY),
        step_seconds=step_seconds,
        containers=tuple(containers),
    )


def points(shape: Shape, source: random.Random, days: float, step_seconds: int = MINUTE) -> list[tuple[int, int]]:
    """The samples of one container: (seconds since 1970, bytes)."""
    base = shape.base_mib * (1 + shape.spread * source.uniform(-1, 1))
    steps_of_day = DAY / step_seconds
    burst = shape.bursts / steps_of_day
    restart = shape.restarts / 7 / steps_of_day
    found, started, extra, bursting, down = [], 0, 0.0, 0, 0
    for step in range(int(days * steps_of_day)):
        if down:
            down -= 1
            started = step
            continue
        if restart and source.random() < restart:
            down = max(shape.down_minutes * MINUTE // step_seconds, 1)
            continue
        if bursting:
            bursting -= 1
        elif burst and source.random() < burst:
            bursting = max(shape.burst_minutes * MINUTE // step_seconds, 1)
            extra = shape.burst_mib * source.random()
        leaked = shape.leak_mib * (step - started) * step_seconds / 3600
        used = base + shape.trend_mib * step / steps_of_day + leaked + (extra if bursting else 0)
        used = min(used, shape.cap_mib) if shape.cap_mib else used
        found.append((START + step * step_seconds, int(used * MIB)))
    return found


def csv_text(found: History, *, shuffled: random.Random | None = None) -> str:
    """The history as `advise` reads it from a file, in the order of time or shuffled."""
    rows = [
        (at, f"{at},{one.namespace},{one.pod},{one.container},{one.pool},{one.device},{used},{one.cap_bytes or ''}\n")
        for one in found.containers
        for at, used in one.points
    ]
    rows.sort(key=lambda row: row[0])
    if shuffled:
        shuffled.shuffle(rows)
    return "time,namespace,pod,container,pool,device,used,cap\n" + "".join(text for _, text in rows)
