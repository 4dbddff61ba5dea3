"""Nodes to pools: nodes with the same card, number of GPUs and sharing become one pool. Without Nodes, configs to pools.

Owns grouping, the selectors and the names of pools. A pool selects by the label of a cloud's node pool where that label means
exactly its nodes, else by the nodes' names: labels under nvidia.com/ cannot be selectors, because sharing rewrites them.

A card that the catalogue lacks is described by GFD's labels, which have the name that NVML returns with hyphens for spaces, the
memory in MiB and the compute capability (k8s-device-plugin v0.20.0, internal/lm/nvml.go).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpushare.cluster.importing import evidence, manager_configs, node_layouts, node_objects, sharing_fields
from gpushare.cluster.importing.draft import Draft, label
from gpushare.cluster.importing.facts import GPU, MIG, Facts, ImportedNode
from gpushare.cluster.importing.node_layouts import Layouts
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.cluster.importing.sharing_fields import LABEL, Selected, Selector, SharingSource
from gpushare.core.diagnostics import Path
from gpushare.core.emit import canonical_json
from gpushare.core.wording import join_first, mib, nearest, pluralize, shorten
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card
from gpushare.facts.nodes.clouds import CLOUDS, MACHINE_LABEL
from gpushare.intent.types import Sharing, Vgpu
from gpushare.intent.writer import write_sharing
from gpushare.offering import modes
from gpushare_node.contract.names import BACKEND_LABEL
from gpushare_node.contract.struct import Struct, replace

_SHOWN = (
    "nvidia.com/",
    MACHINE_LABEL,
    *(start for cloud in CLOUDS if cloud.pool_label for start in (f"{cloud.domain}/", *cloud.other_labels)),
)
_MAX_TAINTS = 100
_CHANGING = ("nvidia.com/gfd.timestamp", "nvidia.com/gpu.clique", "nvidia.com/gpu.deploy")


class _NodeGroup(Struct):
    """What a group of nodes becomes."""

    card: Card
    card_origin: str
    layouts: Layouts
    sharing: Sharing
    origin: str
    strategy_origin: str
    node: ImportedNode


def add(facts: Facts, draft: Draft, notes: Notes, selector: Selector, *, with_vms: bool) -> None:
    """Add the pools of all nodes that have GPUs; `with_vms`: those for virtual machines too."""
    gpu_nodes = [node for node in facts.nodes if node_objects.has_gpus(node)]
    everywhere = Counter(
        pair for node in facts.nodes for pair in (*node_objects.pool_labels(node), *node_objects.own_labels(node))
    )
    alike: dict[tuple[object, ...], list[ImportedNode]] = {}
    for node in gpu_nodes:
        alike.setdefault(_look(node), []).append(node)
    kinds: dict[tuple[str, ...], tuple[_NodeGroup, list[ImportedNode]]] = {}
    for group in alike.values():
        for_vms = with_vms and manager_configs.is_for_vms(group[0])
        kind = _vm_kind(group[0], facts, notes) if for_vms else _kind(group[0], facts, draft, notes, selector)
        for other in group:
            if kind is None:
                _ = other.part.whole  # the finding that says why is about the whole node
            else:
                other.part.read_like(group[0].part)
        if kind is not None:
            home = next((f"{key}={value}" for key, value in node_objects.pool_labels(group[0])), "")
            key = (kind.card.id, str(len(kind.layouts.gpus)), canonical_json(write_sharing(kind.sharing)), home)
            kinds.setdefault(key, (kind, []))[1].extend(group)
    for _, (kind, nodes) in sorted(kinds.items(), key=lambda entry: entry[0]):
        if not draft.has_room(kind.node.part, notes):
            break
        if _has_too_many_taints(nodes, notes):
            continue
        _add(kind, sorted(nodes, key=lambda node: node.name), everywhere, draft)


def _has_too_many_taints(nodes: Sequence[ImportedNode], notes: Notes) -> bool:
    number = len({taint for node in nodes for taint in node_objects.taints(node)})
    if number > _MAX_TAINTS:
        name, part = shorten(nodes[0].name), nodes[0].part.at("spec", "taints")
        notes.error(
            "GS862",
            part,
            f"nodes like {name} have {number} different taints; a pool tolerates {_MAX_TAINTS} at most",
            "remove the taints that are no longer needed, or tolerate a key with all its values by hand",
            on_key=True,
        )
    return number > _MAX_TAINTS


def _look(node: ImportedNode) -> tuple[object, ...]:
    """Return what decides about a node: nodes that look alike are judged once."""
    shown = (pair for pair in node.labels.unmarked.items() if pair[0].startswith(_SHOWN) and not pair[0].startswith(_CHANGING))
    served = node.labels.unmarked.get(evidence.PLUGIN) != "false"
    offers = tuple(sorted(node_objects.capacity(node).items()))
    kernel = manager_configs.kernel(node) if manager_configs.is_for_vms(node) else None
    by = bool(node.part.at("status", "capacity").value), node.labels.unmarked.get(BACKEND_LABEL)
    return tuple(sorted(shown)), offers, served, kernel, by, *(node.labels.get(key) for key in node_objects.FORMER_GPU_KEYS)


def _vm_kind(node: ImportedNode, facts: Facts, notes: Notes) -> _NodeGroup | None:
    found = manager_configs.machines_of_node(node, facts, notes)
    if found is None:
        return None
    return _NodeGroup(
        card=found.card,
        card_origin=f"vGPU type {found.profile}",
        layouts=Layouts(gpus=((),) * found.gpus),
        sharing=Vgpu(profile=found.profile, kernel=manager_configs.kernel(node)),
        origin=found.origin,
        node=node,
        strategy_origin="",
    )


def _kind(node: ImportedNode, facts: Facts, draft: Draft, notes: Notes, selector: Selector) -> _NodeGroup | None:
    if not evidence.is_served(node, notes, has_dra=bool(facts.dra_objects or facts.dra_values)):
        return None
    card, card_origin = _card(node, draft, notes)
    selected = selector.of_node(node)
    if card is None or selected is None:
        return None
    shares = sharing_fields.of_config(selected.config) if selected.config else SharingSource(replicas={})
    node = replace(node, gpus=evidence.physical(node, shares, notes))
    mig_groups = {one.mig_group for one in facts.settings if one.mig_group}
    configs = [one for one in facts.mig_configs if one.group.rpartition("/")[2] in mig_groups] or facts.mig_configs
    found = node_layouts.of_node(node, card, configs, notes)
    if found is None:
        return None
    evidence.compare_instances(node, found, notes)
    strategy, strategy_origin = _strategy(node, facts, selected, found, notes)
    if selected.by_labels or (node_objects.is_shared_by_cloud(node.labels) and selected.config is None):
        shares = sharing_fields.of_labels(node, strategy)
    if not shares.replicas and not found.any and (more := evidence.shared(node, node.gpus, card, notes)):
        shares, found = more[0], more[1] or found
        strategy, strategy_origin = ("single", "capacity of the node") if found.any else (strategy, strategy_origin)
    part = selected.config.part if selected.config else node.part.at("metadata", "labels")
    sharing = sharing_fields.build(shares, found, strategy, part, notes)
    if selected.config:
        offers = sharing_fields.offered(found, strategy if found.any else "none")
        selector.offered.setdefault(id(selected.config), set()).update(offers)
    if sharing is None or not evidence.compare(node, sharing_fields.totals(sharing, found), notes):
        return None
    origin = ", ".join(
        filter(None, [sharing_fields.name_of(selected.config), selected.origin or "no config of the device plugin"])
    )
    return _NodeGroup(
        card=card,
        card_origin=card_origin,
        layouts=found,
        sharing=sharing,
        origin=origin,
        node=node,
        strategy_origin=strategy_origin,
    )


def _card(node: ImportedNode, draft: Draft, notes: Notes) -> tuple[Card | None, str]:
    labels, part = node.labels, node.part.at("metadata", "labels")
    memory, product = node_objects.memory_mib(labels), labels.get("nvidia.com/gpu.product", "")
    if product:
        key, known = "nvidia.com/gpu.product", node_objects.card_of_product(product)
        found: tuple[str, ...] = (known,) if known else ()
    else:
        found, key = node_objects.cards_of_labels(labels, memory)
    if len(found) == 1:
        card = cards.load(found[0])
        if memory is not None and not node_objects.fits_memory(card, memory):
            own = card_of_own_labels(labels)
            if own and own[2].compute_capability == card.compute_capability:
                return _own_card(node, own, f"the catalogue's {card.name} has {card.memory_mib} MiB", draft, notes)
            notes.error(
                "GS862",
                part.at("nvidia.com/gpu.memory"),
                f"labels of {shorten(node.name)} are of two cards: {card.name} has {card.memory_mib} MiB, not {memory}",
                "a node with two card models cannot be in an intent; GFD shows the labels of one of them",
            )
            return None, ""
        _compare_cards(node, card, memory, notes)
        return card, f"label {key}: {shorten(labels[key])}"
    if len(found) > 1:
        notes.error(
            "GS859",
            part.at(key),
            f"{shorten(labels[key])} may be {join_first(found)}",
            "let GFD label the node with nvidia.com/gpu.product, or give the label nvidia.com/gpu.memory",
        )
        return None, ""
    if own := card_of_own_labels(labels):
        return _own_card(node, own, "the catalogue lacks it", draft, notes)
    name = labels.get(key) or labels.get("nvidia.com/gpu.product", "")
    close = nearest(name.lower()[:60], cards.ids(), 2) if notes.has_room("GS859") else ()
    hints = (
        [
            "the catalogue has "
            + join_first([f"{one} ({mib(cards.load(one).memory_mib)})" for one in close])
            + ", which are other cards"
        ]
        if close
        else []
    )
    notes.error(
        "GS859",
        part.at(key) if key else part,
        f"the card of node {shorten(node.name)} is unknown" + (f": {shorten(name)}" if name else ": no label names it"),
        *hints,
        "give Nodes with the labels of GPU feature discovery, or describe the card in spec.cards of the intent",
    )
    return None, ""


def _own_card(
    node: ImportedNode, own: tuple[str, dict[str, Any], Card], why: str, draft: Draft, notes: Notes
) -> tuple[Card, str]:
    """Put a card that GFD's labels describe into `spec.cards`; return it and where it is from."""
    card_id, document, card = own
    part, product = node.part.at("metadata", "labels"), shorten(node.labels["nvidia.com/gpu.product"])
    draft.put(("cards", card_id), document, part, f"from the labels of Node {shorten(node.name)}: not in the catalogue")
    notes.warn(
        "GS860",
        part.at("nvidia.com/gpu.product"),
        f"assumed: {product} is a card with {card.memory_mib} MiB as "
        f"GFD's labels say; {why}, so it is in spec.cards as {card_id}",
        "compare its name with `nvidia-smi -L`: labels have hyphens for spaces",
    )
    return card, f"label nvidia.com/gpu.product: {product}"


