"""DRA: NVIDIA's driver offers the GPUs in ResourceSlices, and gives them to pods by ResourceClaims.

The driver follows no label, and registers nothing with kubelet's device manager: what a node offers is in its slices.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from gpushare_node.adapters.host.state_dir import Published
from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.backends.backend import Checkpoint, Socket
from gpushare_node.core.policy import Policy
from gpushare_node.core.structs import Struct
from gpushare_node.reporting.outcome import Unmet
from gpushare_node.vendors import is_gpu_resource


class DraBackend(Struct):
    """The `Backend` of a DRA driver. `read_checkpoint` reads kubelet's files as this host has them."""

    read_checkpoint: Callable[[], Checkpoint]

    def find_sockets(self) -> frozenset[Socket]:
        """Return no socket: the driver is not a device plugin."""
        return frozenset()

    def publish(self, last: Published | None, label: str, profile: str, devices: frozenset[str]) -> Published:  # noqa: ARG002
        """Return the devices without a name: the driver follows no label."""
        return Published(key="", devices=devices)

    def flip(self, published: Published) -> Published:
        """Return the same."""
        return published

    def advertised(self, allocatable: Mapping[str, int]) -> dict[str, int]:
        """Return the GPU resources of device plugins, which this node must not offer."""
        return {name: count for name, count in allocatable.items() if count > 0 and is_gpu_resource(name)}

    def expected(self, policy: Policy, missing: Collection[int] = ()) -> dict[str, int]:
        """Return how many devices of each DeviceClass the slices must list."""
        raise NotImplementedError

    def find_mismatch(
        self,
        desired: Mapping[str, int],
        devices: frozenset[str],
        registered: Mapping[str, frozenset[str]] | None,
        allocatable: Mapping[str, int],
    ) -> Unmet | None:
        """See `Backend`."""
        raise NotImplementedError

    def find_stale(self, registered: Mapping[str, frozenset[str]], devices: frozenset[str]) -> tuple[str, ...]:
        """See `Backend`."""
        raise NotImplementedError

    def restartable(self, pods: Iterable[PodView], policy: Policy) -> tuple[PodView, ...]:
        """See `Backend`."""
        raise NotImplementedError

    def explain(self, pods: Iterable[PodView], policy: Policy) -> str:
        """See `Backend`."""
        raise NotImplementedError
