"""What kubelet writes down about devices: its device manager's checkpoint.

The checkpoint is kubelet's own file (`kubelet_internal_checkpoint`), rewritten by rename: it is opened anew at every
reading. It
has what PodResources has not, the pods' uids, and needs no gRPC; entries of pods that have ended linger in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Devices that kubelet gave to a container. Ids are the device plugin's: `UUID` or `UUID::replica`."""

    pod_uid: str
    container: str
    resource: str
    ids: tuple[str, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """The UUID of every id, once for each replica of it."""
        return tuple(one.rsplit("::", 1)[0] for one in self.ids)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What is allocated, and which ids the device plugins registered, by resource; of resources of nvidia.com/ only."""

    allocations: tuple[Allocation, ...]
    registered: Mapping[str, frozenset[str]]
