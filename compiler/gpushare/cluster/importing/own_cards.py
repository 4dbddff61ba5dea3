"""A card that the catalogue lacks, described by GFD's labels: the entry of `spec.cards`, and the Card that it is.

Fact: GFD writes the name that NVML returns with hyphens for spaces, the memory in MiB and the compute capability
(k8s-device-plugin v0.20.0, internal/lm/nvml.go).
"""

import re
from collections.abc import Mapping
from typing import Any

from gpushare.cluster.importing import card_names, node_objects
from gpushare.cluster.importing.draft import label
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card

_PRODUCT = "nvidia.com/gpu.product"
_SHARED = re.compile(r"-SHARED\Z")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")


def of_labels(labels: Mapping[str, str]) -> tuple[str, dict[str, Any], Card] | None:
    """Return id, entry and card; None if a label is missing, or the card is partitioned: no label says its grid."""
    product = _SHARED.sub("", labels.get(_PRODUCT, ""))
    memory = node_objects.number(labels, "nvidia.com/gpu.memory")
    major, minor = (node_objects.number(labels, f"nvidia.com/gpu.compute.{part}") for part in ("major", "minor"))
    named = _LABEL_VALUE.match(product) and not card_names.instance_of(labels.get(_PRODUCT, ""))
    if not named or not memory or not major or minor is None or major > 99 or minor > 9 or node_objects.instances(labels):
        return None
    document: dict[str, Any] = {
        "name": product.replace("-", " "),
        "product": product,
        "computeCapability": f"{major}.{minor}",
        "memoryMiB": memory,
    }
    if family := labels.get("nvidia.com/gpu.family", ""):
        document["architecture"] = family
    card_id = label(product.lower().removeprefix("nvidia-").removeprefix("geforce-"))
    if card_id in cards.ids():
        card_id = f"{card_id[:40]}-own"
    if cards.check({card_id: document}):
        return None
    return card_id, document, cards.build(card_id, document)
