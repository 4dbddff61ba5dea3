"""XidEvents: the XIDs that the driver reports, from all GPUs that support it."""

import ctypes
from contextlib import suppress

from gpushare_node.vendors.driver import Code, DriverError, Xid
from gpushare_node.vendors.nvidia.library import Handle, Library

_XID_CRITICAL = 0x8


class XidEvents:
    """A registered event set. The constructor raises DriverError if no GPU reports events."""

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
