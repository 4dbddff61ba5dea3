"""Measured use of GPU memory: ContainerUse and History. Plain values; from Prometheus or a CSV."""

from collections.abc import Mapping

from gpushare.core.diagnostics import HintedError
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
