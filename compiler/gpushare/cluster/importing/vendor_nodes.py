"""Nodes with other vendors' GPUs than NVIDIA's to pools: what they offer, and how a config manager divides them by its file.

Facts: ROCm k8s-device-plugin v1.31.0.10 (names of resources, labels of the labeller) and device-config-manager v1.3.1. What a
node offers counts; the profile that its label names only says which GPUs have which mode, where that is not the same for all.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpushare import vendors
from gpushare.cluster.importing import node_objects
from gpushare.cluster.importing.draft import Draft
from gpushare.cluster.importing.facts import Facts, ImportedNode
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.diagnostics import Path
from gpushare.core.emit import canonical_json
from gpushare.core.wording import join_words, pluralize, shorten
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card, PartitionMode
from gpushare.intent.types import ComputeGroup, Exclusive, MigStrategy, Partition, Sharing
from gpushare.intent.writer import write_sharing
from gpushare.vendors.vendor import GpuVendor
from gpushare_node.contract.struct import Struct

PROFILES = "gpu-config-profiles"
"""The key of a config manager's file with the profiles."""

_SIZE = re.compile(r"(\d{1,7})([MG])\Z", re.ASCII)


def _shown(vendor: GpuVendor) -> str:
    return f"give the Nodes while {vendor.name}'s labeller runs on them, or write the pool by hand"


class Divided(Struct):
    """What the GPUs of a node are: how many there are, and the sharing of an intent. `assumed`: what no label says."""

    gpus: int
    sharing: Sharing
    assumed: str = ""


def is_config(part: Part) -> bool:
    """Whether an object is one that a vendor's operator reads, such as AMD's DeviceConfig."""
    return vendor_of_config(part) is not None


def vendor_of_config(part: Part) -> GpuVendor | None:
    """Return whose operator reads an object; None if it is no such object."""
    kind, api = part.at("kind").value, part.at("apiVersion").text
    return next((one for one, made in vendors.OPERATORS if kind == made.kind and api.startswith(one.prefix)), None)


def profiles(config_map: Part, notes: Notes) -> dict[str, Any] | None:
    """Return the profiles of a config manager's file in a ConfigMap, by name; None if it has no such file."""
    for vendor, made in vendors.OPERATORS:
        text = config_map.at("data", made.file)
        if PROFILES not in text.text:
            continue
        try:
            found = json.loads(text.text).get(PROFILES, {})
        except (ValueError, AttributeError, RecursionError):
            message = f"{made.file} is no JSON: {vendor.name}'s config manager refuses it"
            notes.error("GS850", text, message, "correct it", on_key=True)
            return {}
        return found if isinstance(found, dict) else {}
    return None


def offered(node: ImportedNode, vendor: GpuVendor) -> dict[str, int]:
    """Return how many of the vendor's GPUs, or parts of them, the node offers by resource."""
    found = {}
    for name, value in node.part.at("status", "capacity").items():
        if name.startswith(vendor.gpu_resources) and (count := value.devices):
            found[name] = count
    return found


def add(facts: Facts, draft: Draft, notes: Notes) -> None:
    """Add a pool for each group of nodes with the same card, number of GPUs and sharing, and each vendor's stack as it is."""
    for vendor in vendors.OTHERS.values():
        _add_of(vendor, facts, draft, notes)


def _add_of(vendor: GpuVendor, facts: Facts, draft: Draft, notes: Notes) -> None:
    alike: dict[tuple[str, int, str], tuple[Card, Divided, list[ImportedNode]]] = {}
    for node in facts.nodes:
        offers = offered(node, vendor)
        card = _card(node, vendor, notes) if offers else None
        divided = None if card is None else _divided(node, card, offers, facts, notes)
        if divided is not None and divided.gpus > node_objects.MAX_GPUS:
            message = f"node {shorten(node.name)} offers {divided.gpus} GPUs, more than a node of an intent can have"
            notes.error("GS862", node.part.at("status", "capacity"), message, "write the pool by hand", on_key=True)
        elif card is not None and divided is not None:
            key = card.id, divided.gpus, canonical_json(write_sharing(divided.sharing))
            alike.setdefault(key, (card, divided, []))[2].append(node)
    everywhere = Counter(pair for node in facts.nodes for pair in node_objects.own_labels(node))
    for _, (card, divided, nodes) in sorted(alike.items()):
        if not draft.has_room(nodes[0].part, notes):
            return
        path = _add(card, divided, nodes, everywhere, draft)
        if divided.assumed:
            labels = nodes[0].part.at("metadata", "labels")
            draft.note((*path, "sharing"), labels, divided.assumed)
            notes.warn("GS860", labels, f"pool {path[-1]}: {divided.assumed}", "correct memory if it is the other", on_key=True)
    if alike:
        stack = {"stack": "existing"}
        namespaces = {
            one.at("metadata", "namespace").text for one in facts.device_configs if vendor_of_config(one) is vendor
        } - {""}
        if len(namespaces) == 1:
            stack["namespace"] = min(namespaces)
        draft.put(("platform", vendor.word.value), stack, None, f"what serves {vendor.name}'s GPUs now stays")


