"""Driver: the runtime's interface to a vendor's driver, as two Protocols in this project's terms. Values only.

`nvidia.session` calls NVML; a driver that can also divide a GPU is `Partitionable`. Everything is identified by UUID: handles
change when a GPU is divided, indexes when one is lost. Sizes are in bytes or MiB, as the names state.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Protocol, cast

from gpushare_node.contract.struct import Struct
from gpushare_node.guard.process_list import Device
from gpushare_node.partition.state import Fault, Modes, Profile

Observe = Callable[[str, float, int | None], None]
"""Called after every call of the driver with its name, its duration in seconds, and its code or None on success. From any
thread."""


def ignore(_call: str, _seconds: float, _code: int | None) -> None:
    """Observe nothing: the default of `Observe`."""


class Code(IntEnum):
    """The errors that this runtime tells apart, by their codes in NVML (nvml.h, `nvmlReturn_t`)."""

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
    NO_ANSWER = -1
    """Not NVML's: what came is no answer that a driver gives."""


ABSENT = frozenset({Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND})
"""The codes with which a driver reports that it lacks something, as opposed to an error."""

SESSION_OVER = frozenset({Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH})
"""The codes after which no call works until a new session is opened: the driver is being replaced."""

ACCESS_LOST = frozenset({Code.NO_PERMISSION, Code.OPERATING_SYSTEM, Code.UNKNOWN})
"""The codes of every call in a container that has lost its devices: `systemctl daemon-reload`, or an update of its cgroup by
kubelet, takes away what the container runtime gave. On the host the driver works, and so it does in a new container
(https://github.com/NVIDIA/nvidia-container-toolkit/issues/48)."""


class DriverError(Exception):
    """A call that failed.

    `call` is the vendor's name of it, `code` its return code (not always one of `Code`); the text is for people: `why`, or the
    code in words.
    """

    def __init__(self, call: str, code: int, why: str = "") -> None:
        super().__init__(f"{call}: {why or code_text(code)}")
        self.call = call
        self.code = code


def code_text(code: int) -> str:
    """Return the code in words. Never calls the library: it may hang."""
    known = code in Code.__members__.values()
    return f"{Code(code).name.lower().replace('_', ' ')} ({code})" if known else f"NVML error {code}"


class Versions(Struct):
    """The installed versions. `cuda` is the newest CUDA that the driver supports, as `13.0`; None if it does not report it.

    Another vendor's driver has neither: then `nvml` is empty.
    """

    driver: str
    nvml: str
    cuda: str | None


class ComputeInstance(Struct):
    """A compute instance that exists. `uuid` is the MIG device's, as tenants and kubelet see it; None if it has no device."""

    ci_id: int
    is_whole: bool
    uuid: str | None


class GpuInstance(Struct):
    """A GPU instance that exists, with its compute instances. Without one, no process can use it."""

    gi_id: int
    profile_id: int
    start: int
    size: int
    compute: tuple[ComputeInstance, ...]


class MigInfo(Struct):
    """The MIG state of a GPU that supports MIG. `profiles` is empty if the driver lists none before MIG is on."""

    current: bool
    pending: bool
    instances: tuple[GpuInstance, ...] = ()
    profiles: tuple[Profile, ...] = ()


class GpuDevice(Struct):
    """A device that AMD's driver makes of a GPU, by the id under which AMD's device plugin offers it."""

    id: str
    memory_mib: int | None


class ComputeMode(IntEnum):
    """Which processes may open contexts. MPS leaves EXCLUSIVE_PROCESS behind."""

    DEFAULT = 0
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3


class GpuInfo(Struct):
    """Everything about one GPU that a plan of its layout needs. With a `fault`, only index, uuid and fault are valid.

    `pci_device_id` has the policy's form (`0x20B010DE`), `pci_bus_id` the form of `nvidia-smi -i`. `pids` are the processes on
    the GPU by GPU instance, None for those on no known one; they come from every process list that the driver has.
    `is_fabric_ready`: whether the fabric manager has set up its NVLink; None on a GPU without NVSwitch, or if unknown.
    `recovery` is what the driver asks for after a fault, in words; empty if nothing.
    `modes` and `devices` are an AMD GPU's; `modes` None: it cannot be divided. `is_hidden`: the devices are not known, but how
    many there are, and which processes use each of them is not known either.
    """

    index: int
    uuid: str
    name: str
    pci_device_id: str | None = None
    pci_bus_id: str | None = None
    memory_mib: int | None = None
    compute_mode: ComputeMode | None = None
    is_fabric_ready: bool | None = None
    recovery: str = ""
    mig: MigInfo | None = None
    modes: Modes | None = None
    devices: tuple[GpuDevice, ...] = ()
    is_hidden: bool = False
    pids: tuple[tuple[int | None, int], ...] = ()
    fault: Fault | None = None

    @property
    def is_mig_on(self) -> bool:
        """Whether MIG is on now."""
        return self.mig is not None and self.mig.current

    @property
    def instances(self) -> tuple[GpuInstance, ...]:
        """The MIG instances; none where MIG is off."""
        return self.mig.instances if self.mig is not None and self.mig.current else ()


