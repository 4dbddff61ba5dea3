"""What is said of effects, once for each kind: about one of them, in the verdict, in the headline and in the summary.

The order of `EFFECTS` is that of the sentences on whom they concern, and of the summary: worst first.
"""

from enum import StrEnum

from gpushare.compare.effects import Effect, EffectKind
from gpushare.core.wording import join_words
from gpushare.intent.gitops import TOOLS, ToolFacts
from gpushare.report.setting_words import before_and_after
from gpushare_node.contract.struct import Struct


class Of(StrEnum):
    """Whom a sentence of the verdict concerns: running pods at once or later, or new ones."""

    RUNNING = "running"
    LATER = "later"
    NEW = "new"


class Words(Struct):
    """What is said of a kind of effect.

    `line` follows the subject of one effect and, with `has_values`, its values before and after. `verdict` is the sentence on
    all effects of the kind, and `of` whom it concerns. `headline` says which new pods are refused, `also` in short what the
    numbers of nodes and pods do not count.
    """

    line: str = ""
    of: Of | None = None
    verdict: str = ""
    headline: str = ""
    also: str = ""
    has_values: bool = True


EFFECTS = {
    EffectKind.RELEASED: Words(
        of=Of.RUNNING,
        verdict="Every node is released: running pods lose their GPUs, until the nodes are set up again.",
        also="a GitOps tool releases every node",
    ),
    EffectKind.DRIVERLESS: Words(
        line="the operator removes the driver, and nothing replaces it: a node without a driver of its own loses its GPUs",
        of=Of.RUNNING,
        verdict="The driver is removed, nothing replaces it: nodes without a driver of their own lose their GPUs.",
        also="the driver is removed",
    ),
    EffectKind.REINSTALLED: Words(
        line="another release; uninstall the one that is installed first",
        of=Of.RUNNING,
        verdict="The installed release must be uninstalled first, which releases every node.",
        also="the installed release must be uninstalled first",
    ),
    EffectKind.DRIVER: Words(
        line="the driver restarts node by node: pods that use a GPU there must end first",
        of=Of.RUNNING,
        verdict="The driver restarts node by node: running pods with a GPU must end first.",
        also="the driver restarts",
    ),
    EffectKind.HANDED_OVER: Words(
        of=Of.RUNNING,
        verdict="The former GitOps tool must be detached first: deleting its objects releases every node.",
        also="the former GitOps tool must be detached first",
    ),
    EffectKind.ADOPTED: Words(
        line="this is the first change of hardware: every pool's nodes are changed, labelled and held to their caps",
        of=Of.RUNNING,
        verdict="The adoption changes, for every node.",
        also="the adoption changes",
    ),
    EffectKind.BEGINS: Words(
        also="changes that nodes still hold back may begin",
    ),
    EffectKind.ENDED: Words(
        line="running containers that are over their cap are killed from then on",
        of=Of.RUNNING,
        verdict="Running containers over their cap are killed from then on.",
        also="containers may be killed",
    ),
    EffectKind.VMS: Words(
        line="a person must shut down the virtual machines of the pool's nodes, then label these: see README.md",
        of=Of.RUNNING,
        verdict="Nodes of virtual machines must be labelled by hand, when these are shut down.",
        also="nodes of virtual machines must be labelled by hand",
    ),
    EffectKind.BACKEND: Words(
        line="the pool's nodes change hands one after the other: each is drained, and offers nothing until the former back end "
        "has left it",
        of=Of.RUNNING,
        verdict="Nodes change hands between device plugin and DRA driver: each is drained first.",
        also="nodes change hands between device plugin and DRA driver",
    ),
    EffectKind.TAINTED: Words(
        line="while a node's GPUs are divided, this taint ends every pod on it that does not tolerate it, pods without a GPU "
        "too: see README.md",
        of=Of.RUNNING,
        verdict="While a node's GPUs are divided, every pod on it that does not tolerate AMD's taint ends.",
        also="pods that do not tolerate a taint of AMD's end",
        has_values=False,
    ),
    EffectKind.ENFORCED: Words(
        line="holds for running containers too",
        of=Of.LATER,
        verdict="Caps are enforced differently, for running containers too.",
        also="caps are enforced differently",
    ),
    EffectKind.SPARED: Words(
        line="containers over their cap are no longer killed",
        of=Of.LATER,
        verdict="Running containers over their cap are no longer killed.",
    ),
    EffectKind.NOTICED: Words(
        line="containers that run already are warned, and held to it when enforcement.notice is over; "
        "later ones are held to it at once",
        of=Of.LATER,
        verdict="Running containers without a cap are warned, and held to the new one after the notice.",
        also="running containers get a notice",
    ),
    EffectKind.RAISED: Words(
        line="running containers may use it at once",
        of=Of.LATER,
        verdict="Running containers may use a raised cap at once.",
    ),
    EffectKind.CLASS_KEPT: Words(
        line="no pool has this device class any more; it stays until gpushare is uninstalled, because pods are placed by it on "
        "nodes that wait for their turn",
        of=Of.NEW,
        verdict="Device classes stay for the nodes that wait for their turn.",
        also="device classes stay",
        has_values=False,
    ),
    EffectKind.CLASSES: Words(
        line="the device class is edited in place; running pods keep their devices",
        of=Of.NEW,
        verdict="Device classes are edited in place, for new claims.",
        also="device classes are edited",
    ),
    EffectKind.INTERVAL: Words(
        line="new pods do not start on a GPU until those with the former interval have ended there; running pods keep it",
        of=Of.NEW,
        verdict="New pods do not start on a GPU until the pods with its former interval have ended there.",
        headline="new pods may wait for running ones to end",
        also="new pods may wait for running ones to end",
    ),
    EffectKind.AMD_REINSTALLED: Words(
        line="AMD's programs leave every node with AMD's GPUs, which offers none until a device plugin runs there again; "
        "running pods go on; uninstall the former release",
        of=Of.NEW,
        verdict="Nodes with AMD's GPUs offer none until a device plugin runs there again.",
        headline="new pods find none of AMD's GPUs",
        also="AMD's former release must be uninstalled",
    ),
    EffectKind.WITHDRAWN: Words(
        line="AMD's device plugin leaves these nodes, which offer no GPU until it runs there again; running pods go on",
        of=Of.NEW,
        verdict="AMD's device plugin leaves nodes, which offer no GPU until it runs there again.",
        also="nodes offer none of AMD's GPUs",
        has_values=False,
    ),
    EffectKind.RENAMED: Words(
        line="AMD's operator renames the devices of all nodes of the pool at once, so that a node that waits for its turn "
        "offers what it has, of the former size, under names of the new kind. Instead make a new pool of other nodes, or "
        "keep strategy: single where every node has one mode",
        of=Of.NEW,
        verdict="Nodes that wait for their turn offer devices of the former size under names of the new kind.",
        headline="new pods may get devices of the former size",
        also="nodes that wait offer devices under other names",
    ),
    EffectKind.REFUSED: Words(
        line="pods that were admitted before may be refused from then on; running pods go on",
        of=Of.NEW,
        verdict="New pods that were admitted before may be refused.",
        headline="new pods may be refused",
        also="pods may be refused",
    ),
    EffectKind.UNPLACED: Words(
        line="new pods that select the pool by its former name find no node; running pods go on",
        of=Of.NEW,
        verdict="New pods that select a removed pool find no node.",
        headline="new pods that select a removed pool find no node",
        also="pods that select a removed pool find no node",
    ),
    EffectKind.ROUTED: Words(
        line="new pods that name no pool may be sent to other nodes, or be refused; running pods go on",
        of=Of.NEW,
        verdict="New pods that name no pool may be sent to other nodes.",
        headline="new pods that name no pool may be refused",
        also="new pods may go elsewhere",
    ),
    EffectKind.RESTARTS: Words(
        line="the runtime's pods restart; running pods continue",
        also="the runtime's pods restart",
    ),
    EffectKind.UPSTREAM: Words(
        line="NVIDIA's components that read it restart on every node",
        of=Of.LATER,
        verdict="NVIDIA's components restart on every node.",
        also="NVIDIA's components restart",
    ),
    EffectKind.AMD_UPSTREAM: Words(
        line="AMD's programs that read it restart on all their nodes at once; running pods go on",
        of=Of.LATER,
        verdict="AMD's programs restart on their nodes.",
        also="AMD's programs restart",
    ),
    EffectKind.DRA_UPSTREAM: Words(
        line="the DRA driver restarts node by node; running pods go on, starting and ending ones wait for it",
        of=Of.LATER,
        verdict="The DRA driver restarts node by node.",
        also="the DRA driver restarts",
    ),
    EffectKind.APPLIED: Words(
        line="no tool syncs it: apply it again by hand",
        of=Of.NEW,
        verdict="Files that no GitOps tool syncs must be applied again.",
        also="files must be applied by hand",
        has_values=False,
    ),
    EffectKind.UNINSTALLED: Words(
        line="the bundle no longer has this chart: uninstall its release after this change",
        of=Of.NEW,
        verdict="The release of a chart that the bundle no longer has must be uninstalled afterwards.",
        also="a release must be uninstalled afterwards",
    ),
    EffectKind.KEEPS_CAP: Words(
        line="running containers keep their old cap; new ones get the new cap",
    ),
    EffectKind.FIRST_CAP: Words(
        line="containers that run already are only warned, later ones are held to it",
    ),
    EffectKind.ADMITTED: Words(
        line="no pod is refused that was admitted before",
    ),
    EffectKind.ROLLOUT: Words(
        line="the pace of later changes",
    ),
}

