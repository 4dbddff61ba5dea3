"""What is advised: Advice and its parts. Plain values.

The history is split: choices are made on its first part, `learned`, and tried on the rest, `tested`, by the guard's own code.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from gpushare.intent.types import Sharing
from gpushare_node.contract.struct import NOTHING, Struct


class Refusal(StrEnum):
    """Why nothing is advised for a pool."""

    NO_USE = "no container of the pool was measured"
    SHORT = "the history is too short"
    GAPS = "too much of the history is missing"
    FEW = "too few containers were measured"
    ON_DEMAND = "its MIG instances are made for each claim: there is no layout to change"
    CAPPED = "use ran against the present caps: what containers would use without them is not known"


class Estimate(Struct):
    """A number with the interval in which it lies with a confidence of 95 %. `high` infinite: too few cases to bound it."""

    value: float
    low: float
    high: float


class Distribution(Struct):
    """How much memory the containers of a namespace used of a pool, in bytes, over the learned part. `peak` is over all of it.

    `p50`, `p95` and `p99` are of the containers' own maxima, `most` is the largest of them. `near_cap` counts containers that
    used at least 95 % of their cap: for these the use is a lower bound of what they would use.
    """

    namespace: str
    containers: int
    p50: Estimate
    p95: Estimate
    p99: Estimate
    most: int
    near_cap: int


class Ending(Struct):
    """A container that the guard would have ended in the tested part, and when it would first have been sent a signal."""

    namespace: str
    pod: str
    container: str
    at: int
    used_bytes: int


class BackTest(Struct):
    """The tested part replayed with the advised caps. `containers` were tried; `endings` those that would have been ended."""

    containers: int
    endings: tuple[Ending, ...]
    rate: Estimate
    """Endings for each container and week."""


class AdvisedSharing(Struct):
    """What is advised for one pool: its `sharing` and cap, and what that brings.

    `cap_bytes` is None for devices that are not shared. `shares_before` and `shares_after` are those of one node.
    `gpus_before` and `gpus_after` are GPUs that the peak of the learned part needs; `freed_mib` is the memory of those saved,
    None if the card's is not known. `saved_per_hour` is None without prices. `fields` are the pool's fields that change, with
    their whole new values.
    """

    sharing: Sharing
    cap_bytes: int | None
    shares_before: int
    shares_after: int
    gpus_before: int
    gpus_after: int
    saved_per_hour: float | None
    back_test: BackTest
    freed_mib: int | None = None
    fields: Mapping[str, Any] = NOTHING


class PoolAdvice(Struct):
    """One pool: a change, or why there is none. `change` None and no `refusal`: the pool is best as it is."""

    pool: str
    distributions: tuple[Distribution, ...]
    change: AdvisedSharing | None
    refusal: Refusal | None
    present: BackTest | None
    notes: tuple[str, ...]
    """What the history cannot tell, in words."""


class Advice(Struct):
    """The advice for all pools of an intent, by name. Times are seconds since 1970."""

    learned: tuple[int, int]
    tested: tuple[int, int]
    pools: tuple[PoolAdvice, ...]
    currency: str
    assumed: tuple[str, ...]
