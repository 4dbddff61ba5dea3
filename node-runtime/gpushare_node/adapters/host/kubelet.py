"""What kubelet writes down about devices, its device manager's checkpoint, and the device plugins' sockets beside it.

The checkpoint is kubelet's own file (`kubelet_internal_checkpoint`), rewritten by rename: it is opened anew at every
reading. It has what PodResources has not, the pods' uids, and needs no gRPC; entries of pods that have ended linger in it.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from gpushare_node.core.structs import Struct

DEFAULT = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")

_OURS = "nvidia.com/"
_FAMILIES = ("nvidia.com/gpu", "nvidia.com/mig-")
"""How names of GPU resources begin. nvidia.com/ has others, of network and virtual-machine plugins: none of our business."""


NO_CHECKPOINT = "kubelet has no checkpoint of its devices"
"""For people."""


class CheckpointError(Exception):
    """There is a checkpoint, and it cannot be read: what is allocated is unknown. The text names the file and the trouble."""


class Allocation(Struct):
    """Devices that kubelet gave to a container. Ids are the device plugin's: `UUID` or `UUID::replica`."""

    pod_uid: str
    container: str
    resource: str
    ids: tuple[str, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """The UUID of every id, once for each replica of it."""
        return tuple(one.rsplit("::", 1)[0] for one in self.ids)


class Checkpoint(Struct):
    """What is allocated, and which ids the device plugins registered, by resource; of resources of nvidia.com/ only.

    `is_there` False: there is no such file. Kubelet writes it when the first device plugin registers; it may also have been
    deleted under pods that run. `has_kubelet` False: kubelet's folder is not there either, so that none runs here.
    """

    allocations: tuple[Allocation, ...]
    registered: Mapping[str, frozenset[str]]
    is_there: bool = True
    has_kubelet: bool = True


def is_gpu_resource(name: str) -> bool:
    """Whether a resource is about GPUs."""
    return name.startswith(_FAMILIES)


def read_checkpoint(path: Path = DEFAULT) -> Checkpoint:
    """The checkpoint as it is now. CheckpointError where it cannot be read.

    Its checksum is a hash of Go's own print of a struct, so it is left to kubelet; the file is replaced whole, never half.
    """
    try:
        return _parse(path.read_bytes())
    except FileNotFoundError:
        return Checkpoint(allocations=(), registered={}, is_there=False, has_kubelet=path.parent.is_dir())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: {type(error).__name__}: {error}") from error


Socket = tuple[str, int, int]
"""A socket as it was made: its name, inode and time, for a file system gives an inode again at once."""


def find_sockets(folder: Path = DEFAULT.parent) -> frozenset[Socket]:
    """The device plugins' sockets. One that starts anew makes its own anew; what cannot be read is not there."""
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
    """Whoever enforces reads it every ten seconds, and mostly it is the same: the same object then."""
    data = json.loads(text)["Data"]
    entries = data["PodDeviceEntries"] or ()
    registered = data["RegisteredDevices"] or {}
    return Checkpoint(
        allocations=tuple(_allocation(entry) for entry in entries if entry["ResourceName"].startswith(_OURS)),
        registered={str(name): frozenset(_texts(ids)) for name, ids in registered.items() if name.startswith(_OURS)},
    )


def _allocation(entry: Mapping[str, object]) -> Allocation:
    """Ids stand by NUMA node since Kubernetes 1.20, in a plain list before."""
    ids = entry["DeviceIDs"]
    lists = list(ids.values()) if isinstance(ids, dict) else [ids]
    return Allocation(
        pod_uid=str(entry["PodUID"]),
        container=str(entry["ContainerName"]),
        resource=str(entry["ResourceName"]),
        ids=tuple(sorted(one for ids in lists for one in _texts(ids))),
    )


def _texts(value: object) -> tuple[str, ...]:
    """A list of texts; Go writes null for an empty one."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise TypeError(f"a list of ids was expected, not {value!r:.60}")
    return tuple(value)
