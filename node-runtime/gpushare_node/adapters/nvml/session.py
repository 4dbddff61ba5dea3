"""Session: one open session with the driver; the `Driver` of `nvml.driver` in flesh.

Owns the life of the session and what is kept in it by UUID. Calls that change something look their GPU up anew; only the
census works with handles that it keeps. After UNINITIALIZED, DRIVER_NOT_LOADED or LIB_RM_VERSION_MISMATCH the session is over:
close it and open another. The library itself stays loaded for as long as the program runs, so a mismatch that a driver
upgrade has left behind goes away only with the program.
"""

from contextlib import suppress

from gpushare_node.adapters.nvml import instances, limits
from gpushare_node.adapters.nvml.driver import Activation, ComputeMode, DriverError, GpuInfo, Versions, Xid
from gpushare_node.adapters.nvml.events import XidEvents
from gpushare_node.adapters.nvml.gpu_info import KeptOffers, survey_gpu
from gpushare_node.adapters.nvml.library import Handle, Library, Observe, ignore
from gpushare_node.adapters.nvml.process_reader import ProcessReader
from gpushare_node.adapters.nvml.quirks import scrambles_lists
from gpushare_node.guard.process_list import PID_MAX, Device


class Session:
    """See `Driver`. Different GPUs may be asked by different threads; one GPU, and all else, by one at a time."""

    def __init__(self, library: Library, *, pid_max: int) -> None:
        """For `open`, which has initialised the library."""
        self._library = library
        self._pid_max = pid_max
        self._is_open = True
        self._events: XidEvents | None = None
        self._kept: dict[str, ProcessReader] = {}
        self._offers: KeptOffers = {}
        self._prefers_detail: bool | None = None

    @classmethod
    def open(cls, observe: Observe = ignore, *, pid_max: int = PID_MAX) -> "Session":
        """A new session. DriverError while the driver, or its library, is not there or is being replaced.

        `pid_max`: the largest pid of this host.
        """
        library = Library(observe)
        library.call("nvmlInit")
        return cls(library, pid_max=pid_max)

    def close(self) -> None:
        """End the session. A second time it does nothing; a refusal changes nothing, since the program is done with it."""
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
        """The installed versions."""
        cuda = self._library.find("nvmlSystemGetCudaDriverVersion_v2")
        return Versions(
            driver=self._library.call("nvmlSystemGetDriverVersion"),
            nvml=self._library.call("nvmlSystemGetNVMLVersion"),
            cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def survey(self) -> tuple[GpuInfo, ...]:
        """Every GPU. One that does not answer has a fault and stops no other."""
        detail = self._wants_detail()
        count = self._library.call("nvmlDeviceGetCount")
        return tuple(survey_gpu(self._library, index, prefers_detail=detail, kept=self._offers) for index in range(count))

    def census(self, uuid: str) -> Device:
        """The processes of a GPU and of its instances now. After an error everything about the GPU is looked up anew."""
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
        """Have each GPU's MIG devices walked again at its next census. Makes no call itself."""
        for kept in tuple(self._kept.values()):
            kept.is_stale = True

    def unreliable(self) -> frozenset[str]:
        """GPUs whose process lists may be scrambled, as their census has shown."""
        return frozenset(uuid for uuid, kept in tuple(self._kept.items()) if not kept.is_reliable)

    def set_mig(self, uuid: str, *, enabled: bool) -> Activation:
        """Ask for MIG on or off. After ACTIVE the session must be closed and opened again: handles are void."""
        self._kept.pop(uuid, None)
        status = self._library.call("nvmlDeviceSetMigMode", self._find(uuid), int(enabled))
        if status not in Activation.__members__.values():
            raise DriverError("nvmlDeviceSetMigMode", status)
        return Activation(status)

    def create_instance(self, uuid: str, *, profile_id: int, start: int, size: int) -> int:
        """Create a GPU instance at exactly this placement; its id."""
        return instances.create_instance(self._library, self._find(uuid), profile_id=profile_id, start=start, size=size)

    def create_compute(self, uuid: str, gi_id: int) -> None:
        """Create the compute instance of the GPU instance's whole size."""
        instances.create_compute(self._library, self._find(uuid), gi_id)

    def destroy_compute(self, uuid: str, gi_id: int, ci_id: int) -> None:
        """Destroy a compute instance; one that is gone is no error."""
        instances.destroy_compute(self._library, self._find(uuid), gi_id, ci_id)

    def destroy_instance(self, uuid: str, gi_id: int) -> None:
        """Destroy a GPU instance without compute instances; one that is gone is no error."""
        instances.destroy_instance(self._library, self._find(uuid), gi_id)

    def reset_compute_mode(self, uuid: str) -> None:
        """Everyone may open contexts again."""
        self._library.call("nvmlDeviceSetComputeMode", self._find(uuid), int(ComputeMode.DEFAULT))

    def has_memory_limits(self) -> bool:
        """Whether the driver can hold cgroups to a memory limit itself (R615 on)."""
        return limits.has_limits(self._library)

    def memory_limit(self, uuid: str, cgroup: str) -> int | None:
        """The hard limit in bytes of a cgroup v2 path on a GPU; None where none is set."""
        return limits.read_limit(self._library, self._find(uuid), cgroup)

    def set_memory_limit(self, uuid: str, cgroup: str, limit_bytes: int | None) -> None:
        """Set it, or with None lift it."""
        limits.set_limit(self._library, self._find(uuid), cgroup, limit_bytes)

    def next_xid(self, timeout_ms: int) -> Xid | None:
        """The next fault that the driver reports; None if there was none in that time."""
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
