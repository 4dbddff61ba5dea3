"""Backend: what the two loops ask of the way in which GPUs are offered to pods, as one Protocol. Values only."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from gpushare_node.adapters.host.state_dir import Published
from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.struct import Struct
from gpushare_node.reporting.outcome import Unmet

NO_CHECKPOINT = "kubelet has no checkpoint of its devices"
"""The message if there is no checkpoint."""

DEVICES = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
"""Where kubelet remembers what device plugins gave to pods."""

Socket = tuple[str, int, int]
"""The identity of a socket: name, inode and change time, because a file system may reuse an inode immediately."""


class CheckpointError(Exception):
    """The checkpoint exists and cannot be read: the allocations are unknown. The text names the file and the problem."""


class Claim(Struct):
    """A request of a ResourceClaim, and what it consumes of the device that serves it.

    `request` empty: any. `share` tells several shares of one device apart. `memory_bytes` and `shares` None: nothing is
    counted, so the claim has the whole device. `is_admin`: it only looks on, and consumes nothing.
    """

    uid: str
    namespace: str
    name: str
    request: str = ""
    share: str = ""
    memory_bytes: int | None = None
    shares: int | None = None
    is_admin: bool = False


class Allocation(Struct):
    """Devices that kubelet allocated to a container. Ids are the plugin's: `UUID` or `UUID::replica`.

    With a `claim` the devices are a pod's, `container` is empty, and the pod says which of its containers use the claim. The
    resource is then the policy's DeviceClass, or the DRA driver if the policy has none for the device. An id that is no UUID
    is a device of which the UUID is not known.
    """

    pod_uid: str
    container: str
    resource: str
    ids: tuple[str, ...]
    claim: Claim | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the UUID of every id, once for each replica of it."""
        return tuple(device_id.rsplit("::", 1)[0] for device_id in self.ids)


class Checkpoint(Struct):
    """The allocations of every resource, and the ids that plugins registered for those of GPUs' vendors.

    `is_there` False: the file of this back end does not exist. Kubelet writes it when the first plugin registers, for claims
    when it starts; it may also have been deleted while pods run. `has_kubelet` False: kubelet's folder does not exist either,
    so no kubelet runs here. `has_claims`: all claims of the node's pods are among the allocations, also other drivers'.
    """

    allocations: tuple[Allocation, ...]
    registered: Mapping[str, frozenset[str]]
    is_there: bool = True
    has_kubelet: bool = True
    has_claims: bool = False


class Backend(Protocol):
    """One way to offer GPUs. `read_checkpoint` and `find_sockets` read kubelet's files.

    Of DRA `find_mismatch` reads the node's ResourceSlices, and nothing else reads anything.
    """

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

        `registered` None: it is not known, so only `allocatable` is compared. ClusterError if slices cannot be read.
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