_SIZES = {"capMiB": "memory cap", "toleranceMiB": "tolerance"}
"""Fields of a policy that are sizes in MiB, and what they are."""

_OBSERVED = "every node keeps its layout and labels; nothing repairs it or enforces a cap"
_FOREIGN_USE = "running containers of tenants may be killed where they use a GPU that is not allocated to them"


def format_effect(one: Effect, arrow: str) -> str:
    """Return what happens, and to what."""
    said = EFFECTS[one.kind]
    if one.kind is EffectKind.RESTARTS and one.subject == "policy":
        return "the runtime's pods of the pool restart and check the layout; running pods continue"
    if one.kind is EffectKind.ADOPTED and one.after == "observe":
        return f"{one.subject} {before_and_after(one, arrow)}: {_OBSERVED}"
    if not said.has_values or (one.kind is EffectKind.AMD_UPSTREAM and one.pool is not None):
        return f"{one.subject}: {said.line}"
    if one.kind is EffectKind.UNINSTALLED:
        return f"{one.before}: {said.line}"
    if one.kind is EffectKind.RELEASED:
        return f"{before_and_after(one, arrow)}: {_released(one.subject)}"
    if one.kind is EffectKind.BEGINS:
        when = "at once" if one.after is None else f"when the next window opens, {one.after}"
        return f"changes that nodes still hold back may begin {when}; see gpushare status or plan --live"
    if one.kind is EffectKind.HANDED_OVER:
        return f"{one.subject} {arrow} {one.after or 'no tool'}: {_handed_over(TOOLS[one.subject])}"
    what = _FOREIGN_USE if one.kind is EffectKind.ENDED and one.pool is None else said.line
    return f"{_changed(one, arrow)}: {what}"


def _released(key: str) -> str:
    tool = TOOLS[key]
    return (
        f"{tool.title} deletes these {tool.installs}s and releases every node: pods lose their GPUs. Keep the former name with "
        f"gitops.{key}.name; or first {tool.detach}, then apply {join_words(tool.named)}"
    )


def _handed_over(tool: ToolFacts) -> str:
    return (
        f"{tool.title}'s {tool.objects} stay and keep syncing. First {tool.detach}; deleting them otherwise releases every node"
    )


def _changed(one: Effect, arrow: str) -> str:
    """Return the subject with its value before and after; a size of a share in words, with its unit."""
    share, _, field = one.subject.rpartition(" ")
    if field not in _SIZES:
        return f"{one.subject} {before_and_after(one, arrow)}"
    before, after = ("none" if size is None else str(size) for size in (one.before, one.after))
    if one.after is None:
        return f"{share} {_SIZES[field]} {before} MiB {arrow} none"
    return f"{share} {_SIZES[field]} {before} {arrow} {after} MiB"
