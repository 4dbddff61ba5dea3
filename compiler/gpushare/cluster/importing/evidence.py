"""What the labels, the machine type and the capacity of a Node say of one another: contradictions are findings that name both.

Facts: GFD's labels and the operator's (`gpu.workload.config`, `gpu.deploy.*`), mig-manager's `mig.config.state`. GFD counts the
GPUs of one model; the capacity counts what the device plugin offers.
"""

from collections.abc import Mapping

from gpushare.cluster.importing import node_objects
from gpushare.cluster.importing.facts import GPU, MIG, SHARED, ImportedNode, Strategy
from gpushare.cluster.importing.node_layouts import Layouts
from gpushare.cluster.importing.parts import Notes
from gpushare.cluster.importing.sharing_fields import SharingSource
from gpushare.core.wording import join_words, pluralize, shorten
from gpushare.facts.catalog.cards import Card
from gpushare.facts.nodes.clouds import MACHINE_LABEL, gpus_of_machine, unconfirmed_gpus_of_machine
from gpushare_node.contract.names import BACKEND_LABEL
from gpushare_node.contract.policy import Backend

WORKLOAD, PLUGIN = "nvidia.com/gpu.workload.config", "nvidia.com/gpu.deploy.device-plugin"
STATE = "nvidia.com/mig.config.state"


def is_served(node: ImportedNode, notes: Notes, *, has_dra: bool) -> bool:
    """Whether a device plugin of containers serves the node; a finding says why not.

    `has_dra`: the cluster has objects of DRA, or a release of NVIDIA's DRA driver.
    """
    labels = node.part.at("metadata", "labels")
    workload, name = node.labels.get(WORKLOAD, ""), shorten(node.name)
    if workload not in ("", "container"):
        notes.warn(
            "GS872",
            labels.at(WORKLOAD),
            f"node {name} has {WORKLOAD}: {shorten(workload)}, so its GPUs are for virtual machines: left out",
            "`--stack gpu-operator` makes a pool of nodes with vm-vgpu; remove the label if containers are to share the GPUs",
        )
        return False
    offers_gpus = any(number for key, number in node_objects.capacity(node).items() if key.startswith((GPU, MIG)))
    label = node.labels.get(BACKEND_LABEL, "")
    if not offers_gpus and (label == Backend.DRA or (has_dra and node.part.at("status", "capacity").value)):
        why = f"{BACKEND_LABEL}: dra" if label else "no GPU of a device plugin, and the cluster has objects of DRA"
        notes.warn(
            "GS872",
            labels.at(BACKEND_LABEL) if label else node.part.at("status", "capacity"),
            f"node {name} has {why}: left out, since pools of the DRA driver are not imported",
            "write a pool with backend: dra for such nodes, as docs/dra.md describes",
            on_key=not label,
        )
        return False
    if node.labels.get(PLUGIN, "") == "false":
        notes.warn(
            "GS872",
            labels.at(PLUGIN),
            f"node {name} has {PLUGIN}: false, so no device plugin runs there: left out",
            "remove the label from the node if its GPUs are to be shared",
        )
        return False
    state, wanted = node.labels.get(STATE, ""), node.labels.get("nvidia.com/mig.config", "")
    if wanted and state == "failed":
        offers = join_words(f"{number} {key}" for key, number in node_objects.capacity(node).items()) or "nothing that is given"
        notes.error(
            "GS862",
            labels.at(STATE),
            f"mig-manager could not apply {shorten(wanted)} on node {name} ({STATE}: failed); it offers {offers}",
            "repair the node, or set the label nvidia.com/mig.config to what it has",
        )
        return False
    if wanted and state not in ("", "success"):
        notes.warn(
            "GS872",
            labels.at(STATE),
            f"mig-manager is not done with {shorten(wanted)} on node {name} ({STATE}: "
            f"{shorten(state)}): imported as if it were",
            "import again when the state is success",
        )
    return True


def machine(node: ImportedNode, notes: Notes) -> int | None:
    """Return the GPUs of the machine type, after comparing them with the label that counts."""
    known, counted = gpus_of_machine(node.labels.get(MACHINE_LABEL, "")), node_objects.counted_gpus(node)
    if known and counted and known != counted:
        notes.warn(
            "GS872",
            node.part.at("metadata", "labels", MACHINE_LABEL),
            f"{shorten(node.labels[MACHINE_LABEL])} has "
            f"{pluralize(known, 'GPU')}, and the labels of node {shorten(node.name)} count {counted}: imported with {counted}",
            "compare with nvidia-smi -L on the node",
        )
    return counted or known


