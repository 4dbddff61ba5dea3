"""ProcessLists: the process lists of a GPU or of a MIG device, read from NVML with a buffer of our own, and not judged.

At each call, pynvml probes, allocates twice the size and creates an object for every row; and its probe finds nothing on
drivers that answer it with success. Here one call reads into a buffer that is kept and grows if necessary; rows that have not
changed are not created again. Owns the records' layout. The guard, not this module, validates the rows.
"""

import ctypes
import struct
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol

from gpushare_node.guard.process_list import MEMORY_UNKNOWN, Kind, ProcessEntry
from gpushare_node.vendors.driver import ABSENT, Code, DriverError
from gpushare_node.vendors.nvidia.library import Handle, Library

PLAIN = struct.Struct("=I4xQII")
"""`nvmlProcessInfo_t` since its second version: pid, bytes, GPU instance, compute instance."""

DETAILED = struct.Struct("=I4xQIIQ")
"""`nvmlProcessDetail_v1_t`: the same, and the bytes under confidential computing."""

NO_INSTANCE = 0xFFFFFFFF
_FIRST_CAPACITY = 128
_MAX_PROCESSES = 4096
"""The driver lists 950 processes at most."""
_ATTEMPTS = 6
_NO_DETAIL = ABSENT | {Code.INVALID_ARGUMENT, 25}
"""25, ARGUMENT_VERSION_MISMATCH, and INVALID_ARGUMENT: the driver has the call, but not this version of its list."""

_SYMBOLS: Mapping[Kind, tuple[str, ...]] = {
    kind: tuple(f"nvmlDeviceGet{word}RunningProcesses_v{version}" for version in (3, 2))
    for kind, word in ((Kind.COMPUTE, "Compute"), (Kind.GRAPHICS, "Graphics"), (Kind.MPS, "MPSCompute"))
}
"""The newest first; both return the same record."""

_MODES = {Kind.COMPUTE: 0, Kind.GRAPHICS: 1, Kind.MPS: 2}


class _Call(Protocol):
    """One of NVML's calls for a list."""

    symbol: str
    record: struct.Struct

    def ask(self, handle: Handle, buffer: Any, capacity: int) -> tuple[int, int]:
        """Return the code, and the number of rows."""
        ...


class _PlainCall:
    record = PLAIN

    def __init__(self, library: Library, symbol: str) -> None:
        self.symbol = symbol
        self._library = library
        self._count = ctypes.c_uint()
        self._reference = ctypes.byref(self._count)

    def ask(self, handle: Handle, buffer: Any, capacity: int) -> tuple[int, int]:
        self._count.value = capacity
        code = self._library.raw(self.symbol, handle, self._reference, buffer)
        return code, self._count.value


class _DetailedCall:
    """The list with a version: a driver with another version returns an error, whereas the plain list is read wrongly."""

    symbol = "nvmlDeviceGetRunningProcessDetailList"
    record = DETAILED

    def __init__(self, library: Library, kind: Kind) -> None:
        self._library = library
        self._list = library.names.c_nvmlProcessDetailList_t()
        self._list.version = library.names.nvmlProcessDetailList_v1
        self._list.mode = _MODES[kind]
        self._pointer = ctypes.POINTER(library.names.c_nvmlProcessDetail_v1_t)

    def ask(self, handle: Handle, buffer: Any, capacity: int) -> tuple[int, int]:
        self._list.numProcArrayEntries = capacity
        self._list.procArray = ctypes.cast(buffer, self._pointer)
        code = self._library.raw(self.symbol, handle, ctypes.byref(self._list))
        return code, int(self._list.numProcArrayEntries)


