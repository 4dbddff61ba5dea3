"""Operation: one step that changes a GPU. Values only; each has everything that its execution needs."""

from gpushare_node.contract.struct import Struct
from gpushare_node.partition.state import Instance


class EnableMig(Struct):
    """Enable MIG mode, or cancel a pending switch to off."""

    uuid: str


class DisableMig(Struct):
    """Disable MIG mode, when no instance exists any more, or cancel a pending switch to on."""

    uuid: str


class DestroyInstance(Struct):
    """Destroy the GPU instance, its compute instances first."""

    uuid: str
    instance: Instance


class CreateInstance(Struct):
    """Create a GPU instance at exactly this placement, and one compute instance of its whole size in it."""

    uuid: str
    profile_id: int
    start: int
    size: int


class ChangeModes(Struct):
    """Divide an AMD GPU by other modes. `before` are those that it has. Only AMD's config manager can."""

    uuid: str
    before: str
    after: str


Operation = EnableMig | DisableMig | DestroyInstance | CreateInstance | ChangeModes
