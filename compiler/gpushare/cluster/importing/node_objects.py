"""Node objects: what their labels say about the card, the GPUs, their sharing and their partitions.

Facts: GFD's labels (k8s-device-plugin v0.20.0, internal/lm), and the labels and names of machine types that clouds document
(`nodes.clouds`). `gpu.count` is the number of GPUs, but under MIG strategy `single` that of the instances. A product name that
several cards share is decided by the memory, if that is given. Nothing here reports findings.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from gpushare.cluster.importing.facts import GPU, MIG, SHARED, ImportedNode, Strategy
from gpushare.cluster.importing.parts import Part
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card
from gpushare.facts.nodes.clouds import CLOUDS, MACHINE_LABEL, card_of_machine
from gpushare.vendors import VENDORS
from gpushare_node.contract.names import BACKEND_LABEL
from gpushare_node.contract.policy import Backend
from gpushare_node.contract.struct import Struct

_SUFFIXES = re.compile(r"(?:-MIG-[0-9a-zA-Z.+-]+?)?(?:-SHARED)?\Z")
_INSTANCE = re.compile(r"-MIG-([0-9]+g\.[0-9]+gb[a-z.+-]*?|INVALID)(?:-SHARED)?\Z")


@cache
def _products() -> dict[str, str]:
    """Return the ids of the catalogue's cards by the names that GFD gives them, in lower case."""
    found: dict[str, str] = {}
    for card in map(cards.load, cards.ids()):
        for name in (card.product, card.name, *card.name_aliases):
            found.setdefault(cards.product_label(name).lower(), card.id)
    return found


def card_of_product(label: str) -> str | None:
    """Return the id of the card with that value of nvidia.com/gpu.product, whatever sharing has added to it."""
    plain = _SUFFIXES.sub("", label).lower().removeprefix("mock-")
    return _products().get(plain) or _products().get(f"nvidia-{plain}")


def instance_of_product(label: str) -> str:
    """Return the MIG profile that strategy `single` adds to the product, `INVALID` if GFD found none; else empty."""
    found = _INSTANCE.search(label)
    return found[1] if found else ""


def card_of_config_name(name: str) -> str | None:
    """Return the card that a config is named after (`tesla-t4`, `a100-sxm4-40gb`)."""
    plain = name.lower().removeprefix("nvidia-")
    return plain if plain in cards.ids() else card_of_product(plain) or card_of_product(f"tesla-{plain}")


def cards_of_labels(labels: Mapping[str, str], memory_mib: int | None) -> tuple[tuple[str, ...], str]:
    """Return the cards that the clouds' labels allow, and the label that says so; empty if there is none."""
    for cloud in CLOUDS:
        if cloud.accelerators and cloud.gpu_label in labels:
            name = labels[cloud.gpu_label].lower().removeprefix("nvidia-").removeprefix("tesla-")
            return _by_memory(cloud.accelerators.get(name, ()), memory_mib), cloud.gpu_label
    card = card_of_machine(labels.get(MACHINE_LABEL, ""))
    return ((card,), MACHINE_LABEL) if card else ((), "")


def _by_memory(known: tuple[str, ...], memory_mib: int | None) -> tuple[str, ...]:
    if len(known) < 2 or memory_mib is None:
        return known
    return tuple(one for one in known if fits_memory(cards.load(one), memory_mib))


def fits_memory(card: Card, memory_mib: int) -> bool:
    """Whether a card may report so much memory: drivers and ECC take up to an eighth of it."""
    return card.memory_mib is None or abs(card.memory_mib - memory_mib) * 8 <= card.memory_mib


_GPU_KEYS = (
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.present",
    "nvidia.com/gpu.count",
    "nvidia.com/mig.config",
    "nvidia.com/device-plugin.config",
    *(cloud.gpu_label for cloud in CLOUDS if cloud.gpu_label),
)
FORMER_GPU_KEYS = tuple(cloud.former_gpu_label for cloud in CLOUDS if cloud.former_gpu_label)
_MIG_COUNT = re.compile(r"nvidia\.com/mig-([0-9]+g\.[0-9]+gb[a-z.-]*)\.(count|replicas|sharing-strategy|product)\Z")
_POOL_LABELS = tuple(filter(None, [*(cloud.pool_label for cloud in CLOUDS), *(cloud.former_pool_label for cloud in CLOUDS)]))
_SHARING = tuple((cloud.name, cloud.sharing) for cloud in CLOUDS if cloud.sharing)
_COUNT_LABELS = tuple(cloud.count_label for cloud in CLOUDS if cloud.count_label)
_MEMORY_LABELS = tuple(cloud.memory_label for cloud in CLOUDS if cloud.memory_label)
_OURS = ("node.kubernetes.io/", "gpushare.dev/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler")


