"""The checkpoint of kubelet's device manager, and the device plugins' sockets beside it.

The checkpoint is kubelet's own file (`kubelet_internal_checkpoint`), rewritten by rename: it is opened again for every
read. It has the pods' uids, which PodResources lacks, and needs no gRPC; entries of pods that have ended stay in it for a
while.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from gpushare_node.backends.backend import DEVICES, Allocation, Checkpoint, CheckpointError, Socket
from gpushare_node.vendors import RESOURCES

DEFAULT = DEVICES


def read_checkpoint(path: Path = DEFAULT) -> Checkpoint:
    """Return the current checkpoint; CheckpointError if it cannot be read.

    Its checksum is a hash of Go's own print of a struct, so only kubelet checks it; kubelet replaces the file atomically.
    """
    try:
        return _parse(path.read_bytes())
    except FileNotFoundError:
        return Checkpoint(allocations=(), registered={}, is_there=False, has_kubelet=path.parent.is_dir())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: {type(error).__name__}: {error}") from error


def find_sockets(folder: Path = DEFAULT.parent) -> frozenset[Socket]:
    """Return the device plugins' sockets. A plugin that restarts creates a new one; an unreadable socket counts as absent."""
    found = set()
    with suppress(OSError):
        for path in folder.glob("*.sock"):
            if path.name != "kubelet.sock":
                with suppress(OSError):
                    status = path.stat()
                    found.add((path.name, status.st_ino, status.st_ctime_ns))
    return frozenset(found)


@lru_cache(maxsize=1)
def _parse(text: bytes) -> Checkpoint:
    """Parse the checkpoint. Enforcement reads it every ten seconds and mostly it is unchanged: then it gets the same object."""
    data = json.loads(text)["Data"]
    entries = data["PodDeviceEntries"] or ()
    registered = data["RegisteredDevices"] or {}
    return Checkpoint(
        allocations=tuple(_allocation(entry) for entry in entries),
        registered={str(name): frozenset(_texts(ids)) for name, ids in registered.items() if name.startswith(RESOURCES)},
    )


def _allocation(entry: Mapping[str, object]) -> Allocation:
    """Return the allocation of one entry. Its ids are grouped by NUMA node since Kubernetes 1.20; before, in a plain list."""
    ids = entry["DeviceIDs"]
    lists = list(ids.values()) if isinstance(ids, dict) else [ids]
    return Allocation(
        pod_uid=str(entry["PodUID"]),
        container=str(entry["ContainerName"]),
        resource=str(entry["ResourceName"]),
        ids=tuple(sorted(text for ids in lists for text in _texts(ids))),
    )


def _texts(value: object) -> tuple[str, ...]:
    """Return a list of texts; Go writes null for an empty one."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise TypeError(f"a list of ids was expected, not {value!r:.60}")
    return tuple(value)
