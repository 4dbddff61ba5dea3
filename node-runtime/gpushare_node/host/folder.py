"""The runtime's folder on the host, `/var/lib/gpushare`: what must outlive a pod; the values in it.

Every write is atomic and durable: a file beside it, fsync, rename, fsync of the folder. What cannot be read is as good as
absent, and said; hardware decides, the folder only remembers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT = "/var/lib/gpushare"


class FolderError(Exception):
    """The folder cannot be written, or another runtime holds its lock. The text says what to do."""


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """A GPU instance of a former layout. What rollback needs to make it again."""

    profile_id: int
    start: int
    size: int


@dataclass(frozen=True, kw_only=True)
class FormerGpu:
    """A GPU before the change: its mode, and its whole instances."""

    uuid: str
    mig: bool
    instances: tuple[Remembered, ...]


@dataclass(frozen=True, kw_only=True)
class Journal:
    """What a run that has begun to change hardware writes down before each step.

    `attempts` counts runs for this policy that failed; `pending_modes` are the GPUs of which this runtime has asked for
    the MIG mode
    that waits; `paused` are labels of GPU clients with their values before the pause.
    """

    policy_digest: str
    boot_id: str
    attempts: int = 0
    former: tuple[FormerGpu, ...] = ()
    pending_modes: Mapping[str, bool] = field(default_factory=dict)
    paused: Mapping[str, str] = field(default_factory=dict)
    is_changing: bool = False