def _compare_cards(node: ImportedNode, card: Card, memory: int | None, notes: Notes) -> None:
    """Report a cloud's label or a machine type that is of another card than GFD says."""
    allowed, key = node_objects.cards_of_labels(node.labels, memory)
    if allowed and card.id not in allowed:
        notes.warn(
            "GS872",
            node.part.at("metadata", "labels", key),
            f"{shorten(node.labels[key])} has {join_first(allowed)}, and "
            f"GFD's labels of node {shorten(node.name)} are of {card.id}: imported as {card.id}",
            "compare with nvidia-smi -L on the node",
        )


def _strategy(node: ImportedNode, facts: Facts, selected: Selected, found: Layouts, notes: Notes) -> tuple[str, str]:
    """Return the MIG strategy that holds on the node: GFD's label, then the chart's value, then the config's flag."""
    if made := node_objects.partition(node.labels):
        return "single", f"{made.cloud} names every partition nvidia.com/gpu"
    label = node.labels.get("nvidia.com/mig.strategy", "")
    _compare_strategies(node, facts, selected, label, notes)
    if label in ("none", "single", "mixed"):
        return label, "label nvidia.com/mig.strategy"
    for one in facts.settings:
        if one.mig_strategy:
            return one.mig_strategy, f"MIG strategy of {one.origin}"
    if selected.config and selected.config.mig_strategy:
        return selected.config.mig_strategy, "migStrategy of the config"
    if found.any and not facts.settings and not selected.config:
        notes.warn(
            "GS860",
            found.part or node.part,
            "assumed: the MIG strategy is mixed; no input states it",
            "give the values of NVIDIA's chart, which set it",
            on_key=True,
        )
        return "mixed", "assumed MIG strategy"
    return "none", ""


