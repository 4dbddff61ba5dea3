"""Which card a node has: by GFD's product name, by the labels of clouds, by the names of machine types.

Owns the tables of the clouds' names. A name that several cards share is decided by the memory, if that is given.
"""

import re
from collections.abc import Mapping
from functools import cache

from gpushare.catalog import cards
from gpushare.catalog.cards import Card

_SUFFIXES = re.compile(r"(?:-MIG-[0-9a-zA-Z.+-]+?)?(?:-SHARED)?\Z")
_INSTANCE = re.compile(r"-MIG-([0-9]+g\.[0-9]+gb[a-z.+-]*?|INVALID)(?:-SHARED)?\Z")
_A100 = ("a100-sxm4-40gb", "a100-sxm4-80gb")
_CLOUD: Mapping[str, tuple[str, ...]] = {
    "t4": ("t4",), "l4": ("l4",), "l40s": ("l40s",), "a10g": ("a10g",), "a10": ("a10",), "p100": ("p100-pcie-16gb",),
    "v100": ("v100-sxm2-16gb", "v100-sxm2-32gb"), "a100": _A100, "a100-80gb": ("a100-sxm4-80gb",),
    "h100": ("h100-sxm5-80gb",), "h100-80gb": ("h100-sxm5-80gb",), "h100-mega-80gb": ("h100-sxm5-80gb",),
    "h200": ("h200-sxm5-141gb",), "h200-141gb": ("h200-sxm5-141gb",), "b200": ("b200-180gb",),
    "gb200": ("gb200-186gb",), "rtx-pro-6000": ("rtx-pro-6000-server",),
}
"""GKE's gke-accelerator, EKS's accelerator and Karpenter's instance-gpu-name, without `nvidia-` and `tesla-`."""
_GKE_ONE = {"a100": ("a100-sxm4-40gb",), "v100": ("v100-sxm2-16gb",)}
"""On GKE these names mean one card: the larger A100 has a name of its own."""

_MACHINES = (
    (r"g4dn\.", "t4"), (r"g5\.", "a10g"), (r"g6\.|gr6\.", "l4"), (r"g6e\.", "l40s"), (r"p3\.", "v100-sxm2-16gb"),
    (r"p3dn\.", "v100-sxm2-32gb"), (r"p4d\.", "a100-sxm4-40gb"), (r"p4de\.", "a100-sxm4-80gb"), (r"p5\.", "h100-sxm5-80gb"),
    (r"p5en?\.", "h200-sxm5-141gb"), (r"Standard_NC\d+as_T4_v3", "t4"), (r"Standard_NC\d+ads_A100_v4", "a100-pcie-80gb"),
    (r"Standard_NC\d+s_v3|Standard_NC6s_v3", "v100-pcie-16gb"), (r"Standard_ND96asr_v4", "a100-sxm4-40gb"),
    (r"Standard_ND96amsr_A100_v4", "a100-sxm4-80gb"), (r"Standard_ND96isr_H100_v5", "h100-sxm5-80gb"),
    (r"Standard_NC\d+adi?s_H100_v5", "h100-nvl-94gb"), (r"g2-", "l4"), (r"a2-highgpu-|a2-megagpu-", "a100-sxm4-40gb"),
    (r"a2-ultragpu-", "a100-sxm4-80gb"), (r"a3-(?:high|mega|edge)gpu-", "h100-sxm5-80gb"), (r"a3-ultragpu-", "h200-sxm5-141gb"),
    (r"p6-b200\.", "b200-180gb"), (r"p6e-gb200\.", "gb200-186gb"), (r"g7e\.", "rtx-pro-6000-server"),
    (r"a4-highgpu-", "b200-180gb"), (r"a4x-highgpu-", "gb200-186gb"), (r"g4-standard-", "rtx-pro-6000-server"),
    (r"Standard_ND96isr_H200_v5", "h200-sxm5-141gb"), (r"Standard_ND40rs_v2", "v100-sxm2-32gb"),
    (r"p6-b300\.", "b300-269gb"), (r"Standard_NC\d+ads_A10_v4|Standard_NV(?:36adm?s|72ads)_A10_v5", "a10"),
    (r"Standard_ND128isr_NDR_GB200_v6", "gb200-186gb"),
)
"""The smaller sizes of NVads A10 v5 have a part of an A10, which is another device: no card here."""
_MACHINE = re.compile("|".join(f"(?P<m{number}>{text})" for number, (text, _) in enumerate(_MACHINES)))


@cache
def _products() -> dict[str, str]:
    """Return the ids of the catalogue's cards by the names that GFD gives them, in lower case."""
    found: dict[str, str] = {}
    for card in map(cards.load, cards.ids()):
        for name in (card.product, card.name, *card.name_aliases):
            found.setdefault(cards.product_label(name).lower(), card.id)
    return found


def of_product(label: str) -> str | None:
    """Return the id of the card with that value of nvidia.com/gpu.product, whatever sharing has added to it."""
    plain = _SUFFIXES.sub("", label).lower().removeprefix("mock-")
    return _products().get(plain) or _products().get(f"nvidia-{plain}")


def instance_of(label: str) -> str:
    """Return the MIG profile that strategy `single` adds to the product, `INVALID` if GFD found none; else empty."""
    found = _INSTANCE.search(label)
    return found[1] if found else ""


def of_config_name(name: str) -> str | None:
    """Return the card that a config is named after (`tesla-t4`, `a100-sxm4-40gb`)."""
    plain = name.lower().removeprefix("nvidia-")
    return plain if plain in cards.ids() else of_product(plain) or of_product(f"tesla-{plain}")


def of_labels(labels: Mapping[str, str], memory_mib: int | None) -> tuple[tuple[str, ...], str]:
    """Return the cards that the clouds' labels allow, and the label that says so; empty if there is none."""
    for key in ("cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator", "karpenter.k8s.aws/instance-gpu-name"):
        if key in labels:
            name = labels[key].lower().removeprefix("nvidia-").removeprefix("tesla-")
            known = (_GKE_ONE.get(name) if key.startswith("cloud.google") else None) or _CLOUD.get(name, ())
            return _by_memory(known, memory_mib), key
    key = "node.kubernetes.io/instance-type"
    found = _MACHINE.match(labels.get(key, ""))
    return ((_MACHINES[int((found.lastgroup or "m0")[1:])][1],), key) if found else ((), "")


def _by_memory(known: tuple[str, ...], memory_mib: int | None) -> tuple[str, ...]:
    if len(known) < 2 or memory_mib is None:
        return known
    return tuple(one for one in known if fits_memory(cards.load(one), memory_mib))


def fits_memory(card: Card, memory_mib: int) -> bool:
    """Whether a card may report so much memory: drivers and ECC take up to an eighth of it."""
    return card.memory_mib is None or abs(card.memory_mib - memory_mib) * 8 <= card.memory_mib
