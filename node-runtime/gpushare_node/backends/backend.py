"""Backend: what the two loops ask of the way in which GPUs are offered to pods, as one Protocol. Values only."""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from gpushare_node.adapters.host.state_dir import Published
from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.core.policy import Policy
from gpushare_node.core.structs import Struct
from gpushare_node.reporting.outcome import Unmet

NO_CHECKPOINT = "kubelet has no checkpoint of its devices"
"""The message if there is no checkpoint."""

Socket = tuple[str, int, int]
"""The identity of a socket: name, inode and change time, because a file system may reuse an inode immediately."""


class CheckpointError(Exception):
    """The checkpoint exists and cannot be read: the allocations are unknown. The text names the file and the problem."""


class Allocation(Struct):
    """Devices that kubelet allocated to a container. Ids are the plugin's: `UUID` or `UUID::replica`.

    `claim` is the uid of the claim by which it has them, empty if a device plugin gave them; `resource` is then a DeviceClass.
    """

    pod_uid: str
    container: str
    resource: str
    ids: tuple[str, ...]
    claim: str = ""

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the UUID of every id, once for each replica of it."""
        return tuple(device_id.rsplit("::", 1)[0] for device_id in self.ids)


class Checkpoint(Struct):
    """The allocations of every resource, and the ids that plugins registered for those of GPUs' vendors.

    `is_there` False: the file does not exist. Kubelet writes it when the first plugin registers; it may also have been
    deleted while pods run. `has_kubelet` False: kubelet's folder does not exist either, so no kubelet runs here.
    """

    allocations: tuple[Allocation, ...]
    registered: Mapping[str, frozenset[str]]
    is_there: bool = True
    has_kubelet: bool = True


class Backend(Protocol):
    """One way to offer GPUs. Only `read_checkpoint` and `find_sockets` read anything."""

    def read_checkpoint(self) -> Checkpoint:
        """Return what kubelet allocated to pods, and what is registered. CheckpointError if it cannot be read."""
        ...

    def find_sockets(self) -> frozenset[Socket]:
        """Return the sockets of the plugins that offer devices: a plugin that restarts creates a new one."""
        ...

    def publish(self, last: Published | None, label: str, profile: str, devices: frozenset[str]) -> Published:
        """Return what to publish for these devices. `label` is the node's current one, "" without one."""
        ...

    def flip(self, published: Published) -> Published:
        """Return the same devices under another name, so that the plugin enumerates again."""
        ...

    def advertised(self, allocatable: Mapping[str, int]) -> dict[str, int]:
        """Return the GPUs that the node offers to pods, by resource, without those whose count is zero."""
        ...

    def expected(self, policy: Policy, missing: Collection[int] = ()) -> dict[str, int]:
        """Return what the node must offer while the GPUs of these indexes are missing."""
        ...

    def find_mismatch(
        self,
        desired: Mapping[str, int],
        devices: frozenset[str],
        registered: Mapping[str, frozenset[str]] | None,
        allocatable: Mapping[str, int],
    ) -> Unmet | None:
        """Return what is missing or superfluous; None: the node offers the desired resources on these devices and nothing else.

        `registered` None: it is not known, so only `allocatable` is compared.
        """
        ...

    def find_stale(self, registered: Mapping[str, frozenset[str]], devices: frozenset[str]) -> tuple[str, ...]:
        """Return the UUIDs that are registered and do not exist."""
        ...

    def restartable(self, pods: Iterable[PodView], policy: Policy) -> tuple[PodView, ...]:
        """Return the pods that must be deleted to read the GPUs again; none if the plugin follows a label."""
        ...

    def explain(self, pods: Iterable[PodView], policy: Policy) -> str:
        """Return a clause on the plugin's pods, to follow a message; empty if nothing is known to be wrong with them."""
        ...