def _compare_strategies(node: ImportedNode, facts: Facts, selected: Selected, label: str, notes: Notes) -> None:
    """Report a MIG strategy of a config or of the values that another one wins over."""
    chart = next((one for one in facts.settings if one.mig_strategy), None)
    own = selected.config.mig_strategy if selected.config else None
    if selected.config and chart and own and own != chart.mig_strategy:
        notes.warn(
            "GS872",
            selected.config.part.at("flags", "migStrategy"),
            f"config {shorten(selected.config.name)} has "
            f"migStrategy: {own}, and {chart.origin} has the MIG strategy {chart.mig_strategy}, which wins",
            "write the same in both",
        )
    if chart and label and label != chart.mig_strategy and chart.says_strategy:
        where = node.part.at("metadata", "labels", "nvidia.com/mig.strategy")
        notes.warn(
            "GS872",
            where,
            f"node {shorten(node.name)} has the MIG strategy {shorten(label)}, and "
            f"{chart.origin} has {chart.mig_strategy}: imported as the node has it",
            "wait until the operator has changed the node, or give the values that it has",
        )


def _add(kind: _NodeGroup, nodes: Sequence[ImportedNode], everywhere: Counter[tuple[str, str]], draft: Draft) -> None:
    names = [node.name for node in nodes]
    homes = Counter(pair for node in nodes for pair in node_objects.pool_labels(node))
    home = next((pair for pair in node_objects.pool_labels(nodes[0]) if homes[pair] == len(nodes) == everywhere[pair]), None)
    home = home or node_objects.own_label(nodes, everywhere)
    selection: dict[str, Any] = {"names": names}
    if home:
        selection = {"matchLabels": dict([home]), "expected": len(nodes)}
    gpus = len(kind.layouts.gpus)
    document: dict[str, Any] = {"card": kind.card.id, "nodes": selection, "gpusPerNode": gpus}
    labels = kind.node.part.at("metadata", "labels")
    name = home[1] if home else f"{kind.card.id}-{kind.sharing.mode}"
    path = _put(name, document, kind.sharing, kind.layouts, labels, draft)
    taints = sorted({taint for node in nodes for taint in node_objects.taints(node)})
    if taints:
        document["tolerations"] = [dict(taint) for taint in taints]
    _comment(path, kind, nodes, home, draft, labels)