def physical(node: ImportedNode, shares: SharingSource, notes: Notes) -> int | None:
    """Return how many GPUs the node has where no label counts them: by its machine type, or its capacity and its config."""
    if node_objects.partition(node.labels):
        return None
    known = machine(node, notes)
    replicas = shares.replicas.get(GPU) or node_objects.strategy(node.labels)[1]
    offered = node_objects.offered_gpus(node)
    if known or not offered:
        return known or _unconfirmed(node, notes)
    if offered % replicas:
        notes.error(
            "GS862",
            node.part.at("status", "capacity"),
            f"node {shorten(node.name)} offers {offered} GPUs, which "
            f"{pluralize(replicas, 'replica')} of its config do not divide",
            "give the Node with the labels of GFD",
        )
        return None
    return offered // replicas


def _unconfirmed(node: ImportedNode, notes: Notes) -> int | None:
    """Return the GPUs of a machine type as they are believed to be: only where nothing else is known of the node."""
    machine_type = node.labels.get(MACHINE_LABEL, "")
    believed = unconfirmed_gpus_of_machine(machine_type)
    if believed:
        notes.warn(
            "GS860",
            node.part.at("metadata", "labels", MACHINE_LABEL),
            f"assumed: {shorten(machine_type)} has {pluralize(believed, 'GPU')}, which no source confirms",
            "compare with nvidia-smi -L on the node",
        )
    return believed


def shared(node: ImportedNode, gpus: int | None, card: Card, notes: Notes) -> tuple[SharingSource, Layouts | None] | None:
    """Return what a capacity larger than the machine's GPUs means where nothing else says it; None if it means nothing."""
    offered = node_objects.offered_gpus(node)
    if not gpus or node_objects.counted_gpus(node) or offered <= gpus or offered % gpus:
        return None
    each, part = offered // gpus, node.part.at("status", "capacity")
    evidence = f"node {shorten(node.name)} offers {offered} GPUs and its machine has {gpus}"
    renamed = bool(node_objects.capacity(node).get(GPU + SHARED))
    profile = next((one for one in card.mig.profiles if one.max_count == each and each > 1), None) if card.mig else None
    if profile is not None and not renamed and each == max(one.max_count for one in (card.mig.profiles if card.mig else ())):
        notes.warn(
            "GS860",
            part,
            f"assumed: {evidence}, which are {each} instances of {profile.name} on each, MIG strategy single",
            "give GFD's labels, or write mode: time-slicing if the GPUs are shared by time",
            on_key=True,
        )
        layout = ((profile.name, each),)
        return SharingSource(replicas={}), Layouts(gpus=(layout,) * gpus, origin="capacity and machine type", part=part)
    notes.warn(
        "GS860",
        part,
        f"assumed: {evidence}, which are {each} replicas by time-slicing",
        "give the device plugin's config, which says whether it is MPS",
        on_key=True,
    )
    return SharingSource(strategy=Strategy.TIME_SLICING, replicas={GPU: each}, rename=renamed), None


def compare_instances(node: ImportedNode, found: Layouts, notes: Notes) -> None:
    """Compare the layouts with the instances that GFD counts under MIG strategy mixed."""
    counts = {name: count for name, (count, _, _) in node_objects.instances(node.labels).items() if count}
    wanted: dict[str, int] = {}
    for layout in found.gpus:
        for profile, number in layout:
            name = profile.replace("+", ".")
            wanted[name] = wanted.get(name, 0) + number
    if counts and counts != wanted:
        left, right = (
            join_words(f"{number} {name}" for name, number in sorted(one.items())) or "none" for one in (counts, wanted)
        )
        where = node.part.at("metadata", "labels", f"nvidia.com/mig-{min(counts)}.count")
        notes.warn(
            "GS872",
            where,
            f"the labels of node {shorten(node.name)} count these instances: {left}; its layout, "
            f"{found.origin or 'without MIG'}, has {right}",
            "wait until mig-manager is done, or repair the node",
        )


def compare(node: ImportedNode, wanted: Mapping[str, int], notes: Notes) -> bool:
    """Compare what the pool will offer with the node's capacity. False if the node cannot be one of a pool."""
    has = {name: count for name, count in node_objects.capacity(node).items() if name.startswith((GPU, MIG)) and count}
    if not node.part.at("status", "capacity").value or has == wanted:
        return True
    part = node.part.at("status", "capacity")
    left, right = (join_words(f"{count} {name}" for name, count in sorted(one.items())) or "no GPU" for one in (has, wanted))
    if set(has) == set(wanted) == {GPU} and has[GPU] > wanted[GPU] and node_objects.counted_gpus(node) == wanted[GPU]:
        notes.error(
            "GS862",
            part,
            f"node {shorten(node.name)} offers {left}, and the label nvidia.com/gpu.count is "
            f"{wanted[GPU]}: GFD counts the GPUs of one model, so the node has several, which a pool has not",
            "give each node one card model, or leave this node out",
            on_key=True,
        )
        return False
    notes.warn(
        "GS872",
        part,
        f"node {shorten(node.name)} offers {left}, and by its labels and configs it has {right}",
        "wait until the device plugin has read its config, or give the config that it has",
        on_key=True,
    )
    return True
