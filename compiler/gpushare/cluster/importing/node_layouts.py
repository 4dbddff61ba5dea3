"""The MIG layout of each GPU of a node: from its mig.config label, a cloud's label, or what GFD counts.

Facts: the names that mig-manager v0.15.0 generates (`all-<profile>`, `all-balanced`, `all-disabled`), and GFD's counts, which
are of the whole node: that every GPU has the same part of them is an assumption, and reported as such.
"""

from collections.abc import Sequence

from gpushare.cluster.importing import node_objects
from gpushare.cluster.importing.facts import ImportedNode, MigPartedConfig
from gpushare.cluster.importing.node_objects import CloudPartition
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.wording import join_first, layout_text, shorten
from gpushare.facts import mig
from gpushare.facts.catalog.cards import Card, MigProfile
from gpushare.intent.types import Balanced, Layout
from gpushare_node.contract.struct import Struct

LABEL = "nvidia.com/mig.config"


class Layouts(Struct):
    """The layout of each GPU, by index; all empty without MIG. `told` says what they are from, `part` where that is."""

    gpus: tuple[Layout, ...]
    origin: str = ""
    part: Part | None = None

    @property
    def any(self) -> bool:
        """Whether a GPU has instances."""
        return any(self.gpus)


def of_node(node: ImportedNode, card: Card, configs: Sequence[MigPartedConfig], notes: Notes) -> Layouts | None:
    """Return the layouts; None if they cannot be told, which findings report."""
    labels = node.labels
    part, gpus = node.part.at("metadata", "labels"), node_objects.gpus(node)
    name = labels.get(LABEL, "")
    single = node_objects.instance_of_product(labels.get("nvidia.com/gpu.product", ""))
    if single == "INVALID":
        cause, hint = "its GPUs do not have one layout with one profile", "repair the node, or describe its pool by hand"
        if name and labels.get("nvidia.com/mig.strategy", "single") == "single":
            cause = f"MIG strategy single needs one profile on all GPUs, and the MIG config is {shorten(name)}"
            hint = "set mig.strategy: mixed of the operator, or the label nvidia.com/mig.config to a layout of one profile"
        notes.error(
            "GS862", part.at("nvidia.com/gpu.product"), f"GFD reports the MIG layout of this node as invalid: {cause}", hint
        )
        return None
    known = [config for config in configs if config.name == name]
    if (name and name != "all-disabled") or known:
        found = _named(node, card, known, notes) if known else _generated(card, name)
        if found is None and not known and not _counted_somehow(node, single):
            notes.error(
                "GS857",
                part.at(LABEL),
                f"no MIG config {shorten(name)} is in the files that were given",
                "give the ConfigMap that mig-manager reads, or describe the pool by hand",
            )
        if found is not None:
            return _on_all(found, node, part.at(LABEL), f"label {LABEL}: {shorten(name)}", single, notes)
        if known or not _counted_somehow(node, single):
            return None
    if made := node_objects.partition(labels):
        return _partitions(node, card, made, notes)
    if single:
        return _single(node, card, single, notes)
    counts = node_objects.instances(labels)
    if any(count for count, _, _ in counts.values()):
        return _mixed(node, card, gpus, {name: count for name, (count, _, _) in counts.items() if count}, notes)
    if not gpus:
        _unknown_count(node, notes)
        return None
    return Layouts(gpus=((),) * gpus)


def _counted_somehow(node: ImportedNode, single: str) -> bool:
    return bool(single or node_objects.instances(node.labels))


def _unknown_count(node: ImportedNode, notes: Notes) -> None:
    notes.error(
        "GS862",
        node.part.at("metadata", "labels"),
        "nothing says how many GPUs this node has: neither nvidia.com/gpu.count, a cloud's label nor its capacity",
        "give the Node with its status, as `kubectl get nodes -o yaml` prints it",
        on_key=True,
    )


def _profile(card: Card, resource_form: str) -> MigProfile | None:
    profiles = card.mig.profiles if card.mig else ()
    return next((one for one in profiles if resource_form in (one.resource_suffix, one.name)), None)


def _generated(card: Card, name: str) -> tuple[Layout | None, ...] | None:
    """Return the one layout that a generated name means, None if it is none of these."""
    if card.mig is None:
        return None
    if name == "all-balanced":
        best = mig.resolve_goal(card.mig, Balanced(), lambda profile: profile.memory_mib)
        return None if best is None else (best,)
    profile = _profile(card, name.removeprefix("all-")) if name.startswith("all-") else None
    return None if profile is None else (((profile.name, profile.max_count),),)


