"""Nodes that NVIDIA's DRA driver serves: which they are, and what the pools of such nodes offer.

A claim on a part of a GPU's memory makes a share: a GPU has as many as fit of the smallest, and every other amount is a size of
its own. The chart's own classes select GPUs of every card, so that claims hold for each pool whose card their class selects.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from gpushare.backends.dra import DRIVER, REQUEST
from gpushare.catalog.cards import Card
from gpushare.core.wording import join_first, shorten
from gpushare.importing import dra_objects, dra_values, evidence, node_objects, sharing_fields
from gpushare.importing.accounting import Accounted
from gpushare.importing.dra_objects import ImportedClaim, ImportedClass
from gpushare.importing.draft import label, unique
from gpushare.importing.facts import GPU, MIG, SHARED, Facts, ImportedNode
from gpushare.importing.node_layouts import Layouts
from gpushare.importing.parts import FromProgram, Notes, Part
from gpushare.importing.sharing_fields import SharingSource
from gpushare.intent.types import Backend, DraShares
from gpushare.nodes.own_labels import BACKEND_LABEL
from gpushare_node.contract.struct import Struct, replace

_NOWHERE = Part(None, FromProgram(name=""))
_OF_CHART = (
    ImportedClass(name=DRIVER, part=_NOWHERE, kind="gpu"),
    ImportedClass(name="mig.nvidia.com", part=_NOWHERE, kind="mig"),
)
_MOST_SIZES = 20
"""As many as a pool may have."""
SHAPES = (REQUEST, "share")
"""Claims that a pool has of itself."""


class Served(Struct):
    """What nodes of DRA become: their `sharing`, the other fields of their pool, and what quotas may name.

    `names` are the names in `limits` that pods may use, `sources` the claims from which the sizes are.
    """

    sharing: dict[str, Any]
    fields: dict[str, Any]
    offers: tuple[tuple[str, str | None], ...]
    names: tuple[str, ...]
    origin: str
    sources: tuple[str, ...] = ()


class DraNodes:
    """The nodes of DRA in a cluster."""

    def __init__(self, facts: Facts, notes: Notes) -> None:
        self._facts, self._notes = facts, notes
        given = {one.name for one in facts.classes}
        self._classes = [one for one in (*facts.classes, *(one for one in _OF_CHART if one.name not in given)) if one.works]
        self._used: set[str] = set()
        self._named: set[str] = set()
        self._refused: set[tuple[str, str]] = set()

    def serves(self, node: ImportedNode) -> bool:
        """Whether the driver serves the node: a node has one back end, and one that offers GPUs to kubelet has the plugin."""
        facts = self._facts
        # Our own label tells of a driver whose objects were not given, or could not be read.
        if self._offers(node) or not (facts.dra_values or facts.classes or facts.claims or node.labels.get(BACKEND_LABEL)):
            return False
        selected = self._is_selected(node)
        if selected is not None:
            return selected
        is_plain = not facts.settings and not facts.configs
        return is_plain or node.labels.get(evidence.PLUGIN) == "false" or bool(node.part.at("status", "capacity").value)

    def _is_selected(self, node: ImportedNode) -> bool | None:
        if node.labels.get(BACKEND_LABEL):
            return node.labels[BACKEND_LABEL] == Backend.DRA
        said = [selects for one in self._facts.dra_values if (selects := dra_values.selects(one, node.labels)) is not None]
        return any(said) if said else None

    @staticmethod
    def _offers(node: ImportedNode) -> bool:
        return any(number for name, number in node_objects.capacity(node).items() if name.startswith((GPU, MIG)))

    def check(self, node: ImportedNode) -> None:
        """Report a node that both back ends serve, and one of which nothing says it."""
        facts, name = self._facts, shorten(node.name)
        if self._offers(node) and (facts.dra_values or facts.classes) and self._is_selected(node):
            self._notes.warn(
                "GS872",
                node.part.at("status", "capacity"),
                f"node {name} offers GPUs through the device plugin, and the DRA driver runs there too: each GPU is given"
                " twice. Imported as one of the plugin",
                "remove one of the two from the node",
                on_key=True,
            )
        is_told = self._is_selected(node) is not None or node.part.at("status", "capacity").value
        if self.serves(node) and not is_told and node.labels.get(evidence.PLUGIN) != "false":
            self._notes.warn(
                "GS860",
                node.part,
                f"assumed: the DRA driver serves node {name}; nothing says which nodes have it",
                "give the Node with its status, or the driver's values with kubeletPlugin.nodeSelector",
            )

    def of_node(self, card: Card, layouts: Layouts) -> Served:
        """Return what nodes with this card and these instances offer."""
        kinds = sorted({profile for layout in layouts.gpus for profile, _ in layout}) or [""]
        selecting = {kind: [one for one in self._classes if one.selects(card, kind)] for kind in kinds}
        claims = {kind: self._claims(selecting[kind]) for kind in kinds}
        sizes: dict[str, str] = {}
        sources: tuple[str, ...] = ()
        if layouts.any:
            sharing = self._divided(card, layouts, claims)
        else:
            sharing, sizes, sources = self._whole(card, claims[""])
            sharing |= self._interval(selecting[""], claims[""]) if "replicas" in sharing else {}
        names = self._names(sharing, selecting, layouts)
        has_claims = any(claims.values()) or not names
        fields: dict[str, Any] = {"backend": Backend.DRA.value}
        if names:
            fields["requests"] = "both" if has_claims else "limits"
        if sizes:
            fields["sizes"] = sizes
        offers = [(one.name, kind or None) for kind, those in selecting.items() for one in those if one.profile == kind]
        origins = [one.origin for one in self._facts.dra_values]
        origins += [
            dra_objects.CLASS + f" {shorten(one.name)}" for those in selecting.values() for one in those if one.part.value
        ]
        return Served(
            sharing=sharing,
            fields=fields,
            offers=tuple(offers),
            names=names,
            origin=join_first(list(dict.fromkeys(origins))) or f"the claims of {DRIVER}",
            sources=sources,
        )

    def _claims(self, selecting: Iterable[ImportedClass]) -> list[ImportedClaim]:
        names = {one.name for one in selecting}
        self._used |= names
        return [one for one in self._facts.claims if one.device_class in names]

    def _by(self) -> DraShares | None:
        said = [dra_values.shares(one) for one in self._facts.dra_values]
        if said:
            return next((one for one in said if one), None)
        return DraShares.MEMORY if any(one.memory for one in self._facts.claims) else None

    def _whole(self, card: Card, claims: Sequence[ImportedClaim]) -> tuple[dict[str, Any], dict[str, str], tuple[str, ...]]:
        by, whole = self._by(), {"mode": "exclusive"}
        if by is DraShares.COUNT:
            return self._counted(claims), {}, ()
        parts = {mib for one in claims if (mib := dra_objects.mebibytes(one)) and mib < (card.memory_mib or 0)}
        if by is None or not parts or card.memory_mib is None:
            self._report_parts(claims, by)
            return whole, {}, ()
        replicas = max(2, card.memory_mib // min(parts))
        sizes: dict[str, str] = {}
        amounts, sources = {card.memory_mib // replicas}, []
        for claim in claims:
            mib = min(dra_objects.mebibytes(claim) or card.memory_mib, card.memory_mib)
            if mib in amounts:
                continue
            if len(sizes) == _MOST_SIZES:
                text = f"the pool has {_MOST_SIZES} sizes already: {mib}Mi of {claim.origin} is not one of them"
                self._notes.warn("GS861", claim.part, text, "use one of the other sizes")
                break
            amounts.add(mib)
            name = unique(_size_name(claim.name), dict.fromkeys((*sizes, *SHAPES)))
            sizes[name] = f"{mib}Mi"
            sources.append(f"{name} from {claim.origin}")
        return {"mode": "time-slicing", "replicas": replicas}, sizes, tuple(sources)

    def _report_parts(self, claims: Sequence[ImportedClaim], by: DraShares | None) -> None:
        for claim in claims:
            if claim.memory is not None and by is None:
                self._notes.warn(
                    "GS861",
                    claim.part.at("capacity", "requests", "memory"),
                    f"{claim.origin} asks for memory, and no GPU is divided: the driver has no consumableShares",
                    "write consumableShares: memory and the gate ConsumableShares in the driver's values",
                )

    def _counted(self, claims: Sequence[ImportedClaim]) -> dict[str, Any]:
        number = max(dra_values.count(one) for one in self._facts.dra_values)
        if claims and all(one.shares == number for one in claims):
            return {"mode": "exclusive"}
        for claim in claims:
            if claim.shares not in (None, 1):
                self._notes.warn(
                    "GS861",
                    claim.part.at("capacity", "requests", "shares"),
                    f"{claim.origin} asks for {claim.shares} of {number} shares, and a claim of a pool gets one",
                    "use a pool of its own for whole GPUs, or shares: memory with sizes",
                )
        return {"mode": "time-slicing", "replicas": number}

    def _interval(self, classes: Iterable[ImportedClass], claims: Sequence[ImportedClaim]) -> dict[str, Any]:
        """Return the interval of the claims on shared GPUs, if they have one: with different ones they never share a GPU."""
        of_class = {one.name: dra_objects.interval(one.part.at("spec", "config")) for one in classes}
        of_claims = [one.interval or of_class[one.device_class] for one in claims]
        wanted = of_claims or [one for one in of_class.values() if one]
        configs = [one[1] for one in wanted if one and one[0]]
        words = {one[0] if one else "" for one in wanted}
        if len(words) > 1:
            self._notes.warn(
                "GS861",
                configs[0],
                f"claims on GPUs of the same card have the intervals {join_first(sorted(word or 'default' for word in words))}:"
                " none is imported, because claims with different ones never share a GPU",
                "write sharing: {interval: …} in the pool",
            )
        for config in configs:
            _ = config.whole
        return {"interval": words.pop()} if len(words) == 1 and configs else {}

    def _divided(self, card: Card, layouts: Layouts, claims: dict[str, list[ImportedClaim]]) -> dict[str, Any]:
        found = sharing_fields.document(SharingSource(replicas={}), layouts, "mixed", layouts.part or _NOWHERE, self._notes)
        replicas = {}
        for profile, those in claims.items():
            memory = card.profiles[profile].memory_mib if profile in card.profiles else None
            parts = [mib for one in those if (mib := dra_objects.mebibytes(one)) and memory and mib < memory]
            if parts and memory and self._by() is not None:
                replicas[profile] = max(2, memory // min(parts))
        return (found or {"mode": "mig"}) | ({"replicas": replicas} if replicas else {})

    def _names(self, sharing: dict[str, Any], selecting: dict[str, list[ImportedClass]], layouts: Layouts) -> tuple[str, ...]:
        """Return the names in `limits` that the pool may keep; a finding on each other one."""
        kept = []
        is_divided = "replicas" in sharing and (layouts.any or self._by() is DraShares.MEMORY)
        wanted = {
            "" if profile in (None, GPU) else profile: name
            for name, profile in sharing_fields.resources(sharing, layouts).items()
        }
        for kind, those in selecting.items():
            for one in those:
                name = one.limits.text
                if not name:
                    continue
                if not is_divided and name == GPU and sharing["mode"] == "time-slicing":
                    sharing["rename"] = False
                if not is_divided and name in (wanted.get(kind), GPU if "rename" in sharing else None):
                    kept.append(name)
                elif (one.name, name) not in self._refused:
                    self._refused.add((one.name, name))
                    why = (
                        "a pool whose claims ask for parts of a device has no name in limits"
                        if is_divided
                        else f"pods of a pool ask for {wanted.get(kind) or GPU + SHARED}"
                    )
                    self._notes.warn(
                        "GS861",
                        one.limits,
                        f"the name {shorten(name)} of DeviceClass {shorten(one.name)} is not imported: {why}",
                        "let pods use the ResourceClaimTemplates of the pool",
                    )
        return tuple(dict.fromkeys(kept))

    def first_with_its_names(self, served: Served, node: ImportedNode) -> Served:
        """Return what a pool offers without names in `limits` that another pool has: two classes cannot have one."""
        taken = [name for name in served.names if name in self._named]
        self._named.update(served.names)
        if not taken:
            return served
        self._notes.warn(
            "GS861",
            node.part.at("metadata", "name"),
            f"pods on nodes like {shorten(node.name)} ask for {join_first(taken)} in limits as those of another pool do:"
            " only one DeviceClass can have the name",
            "let pods of this pool claim by its ResourceClaimTemplates",
        )
        return replace(served, names=(), fields={key: one for key, one in served.fields.items() if key != "requests"})

    def finish(self) -> None:
        """Report claims that no pool has, and what becomes of the others; count what no pool needs of them as left over."""
        facts, known = self._facts, {one.name for one in (*self._facts.classes, *_OF_CHART)}
        ours = [one for one in facts.claims if one.device_class not in facts.other_classes]
        accounted: set[str] = set()
        for claim in ours:
            if claim.origin not in accounted:
                accounted.add(claim.origin)
                kind = claim.origin.partition(" ")[0]
                facts.objects.append(Accounted(root=claim.root, kind=kind, name=claim.origin))
            name = claim.part.at("deviceClassName")
            if claim.device_class not in known:
                text = f"{claim.origin} asks for DeviceClass {shorten(claim.device_class)}, which was not given"
                self._notes.warn("GS869", name, text, "give the DeviceClasses: kubectl get deviceclasses -o yaml")
            elif claim.device_class not in self._used:
                text = f"no node of DRA that was given has devices of {shorten(claim.device_class)}: {claim.origin} is left out"
                self._notes.warn("GS855", name, text, "give the Nodes of the cluster, with their labels")
        foreign = [one for one in ours if one.device_class in self._used and not one.name.startswith("gpushare-")]
        if foreign:
            self._notes.warn(
                "GS873",
                foreign[0].part,
                "once gpushare enforces, pods use the pools' ResourceClaimTemplates, gpushare-POOL.SHAPE: its admission refuses"
                f" new claims of other classes and names, as of {join_first(sorted({one.origin for one in foreign}))}",
                "change resourceClaimTemplateName of the pods",
            )


def _size_name(template: str) -> str:
    name = label(template.rpartition(".")[2] if template.startswith("gpushare-") else template)
    return f"{name}-size" if name in SHAPES else name
