"""Session: one open session with the driver; implements the Protocols `Driver` and `Partitionable`.

Owns the session's lifetime and its cache by UUID. Calls that change something look up the GPU's handle again; only
`read_device` uses cached handles. After UNINITIALIZED, DRIVER_NOT_LOADED or LIB_RM_VERSION_MISMATCH the session is over: close
it and open another. The library itself stays loaded for as long as the program runs, so a version mismatch after a driver
upgrade goes away only if the program restarts.
"""

import ctypes
from collections.abc import Mapping
from contextlib import suppress

from gpushare_node.contract.struct import Struct
from gpushare_node.guard.process_list import PID_MAX, Device, MigInstance, ProcessEntry
from gpushare_node.vendors.driver import Activation, Code, ComputeMode, DriverError, GpuInfo, Observe, Versions, Xid, ignore
from gpushare_node.vendors.nvidia import instances
from gpushare_node.vendors.nvidia.gpu_info import KeptOffers, read_memory, survey_gpu
from gpushare_node.vendors.nvidia.instances import each_mig_device
from gpushare_node.vendors.nvidia.library import Handle, Library
from gpushare_node.vendors.nvidia.process_lists import ProcessLists

_UUID_ROOM = 96


class _MigDevice(Struct):
    """A MIG device: what tenants see of it, and its handle, which is invalid once it is destroyed."""

    instance: MigInstance
    handle: Handle
    lists: ProcessLists


class ProcessReader:
    """The processes of one GPU, cycle after cycle; it caches handles and whatever does not change between two cycles.

    One thread at a time reads one GPU; different GPUs are independent.
    """

    def __init__(self, library: Library, uuid: str, *, pid_max: int, prefers_detail: bool) -> None:
        self.is_stale = True
        self._library = library
        self._uuid = uuid
        self._pid_max = pid_max
        self._prefers_detail = prefers_detail
        self._handle: Handle = library.call("nvmlDeviceGetHandleByUUID", uuid)
        self._lists = ProcessLists(library, prefers_detail=prefers_detail)
        self._mig: Mapping[int, _MigDevice] | None = None
        self._by_instance = False
        self._strangers: frozenset[int | None] = frozenset()
        self._name = ctypes.create_string_buffer(_UUID_ROOM)

    @property
    def is_reliable(self) -> bool:
        """False if this driver's lists may be scrambled and it has no others."""
        return self._lists.are_reliable and all(device.lists.are_reliable for device in (self._mig or {}).values())

    def read(self) -> Device:
        """Return the GPU's current state. DriverError if any part cannot be read: an incomplete result is worthless."""
        if self.is_stale or not self._is_mig_as_it_was():
            self._read_mig()
        _, used_before_bytes = self._read_memory()
        rows = self._read_rows()
        strangers = frozenset({row.gpu_instance for row in rows}) - (self._mig.keys() if self._mig is not None else {None})
        if strangers - self._strangers:
            # Only once for each unknown instance: a junk row would otherwise have all MIG devices listed in every cycle.
            self._read_mig()
        self._strangers = strangers
        total_bytes, used_bytes = self._read_memory()
        return Device(
            uuid=self._uuid,
            total_bytes=total_bytes,
            used_bytes=used_bytes,
            used_before_bytes=used_before_bytes,
            rows=rows,
            instances=None if self._mig is None else {number: device.instance for number, device in self._mig.items()},
            pid_max=self._pid_max,
        )

    def _read_memory(self) -> tuple[int | None, int | None]:
        """Return total and used bytes; None under MIG if only privileged programs may read them: its instances' count there."""
        try:
            return read_memory(self._library, self._handle)
        except DriverError as problem:
            if problem.code != Code.NO_PERMISSION or self._mig is None:
                raise
            return None, None

    def _read_rows(self) -> tuple[ProcessEntry, ...]:
        if not self._by_instance:
            try:
                return self._lists.read(self._handle)
            except DriverError as problem:
                # Only privileged programs may read the lists of all instances; those of single ones may still be readable.
                if problem.code != Code.NO_PERMISSION or not self._mig:
                    raise
                self._by_instance = True
        return tuple(
            ProcessEntry(pid=row.pid, used_bytes=row.used_bytes, gpu_instance=number, kind=row.kind)
            for number, device in (self._mig or {}).items()
            for row in device.lists.read(device.handle)
        )

    def _is_mig_as_it_was(self) -> bool:
        """Whether every known MIG device is still the same one: the driver reuses ids, but not UUIDs."""
        for device in (self._mig or {}).values():
            code = self._library.raw("nvmlDeviceGetUUID", device.handle, self._name, ctypes.c_uint(_UUID_ROOM))
            if code != 0 or self._name.value != device.instance.uuid.encode():
                return False
        return True

    def _read_mig(self) -> None:
        """List the MIG devices. A GPU instance split into several is known by its first: our tenants have whole ones."""
        self.is_stale = True
        modes = self._library.find("nvmlDeviceGetMigMode", self._handle)
        self._by_instance = False
        if modes is None or not modes[0]:
            self._mig = None
        else:
            found: dict[int, tuple[int, Handle]] = {}
            for handle, gi_id, ci_id in each_mig_device(self._library, self._handle):
                found[gi_id] = min(found.get(gi_id, (ci_id, handle)), (ci_id, handle), key=lambda one: one[0])
            self._mig = {gi_id: self._make(handle) for gi_id, (_, handle) in sorted(found.items())}
        self.is_stale = False

    def _make(self, handle: Handle) -> _MigDevice:
        total_bytes, _ = read_memory(self._library, handle)
        instance = MigInstance(uuid=self._library.call("nvmlDeviceGetUUID", handle), total_bytes=total_bytes)
        return _MigDevice(
            instance=instance, handle=handle, lists=ProcessLists(self._library, prefers_detail=self._prefers_detail)
        )