def _named(
    node: ImportedNode, card: Card, configs: Sequence[MigPartedConfig], notes: Notes
) -> tuple[Layout | None, ...] | None:
    """Return the layout of each GPU by a config, or one for all; None if it is refused or does not cover the node."""
    config = configs[0]
    if len(configs) > 1 and any(_content(other) != _content(config) for other in configs):
        notes.error(
            "GS864",
            configs[1].part,
            f"the MIG config {shorten(config.name)} is given twice with different content",
            "give only the ConfigMap that mig-manager reads",
            on_key=True,
        )
        return None
    if not config.works:
        return None  # reported where it was read
    own = {text.lower() for text in (*card.pci_device_ids, *card.device_filters)}
    rows = [row for row in config.entries if not row.filters or any(text.lower() in own for text in row.filters)]
    if any(row.enabled and not row.layout for row in rows):
        notes.error(
            "GS862",
            config.part,
            f"{shorten(config.name)} enables MIG without instances, which an intent does not have",
            "write the instances, or mig-enabled: false",
            on_key=True,
        )
        return None
    if len(rows) == 1 and rows[0].gpus is None:
        return (rows[0].layout,)
    count = node_objects.gpus(node)
    if count is None:
        _unknown_count(node, notes)
        return None
    layouts: list[Layout | None] = [None] * count
    for row in rows:
        for index in range(count) if row.gpus is None else row.gpus:
            if index < count:
                layouts[index] = row.layout
    if None in layouts:
        missing = [index for index, layout in enumerate(layouts) if layout is None]
        notes.error(
            "GS862",
            config.part,
            f"{shorten(config.name)} says nothing about GPU {join_first(missing)} of node {shorten(node.name)}",
            "an intent says what every GPU becomes: add an entry, mig-enabled: false for whole GPUs",
            on_key=True,
        )
        return None
    return tuple(layouts)


def _content(config: MigPartedConfig) -> list[tuple[object, ...]]:
    return [(row.filters, row.gpus, row.enabled, row.layout) for row in config.entries]


def _on_all(  # noqa: PLR0913, PLR0917 - what a finding names
    found: tuple[Layout | None, ...], node: ImportedNode, part: Part, origin: str, single: str, notes: Notes
) -> Layouts | None:
    layouts = tuple(layout or () for layout in found)
    count = node_objects.gpus(node)
    if len(layouts) == 1 and count is None and single:
        instances, each = node_objects.number(node.labels, "nvidia.com/gpu.count") or 0, sum(number for _, number in layouts[0])
        count = instances // each if each and instances % each == 0 else None
    if count is None or count > node_objects.MAX_GPUS:
        _unknown_count(node, notes)
        return None
    return Layouts(gpus=layouts * count if len(layouts) == 1 else layouts, origin=origin, part=part)


def _partitions(node: ImportedNode, card: Card, made: CloudPartition, notes: Notes) -> Layouts | None:
    part, profile = node.part.at("metadata", "labels", made.label), _profile(card, made.size)
    if profile is None:
        notes.error(
            "GS862", part, f"{card.name} has no MIG profile {shorten(made.size)}", "look at `gpushare cards " + card.id + "`"
        )
        return None
    count = node_objects.gpus(node)
    if count is None:
        offered, (_, replicas, _) = node_objects.capacity(node).get("nvidia.com/gpu", 0), node_objects.strategy(node.labels)
        count = offered // (replicas * profile.max_count)
        if not 0 < count <= node_objects.MAX_GPUS or offered % (replicas * profile.max_count):
            _unknown_count(node, notes)
            return None
    layout = ((profile.name, profile.max_count),)
    return Layouts(gpus=(layout,) * count, origin=f"label {made.label}", part=part)


def _single(node: ImportedNode, card: Card, name: str, notes: Notes) -> Layouts | None:
    part, profile = node.part.at("metadata", "labels", "nvidia.com/gpu.product"), _profile(card, name)
    instances, gpus = node_objects.number(node.labels, "nvidia.com/gpu.count"), node_objects.gpus(node)
    if profile is None or not instances:
        notes.error(
            "GS862",
            part,
            f"the layout cannot be determined: {card.name} has no profile {shorten(name)}, or no count is given",
            "give the MIG config of the node, too",
        )
        return None
    count = gpus or (instances // profile.max_count if instances % profile.max_count == 0 else None)
    if count is None or count > node_objects.MAX_GPUS or instances % count:
        notes.error(
            "GS862",
            part,
            f"{instances} instances of {profile.name} do not say how many GPUs this node has",
            "give the mig-parted config that the node's label nvidia.com/mig.config names",
        )
        return None
    layout = ((profile.name, instances // count),)
    if not gpus:
        notes.warn(
            "GS860",
            part,
            f"assumed: {instances} instances are {layout_text(layout)} on each of {count} GPUs",
            "set gpusPerNode if the node has another number of GPUs",
        )
    return Layouts(gpus=(layout,) * count, origin="label nvidia.com/gpu.product", part=part)


def _mixed(node: ImportedNode, card: Card, gpus: int | None, counts: dict[str, int], notes: Notes) -> Layouts | None:
    part = node.part.at("metadata", "labels", f"nvidia.com/mig-{min(counts)}.count")
    profiles = {name: _profile(card, name) for name in counts}
    if gpus is None:
        _unknown_count(node, notes)
        return None
    unknown = [name for name, profile in profiles.items() if profile is None]
    if unknown or any(count % gpus for count in counts.values()):
        problem = (
            f"{card.name} has no MIG profile {join_first(unknown)}"
            if unknown
            else (f"the counts of instances do not divide by {gpus} GPUs, which therefore differ, and no label states how")
        )
        notes.error("GS862", part, problem, "give the mig-parted config that the node's label nvidia.com/mig.config names")
        return None
    order = {profile.name: number for number, profile in enumerate(card.mig.profiles)} if card.mig else {}
    pairs = [(profile.name, counts[name] // gpus) for name, profile in profiles.items() if profile]
    layout = tuple(sorted(pairs, key=lambda pair: -order[pair[0]]))
    if gpus > 1:
        notes.warn(
            "GS860",
            part,
            f"assumed: every GPU of the node has the same layout, {layout_text(layout)}",
            "give the mig-parted config of the node to be sure",
        )
    return Layouts(gpus=(layout,) * gpus, origin="GFD's counts of instances", part=part)