def _add(
    card: Card, divided: Divided, nodes: Sequence[ImportedNode], everywhere: Counter[tuple[str, str]], draft: Draft
) -> Path:
    offers = offered(nodes[0], vendors.of(card))
    label = node_objects.own_label(nodes, everywhere)
    names = [node.name for node in nodes]
    selection: dict[str, Any] = {"matchLabels": dict([label]), "expected": len(nodes)} if label else {"names": names}
    document: dict[str, Any] = {
        "card": card.id,
        "nodes": selection,
        "gpusPerNode": divided.gpus,
        "sharing": write_sharing(divided.sharing),
    }
    taints = sorted({taint for node in nodes for taint in node_objects.taints(node)})
    if taints:
        document["tolerations"] = [dict(taint) for taint in taints]
    labels = nodes[0].part.at("metadata", "labels")
    path = draft.add(label[1] if label else f"{card.id}-{divided.sharing.mode}", document, labels)
    who = f"Node {shorten(nodes[0].name)}" if len(nodes) == 1 else pluralize(len(nodes), "Node")
    draft.note((*path, "card"), labels, f"from {who}, PCI id and labels of {vendors.of(card).name}'s labeller")
    draft.note((*path, "sharing"), labels, f"from what the nodes offer and their labels say: {join_words(offers)}")
    for resource in offers:
        draft.offer(resource, path, None)
    return path


def _label(node: ImportedNode, keys: Sequence[str]) -> str:
    return next((node.labels[key] for key in keys if key in node.labels), "")


def _card(node: ImportedNode, vendor: GpuVendor, notes: Notes) -> Card | None:
    device = _label(node, vendor.node_labels.device).lower().removeprefix("0x")
    product = _label(node, vendor.node_labels.product)
    every = [card for card in map(cards.load, cards.ids()) if vendors.of(card) is vendor]
    found = [card for card in every if f"0x{device.upper()}{vendor.pci_vendor}" in card.pci_device_ids]
    if len(found) != 1:
        words = set(product.replace("_", " ").upper().split())
        found = [card for card in found or every if card.name.split()[-1].upper() in words]
    if len(found) == 1:
        return found[0]
    what = f"PCI id {shorten(device)}" if device else f"no label of {vendor.name}'s labeller says which"
    message = f"the catalogue has no single card of {vendor.name}'s for node {shorten(node.name)}: {what}"
    notes.error("GS862", node.part.at("metadata", "labels"), message, _shown(vendor), on_key=True)
    return None


