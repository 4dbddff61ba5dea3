"""From what a cluster has to an intent: `build` reads configs, values, Nodes and quotas, and says what it cannot express.

One module for each kind of input makes facts of it (`facts`); from these a Draft is put together and written. Findings are
GS850 to GS867, GS869 and GS870. The intent's own check is not run here: `Imported.judged` takes what it finds.
"""

from collections.abc import Iterable, Mapping, Sequence

from gpushare.core.diagnostics import Finding, in_order, is_error
from gpushare.core.record import Record, replace
from gpushare.core.units import is_dns_label
from gpushare.importing import bundles, collecting, config_pools, pools, quota_fields, writing
from gpushare.importing.collecting import Collector
from gpushare.importing.documents import InputFile, Lines, Reader
from gpushare.importing.draft import Draft
from gpushare.importing.facts import Facts
from gpushare.importing.parts import FromProgram, Notes, Part
from gpushare.importing.selecting import Selector

__all__ = ["Imported", "InputFile", "build"]


class Imported(Record):
    """The result: `text` is empty if no pool was found. `lines` has the lines of each file, for excerpts."""

    name: str
    draft: Draft
    findings: tuple[Finding, ...]
    lines: Mapping[str, Lines]

    @property
    def text(self) -> str:
        """The intent."""
        errors = sum(map(is_error, self.findings))
        return writing.text(self.name, self.draft.spec, self.draft.comments, errors) if self.draft.pools else ""

    def checked(self, findings: Iterable[Finding]) -> "Imported":
        """Return the same with the errors that a check of `text` finds, as GS868 where the values are from."""
        notes = Notes()
        for found in findings:
            if is_error(found):
                part = self.draft.part_at(found.path) or Part(None, FromProgram(name=""))
                notes.error("GS868", part, f"{found.code} of the intent: {found.message}", *found.hints)
        return replace(self, findings=tuple(in_order([*self.findings, *notes.findings])))


def build(inputs: Sequence[InputFile], name: str = "") -> Imported:
    """Return the intent of the inputs, whose order does not matter. `name` is the cluster's, if no input says it.

    Never raises, for any bytes and any objects of JSON.
    """
    notes = Notes()
    reader = Reader(notes)
    facts, ignored = _collect(sorted(inputs, key=lambda one: one.name), reader, notes)
    draft = Draft()
    if facts.bundle:
        bundles.add(facts, draft, notes)
        facts.quotas = bundles.quotas(facts)
    else:
        _cluster(facts, draft, notes)
    quota_fields.add(facts.quotas, draft, notes)
    draft.spec["pools"] = draft.pools
    if not draft.pools and not any(map(is_error, notes.findings)):
        notes.error("GS867", ignored, "no pool could be made: nothing here says which nodes have which GPUs",
                    "give the Nodes: kubectl get nodes -o yaml > nodes.yaml")
    return Imported(name=_name(facts, name), draft=draft, findings=tuple(in_order(notes.findings)), lines=reader.lines)


def _collect(inputs: Sequence[InputFile], reader: Reader, notes: Notes) -> tuple[Facts, Part]:
    collector = Collector(reader, notes)
    first: Part | None = None
    for one in inputs:
        broken, part = len(notes.findings), None
        for part in reader.objects([one]):
            first = first or part
            collector.take(part, one.name)
        if one.name not in collector.facts.files_read and len(notes.findings) == broken:
            nothing = part or Part(None, FromProgram(name=one.name))
            notes.warn("GS865", nothing, "nothing in this input is read: no Node, config, quota or Helm values are in it",
                       "give configs, values of NVIDIA's charts, Nodes or ResourceQuotas")
    facts = collector.facts
    facts.sort()
    collecting.duplicates(facts, notes)
    return facts, first or Part(None, FromProgram(name=inputs[0].name if inputs else ""))


def _cluster(facts: Facts, draft: Draft, notes: Notes) -> None:
    selector = Selector(facts, notes)
    pools.add(facts, draft, notes, selector)
    if draft.pools or facts.nodes:
        pools.unused(facts, notes, selector)
    else:
        config_pools.add(facts, draft, notes)
    _platform(facts, draft, notes)


def _platform(facts: Facts, draft: Draft, notes: Notes) -> None:
    stacks = sorted({one.stack for one in facts.settings})
    if len(stacks) > 1:
        notes.error("GS864", facts.settings[0].part, "values of both gpu-operator and nvidia-device-plugin were given",
                    "give those of the chart that serves the GPUs", on_key=True)
    if stacks:
        draft.put(("platform", "stack"), stacks[0], facts.settings[0].part, f"from {facts.settings[0].origin}")
    else:
        draft.put(("platform", "stack"), "gpu-operator", None,
                  "assumed, no values of a chart were given: or device-plugin, or existing (your plugin stays)")
    managed = any("nvidia.com/mig.config" in node.labels for node in facts.nodes)
    if managed and draft.spec["platform"]["stack"] == "gpu-operator" and any(
        pool["sharing"]["mode"] == "mig" for pool in draft.pools.values()
    ):
        draft.put(("platform", "partitioner"), "mig-manager", None,
                  "from the label nvidia.com/mig.config of the nodes; gpushare is the other partitioner")


def _name(facts: Facts, given: str) -> str:
    named = [part.at("cluster").text for part in facts.bundle]
    own = named[0] if named and is_dns_label(named[0]) else "imported"
    return given or own
