"""Session: one open session with the driver; implements the Protocols `Driver` and `Partitionable`.

Owns the session's lifetime and its cache by UUID. Calls that change something look up the GPU's handle again; only
`read_device` uses cached handles. After UNINITIALIZED, DRIVER_NOT_LOADED or LIB_RM_VERSION_MISMATCH the session is over: close
it and open another. The library itself stays loaded for as long as the program runs, so a version mismatch after a driver
upgrade goes away only if the program restarts.
"""

from contextlib import suppress

from gpushare_node.guard.process_list import PID_MAX, Device
from gpushare_node.vendors.driver import Activation, ComputeMode, DriverError, GpuInfo, Observe, Versions, Xid, ignore
from gpushare_node.vendors.nvidia import instances, limits
from gpushare_node.vendors.nvidia.events import XidEvents
from gpushare_node.vendors.nvidia.gpu_info import KeptOffers, survey_gpu
from gpushare_node.vendors.nvidia.library import Handle, Library
from gpushare_node.vendors.nvidia.process_reader import ProcessReader
from gpushare_node.vendors.nvidia.quirks import scrambles_lists


class Session:
    """See `Driver` and `Partitionable`.

    Different threads may query different GPUs; one GPU, and everything else, only one thread at a time.
    """

    def __init__(self, library: Library, *, pid_max: int) -> None:
        """Only for `open`, which initialises the library."""
        self._library = library
        self._pid_max = pid_max
        self._is_open = True
        self._events: XidEvents | None = None
        self._kept: dict[str, ProcessReader] = {}
        self._offers: KeptOffers = {}
        self._prefers_detail: bool | None = None

    @classmethod
    def open(cls, observe: Observe = ignore, *, pid_max: int = PID_MAX, reads_only: bool = False) -> "Session":
        """Open a session. DriverError while the driver, or its library, is missing or is being replaced.

        `pid_max`: the largest pid of this host; `reads_only`: calls that may change a GPU fail with NO_PERMISSION.
        """
        library = Library(observe, reads_only=reads_only)
        library.call("nvmlInit")
        return cls(library, pid_max=pid_max)

    def close(self) -> None:
        """End the session. A second call does nothing; an error is ignored, because the program no longer needs the session."""
        if not self._is_open:
            return
        self._is_open = False
        self._kept.clear()
        if self._events is not None:
            self._events.close()
            self._events = None
        with suppress(DriverError):
            self._library.call("nvmlShutdown")

    def versions(self) -> Versions:
        """Return the installed versions."""
        cuda = self._library.find("nvmlSystemGetCudaDriverVersion_v2")
        return Versions(
            driver=self._library.call("nvmlSystemGetDriverVersion"),
            nvml=self._library.call("nvmlSystemGetNVMLVersion"),
            cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def survey(self) -> tuple[GpuInfo, ...]:
        """Return every GPU. One that does not answer has a fault and does not affect the others."""
        return tuple(self.survey_gpu(index) for index in range(self.count()))

    def count(self) -> int:
        """Return how many GPUs the driver lists."""
        return int(self._library.call("nvmlDeviceGetCount"))

    def survey_gpu(self, index: int) -> GpuInfo:
        """Return one GPU; if it does not answer with anything, with a fault."""
        return survey_gpu(self._library, index, prefers_detail=self._wants_detail(), kept=self._offers)

    def read_device(self, uuid: str) -> Device:
        """Return the processes of a GPU and of its instances now. After an error, it reads everything about the GPU again."""
        kept = self._kept.get(uuid)
        try:
            if kept is None:
                kept = ProcessReader(self._library, uuid, pid_max=self._pid_max, prefers_detail=self._wants_detail())
                self._kept[uuid] = kept
            return kept.read()
        except DriverError:
            self._kept.pop(uuid, None)
            raise

    def refresh(self) -> None:
        """Make the next reading of each GPU list its MIG devices again. Makes no NVML call itself."""
        for kept in tuple(self._kept.values()):
            kept.is_stale = True

    def unreliable(self) -> frozenset[str]:
        """Return the GPUs whose process lists may be scrambled, as their lists have shown."""
        return frozenset(uuid for uuid, kept in tuple(self._kept.items()) if not kept.is_reliable)

    def set_mig(self, uuid: str, *, enabled: bool) -> Activation:
        """Request MIG on or off. After ACTIVE the caller must close the session and open a new one: handles are invalid."""
        self._kept.pop(uuid, None)
        status = self._library.call("nvmlDeviceSetMigMode", self._find(uuid), int(enabled))
        if status not in Activation.__members__.values():
            raise DriverError("nvmlDeviceSetMigMode", status)
        return Activation(status)

    def create_instance(self, uuid: str, *, profile_id: int, start: int, size: int) -> int:
        """Create a GPU instance at exactly this placement, and return its id."""
        return instances.create_instance(self._library, self._find(uuid), profile_id=profile_id, start=start, size=size)

    def create_compute(self, uuid: str, gi_id: int) -> None:
        """Create a compute instance of the GPU instance's whole size."""
        instances.create_compute(self._library, self._find(uuid), gi_id)

    def destroy_compute(self, uuid: str, gi_id: int, ci_id: int) -> None:
        """Destroy a compute instance; if it is gone already, that is not an error."""
        instances.destroy_compute(self._library, self._find(uuid), gi_id, ci_id)

    def destroy_instance(self, uuid: str, gi_id: int) -> None:
        """Destroy a GPU instance without compute instances; if it is gone already, that is not an error."""
        instances.destroy_instance(self._library, self._find(uuid), gi_id)

    def reset_compute_mode(self, uuid: str) -> None:
        """Let every process open contexts again."""
        self._library.call("nvmlDeviceSetComputeMode", self._find(uuid), int(ComputeMode.DEFAULT))

    def has_memory_limits(self) -> bool:
        """Whether the driver can enforce memory limits of cgroups itself (R615 and later)."""
        return limits.has_limits(self._library)

    def memory_limit(self, uuid: str, cgroup: str) -> int | None:
        """Return the hard limit in bytes of a cgroup v2 path on a GPU; None if none is set."""
        return limits.read_limit(self._library, self._find(uuid), cgroup)

    def set_memory_limit(self, uuid: str, cgroup: str, limit_bytes: int | None) -> None:
        """Set the limit, or with None remove it."""
        limits.set_limit(self._library, self._find(uuid), cgroup, limit_bytes)

    def next_xid(self, timeout_ms: int) -> Xid | None:
        """Return the next fault that the driver reports; None if there was none in that time."""
        if self._events is None:
            self._events = XidEvents(self._library)
        return self._events.next(timeout_ms)

    def _find(self, uuid: str) -> Handle:
        handle: Handle = self._library.call("nvmlDeviceGetHandleByUUID", uuid)
        return handle

    def _wants_detail(self) -> bool:
        if self._prefers_detail is None:
            self._prefers_detail = scrambles_lists(self._library.call("nvmlSystemGetDriverVersion"))
        return self._prefers_detail
