"""Labels of a node in a pool, and under which of its two names the pool's profile is published. Pure.

Only a changed label value makes the device plugin enumerate again, so every profile has two names of the same content, `-a`
and `-b`. The name says for which devices it was published; other devices under an unchanged profile take the other name.
"""

from collections.abc import Mapping

from gpushare_node.adapters.host.state_dir import Published
from gpushare_node.adapters.kube.cluster import MIG_LABEL, PLUGIN_LABEL, POOL_LABEL, PROFILE_LABEL
from gpushare_node.adapters.kube.views import FIELD_MANAGER
from gpushare_node.core.policy import Partitioner, Policy

_OWN = (POOL_LABEL, PROFILE_LABEL, PLUGIN_LABEL, MIG_LABEL)


def publish(last: Published | None, label: str, profile: str, devices: frozenset[str]) -> Published:
    """What is to be published for these devices. `label` is the node's own now, "" without one.

    Where nothing is remembered the label is believed: should the plugin know other devices, that shows, and `flip` follows.
    """
    if last is None or last.key[:-2] != profile:
        key = label if label in (f"{profile}-a", f"{profile}-b") else f"{profile}-a"
        return Published(key=key, devices=devices)
    return last if last.devices == devices else Published(key=flip(last).key, devices=devices)


def flip(published: Published) -> Published:
    """The same under the other name."""
    other = "b" if published.key.endswith("-a") else "a"
    return Published(key=f"{published.key[:-2]}-{other}", devices=published.devices)


def wanted(policy: Policy, published: Published) -> dict[str, str]:
    """All labels that the node owes to its pool."""
    labels = {POOL_LABEL: policy.pool, PROFILE_LABEL: policy.profile, PLUGIN_LABEL: published.key}
    return labels | mig_label(policy)


def mig_label(policy: Policy) -> dict[str, str]:
    """What tells mig-manager the layout; nothing where this runtime partitions."""
    asks = policy.partitioner is Partitioner.MIG_MANAGER and policy.mig_config is not None
    return {MIG_LABEL: policy.mig_config} if asks and policy.mig_config else {}


def standing(labels: Mapping[str, str], owners: Mapping[str, str]) -> dict[str, str]:
    """The labels that this project has set on the node.

    Those of nvidia.com/ may be other people's: only what the field manager owns counts.
    """
    ours = {name for name in (POOL_LABEL, PROFILE_LABEL) if name in labels}
    ours |= {name for name in (PLUGIN_LABEL, MIG_LABEL) if name in labels and owners.get(name) == FIELD_MANAGER}
    return {name: labels[name] for name in _OWN if name in ours}


def must_apply(wanted: Mapping[str, str], labels: Mapping[str, str], owners: Mapping[str, str]) -> bool:
    """Whether the labels differ from the wanted ones; an equal value is enough, whoever wrote it."""
    return any(labels.get(name) != value for name, value in wanted.items()) or bool(
        standing(labels, owners).keys() - wanted.keys()
    )
