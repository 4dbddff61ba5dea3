"""DRA: NVIDIA's driver offers the GPUs in ResourceSlices, and gives them to pods by ResourceClaims.

The driver follows no label, and registers nothing with kubelet's device manager: what a node offers is in its slices.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gpushare_node import vendors
from gpushare_node.adapters.host.state_dir import Published
from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.adapters.kube.slices import SliceView
from gpushare_node.backends.backend import Checkpoint, Socket
from gpushare_node.backends.dra import slices
from gpushare_node.backends.leftovers import about_unregistered
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.struct import Struct
from gpushare_node.reporting.outcome import Unmet
from gpushare_node.reporting.reasons import ConditionReason


class DraBackend(Struct):
    """The `Backend` of a DRA driver, for nodes of this policy.

    `read_checkpoint` reads kubelet's files as this host has them, `read_slices` the ResourceSlices of the node called `node`.
    """

    policy: Policy
    read_checkpoint: Callable[[], Checkpoint]
    node: str = ""
    read_slices: Callable[[], Sequence[SliceView]] = tuple

    def find_sockets(self) -> frozenset[Socket]:
        """Return no socket: the driver is not a device plugin."""
        return frozenset()

    def publish(self, last: Published | None, label: str, profile: str, devices: frozenset[str]) -> Published:  # noqa: ARG002
        """Return the devices without a name: the driver follows no label."""
        return Published(key="", devices=devices)

    def flip(self, published: Published) -> Published:
        """Return the same."""
        return published

    advertised = staticmethod(vendors.advertised)

    def expected(self, policy: Policy, missing: Collection[int] = ()) -> dict[str, int]:
        """Return how many devices of each DeviceClass the slices must list."""
        return slices.expected(policy, missing)

    def find_mismatch(
        self,
        desired: Mapping[str, int],
        devices: frozenset[str],
        registered: Mapping[str, frozenset[str]] | None,
        allocatable: Mapping[str, int],
    ) -> Unmet | None:
        """See `Backend`. The plugin must offer nothing, and the slices exactly the desired devices. ClusterError."""
        offered = self.advertised(allocatable)
        if offered:
            text = f"the device plugin still offers GPUs: {', '.join(sorted(offered))} in the node's allocatable"
            left = "" if registered is None else about_unregistered(offered, registered)
            return Unmet(reason=ConditionReason.BACK_END_RUNNING, message=text + left)
        return slices.find_mismatch(self.policy, self.node, desired, devices, self.read_slices())

    def find_stale(self, registered: Mapping[str, frozenset[str]], devices: frozenset[str]) -> tuple[str, ...]:  # noqa: ARG002
        """Return none: what kubelet remembers of a plugin offers nothing any more."""
        return ()

    def restartable(self, pods: Iterable[PodView], policy: Policy) -> tuple[PodView, ...]:  # noqa: ARG002
        """Return none: the driver starts again behind the gate, after every change."""
        return ()

    def explain(self, pods: Iterable[PodView], policy: Policy) -> str:  # noqa: ARG002
        """Return nothing: what is wrong with slices says it all."""
        return ""