def _put(  # noqa: PLR0913, PLR0917 - what a pool is made of
    name: str, document: dict[str, Any], sharing: Sharing, layouts: Layouts, part: Part, draft: Draft
) -> Path:
    """Add a pool whose containers had no cap before, with the resources that it offers."""
    mode = modes.named(sharing.mode.value)
    document["sharing"] = write_sharing(sharing)
    if sharing.replicas and not mode.has_daemon:
        document["memory"] = {"cap": "none"}
    path = draft.add(name, document, part)
    if cap := sharing_fields.cap_comment(sharing):
        draft.note((*path, "memory") if "memory" in document else (*path, "sharing", "replicas"), None, cap)
    for resource, profile in () if mode.serves_vms else sharing_fields.resources(sharing, layouts).items():
        draft.offer(resource, path, profile)
    return path


def _comment(  # noqa: PLR0913, PLR0917 - what the comments name
    path: Path, kind: _NodeGroup, nodes: Sequence[ImportedNode], home: tuple[str, str] | None, draft: Draft, labels: Part
) -> None:
    who = f"Node {shorten(nodes[0].name)}" if len(nodes) == 1 else f"{pluralize(len(nodes), 'Node')}"
    draft.note((*path, "card"), labels, f"from {who}, {kind.card_origin}")
    why = (
        f"of the Nodes that were given, exactly these have the label {shorten(home[0])}"
        if home
        else "no label outside nvidia.com/ has exactly these Nodes; give them one, and select by it"
    )
    draft.note((*path, "nodes"), labels, why)
    origin = "; ".join(filter(None, [kind.origin, kind.layouts.origin, kind.strategy_origin if kind.layouts.any else ""]))
    draft.note((*path, "sharing"), kind.layouts.part or labels, f"from {origin}")
    if any(node_objects.taints(node) for node in nodes):
        draft.note((*path, "tolerations"), None, "from the taints of the nodes")


