"""Operation: one step that changes a GPU. Values only; whoever carries them out reads all that is needed from them."""

from dataclasses import dataclass

from gpushare_node.partition.state import Instance


@dataclass(frozen=True, kw_only=True)
class EnableMig:
    """Switch MIG on, or call off a pending switch to off."""

    uuid: str


@dataclass(frozen=True, kw_only=True)
class DisableMig:
    """Switch MIG off, when no instance exists any more, or call off a pending switch to on."""

    uuid: str


@dataclass(frozen=True, kw_only=True)
class DestroyInstance:
    """Destroy the GPU instance, its compute instances first."""

    uuid: str
    instance: Instance


@dataclass(frozen=True, kw_only=True)
class CreateInstance:
    """Create a GPU instance at exactly this placement, and one compute instance of its whole size in it."""

    uuid: str
    profile_id: int
    start: int
    size: int


Operation = EnableMig | DisableMig | DestroyInstance | CreateInstance
