"""The state file that all processes of a fake node share: one table of structs, from which Python's and C's views are made.

The tables below are the only place where the form stands. `header()` is the C text, whose assertions hold the compiler to the
offsets that ctypes computed. Nothing here reads or writes a file.
"""

import ctypes
import zlib
from typing import Any

GPUS, PROFILES, PLACEMENTS, INSTANCES, COMPUTES, ROWS = 16, 18, 16, 16, 8, 2048
"""PROFILES is NVML's number of profile enums. INSTANCES and COMPUTES are ids. ROWS: more than the 950 that a driver shows."""

FAULTS, CALLS, EVENTS, LIMITS = 64, 4096, 64, 32

KIND_COMPUTE, KIND_GRAPHICS, KIND_MPS = 1, 2, 4
"""What a process does on the GPU, one bit each. A free row has no bit."""

FOLLOWED, HELD, MADE_UP, RAW = 1, 2, 3, 4
"""How a row's process is known: a pid with a start time, the holder of a file lock, a number without a process, junk."""

LOCK_BASE = 1 << 40
"""Where the file locks of HELD rows begin: far behind the end of the file, one byte for each row of each GPU."""

NO_INSTANCE = 0xFFFFFFFF
UNLIMITED = 0xFFFFFFFF
UNKNOWN_BYTES = 0xFFFFFFFFFFFFFFFF

CONSTANTS = {name: value for name, value in globals().items() if name.isupper() and isinstance(value, int)}

KINDS = {"compute": KIND_COMPUTE, "graphics": KIND_GRAPHICS, "mps": KIND_MPS}

STRUCTS: dict[str, str] = {
    "placement": "u32 start, u32 size",
    "engines": "u32 copy, u32 decoders, u32 encoders, u32 jpeg, u32 ofa",
    "profile": """
        u32 exists, u32 id, u32 slices, u32 max_count, u32 told_count, u32 sm, engines engines, u32 memory_mib,
        u32 placement_count, placement placements PLACEMENTS, char name 32""",
    "compute": "u32 exists, u32 profile_id, u32 start, u32 size, u32 serial, u32 index, char uuid 48",
    "instance": """
        u32 exists, u32 profile, u32 start, u32 size, u32 serial, u64 unattributed_bytes, compute computes COMPUTES""",
    "row": "u32 kinds, u32 how, u32 pid, u32 gi, u32 ci, u64 used_bytes, u64 started, u64 pid_namespace",
    "limit": "char cgroup 256, u64 soft_bytes, u64 hard_bytes",
    "gpu": """
        char uuid 48, char name 96, u32 pci_device_id, u32 pci_bus, u32 architecture, u32 major, u32 minor,
        u32 lost, u32 generation, u32 compute_mode, u32 fabric_state, u32 fabric_status, u32 recovery_action, i32 races,
        u32 mig_capable, u32 mig_current, u32 mig_pending, u32 mig_survives_reboot, u32 blocked_code, i32 blocked_times,
        u32 units, u32 max_instances, engines totals, profile profiles PROFILES, instance instances INSTANCES,
        u64 memory_bytes, u64 reserved_bytes, u64 unattributed_bytes, limit limits LIMITS, u32 row_end, row rows ROWS""",
    "fault": "char function 64, u32 active, i32 gpu, u32 code, i32 times, i32 after, u32 delay_ms",
    "event": "u32 gpu, u32 xid, u32 gi, u32 ci",
    "call": "char text 320",
    "state": """
        u32 magic, u32 size, u32 gpu_count, u32 init_code, u32 needs_privilege, u32 serial,
        char driver 32, char nvml 32, u32 cuda, u32 profile_enums, u32 tells_profiles_when_off,
        u32 call_count, call calls CALLS, i32 kill_before, i32 kill_after,
        u64 event_count, event events EVENTS, fault faults FAULTS, gpu gpus GPUS""",
}
"""Type, name, and how many there are in a row if it is an array. Both compilers pad alike; `header()` has it checked."""

CONSTANTS["MAGIC"] = zlib.crc32(repr((CONSTANTS, STRUCTS)).encode())
"""The first four bytes of a state file. They stand for its version: another form has other ones."""

_SCALARS: dict[str, tuple[Any, str]] = {
    "u32": (ctypes.c_uint32, "uint32_t"),
    "i32": (ctypes.c_int32, "int32_t"),
    "u64": (ctypes.c_uint64, "uint64_t"),
    "char": (ctypes.c_char, "char"),
}


def _fields(struct: str) -> list[tuple[str, str, int]]:
    """Type, name and number of each field; 0: not an array."""
    found = []
    for field in STRUCTS[struct].split(","):
        kind, name, *many = field.split()
        found.append((kind, name, int(CONSTANTS.get(many[0], 0) or many[0]) if many else 0))
    return found


def _views() -> dict[str, Any]:
    views: dict[str, Any] = {name: view for name, (view, _) in _SCALARS.items()}
    for struct in STRUCTS:
        members = [(name, views[kind] * many if many else views[kind]) for kind, name, many in _fields(struct)]
        views[struct] = type(struct, (ctypes.Structure,), {"_fields_": members})
    return views


VIEWS = _views()
"""The ctypes structure of each struct."""

SIZE = ctypes.sizeof(VIEWS["state"])


def header() -> str:
    """The C header: constants, structs, and assertions that the C compiler lays them out as ctypes does."""
    lines = ["#pragma once", "#include <stddef.h>", "#include <stdint.h>"]
    lines += [f"#define {name} {value}{'ull' if value > UNLIMITED else 'u'}" for name, value in CONSTANTS.items()]
    for struct in STRUCTS:
        view = VIEWS[struct]
        lines += [f"struct {struct} {{", *(f"    {_c(*field)};" for field in _fields(struct)), "};"]
        lines += [_asserted(f"offsetof(struct {struct}, {name})", getattr(view, name).offset) for _, name, _ in _fields(struct)]
        lines += [_asserted(f"sizeof(struct {struct})", ctypes.sizeof(view))]
    return "\n".join([*lines, ""])


def _c(kind: str, name: str, many: int) -> str:
    spelt = _SCALARS[kind][1] if kind in _SCALARS else f"struct {kind}"
    return f"{spelt} {name}[{many}]" if many else f"{spelt} {name}"


def _asserted(expression: str, value: int) -> str:
    return f'_Static_assert({expression} == {value}, "{expression}");'