def unused(facts: Facts, notes: Notes, selector: Selector) -> None:
    """Report configs that no node has, and the resources of configs that no node offers."""
    for config in facts.configs:
        for resource, count in config.replicas.items() if id(config) in selector.offered else ():
            if resource not in selector.offered[id(config)]:
                notes.warn(
                    "GS855",
                    count,
                    f"no node with config {shorten(config.name)} offers {shorten(resource)}",
                    f"the nodes offer {join_first(sorted(selector.offered[id(config)]))}",
                )
        if id(config) not in selector.used:
            notes.warn(
                "GS858",
                config.part,
                f"no node selects the config {shorten(config.name)}: left out",
                f"nodes select it with the label {LABEL}: {shorten(config.name)}",
                on_key=True,
            )


_PRODUCT = "nvidia.com/gpu.product"
_SHARED = re.compile(r"-SHARED\Z")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")


def card_of_own_labels(labels: Mapping[str, str]) -> tuple[str, dict[str, Any], Card] | None:
    """Return id, entry and card; None if a label is missing, or the card is partitioned: no label says its grid."""
    product = _SHARED.sub("", labels.get(_PRODUCT, ""))
    memory = node_objects.number(labels, "nvidia.com/gpu.memory")
    major, minor = (node_objects.number(labels, f"nvidia.com/gpu.compute.{part}") for part in ("major", "minor"))
    named = _LABEL_VALUE.match(product) and not node_objects.instance_of_product(labels.get(_PRODUCT, ""))
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


_NODES_TOO = "give the Nodes, too: kubectl get nodes -o yaml > nodes.yaml"


def add_of_configs(facts: Facts, draft: Draft, notes: Notes) -> None:
    """Add the pools."""
    unknown = [one for one in facts.configs if one.works and node_objects.card_of_config_name(one.name) is None]
    if unknown:
        named = f"{join_first([shorten(one.name) for one in unknown])} {'names' if len(unknown) == 1 else 'name'} no card"
        notes.error("GS859", unknown[0].part, f"the card is unknown: no Node was given, and {named}", _NODES_TOO, on_key=True)
    for config in facts.configs:
        name = shorten(config.name)
        card_id = node_objects.card_of_config_name(config.name)
        if card_id is None or not config.works or not draft.has_room(config.part, notes):
            continue
        if any(resource.startswith(MIG) for resource in config.replicas):
            notes.error(
                "GS862",
                config.part,
                f"config {name} shares MIG instances, and no file says which there are",
                _NODES_TOO,
                on_key=True,
            )
            continue
        for resource, count in config.replicas.items():
            if resource != GPU:
                notes.warn(
                    "GS855",
                    count,
                    f"a node without MIG does not offer {shorten(resource)}: nothing is shared by it",
                    f"write name: {GPU}",
                )
        whole = Layouts(gpus=((),))
        sharing = sharing_fields.build(sharing_fields.of_config(config), whole, "none", config.part, notes)
        if sharing is None:
            continue
        selection = {"matchLabels": {"node.example.org/gpu": card_id}}
        document: dict[str, Any] = {"card": card_id, "nodes": selection, "gpusPerNode": 1}
        path = _put(config.name, document, sharing, whole, config.part, draft)
        notes.warn(
            "GS860",
            config.part,
            f"assumed: config {name} is for one {cards.load(card_id).name} per node",
            _NODES_TOO,
            "or correct card, nodes and gpusPerNode by hand",
            on_key=True,
        )
        draft.note((*path, "card"), config.part, f"assumed from the name of the config {name}")
        draft.note((*path, "nodes"), None, "assumed: replace the label by one that these nodes have")
        draft.note((*path, "gpusPerNode"), None, "assumed")
        draft.note((*path, "sharing"), config.part, f"from {sharing_fields.name_of(config)}")