class _List:
    """One list of one device, with its buffer."""

    def __init__(self, call: _Call, kind: Kind) -> None:
        self.call = call
        self._kind = kind
        self._raw = b""
        self._rows: tuple[ProcessEntry, ...] = ()
        self._allocate(_FIRST_CAPACITY)

    def read(self, handle: Handle) -> tuple[ProcessEntry, ...]:
        code: int = Code.INSUFFICIENT_SIZE
        for _ in range(_ATTEMPTS):
            code, count = self.call.ask(handle, self._buffer, self._capacity)
            if code == 0 and count <= self._capacity:
                raw = self._view[: count * self.call.record.size].tobytes()
                if raw != self._raw:
                    self._rows = _rows(self._kind, self.call.record, raw)
                    self._raw = raw
                return self._rows
            # Success with more rows than the buffer can hold would mean a list that is cut.
            if code not in (0, Code.INSUFFICIENT_SIZE):
                break
            code = Code.INSUFFICIENT_SIZE
            self._allocate(min(max(self._capacity * 2, count + 16), _MAX_PROCESSES))
        raise DriverError(self.call.symbol, code)

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        self._buffer = ctypes.create_string_buffer(capacity * self.call.record.size)
        self._view = memoryview(self._buffer).cast("B")


class ProcessLists:
    """All lists of one device. For one thread at a time.

    `prefers_detail`: the plain lists of this driver may be scrambled. `are_reliable` becomes False when a read shows that the
    driver has no other lists.
    """

    def __init__(self, library: Library, *, prefers_detail: bool) -> None:
        self.are_reliable = True
        self._library = library
        self._prefers_detail = prefers_detail
        self._lists: dict[Kind, _List | None] = {}
        self._found: tuple[tuple[ProcessEntry, ...], ...] = ()
        self._rows: tuple[ProcessEntry, ...] = ()

    def read(self, handle: Handle) -> tuple[ProcessEntry, ...]:
        """Return the rows of the compute, graphics and MPS lists. DriverError if one cannot be read.

        A driver without the latter two has no such processes to report; a driver without the first cannot be used. As long as
        nothing has changed, it returns the same object.
        """
        found = (self._read(Kind.COMPUTE, handle), self._read(Kind.GRAPHICS, handle), self._read(Kind.MPS, handle))
        if found != self._found:
            self._found, self._rows = found, (*found[0], *found[1], *found[2])
        return self._rows

    def _read(self, kind: Kind, handle: Handle) -> tuple[ProcessEntry, ...]:
        if kind not in self._lists:
            return self._open(kind, handle)
        chosen = self._lists[kind]
        try:
            return () if chosen is None else chosen.read(handle)
        except DriverError as problem:
            if kind is Kind.COMPUTE or problem.code not in ABSENT:
                raise
            return ()

    def _open(self, kind: Kind, handle: Handle) -> tuple[ProcessEntry, ...]:
        """Find the call with which this driver returns the list, and use it from then on."""
        if self._prefers_detail:
            rows = self._try_detail(kind, handle)
            if rows is not None:
                return rows
        for symbol in _SYMBOLS[kind]:
            found = _List(_PlainCall(self._library, symbol), kind)
            try:
                rows = found.read(handle)
            except DriverError as problem:
                if problem.code == Code.FUNCTION_NOT_FOUND:
                    continue
                if kind is Kind.COMPUTE or problem.code != Code.NOT_SUPPORTED:
                    raise
                rows = ()
            self._lists[kind] = found
            return rows
        if kind is Kind.COMPUTE:
            raise DriverError(_SYMBOLS[kind][0], Code.FUNCTION_NOT_FOUND)
        self._lists[kind] = None
        return ()

    def _try_detail(self, kind: Kind, handle: Handle) -> tuple[ProcessEntry, ...] | None:
        found = _List(_DetailedCall(self._library, kind), kind)
        try:
            rows = found.read(handle)
        except DriverError as problem:
            if problem.code not in _NO_DETAIL:
                raise
            self._prefers_detail = self.are_reliable = False
            return None
        self._lists[kind] = found
        return rows


def _rows(kind: Kind, record: struct.Struct, raw: bytes) -> tuple[ProcessEntry, ...]:
    """Return the rows of these records, built column by column: a call of ProcessEntry for each takes four times as long."""
    if not raw:
        return ()
    pids, uses, instances, *_ = zip(*record.iter_unpack(raw), strict=True)
    new: Any = tuple.__new__
    return tuple(
        map(new, repeat(ProcessEntry), zip(pids, _known(uses, MEMORY_UNKNOWN), _known(instances, NO_INSTANCE), repeat(kind)))
    )


def _known(column: tuple[int, ...], unknown: int) -> Sequence[int | None]:
    return [None if one == unknown else one for one in column] if unknown in column else column
