"""What a DRA driver offers: a node's ResourceSlices, compared with what its policy expects and the GPUs that NVML has.

The driver follows no label, and registers nothing with kubelet's device manager: what a node offers is in its slices.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from gpushare_node.adapters.kube.slices import SliceDevice, SliceView
from gpushare_node.backends.backend import NodeBackend, about_unregistered
from gpushare_node.contract.policy import DraShares, ModeSwitch, Policy, Share
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.reporting.outcome import Unmet, join_first

_TYPES = {"gpu": False, "mig": True}
"""Whether devices of a type are MIG instances."""

_PLACE = re.compile("gpu-[0-9]+-mig-.+-[0-9]+-[0-9]+")
"""The name of a place for an instance: the GPU's minor number, the profile, its id, and the first slice."""

_MAX_NAMED = 3


class DraBackend(NodeBackend):
    """The back end of a DRA driver, for nodes of this policy. `read_slices` reads the ResourceSlices of the node `node`."""

    policy: Policy
    node: str = ""
    read_slices: Callable[[], Sequence[SliceView]] = tuple

    def expected(self, policy: Policy, missing: Collection[int] = ()) -> dict[str, int]:
        """Return how many devices of each DeviceClass the slices must list while the GPUs of these indexes are missing."""
        counts = Counter(dict(policy.resources))
        classes = {share.profile: share.resource for share in policy.shares}
        if policy.is_on_demand:
            there = sum(gpu.index not in missing for gpu in policy.gpus)
            return {name: count * there // len(policy.gpus) for name, count in counts.items() if there}
        for gpu in policy.gpus:
            if gpu.index in missing:
                counts.subtract(classes[profile] for profile in gpu.profiles if profile in classes)
        return {name: count for name, count in counts.items() if count > 0}

    def find_mismatch(
        self,
        desired: Mapping[str, int],
        devices: frozenset[str],
        registered: Mapping[str, frozenset[str]] | None,
        allocatable: Mapping[str, int],
    ) -> Unmet | None:
        """Return what is missing: the plugin must offer nothing, and the slices exactly the desired devices. ClusterError."""
        offered = self.advertised(allocatable)
        if offered:
            text = f"the device plugin still offers GPUs: {', '.join(sorted(offered))} in the node's allocatable"
            left = "" if registered is None else about_unregistered(offered, registered)
            return Unmet(reason=ConditionReason.BACK_END_RUNNING, message=text + left)
        return self.find_fault() or find_mismatch(self.policy, self.node, desired, devices, self.read_slices())

    def find_fault(self) -> Unmet | None:
        """Return which devices the driver has tainted, so that no claim gets them. ClusterError."""
        text = _find_tainted([device for one in self.read_slices() for device in one.devices])
        return Unmet(reason=ConditionReason.GPU_FAULTY, message=text) if text else None


def find_mismatch(
    policy: Policy, node: str, desired: Mapping[str, int], devices: frozenset[str], slices: Sequence[SliceView]
) -> Unmet | None:
    """Return how the slices of this node differ from the plan; None if the scheduler sees exactly that.

    `desired` are devices by class, `devices` the UUIDs that NVML has. A pool of slices counts in its newest generation alone,
    as for the scheduler, which takes no device of one that is incomplete.
    """
    if not slices:
        text = "the DRA driver has published no ResourceSlice of this node"
        return Unmet(reason=ConditionReason.WAITING_FOR_SLICES, message=text)
    foreign = sorted(f"{one.name} of node {one.node or '?'}" for one in slices if one.node != node)
    newest = {pool: max(one.generation for one in slices if one.pool == pool) for pool in {one.pool for one in slices}}
    current = tuple(one for one in slices if one.generation == newest[one.pool])
    listed = [device for one in current for device in one.devices]
    devices_differ = _find_no_place(policy, listed) if policy.is_on_demand else _find_unknown(listed, devices)
    listed = [one for one in listed if not policy.is_on_demand or _share_of(policy, one) is not None]
    text = (
        (f"they include {join_first(foreign, _MAX_NAMED)}" if foreign else "")
        or _find_incomplete(current)
        or _find_ambiguous(current)
        or devices_differ
        or _find_number(policy, desired, listed)
        or _find_sharing(policy, listed)
    )
    return Unmet(reason=ConditionReason.WRONG_SLICES, message=f"the node's ResourceSlices: {text}") if text else None


def _find_incomplete(slices: Sequence[SliceView]) -> str:
    have = Counter(one.pool for one in slices)
    wrong = sorted({f"pool {one.pool} has {have[one.pool]} of {one.count}" for one in slices if one.count != have[one.pool]})
    return join_first(wrong, _MAX_NAMED)


def _find_ambiguous(slices: Sequence[SliceView]) -> str:
    """Return names that several devices of a pool have: the scheduler takes no device of such a pool."""
    seen = Counter((one.pool, device.name) for one in slices for device in one.devices)
    names = sorted(f"{name} of pool {pool}" for (pool, name), count in seen.items() if count > 1)
    return f"{join_first(names, _MAX_NAMED)} are several devices" if names else ""


def _find_unknown(listed: Sequence[SliceDevice], devices: frozenset[str]) -> str:
    """Return the difference of the UUIDs: each that NVML has is listed once, and no other."""
    seen = Counter(device.uuid for device in listed)
    parts = (
        ("do not exist", [device.name for device in listed if device.uuid not in devices]),
        ("are listed more than once", [uuid for uuid, count in seen.items() if count > 1 and uuid in devices]),
        ("are missing", devices - seen.keys()),
    )
    return "; ".join(f"{join_first(sorted(some), _MAX_NAMED)} {what}" for what, some in parts if some)


def _find_no_place(policy: Policy, listed: Sequence[SliceDevice]) -> str:
    """Return the devices that are no place for an instance on demand.

    The driver lists the places of all profiles of the card. A whole GPU is one of them only where it switches MIG itself.
    """
    switches = any(gpu.on_demand is ModeSwitch.DRIVER for gpu in policy.gpus)
    other = [one.name for one in listed if one.type != "mig" and not (one.type == "gpu" and switches)]
    fixed = [one.name for one in listed if one.type == "mig" and (one.uuid or not _PLACE.fullmatch(one.name))]
    parts = (
        ("are no places for instances on demand: the driver runs without DynamicMIG", fixed),
        ("are no places for instances on demand", other),
    )
    return "; ".join(f"{join_first(sorted(some), _MAX_NAMED)} {what}" for what, some in parts if some)


def _find_number(policy: Policy, desired: Mapping[str, int], listed: Sequence[SliceDevice]) -> str:
    counts = Counter(_class_of(policy, device) for device in listed)
    names = sorted(name for name in desired.keys() | counts.keys() if desired.get(name, 0) != counts[name])
    return ", ".join(f"{name}: {counts[name]} instead of {desired.get(name, 0)}" for name in names)


def _find_tainted(listed: Sequence[SliceDevice]) -> str:
    names = sorted(f"{device.name} by {', '.join(device.taints)}" for device in listed if device.taints)
    return f"the DRA driver keeps claims away from {join_first(names, _MAX_NAMED)}" if names else ""


def _class_of(policy: Policy, device: SliceDevice) -> str:
    share = _share_of(policy, device)
    return f"{device.type} {device.profile}".strip() if share is None else share.resource


def _share_of(policy: Policy, device: SliceDevice) -> Share | None:
    if device.type not in _TYPES:
        return None
    profile = device.profile if _TYPES[device.type] else None
    return next((share for share in policy.shares if share.profile == profile), None)


def _find_sharing(policy: Policy, listed: Sequence[SliceDevice]) -> str:
    """Return what claims can share that they should not, or the reverse: the driver's setting, not the node's."""
    shares = None if policy.dra is None else policy.dra.shares
    wrong = sorted(
        f"{one.name} by {f'{one.count} shares' if one.shares == DraShares.COUNT else one.shares or 'nothing'}"
        for one in listed
        if not _is_shared(policy, one, shares)
    )
    return "" if not wrong else f"claims share {join_first(wrong, _MAX_NAMED)}, instead of by {shares or 'nothing'}"


def _is_shared(policy: Policy, device: SliceDevice, shares: DraShares | None) -> bool:
    share = _share_of(policy, device)
    is_counted = shares is DraShares.COUNT and share is not None and share.replicas > 1
    return device.shares == (shares or "") and (not is_counted or share is None or device.count == share.replicas)
