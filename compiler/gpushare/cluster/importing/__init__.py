"""From what a cluster has to an intent: `build` reads configs, values, Nodes and quotas, and says what it cannot express.

One module for each kind of input makes facts of it (`facts`); from these a Draft is put together and written. Findings are
GS850 to GS867 and GS869 to GS876. The intent's own check is not run here: `Imported.judged` takes what it finds.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from gpushare.cluster.importing import (
    accounting,
    collecting,
    draft,
    moving,
    node_objects,
    platform,
    pools,
    quotas,
    vendor_nodes,
)
from gpushare.cluster.importing.accounting import Accounted
from gpushare.cluster.importing.collecting import Collector
from gpushare.cluster.importing.documents import FileLines, InputFile, Reader, described
from gpushare.cluster.importing.draft import Draft
from gpushare.cluster.importing.facts import Facts
from gpushare.cluster.importing.helm_values import OPERATOR
from gpushare.cluster.importing.parts import FromProgram, Notes, Part
from gpushare.cluster.importing.platform import Wanted
from gpushare.cluster.importing.sharing_fields import Selector
from gpushare.core.diagnostics import Finding, in_order, is_error
from gpushare.core.wording import shorten
from gpushare.intent import reader as intent_reader
from gpushare.intent import writer
from gpushare.reading import schema
from gpushare_node.contract.policy import Backend
from gpushare_node.contract.struct import Struct, replace

__all__ = ["Imported", "InputFile", "Wanted", "build"]


class Imported(Struct):
    """The result: `text` is empty if no pool was found. `lines` has the lines of each file, for excerpts."""

    name: str
    draft: Draft
    findings: tuple[Finding, ...]
    lines: Mapping[str, FileLines]

    @cached_property
    def text(self) -> str:
        """The intent."""
        errors = sum(map(is_error, self.findings))
        return draft.text(self.name, self.draft.spec, self.draft.comments, errors) if self.draft.pools else ""

    def checked(self, findings: Iterable[Finding]) -> "Imported":
        """Return a copy with the errors that a check of `text` finds: each as GS868, at the input that the value came from."""
        notes = Notes()
        for found in findings:
            if is_error(found):
                part = self.draft.part_at(found.path) or Part(None, FromProgram(name=""))
                notes.error("GS868", part, f"{found.code} of the intent: {found.message}", *found.hints)
        return replace(self, findings=tuple(in_order([*self.findings, *notes.findings])))


def build(inputs: Sequence[InputFile], name: str = "", wanted: Wanted = Wanted()) -> Imported:  # noqa: B008 - frozen
    """Return the intent of the inputs, whose order does not matter. `name` is the cluster's, if no input says it.

    What runs stays, `stack: existing` and `adoption: observe`, unless `wanted` says another stack. An intent among the inputs,
    such as that of a bundle, says everything itself.

    Never raises, for any bytes and any objects of JSON.
    """
    notes = Notes()
    reader = Reader(notes)
    facts, ignored = _collect(sorted(inputs, key=lambda one: one.name), reader, notes)
    draft = Draft()
    if facts.intents:
        own = _written(facts.intents, draft, notes)
        facts.quotas = []
    else:
        own = "imported"
        _cluster(facts, draft, notes, wanted)
        _report_dra(facts, notes)
    if wanted.backend == Backend.DRA:
        moving.move(facts, draft, notes)
    quotas.add(facts.quotas, draft, notes)
    draft.spec["pools"] = draft.pools
    if not facts.intents:
        nodes = [node for node in facts.nodes if node_objects.has_gpus(node)]
        facts.objects += [Accounted(root=node.part, kind="Node", name=f"Node {shorten(node.name)}") for node in nodes]
        accounting.report(facts.objects, notes)
    if not draft.pools and not any(map(is_error, notes.findings)):
        notes.error(
            "GS867",
            ignored,
            "no pool could be made: nothing here says which nodes have which GPUs",
            "give the Nodes: kubectl get nodes -o yaml > nodes.yaml",
        )
    return Imported(
        name=name or own,
        draft=draft,
        findings=tuple(in_order(notes.findings)),
        lines=reader.lines,
    )


def _collect(inputs: Sequence[InputFile], reader: Reader, notes: Notes) -> tuple[Facts, Part]:
    collector = Collector(reader, notes)
    first: Part | None = None
    nothing_in: list[tuple[InputFile, Part]] = []
    for one in inputs:
        broken, part = len(notes.findings), None
        for part in reader.objects([one]):
            first = first or part
            collector.take(part, one.name)
        if len(notes.findings) == broken:
            nothing_in.append((one, part or Part(None, FromProgram(name=one.name))))
    collector.finish()
    facts = collector.facts
    for one, nothing in nothing_in:
        if one.name not in collector.facts.files_read:
            is_alone = not facts.intents
            notes.warn(
                "GS865",
                nothing,
                "nothing in this input is read: "
                + ("no Node, config, quota or Helm values are in it" if is_alone else "the intent beside it says everything"),
                "give configs, values of NVIDIA's charts, Nodes or ResourceQuotas" if is_alone else "leave it out",
            )
    facts.sort()
    collecting.duplicates(facts, notes)
    return facts, first or Part(None, FromProgram(name=inputs[0].name if inputs else ""))


def _cluster(facts: Facts, draft: Draft, notes: Notes, wanted: Wanted) -> None:
    if facts.of_bundle:
        notes.error(
            "GS876",
            facts.of_bundle[0],
            "this is of a bundle, but its intent.yaml is not given: nothing is guessed from the other files",
            "import the bundle's folder, or its intent.yaml",
        )
    selector = Selector(facts, notes)
    pools.add(facts, draft, notes, selector, with_vms=wanted.stack == OPERATOR)
    vendor_nodes.add(facts, draft, notes)
    if draft.pools or facts.nodes:
        pools.unused(facts, notes, selector)
    else:
        pools.add_of_configs(facts, draft, notes)
    platform.add(facts, draft, notes, wanted)


def _report_dra(facts: Facts, notes: Notes) -> None:
    """Report each object of DRA, and values of the DRA driver: none is read, and what they mean is left to the user."""
    hint = "write pools with backend: dra, which docs/dra.md describes: their classes and claim templates are in the bundle"
    for one in facts.dra_objects:
        notes.warn("GS874", one, f"{described(one)} is not imported: objects of DRA are not read", hint)
    for settings in facts.dra_values:
        text = f"{settings.origin} are not imported: the intent has nothing of the DRA driver"
        notes.warn("GS874", settings.part, text, "write platform.dra, as docs/dra.md describes", on_key=True)


def _written(intents: Sequence[Part], draft: Draft, notes: Notes) -> str:
    """Put the first intent into the draft, as the ordinary reader reads it, and return the cluster's name."""
    first, *others = intents
    for other in others:
        notes.error("GS876", other, "a second intent", "import one bundle, or one intent, at a time")
    for wrong in schema.violations(first.whole, "intent.v1", ()):
        text = f"{wrong.code} of the intent: {wrong.message}"
        notes.error("GS868", first.at(*wrong.path), text, *wrong.hints, on_key=wrong.on_key)
    if any(map(is_error, notes.findings)):
        return "imported"
    document = writer.write(writer.canonical(intent_reader.build(first.whole)))
    name: str = document["metadata"]["name"]
    draft.first, draft.spec, draft.pools = first, document["spec"], document["spec"]["pools"]
    draft.note(("pools",), first.at("spec", "pools"), f"from the intent of {name}, overlays merged")
    for pool in draft.pools:
        draft.note(("pools", pool), first.at("spec", "pools", pool))
    return name