_DOMAINS = (*(vendor.domain for vendor in VENDORS.values()), *(domain for cloud in CLOUDS for domain in cloud.writers))
_WRITERS = "".join(f"|{re.escape(domain)}" for domain in _DOMAINS)
_OF_VENDORS = frozenset(one.layout_taint.key for one in VENDORS.values() if one.layout_taint)
_FOREIGN = re.compile(
    r"(?:^|\.)(?:kubernetes\.io|k8s\.io|k8s-sigs\.io|k3s\.io|rke2\.io|cattle\.io|gpushare\.dev"
    rf"|openshift\.io|digitalocean\.com|mellanox\.com|intel\.com{_WRITERS})/"
)
"""Domains whose labels a program writes: they come and go with the program, so that no pool should select by them."""


class CloudPartition(Struct):
    """The size of the MIG partitions that a cloud makes on every GPU of a node, and the label that says it."""

    cloud: str
    label: str
    size: str


def read(part: Part) -> ImportedNode | None:
    """Return the node; None if it has no name."""
    name = part.at("metadata", "name").text
    return ImportedNode(name=name, part=part, labels=part.at("metadata", "labels").labels()) if name else None


def has_gpus(node: ImportedNode) -> bool:
    """Whether a label or a resource says that the node has NVIDIA GPUs."""
    labels = node.labels
    if labels.get("nvidia.com/gpu.present") == "false":
        return False
    named = any(key in labels for key in _GPU_KEYS) or any(labels.get(key) == "nvidia" for key in FORMER_GPU_KEYS)
    return named or any(name.startswith((GPU, MIG)) and number for name, number in capacity(node).items())


def capacity(node: ImportedNode) -> dict[str, int]:
    """Return how many of NVIDIA's resources the node offers, or offered until the device plugin stopped.

    For five minutes kubelet counts those of a plugin that went: on a node that was handed to the DRA driver they are not meant.
    """
    found, has_driver = {}, node.labels.get(BACKEND_LABEL) == Backend.DRA
    for name, value in node.part.at("status", "capacity").items():
        if not name.startswith("nvidia.com/") or (count := value.devices) is None:
            continue
        if not has_driver or node.part.at("status", "allocatable", name).devices != 0:
            found[name] = count
    return found


def number(labels: Mapping[str, str], *keys: str) -> int | None:
    """Return the first of the labels that is a number."""
    for key in keys:
        value = labels.get(key, "")
        if value.isascii() and value.isdigit() and len(value) < 9:
            return int(value)
    return None


def memory_mib(labels: Mapping[str, str]) -> int | None:
    """Return the memory of a whole GPU; under `single` GFD's label is that of an instance, which does not count."""
    if instance_of_product(labels.get("nvidia.com/gpu.product", "")):
        return None
    return number(labels, "nvidia.com/gpu.memory", *_MEMORY_LABELS)


def strategy(labels: Mapping[str, str]) -> tuple[Strategy, int, bool]:
    """Return how the labels say that whole GPUs are shared, how often, and whether under a name of their own."""
    word, replicas = labels.get("nvidia.com/gpu.sharing-strategy", "none"), number(labels, "nvidia.com/gpu.replicas") or 1
    if word in ("time-slicing", "mps") and replicas > 1:
        return Strategy(word), replicas, not labels.get("nvidia.com/gpu.product", "").endswith("-SHARED")
    for _, names in _SHARING:
        known = {"time-sharing": Strategy.TIME_SLICING, "mps": Strategy.MPS}.get(labels.get(names.strategy, ""))
        clients = number(labels, *names.clients) or 1
        if known and clients > 1:
            return known, clients, False
    return Strategy.NONE, 1, False


