"""Backend: what the two loops ask of the way in which GPUs are offered to pods, and what kubelet's files say of it.

Also what a device plugin that has gone leaves in kubelet and on the Node object, and how an administrator removes it.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from gpushare_node import vendors
from gpushare_node.adapters.host.state_dir import Published
from gpushare_node.adapters.kube.cluster import Cluster, PodView
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.reporting.outcome import Unmet, join_first

NO_CHECKPOINT = "kubelet has no checkpoint of its devices"
"""The message if there is no checkpoint."""

_MAX_NAMED = 3

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

    @property
    def may_be_gpus(self) -> bool:
        """Whether these are GPUs or parts of them, or may be, by their name or their ids.

        One rule for who is in the way of a change, and for who may use a device. Other programs give GPUs under names and ids
        of their own (HAMi, Volcano: `UUID-0`), which may mean any device of the node.
        """
        return vendors.names_gpus(self.resource) or any(prefix in text for prefix in vendors.UUIDS for text in self.ids)


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


class NodeBackend(Struct):
    """One way to offer GPUs to pods. Only `find_mismatch` of DRA reads more than kubelet's files: the node's ResourceSlices.

    `read_checkpoint` returns what kubelet allocated to pods, and what is registered; CheckpointError if it cannot be read.
    `find_sockets` returns the sockets of the plugins that offer devices: a plugin that restarts creates a new one.

    A back end without a device plugin has no socket, follows no label, and has no pod that must start again.
    """

    read_checkpoint: Callable[[], Checkpoint]
    find_sockets: Callable[[], frozenset[Socket]] = frozenset

    def publish(self, last: Published | None, label: str, profile: str, devices: frozenset[str]) -> Published:
        """Return what to publish for these devices. `label` is the node's current one, "" without one."""
        return Published(key="", devices=devices)

    def flip(self, published: Published) -> Published:
        """Return the same devices under another name, if they have one, so that the plugin enumerates again."""
        return published

    def advertised(self, allocatable: Mapping[str, int]) -> dict[str, int]:
        """Return the GPUs that the node offers to pods, by resource, without those whose count is zero."""
        return vendors.advertised(allocatable)

    def expected(self, policy: Policy, missing: Collection[int] = ()) -> dict[str, int]:
        """Return what the node must offer while the GPUs of these indexes are missing."""
        raise NotImplementedError

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
        raise NotImplementedError

    def find_fault(self) -> Unmet | None:
        """Return which devices the back end keeps away from pods because of a fault. ClusterError if slices cannot be read."""
        return None

    def find_stale(self, registered: Mapping[str, frozenset[str]], devices: frozenset[str]) -> tuple[str, ...]:
        """Return the UUIDs that are registered and do not exist."""
        return ()

    def restartable(self, pods: Iterable[PodView], policy: Policy) -> tuple[PodView, ...]:
        """Return those of the platform's pods that must be deleted to read the GPUs again; none where a label is followed."""
        return ()

    def explain(self, pods: Iterable[PodView], policy: Policy) -> str:
        """Return a clause on the plugin's pods, to follow a message; empty if nothing is known to be wrong with them.

        `pods` are the platform's.
        """
        return ""


def find_rival(cluster: Cluster, policy: Policy, is_served: Callable[[str], bool]) -> Unmet | None:
    """Return whether a DRA driver offers the GPUs of a node of device plugins too: neither knows what the other gave.

    ClusterError. Its slices are read only if a program may serve the driver on the host, so that other nodes cost no request.
    """
    driver = vendors.of(policy.vendor).slices_driver
    if policy.backend.has_claims or not is_served(driver):
        return None
    names = [one.name for one in cluster.slices(driver) if one.devices]
    if not names:
        return None
    text = f"the DRA driver {driver} also offers the node's GPUs: ResourceSlice {join_first(names, _MAX_NAMED)}"
    return Unmet(reason=ConditionReason.BACK_END_RUNNING, message=text)


class KubeletFiles(Struct, frozen=False):
    """All that kubelet gave to pods, by device plugins and by claims, whichever of them the node's pool has now.

    While a pool changes from one to the other, pods of the former run on, and keep their caps. `read_claims` returns None if
    kubelet has no list of claims. `needs_claims`: the pool's pods have claims.
    """

    read_devices: Callable[[], Checkpoint]
    read_claims: Callable[[], tuple[Allocation, ...] | None]
    needs_claims: bool
    _last: tuple[Checkpoint, tuple[Allocation, ...] | None, Checkpoint] | None = None

    def read_checkpoint(self) -> Checkpoint:
        """Return both as one checkpoint: the same object as long as nothing changes. CheckpointError if one cannot be read."""
        devices, claims = self.read_devices(), self.read_claims()
        if self._last is not None and self._last[0] is devices and self._last[1] == claims:
            return self._last[2]
        found = replace(
            devices,
            allocations=(*devices.allocations, *(claims or ())),
            is_there=claims is not None if self.needs_claims else devices.is_there,
            has_claims=claims is not None,
        )
        self._last = (devices, claims, found)
        return found


def cleanup_commands(names: Iterable[str], *, has_checkpoint: bool = False) -> str:
    """Return the commands that have kubelet, and with its checkpoint also the allocations in it, forget these resources.

    Kubelet keeps offering what the Node object has of a resource that it does not know, so it must not run meanwhile.
    """
    none = dict.fromkeys(sorted(names))
    patch = json.dumps({"status": {"capacity": none, "allocatable": none}}, separators=(",", ":"))
    removal = f" && rm {DEVICES}" if has_checkpoint else ""
    return (
        f"run `systemctl stop kubelet{removal}` on the node, then "
        f"`kubectl patch node NODE --subresource=status --type=merge -p '{patch}'`, then `systemctl start kubelet` on the node"
    )


def about_unregistered(offered: Iterable[str], registered: Mapping[str, Collection[str]]) -> str:
    """Return a clause, to follow a message, on offered resources that no plugin has registered; empty if there are none.

    Kubelet itself removes them after five minutes, by a write that may be lost.
    """
    names = sorted(name for name in offered if not registered.get(name))
    if not names:
        return ""
    commands = cleanup_commands(names)
    return f"; no plugin has registered {', '.join(names)}: if the node still offers it after five minutes, {commands}"
