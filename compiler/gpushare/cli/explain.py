"""`gpushare explain`: what a finding's code or a condition's reason means, and why a node or a pod is not ready."""

import sys
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from gpushare.cli import options, streams
from gpushare.cli.cluster import ClusterConnection, cluster_options, connected, warn_unread
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.core import resources
from gpushare.core.units import is_dns_subdomain
from gpushare.core.wording import visible
from gpushare.report import terminal
from gpushare.report.terminal import BOLD, CYAN, Style, wrapped
from gpushare_node.contract.reasons import REASONS

if TYPE_CHECKING:
    from gpushare.cluster.live.diagnosis import Diagnosis


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    codes = (code for code in resources.finding_codes() if code.startswith(incomplete.upper()))
    return [CompletionItem(code, help=resources.finding_text(code).title) for code in codes]


@click.command(cls=options.Command)
@click.argument("what", required=False, shell_complete=_complete, metavar="[CODE|REASON|NODE|POD]")
@cluster_options
def command(*, what: str | None, cluster: ClusterConnection) -> ExitCode:
    """Explain a finding's CODE, a REASON of a node's condition, a NODE or a POD.

    A code or a reason needs no cluster; without an argument all codes are
    listed. A node or a pod is looked up in the running cluster: why it is not
    ready, waits, was refused or was killed, and what to do. A name is a node's,
    or else a pod's in the namespace of -n or of the context; claim/NAME is a
    ResourceClaim there.

    For example:
      gpushare explain GS402
      gpushare explain GPUBusy
      gpushare explain gpu-a100-01
      gpushare explain physics/train-0          also: pod/train-0 -n physics
      gpushare explain claim/train-0-gpu-x7k2p -n physics

    Exit codes:
      0  done
      2  there is no such code, reason, node or pod, or no cluster can be reached
    """
    style = terminal.detect_style(sys.stdout)
    if what is None:
        texts = [resources.finding_text(each) for each in resources.finding_codes()]
        rows = [(text.code, text.severity, text.title) for text in texts]
        streams.page(terminal.table(("CODE", "SEVERITY", "WHAT IS WRONG"), rows, style))
    elif what.upper() in resources.finding_codes():
        streams.page(_rendered(resources.finding_text(what.upper()).markdown, style))
    else:
        streams.page(_reason(what, style) or _object(what, cluster, style))
    return ExitCode.DONE


def _reason(word: str, style: Style) -> str:
    """Return the text on a condition's reason, empty if there is none of that name."""
    name = {known.lower(): known for known in REASONS}.get(word.lower())
    if name is None:
        return ""
    reason = REASONS[name]
    state = "True" if reason.is_ready else "False"
    shown = style.paint(f"{name}: GPUShareReady is {state}", BOLD) + "\n"
    return shown + "\n" + wrapped(reason.means, style) + "\n" + wrapped(f"What to do: {reason.remedy}", style, indent=2)


def _object(what: str, cluster: ClusterConnection, style: Style) -> str:
    """Return the diagnosis of a node or a pod. CouldNotRunError if there is none of that name."""
    kind, _, name = what.rpartition("/")
    is_code = len(what) == 5 and what[:2].upper() == "GS"
    if is_code or not is_dns_subdomain(name) or (kind and not is_dns_subdomain(kind)):
        raise _unknown(what)
    from gpushare.cluster.live import diagnosis, reader  # noqa: PLC0415 - codes and reasons need no cluster: 45 modules for nothing

    with connected(cluster) as server:
        namespace = kind if kind not in ("", "node", "pod", "claim") else cluster.namespace or server.namespace
        about = ("", name) if kind == "node" else (namespace, name)
        snapshot = reader.read(server, reader.Scope(release=cluster.release, about=about))
    warn_unread(snapshot.unseen)
    found = diagnosis.of_node(snapshot, name) if kind in {"", "node"} else None
    if found is None and kind != "node":
        of_kind = diagnosis.of_claim if kind == "claim" else diagnosis.of_pod
        found = of_kind(snapshot, namespace, name)
    if found is None:
        raise _unknown(what, namespace)
    return _render(found, style)


def _unknown(what: str, namespace: str = "") -> CouldNotRunError:
    if namespace:
        return CouldNotRunError(
            f"no node is named {what!r}, and no pod in namespace {namespace} that can be seen",
            "write NAMESPACE/POD for a pod of another namespace",
        )
    hint = options.did_you_mean(what.upper(), resources.finding_codes()) or options.did_you_mean(what, tuple(REASONS))
    return CouldNotRunError(
        f"no finding has the code {what!r}, no condition that reason", hint or "`gpushare explain` lists all codes"
    )


def _render(found: "Diagnosis", style: Style) -> str:
    shown = wrapped(f"{style.paint(found.subject, BOLD)}: {', '.join(found.facts)}", style, indent=2)
    if not found.causes:
        return shown + "\nNo problems found.\n"
    for cause in found.causes:
        shown += "\n" + wrapped(f"- {cause.what}", style, indent=2)
        shown += wrapped(f"  What to do: {cause.remedy}", style, indent=4) if cause.remedy else ""
    return shown


def _rendered(markdown: str, style: Style) -> str:
    """Return Markdown for a terminal: headings are highlighted, examples indented, paragraphs fitted to its width."""
    shown: list[str] = []
    fenced = False
    for line in map(visible, markdown.splitlines()):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced:
            shown.append(f"    {style.paint(line, CYAN)}".rstrip())
        elif line.startswith("#"):
            shown.append(style.paint(line.lstrip("#").strip(), BOLD))
        else:
            shown.append(terminal.wrapped(line, style).rstrip("\n"))
    return "\n".join(shown).strip() + "\n"
