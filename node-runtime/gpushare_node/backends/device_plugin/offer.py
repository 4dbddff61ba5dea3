"""What a node advertises, compared with what the policy expects: resources, and ids that the device plugin registered. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping

from gpushare_node.backends.leftovers import about_unregistered
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.struct import replace
from gpushare_node.reporting.outcome import Unmet
from gpushare_node.reporting.reasons import ConditionReason
from gpushare_node.vendors import UUIDS, advertised, is_gpu_resource, is_read_once


def expected(policy: Policy, missing: Collection[int] = ()) -> dict[str, int]:
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
    desired: Mapping[str, int],
    devices: frozenset[str],
    registered: Mapping[str, frozenset[str]] | None,
    allocatable: Mapping[str, int],
) -> Unmet | None:
    """See `Backend`.

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
    return found if found is None else replace(found, message=found.message + about_unregistered(advertised(allocatable), ids))


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


def find_stale(registered: Mapping[str, frozenset[str]], devices: frozenset[str]) -> tuple[str, ...]:
    """Return the UUIDs that the plugin registered and that do not exist."""
    known = {one.rsplit("::", 1)[0] for name, some in registered.items() if is_gpu_resource(name) for one in some}
    return tuple(sorted(one for one in known - devices if one.startswith(UUIDS)))