class Activation(IntEnum):
    """NVML's status of an accepted mode change. The call does not fail with the latter two: the caller must check them."""

    ACTIVE = 0
    RESET_REQUIRED = 16
    IN_USE = 19


class Xid(Struct):
    """A fault that the driver logged for a GPU."""

    uuid: str
    xid: int


class Driver(Protocol):
    """One open session with the driver. Every method raises DriverError, and every method may hang with the driver.

    `bounded_driver` makes the calls on separate threads, with a deadline.
    """

    def versions(self) -> Versions:
        """Return the installed versions."""
        ...

    def survey(self) -> tuple[GpuInfo, ...]:
        """Return every GPU. One that does not answer has a fault and does not affect the others."""
        ...

    def count(self) -> int:
        """Return how many GPUs the driver lists."""
        ...

    def survey_gpu(self, index: int) -> GpuInfo:
        """Return one GPU. One that fails has a fault; DriverError only if the whole session is over."""
        ...

    def read_device(self, uuid: str) -> Device:
        """Return the processes of a GPU and of its instances now, as the guard expects them; the caller sets `mps`."""
        ...

    def refresh(self) -> None:
        """Make the next reading of each GPU list its instances again. Makes no NVML call itself."""
        ...

    def unreliable(self) -> frozenset[str]:
        """Return the GPUs whose process lists this driver may scramble (R530 up to 535.154.05), as their lists have shown."""
        ...

    def reset_compute_mode(self, uuid: str) -> None:
        """Let every process open contexts again."""
        ...

    def has_memory_limits(self) -> bool:
        """Whether the driver can enforce memory limits of cgroups itself (R615 and later)."""
        ...

    def memory_limit(self, uuid: str, cgroup: str) -> int | None:
        """Return the hard limit in bytes of a cgroup v2 path on a GPU; None if none is set."""
        ...

    def set_memory_limit(self, uuid: str, cgroup: str, limit_bytes: int | None) -> None:
        """Set the limit, or with None remove it."""
        ...

    def next_xid(self, timeout_ms: int) -> Xid | None:
        """Return the next fault that the driver reports; None if there was none in that time."""
        ...

    def close(self) -> None:
        """End the session. Its open handles block mode changes and driver upgrades."""
        ...


class OpenDriver(Protocol):
    """Opens a session with a vendor's driver, whose library is imported only then."""

    def __call__(self, observe: Observe = ignore, *, pid_max: int, reads_only: bool = False) -> Driver:
        """Return a new session. DriverError while there is no driver.

        `observe` is told of every call. `pid_max`: the largest pid of this host; `reads_only`: no call may change a GPU.
        """
        ...


class Partitionable(Protocol):
    """What a Driver whose GPUs can be divided is as well: MIG mode, and instances at placements. It fails as `Driver` does."""

    def set_mig(self, uuid: str, *, enabled: bool) -> Activation:
        """Request MIG on or off. After ACTIVE the caller must close the session and open a new one: handles are invalid."""
        ...

    def create_instance(self, uuid: str, *, profile_id: int, start: int, size: int) -> int:
        """Create a GPU instance at exactly this placement, and return its id."""
        ...

    def create_compute(self, uuid: str, gi_id: int) -> None:
        """Create a compute instance of the GPU instance's whole size."""
        ...

    def destroy_compute(self, uuid: str, gi_id: int, ci_id: int) -> None:
        """Destroy a compute instance; if it is gone already, that is not an error."""
        ...

    def destroy_instance(self, uuid: str, gi_id: int) -> None:
        """Destroy a GPU instance without compute instances; if it is gone already, that is not an error."""
        ...


def partitionable(driver: Driver) -> Partitionable:
    """Return the driver as what divides its GPUs. DriverError with NOT_SUPPORTED if its vendor's cannot be divided."""
    if not hasattr(driver, "set_mig"):
        raise DriverError("set_mig", Code.NOT_SUPPORTED)
    return cast("Partitionable", driver)
