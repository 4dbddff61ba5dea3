"""Device plugins: what kubelet gave to which pod, the label that a plugin follows, and what the node must offer."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from gpushare_node.adapters.host.state_dir import Published
from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.backends.backend import (
    DEVICES,
    Allocation,
    Checkpoint,
    CheckpointError,
    NodeBackend,
    Socket,
    about_unregistered,
)
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.reporting.outcome import Unmet, join_first
from gpushare_node.vendors import RESOURCES, UUIDS, advertised, is_gpu_resource, is_read_once, of

_APP, _NAME = "app", "app.kubernetes.io/name"
_PROFILES = "gpushare-profiles"
_OURS, _PLUGIN = "gpushare-", "-device-plugin"
_MAX_NAMED = 3


def read_checkpoint(path: Path = DEVICES) -> Checkpoint:
    """Return the current checkpoint of kubelet's device manager; CheckpointError if it cannot be read.

    It is kubelet's own file (`kubelet_internal_checkpoint`), rewritten by rename: it is opened again for every read. It has the
    pods' uids, which PodResources lacks, and needs no gRPC; entries of pods that have ended stay in it for a while. Its
    checksum is a hash of Go's own print of a struct, so only kubelet checks it.
    """
    try:
        return _parse(path.read_bytes())
    except FileNotFoundError:
        return Checkpoint(allocations=(), registered={}, is_there=False, has_kubelet=path.parent.is_dir())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: {type(error).__name__}: {error}") from error


def find_sockets(folder: Path = DEVICES.parent) -> frozenset[Socket]:
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


class DevicePlugin(NodeBackend):
    """The back end of device plugins.

    Only a changed value of its label makes a device plugin enumerate again, so every profile has two names of the same content,
    `-a` and `-b`. A name identifies the devices that it was published for; if the devices change, the other name is published.
    """

    read_checkpoint: Callable[[], Checkpoint] = read_checkpoint
    find_sockets: Callable[[], frozenset[Socket]] = find_sockets

    def publish(self, last: Published | None, label: str, profile: str, devices: frozenset[str]) -> Published:
        """Return what to publish for these devices.

        Without a `profile` the plugin follows no label, and nothing has a name.

        If nothing is remembered, the label counts: if the plugin has enumerated other devices, that shows, and `flip` follows.
        """
        if not profile:
            return Published(key="", devices=devices)
        if last is None or last.key[:-2] != profile:
            key = label if label in (f"{profile}-a", f"{profile}-b") else f"{profile}-a"
            return Published(key=key, devices=devices)
        return last if last.devices == devices else Published(key=self.flip(last).key, devices=devices)

    def flip(self, published: Published) -> Published:
        """Return these devices under the other profile name, if they have one."""
        if not published.key:
            return published
        other = "b" if published.key.endswith("-a") else "a"
        return Published(key=f"{published.key[:-2]}-{other}", devices=published.devices)

    def expected(self, policy: Policy, missing: Collection[int] = ()) -> dict[str, int]:
        """Return what allocatable must contain while the GPUs of these indexes are missing: the rest of `policy.resources`."""
        counts = Counter(dict(policy.resources))
        replicas = {share.profile: share for share in policy.shares}
        for gpu in policy.gpus:
            if gpu.index in missing and gpu.partition is not None:
                counts[policy.share_of(gpu.partition).resource] -= gpu.partition.devices
            elif gpu.index in missing:
                for profile in gpu.profiles:
                    if profile in replicas:
                        counts[replicas[profile].resource] -= replicas[profile].replicas
        return {name: count for name, count in counts.items() if count > 0}

    def find_mismatch(
        self,
        desired: Mapping[str, int],
        devices: frozenset[str],
        registered: Mapping[str, frozenset[str]] | None,
        allocatable: Mapping[str, int],
    ) -> Unmet | None:
        """Return what is missing or superfluous.

        Ids are compared first: counts can be correct although no id exists. For plugins whose device ids are not known (GKE's)
        only the counts are compared. A plugin that registered nothing may have found nothing, and wait for its label to change.
        """
        if registered is None:
            return _find_offer_mismatch(desired, allocatable)
        ids = {name: some for name, some in registered.items() if some and is_gpu_resource(name)}
        known = {one.rsplit("::", 1)[0] for some in ids.values() for one in some}
        is_known = any(one.startswith(UUIDS) for one in known) or (bool(devices) and any(map(is_read_once, desired)))
        if known != devices and (not known or is_known):
            return Unmet(reason=ConditionReason.WAITING_FOR_PLUGIN, message=_about_ids(known, devices), is_stale=True)
        counts = {name: len(some) for name, some in ids.items()}
        if counts != desired:
            return _about_numbers("the device plugin registered", desired, counts)
        found = _find_offer_mismatch(desired, allocatable)
        if found is None:
            return None
        return replace(found, message=found.message + about_unregistered(advertised(allocatable), ids))

    def find_stale(self, registered: Mapping[str, frozenset[str]], devices: frozenset[str]) -> tuple[str, ...]:
        """Return the UUIDs that the plugin registered and that do not exist."""
        known = {one.rsplit("::", 1)[0] for name, some in registered.items() if is_gpu_resource(name) for one in some}
        return tuple(sorted(one for one in known - devices if one.startswith(UUIDS)))

    def restartable(self, pods: Iterable[PodView], policy: Policy) -> tuple[PodView, ...]:
        """Return the pods of the bundle's device plugin that read the GPUs once, when they start. One that is ending is none.

        Of the pods that AMD's operator makes of a DeviceConfig, only device plugin and labeller have no name of a program.
        """
        label = of(policy.vendor).restarted
        if not label:
            return ()
        return tuple(
            pod
            for pod in pods
            if pod.labels.get(label, "").startswith(_OURS) and _NAME not in pod.labels and not pod.is_terminating
        )

    def explain(self, pods: Iterable[PodView], policy: Policy) -> str:
        """Return a clause on the plugin's pods, to follow a message; empty if nothing is known to be wrong with them.

        Where the plugin's pods may have any labels, none is missed.
        """
        vendor = of(policy.vendor)
        if vendor.restarted:
            found = [pod for pod in self.restartable(pods, policy) if pod.controller.endswith(_PLUGIN)]
        else:
            found = [pod for pod in pods if not vendor.plugin_apps.isdisjoint({pod.labels.get(_APP), pod.labels.get(_NAME)})]
        if not found:
            return (
                "; the device plugin has no pod on the node in a namespace of the platform"
                if policy.stack.labels_plugin
                else ""
            )
        waiting = [pod for pod in found if pod.phase == "Pending"]
        if not waiting:
            return ""
        names = join_first([f"{pod.namespace}/{pod.name}" for pod in waiting], _MAX_NAMED)
        if not vendor.plugin_label:
            return f"; {names} has not started"
        spaces = join_first(sorted({pod.namespace for pod in waiting}), _MAX_NAMED)
        return f"; {names} has not started: it needs the ConfigMap {_PROFILES} in its namespace, {spaces}"


def _find_offer_mismatch(desired: Mapping[str, int], allocatable: Mapping[str, int]) -> Unmet | None:
    """Return how the node's allocatable alone differs from the desired resources."""
    shown = advertised(allocatable)
    return None if shown == desired else _about_numbers("the node offers", desired, shown)


def _about_numbers(who: str, desired: Mapping[str, int], shown: Mapping[str, int]) -> Unmet:
    """Return the difference. Where only something is missing, a plugin that enumerates again offers it.

    A plugin that has lost its connection to kubelet, or that takes a device for unhealthy, does not notice when that is over.
    One that reads the GPUs only when it starts can offer anything that they had before.
    """
    is_less = all(count <= desired.get(name, 0) for name, count in shown.items())
    text = f"{who} {_about_counts(desired, shown)}"
    if is_less:
        text += "; a plugin omits devices that it considers unhealthy until it restarts"
    is_stale = is_less or any(map(is_read_once, desired))
    return Unmet(reason=ConditionReason.WRONG_RESOURCES, message=text, is_stale=is_stale)


def _about_ids(known: Collection[str], devices: frozenset[str]) -> str:
    if not known:
        return f"the device plugin has registered none of the {len(devices)} devices"
    dead, unknown = sorted(set(known) - devices), sorted(devices - set(known))
    parts = [
        f"{len(some)} {word}, such as {some[0]}" for some, word in ((dead, "that do not exist"), (unknown, "missing")) if some
    ]
    return f"of the device ids that the device plugin registered: {'; '.join(parts)}"


def _about_counts(desired: Mapping[str, int], shown: Mapping[str, int]) -> str:
    names = sorted(name for name in desired.keys() | shown.keys() if desired.get(name, 0) != shown.get(name, 0))
    return ", ".join(f"{name}: {shown.get(name, 0)} instead of {desired.get(name, 0)}" for name in names)
