"""NodeGpus: what stands on a node's GPUs, as NVML reported it at one moment. Values only.

Owns the words for hardware. Reads nothing itself and decides nothing. GPUs are known by UUID; an index is only what the
policy calls them by.
"""

from enum import StrEnum

from gpushare_node.core.structs import Struct


class FaultKind(StrEnum):
    """Why a GPU cannot be dealt with."""

    LOST = "lost"
    UNREADABLE = "unreadable"


class Fault(Struct):
    """A GPU that does not answer as it should. `detail` is a sentence for people: which call failed, and how."""

    kind: FaultKind
    detail: str


class Placement(Struct):
    """A stretch of the card's memory slices, in NVML's numbers."""

    start: int
    size: int


class Profile(Struct):
    """A GPU-instance profile as the driver offers it, with every place where it may stand on the empty card.

    `id` is what creates an instance. `name` is written as policies write it (`1g.5gb+me`); None if the driver gives none.
    NVML's own count of instances is left out on purpose: A30 drivers report it wrongly, the placements are right.
    """

    id: int
    name: str | None
    placements: tuple[Placement, ...]


class Instance(Struct):
    """A GPU instance that exists. `is_whole`: it holds exactly one compute instance, of its whole size.

    `is_busy`: a process runs on it, or kubelet has given it to a pod that has not ended.
    """

    gi_id: int
    profile_id: int
    start: int
    size: int
    is_whole: bool
    is_busy: bool


class Mig(Struct):
    """The MIG side of a GPU that has one. `pending` differs from `current` while a mode change waits for a reset.

    `is_pending_ours`: this runtime's journal says that it asked for the pending mode itself. `profiles` is empty where the
    driver does not tell: some tell nothing before MIG is on.
    """

    current: bool
    pending: bool
    is_pending_ours: bool = False
    instances: tuple[Instance, ...] = ()
    profiles: tuple[Profile, ...] = ()


class Gpu(Struct):
    """One GPU. `mig` None: it has no MIG. With a `fault`, only index and fault are to be relied on.

    `is_busy`: something uses the GPU that is not known to sit on one of its instances. `pci_device_id` is written as in
    policies (`0x20B010DE`).
    """

    index: int
    uuid: str
    name: str
    pci_device_id: str | None
    memory_mib: int | None
    mig: Mig | None
    is_busy: bool
    fault: Fault | None = None


class NodeGpus(Struct):
    """All GPUs of the node, each index once."""

    gpus: tuple[Gpu, ...]
