"""Driver: what the rest of the runtime knows of NVML, as one Protocol in this project's words. Values only.

`nvml.session` speaks to the library. Everything is known by UUID: handles change when MIG is switched, indexes when a GPU is
lost. Sizes are in bytes or MiB, as the names say.
"""

from enum import IntEnum
from typing import Protocol

from gpushare_node.core.structs import Struct
from gpushare_node.guard.process_list import Device
from gpushare_node.partition.state import Fault, Profile


class Code(IntEnum):
    """NVML's return codes (nvml.h, `nvmlReturn_t`) on which something here depends."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    MEMORY = 20
    INSUFFICIENT_RESOURCES = 23
    UNKNOWN = 999


class DriverError(Exception):
    """A call that failed.

    `call` is NVML's own name of it, `code` its answer (not always one of `Code`); the text is for people.
    """

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {describe(code)}")
        self.call = call
        self.code = code


def describe(code: int) -> str:
    """The code in words. Never asks the library: it may have hung."""
    known = code in Code.__members__.values()
    return f"{Code(code).name.lower().replace('_', ' ')} ({code})" if known else f"NVML error {code}"


class Versions(Struct):
    """What is installed. `cuda` is the newest CUDA that the driver serves, as `13.0`; None where the driver does not say."""

    driver: str
    nvml: str
    cuda: str | None


class ComputeInstance(Struct):
    """A compute instance that exists. `uuid` is the MIG device's, as tenants and kubelet know it; None if it has no device."""

    ci_id: int
    is_whole: bool
    uuid: str | None


class GpuInstance(Struct):
    """A GPU instance that exists, with what stands in it. Without compute instances it is of no use to anybody."""

    gi_id: int
    profile_id: int
    start: int
    size: int
    compute: tuple[ComputeInstance, ...]


class MigInfo(Struct):
    """The MIG side of a GPU that has one. `profiles` is empty where the driver does not tell before MIG is on."""

    current: bool
    pending: bool
    instances: tuple[GpuInstance, ...] = ()
    profiles: tuple[Profile, ...] = ()


class ComputeMode(IntEnum):
    """Who may open contexts. EXCLUSIVE_PROCESS is what MPS leaves behind."""

    DEFAULT = 0
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3


class GpuInfo(Struct):
    """All that is to be known of one GPU before its layout is planned. With a `fault` only index, uuid and fault count.

    `pci_device_id` is written as in policies (`0x20B010DE`), `pci_bus_id` as `nvidia-smi -i` wants it. `pids` are the
    processes on
    the GPU by GPU instance, None for those on no known one; they are from every process list that the driver has.
    """

    index: int
    uuid: str
    name: str
    pci_device_id: str | None = None
    pci_bus_id: str | None = None
    memory_mib: int | None = None
    compute_mode: ComputeMode | None = None
    mig: MigInfo | None = None
    pids: tuple[tuple[int | None, int], ...] = ()
    fault: Fault | None = None


class Activation(IntEnum):
    """NVML's answer to a mode change that was accepted. Its call does not fail on the latter two: they must be looked at."""

    ACTIVE = 0
    RESET_REQUIRED = 16
    IN_USE = 19


class Xid(Struct):
    """A fault that the driver has logged against a GPU."""

    uuid: str
    xid: int


class Driver(Protocol):
    """One open session with the driver. Every method raises DriverError; none is safe from a driver that hangs.

    `nvml.watch` puts calls that must come back on threads of their own.
    """

    def versions(self) -> Versions:
        """The installed versions."""
        ...

    def survey(self) -> tuple[GpuInfo, ...]:
        """Every GPU. One that does not answer has a fault and stops no other."""
        ...

    def census(self, uuid: str) -> Device:
        """The processes of a GPU and of its instances now, as the guard wants them; `mps` is left to the caller."""
        ...

    def refresh(self) -> None:
        """Have each GPU's instances looked for again at its next census. Makes no call itself."""
        ...

    def unreliable(self) -> frozenset[str]:
        """GPUs whose process lists this driver may scramble (R530 up to 535.154.05), as their census has shown."""
        ...

    def set_mig(self, uuid: str, *, enabled: bool) -> Activation:
        """Ask for MIG on or off. After ACTIVE the session must be closed and opened again: handles are void."""
        ...

    def create_instance(self, uuid: str, *, profile_id: int, start: int, size: int) -> int:
        """Create a GPU instance at exactly this placement; its id."""
        ...

    def create_compute(self, uuid: str, gi_id: int) -> None:
        """Create the compute instance of the GPU instance's whole size."""
        ...

    def destroy_compute(self, uuid: str, gi_id: int, ci_id: int) -> None:
        """Destroy a compute instance; one that is gone is no error."""
        ...

    def destroy_instance(self, uuid: str, gi_id: int) -> None:
        """Destroy a GPU instance without compute instances; one that is gone is no error."""
        ...

    def reset_compute_mode(self, uuid: str) -> None:
        """Everyone may open contexts again."""
        ...

    def has_memory_limits(self) -> bool:
        """Whether the driver can hold cgroups to a memory limit itself (R615 on)."""
        ...

    def memory_limit(self, uuid: str, cgroup: str) -> int | None:
        """The hard limit in bytes of a cgroup v2 path on a GPU; None where none is set."""
        ...

    def set_memory_limit(self, uuid: str, cgroup: str, limit_bytes: int | None) -> None:
        """Set it, or with None lift it."""
        ...

    def next_xid(self, timeout_ms: int) -> Xid | None:
        """The next fault that the driver reports; None if there was none in that time."""
        ...

    def close(self) -> None:
        """End the session. Own handles block mode changes and driver upgrades."""
        ...
