"""ProcessReader: the processes of one GPU, cycle after cycle; it caches everything that does not change between two cycles.

Owns the cached handles of a GPU and of its MIG devices. One thread at a time reads one GPU; different GPUs are independent.
"""

import ctypes
from collections.abc import Mapping

from gpushare_node.contract.struct import Struct
from gpushare_node.guard.process_list import Device, MigInstance, ProcessEntry
from gpushare_node.vendors.driver import Code, DriverError
from gpushare_node.vendors.nvidia.gpu_info import read_memory
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
    """The cached handles and lists of one GPU."""

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
