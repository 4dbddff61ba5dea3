"""A FUSE mount whose server stops answering: what any pod that may mount FUSE or NFS can put under its open files. As root."""

import ctypes
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IN = struct.Struct("<IIQQIIII")
"""fuse_in_header: length, opcode, unique, node, uid, gid, pid, padding."""
_OPENDIR = 27
_INIT_OUT = struct.Struct("<IIIIHHIIHH32x")
_OPEN_OUT = struct.Struct("<QII")
_DETACH = 2

_HOLD = "import os, sys, time\nfile = os.open(sys.argv[1], os.O_RDONLY)\nprint('open', flush=True)\ntime.sleep(3600)"


@contextmanager
def unanswering(folder: Path) -> Iterator[int]:
    """The pid of a process that has the mount's folder open; `stat` on that file hangs until the block ends."""
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40755,user_id=0,group_id=0".encode()
    if libc.mount(b"fuse", os.fsencode(folder), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    try:
        threading.Thread(target=_serve, args=(device,), daemon=True).start()
        with subprocess.Popen([sys.executable, "-c", _HOLD, str(folder)], stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            try:
                yield holder.pid
            finally:
                # Aborts every request that still waits.
                libc.umount2(os.fsencode(folder), _DETACH)
                os.close(device)
                holder.kill()
    finally:
        # For those who fail before; a second time it does no harm.
        libc.umount2(os.fsencode(folder), _DETACH)


def _serve(device: int) -> None:
    """Answer what it takes to open the folder; whatever else is asked waits."""
    opcode = 0
    while opcode != _OPENDIR:
        request = os.read(device, 1 << 17)
        _, opcode, unique, *_ = _IN.unpack_from(request)
        body = _answer(opcode, request[_IN.size :])
        os.write(device, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)


def _answer(opcode: int, body: bytes) -> bytes:
    match opcode:
        case 26:  # INIT
            return _INIT_OUT.pack(7, 31, *struct.unpack_from("<I", body, 8), 0, 12, 9, 4096, 1, 0, 0)
        case 3:  # GETATTR, of which the answer may not be kept
            return struct.pack("<QII", 0, 0, 0) + struct.pack("<6Q10I", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
        case _:
            return _OPEN_OUT.pack(1, 0, 0)