_FIRST = (530,)
_FIXED_IN = (535, 154, 5)


def scrambles_lists(driver_version: str) -> bool:
    """Whether this driver may scramble the rows of its process lists. A version that cannot be parsed counts as one.

    R530 and R535 extended the record of a list without changing its version. 535.154.05 fixed it. The bounds come from users'
    reports, not from the vendor.
    """
    parts = driver_version.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return True
    return _FIRST <= tuple(int(part) for part in parts) < _FIXED_IN


_SET, _GET = "nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"
_NO_LIMIT = (1 << 64) - 1
"""`NVML_DEVICE_MEMORY_LIMIT_MAX`."""


def has_limits(library: Library) -> bool:
    """Whether pynvml and the driver have both calls for the memory limits of cgroups: from R615 on, and not under MIG."""
    return library.has(_SET) and library.has(_GET)


def read_limit(library: Library, handle: Handle, cgroup: str) -> int | None:
    """Return the hard limit in bytes; None if none is set, which some drivers report as an error."""
    limits = library.names.c_nvmlGetMemoryLimits_v1_t(nameSpace=_encode(cgroup))
    try:
        library.call(_GET, handle, limits)
    except DriverError as problem:
        if problem.code in (Code.NOT_FOUND, Code.NOT_SUPPORTED):
            return None
        raise
    return None if limits.hardLimit == _NO_LIMIT else int(limits.hardLimit)


def set_limit(library: Library, handle: Handle, cgroup: str, limit_bytes: int | None) -> None:
    """Set the hard limit, or with None remove it.

    The soft limit stays 0: it guarantees memory, which is more than a cap promises, and it would have to be removed before the
    cgroup disappears.
    """
    hard = _NO_LIMIT if limit_bytes is None else limit_bytes
    library.call(_SET, handle, library.names.c_nvmlSetMemoryLimits_v1_t(nameSpace=_encode(cgroup), softLimit=0, hardLimit=hard))


def _encode(cgroup: str) -> ctypes.c_char_p:
    return ctypes.c_char_p(cgroup.encode())


_XID_CRITICAL = 0x8


class XidEvents:
    """The XIDs that the driver reports, from all GPUs that support it. DriverError of the constructor: none does."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._set = library.call("nvmlEventSetCreate")
        self._uuids: dict[int | None, str] = {}
        problem: DriverError | None = None
        for index in range(library.call("nvmlDeviceGetCount")):
            try:
                self._register(index)
            except DriverError as refusal:
                problem = refusal
        if not self._uuids:
            self.close()
            raise problem or DriverError("nvmlDeviceRegisterEvents", Code.NOT_FOUND)

    def next(self, timeout_ms: int) -> Xid | None:
        """Return the next XID; None if none came in time. A lost GPU no longer answers, so its UUID is cached."""
        try:
            data = self._library.ask("nvmlEventSetWait_v2", self._set, timeout_ms)
        except DriverError as problem:
            if problem.code == Code.TIMEOUT:
                return None
            raise
        uuid = self._uuids.get(_address(data.device)) or self._library.call("nvmlDeviceGetUUID", data.device)
        return Xid(uuid=uuid, xid=data.eventData)

    def close(self) -> None:
        """Free the set. An error here has no consequence."""
        with suppress(DriverError):
            self._library.call("nvmlEventSetFree", self._set)

    def _register(self, index: int) -> None:
        handle = self._library.call("nvmlDeviceGetHandleByIndex", index)
        uuid = self._library.call("nvmlDeviceGetUUID", handle)
        self._library.call("nvmlDeviceRegisterEvents", handle, _XID_CRITICAL, self._set)
        self._uuids[_address(handle)] = uuid


def _address(handle: Handle) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value  # type: ignore[arg-type]  # a pointer of pynvml's


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
        return has_limits(self._library)

    def memory_limit(self, uuid: str, cgroup: str) -> int | None:
        """Return the hard limit in bytes of a cgroup v2 path on a GPU; None if none is set."""
        return read_limit(self._library, self._find(uuid), cgroup)

    def set_memory_limit(self, uuid: str, cgroup: str, limit_bytes: int | None) -> None:
        """Set the limit, or with None remove it."""
        set_limit(self._library, self._find(uuid), cgroup, limit_bytes)

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