def partition(labels: Mapping[str, str]) -> CloudPartition | None:
    """Return the MIG partitions that a cloud makes, if it does: every GPU has as many of this size as fit."""
    sizes = ((cloud, names.partition, labels.get(names.partition)) for cloud, names in _SHARING)
    return next((CloudPartition(cloud=cloud, label=label, size=size) for cloud, label, size in sizes if size), None)


def is_shared_by_cloud(labels: Mapping[str, str]) -> bool:
    """Whether labels of a cloud say that it partitions or shares the GPUs itself."""
    return partition(labels) is not None or any(names.strategy in labels for _, names in _SHARING)


def instances(labels: Mapping[str, str]) -> dict[str, tuple[int, int, bool]]:
    """Return, by profile in resource form, how many instances a node has under `mixed`, their replicas, whether renamed."""
    found: dict[str, dict[str, str]] = {}
    for key in labels:
        match = _MIG_COUNT.match(key)
        if match:
            found.setdefault(match[1], {})[match[2]] = labels[key]
    return {
        profile: (
            number(suffixes, "count") or 0,
            number(suffixes, "replicas") or 1,
            not suffixes.get("product", "").endswith("-SHARED"),
        )
        for profile, suffixes in sorted(found.items())
    }


_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})")

MAX_GPUS = 16
"""The most GPUs of a node that an intent can have; of more nothing is believed."""


def gpus(node: ImportedNode) -> int | None:
    """Return the number of GPUs where a label, the machine or a resource says it; None where the label counts instances."""
    count = node.gpus or _gpus(node)
    return count if count and count <= MAX_GPUS else None


def counted_gpus(node: ImportedNode) -> int | None:
    """Return the number of GPUs that a label says."""
    labels = node.labels
    if instance_of_product(labels.get("nvidia.com/gpu.product", "")):
        return number(labels, *_COUNT_LABELS)
    return number(labels, "nvidia.com/gpu.count", *_COUNT_LABELS) or None


def offered_gpus(node: ImportedNode) -> int:
    """Return how many whole GPUs or shares of them the node offers, under whatever name."""
    offered = capacity(node)
    return offered.get(GPU, 0) + offered.get(GPU + SHARED, 0)


def _gpus(node: ImportedNode) -> int | None:
    labels = node.labels
    known = counted_gpus(node)
    if known or partition(labels) or instance_of_product(labels.get("nvidia.com/gpu.product", "")):
        return known
    (_, replicas, _), offered = strategy(labels), offered_gpus(node)
    return offered // replicas if offered and offered % replicas == 0 else None


def pool_labels(node: ImportedNode) -> list[tuple[str, str]]:
    """Return the labels that clouds set on all nodes of a node pool."""
    return [(key, node.labels[key]) for key in _POOL_LABELS if node.labels.get(key)]


def own_labels(node: ImportedNode) -> list[tuple[str, str]]:
    """Return the labels that neither Kubernetes, a cloud nor NVIDIA's programs write."""
    return [pair for pair in node.labels.unmarked.items() if "/" in pair[0] and pair[1] and not _FOREIGN.search(pair[0])]


def own_label(nodes: Sequence[ImportedNode], everywhere: Counter[tuple[str, str]]) -> tuple[str, str] | None:
    """Return a label of the users' own that has exactly these nodes, of all that were given."""
    common = set.intersection(*(set(own_labels(node)) for node in nodes))
    fitting = sorted(pair for pair in common if everywhere[pair] == len(nodes))
    return next(iter(sorted(fitting, key=lambda pair: ("gpu" not in pair[0].lower(), pair))), None)


def kubelet(node: ImportedNode) -> tuple[int, int] | None:
    """Return major and minor version of the node's kubelet; None if the Node does not say it."""
    found = _VERSION.match(node.part.at("status", "nodeInfo", "kubeletVersion").text)
    return (int(found[1]), int(found[2])) if found else None


def taints(node: ImportedNode) -> list[tuple[tuple[str, str], ...]]:
    """Return what tolerates the node's lasting taints."""
    found = []
    for taint in node.part.at("spec", "taints").entries():
        key, value, effect = (taint.at(field).text for field in ("key", "value", "effect"))
        if key and effect and key not in _OF_VENDORS and not key.startswith(_OURS):
            operator = (("operator", "Equal"), ("value", value)) if value else (("operator", "Exists"),)
            found.append((("key", key), *operator, ("effect", effect)))
    return found
