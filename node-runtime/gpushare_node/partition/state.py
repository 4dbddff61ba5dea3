"""NodeGpus: the state of a node's GPUs, as NVML reported it at one moment. Values only.

Owns the types for the hardware. Reads nothing itself and decides nothing. GPUs are identified by UUID; the index is only the
name that the policy uses.
"""

from enum import StrEnum

from gpushare_node.contract.struct import Struct


class FaultKind(StrEnum):
    """Why a GPU cannot be used."""

    LOST = "lost"
    UNREADABLE = "unreadable"


class Fault(Struct):
    """A fault of a GPU. `detail` is a sentence for people: which call failed, and how."""

    kind: FaultKind
    detail: str


class Placement(Struct):
    """An interval of the card's memory slices, in NVML's numbers."""

    start: int
    size: int


class Profile(Struct):
    """A GPU-instance profile as the driver offers it, with every placement that it has on the empty card.

    An instance is created by `id`. `name` is in the policy's form (`1g.5gb+me`); None if the driver returns none.
    NVML's own count of instances is left out on purpose: A30 drivers report a wrong count; the placements are correct.
    """

    id: int
    name: str | None
    placements: tuple[Placement, ...]


class Instance(Struct):
    """A GPU instance that exists. `is_whole`: it has exactly one compute instance, of its whole size.

    `is_busy`: a process runs on it, or kubelet has allocated it to a pod that has not ended.
    """

    gi_id: int
    profile_id: int
    start: int
    size: int
    is_whole: bool
    is_busy: bool


class Mig(Struct):
    """The MIG state of a GPU that supports MIG. `pending` differs from `current` while a mode change waits for a reset.

    `is_pending_ours`: according to its journal, this runtime requested the pending mode itself. `profiles` is empty if the
    driver lists none: some drivers list none before MIG is on.
    """

    current: bool
    pending: bool
    is_pending_ours: bool = False
    instances: tuple[Instance, ...] = ()
    profiles: tuple[Profile, ...] = ()


class Modes(Struct):
    """How AMD's driver divides a GPU: the compute and the memory mode, those that it offers, and the resulting devices.

    The lists are empty if the driver does not say what it offers.
    """

    compute: str
    memory: str
    devices: int
    available_compute: tuple[str, ...] = ()
    available_memory: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The modes as AMD writes them, `CPX/NPS4`."""
        return f"{self.compute}/{self.memory}"


class Gpu(Struct):
    """One GPU. `mig` None: it does not support MIG; `modes` None: AMD's partitions. With a `fault`, only index and fault count.

    `is_busy`: something uses the GPU that is not known to run on one of its instances. `pci_device_id` has the policy's form
    (`0x20B010DE`).
    """

    index: int
    uuid: str
    name: str
    pci_device_id: str | None
    memory_mib: int | None
    mig: Mig | None
    is_busy: bool
    fault: Fault | None = None
    modes: Modes | None = None


class NodeGpus(Struct):
    """All GPUs of the node, each index once."""

    gpus: tuple[Gpu, ...]