def _divided(node: ImportedNode, card: Card, offers: Mapping[str, int], facts: Facts, notes: Notes) -> Divided | None:
    """Return what the node's GPUs are; None if that does not follow from what it offers: a finding says why."""
    vendor = vendors.of(card)
    modes = {mode.name: mode for mode in card.partition_modes}
    named = {name.removeprefix(vendor.prefix): count for name, count in offers.items() if name != vendor.whole_gpu}
    whole = offers.get(vendor.whole_gpu, 0)
    if not named:
        return _single(node, card, whole, facts, notes)
    if not whole and all(name in modes and count % modes[name].partitions == 0 for name, count in named.items()):
        gpus = {name: count // modes[name].partitions for name, count in named.items()}
        memory = {modes[name].memory for name in named}
        if len(gpus) == 1:
            [name] = gpus
            return Divided(gpus=gpus[name], sharing=Partition(compute=modes[name].compute, memory=modes[name].memory))
        order = _order(node, vendor, facts)
        if len(memory) == 1 and Counter(order) == Counter({modes[name].compute: number for name, number in gpus.items()}):
            groups = tuple(
                ComputeGroup(gpus=tuple(at for at, one in enumerate(order) if one == compute), compute=compute)
                for compute in dict.fromkeys(order)
            )
            return Divided(gpus=len(order), sharing=Partition(memory=min(memory), groups=groups))
    shown = join_words(offers)
    message = f"node {shorten(node.name)} offers {shown}: that is none of the modes of {card.name} on all of its GPUs"
    notes.error("GS862", node.part.at("status", "capacity"), message, _shown(vendor), on_key=True)
    return None


def _single(node: ImportedNode, card: Card, offered_gpus: int, facts: Facts, notes: Notes) -> Divided | None:
    """Return what GPUs are whose resources all have the name of a whole GPU: only labels say of which mode they are."""
    if not card.partition_modes:
        return Divided(gpus=offered_gpus, sharing=Exclusive())
    vendor = vendors.of(card)
    fitting, labels = _fitting(node, card), node.part.at("metadata", "labels")
    if len({mode.compute for mode in fitting}) != 1 or offered_gpus % fitting[0].partitions:
        names = vendor.node_labels
        keys = [key for key in (*names.mode, *names.memory, *names.units) if key in node.labels]
        said = join_words([f"{key}: {shorten(node.labels[key])}" for key in keys]) or "neither vram nor cu-count"
        message = (
            f"node {shorten(node.name)} offers {offered_gpus} {vendor.whole_gpu}, GPUs or parts of them, and its labels are of "
            f"no one compute mode of {card.name}: {said}"
        )
        notes.error("GS862", labels, message, _shown(vendor), on_key=True)
        return None
    mode = fitting[0]
    if mode.partitions == 1:
        return Divided(gpus=offered_gpus, sharing=Exclusive())
    memory = {str(entry.get("memoryPartition")) for entry in _entries(node, vendor, facts)}
    named = [one for one in fitting if memory == {one.memory}] or fitting
    others = join_words([one.memory for one in named], "or")
    assumed = f"assumed: memory mode {named[0].memory}; no label says whether it is {others}" if len(named) > 1 else ""
    sharing = Partition(compute=mode.compute, memory=named[0].memory, strategy=MigStrategy.SINGLE)
    return Divided(gpus=offered_gpus // mode.partitions, sharing=sharing, assumed=assumed)


def _fitting(node: ImportedNode, card: Card) -> list[PartitionMode]:
    """Return the modes that a device may have by the label of the mode, else by those of its memory and compute units."""
    names = vendors.of(card).node_labels
    if name := _label(node, names.mode).lower():
        return [mode for mode in card.partition_modes if mode.name == name]
    size, units = _SIZE.match(_label(node, names.memory)), node_objects.number(node.labels, *names.units)
    if size is None and units is None:
        return []
    mib = int(size[1]) * (1024 if size[2] == "G" else 1) if size else None
    return [
        mode
        for mode in card.partition_modes
        if (units is None or mode.compute_units in (units, None)) and (mib is None or _is_near(mib, mode.memory_mib))
    ]


def _is_near(mib: int, nominal: int | None) -> bool:
    """Whether a rounded size may be that of a partition: the sizes of a card's modes differ by a factor of two or more."""
    return nominal is None or 5 * nominal < 8 * mib <= 10 * nominal


def _entries(node: ImportedNode, vendor: GpuVendor, facts: Facts) -> list[dict[str, Any]]:
    """Return the entries of the config manager's profile that the node's label names."""
    profile = facts.manager_profiles.get(node.labels.get(vendor.layout_label, ""), {})
    entries = profile.get("profiles") if isinstance(profile, dict) else None
    return [entry if isinstance(entry, dict) else {} for entry in entries] if isinstance(entries, list) else []


def _order(node: ImportedNode, vendor: GpuVendor, facts: Facts) -> list[str]:
    """Return the compute mode of each GPU, as the profile says that the node's label names."""
    found: list[str] = []
    for entry in _entries(node, vendor, facts):
        number = entry.get("numGPUsAssigned")
        if not isinstance(number, int) or not 0 < number <= node_objects.MAX_GPUS:
            return []
        found += [str(entry.get("computePartition"))] * number
    return found
