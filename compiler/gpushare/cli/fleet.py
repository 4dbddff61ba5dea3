"""A fleet: a command runs for every cluster of a file, one after another, and none stops or spoils another."""

import io
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from gpushare.cli import report, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode, FindingsError
from gpushare.cli.report import FindingFormat
from gpushare.core.diagnostics import Finding
from gpushare.core.wording import pluralize, visible
from gpushare.intent.gitops import TOOLS
from gpushare.reading import overlay, schema, source
from gpushare_node.contract.struct import Struct, replace

_WORST = (ExitCode.DONE, ExitCode.CHANGES, ExitCode.FINDINGS, ExitCode.COULD_NOT_RUN, ExitCode.BUG)
"""From the best on."""
_FAILED = {ExitCode.FINDINGS: "findings", ExitCode.COULD_NOT_RUN: "could-not-run", ExitCode.BUG: "bug"}


class FleetCluster(Struct):
    """One cluster of the file. Paths are relative to the working directory or absolute, and never look like options."""

    name: str
    intent: str
    overlays: tuple[str, ...]
    output: str


class Done(Struct):
    """What became of a cluster: the exit code, the outcome in a word, and what to say in lines.

    `result` is the command's own, None where it failed; `message` what it said on stderr.
    """

    cluster: FleetCluster
    code: ExitCode
    outcome: str
    text: str
    result: Any = None
    message: str = ""


def run(file: str, form: FindingFormat, make: Callable[[FleetCluster], Done]) -> list[Done]:
    """Return what became of every cluster that the file lists. Raises FindingsError if the file has findings."""
    done: list[Done] = []
    clusters = _read(file, form)
    for cluster in clusters:
        said = io.TextIOWrapper(io.BytesIO(), "utf-8")
        with redirect_stderr(said):
            try:
                one = make(cluster)
            except FindingsError as found:
                one = Done(cluster=cluster, code=found.code, outcome=_FAILED[found.code], text=found.summary)
            except Exception as problem:
                failed = streams.failure(problem)
                one = Done(cluster=cluster, code=failed.code, outcome=_FAILED[failed.code], text=failed.line)
                streams.warn(failed.text)
        done.append(replace(one, message=said.buffer.getvalue().decode()))
        streams.progress(f"{len(done)} of {pluralize(len(clusters), 'cluster')}")
    streams.progress("")
    return done


def worst(done: list[Done]) -> ExitCode:
    """Return the exit code of the whole run."""
    return max((one.code for one in done), key=_WORST.index)


def lines(done: list[Done]) -> str:
    """Return a line for every cluster, below a stale one its files, and at the end how many there are of each outcome."""
    width = max(len(one.cluster.name) for one in done)
    shown = []
    for one in done:
        first, *more = one.text.strip().splitlines() or [""]
        shown.append(f"{one.cluster.name:<{width}}  {one.outcome:<13}  {visible(first)}".rstrip())
        shown += map(visible, more if one.code is ExitCode.CHANGES else ())
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(Counter(one.outcome for one in done).items()))
    return "\n".join([*shown, f"{pluralize(len(done), 'cluster')}: {kinds}"]) + "\n"


def document(kind: str, key: str, done: list[Done], document_of: Callable[[Any], object], code: ExitCode) -> dict[str, Any]:
    """Return the document of a whole run. Each cluster has the document of its result as `key`."""
    clusters = [
        {
            "name": one.cluster.name,
            "output": one.cluster.output,
            "outcome": one.outcome,
            "exitCode": one.code,
            key: None if one.result is None else document_of(one.result),
            "message": one.message.strip(),
        }
        for one in done
    ]
    return {"apiVersion": "gpushare.dev/v1", "kind": kind, "clusters": clusters, "exitCode": code}


def _read(file: str, form: FindingFormat) -> list[FleetCluster]:
    absent = "list the clusters in it: clusters: {north: {intent: base.yaml, output: clusters/north/bundle}}"
    text = source.read(*streams.read(file, source.MAX_BYTES, absent))
    findings = list(text.findings or schema.violations(text.data, "fleet.v1", ()))
    folder = Path() if file == "-" else Path(file).parent
    clusters = [] if findings else [_cluster(folder, *entry) for entry in text.data["clusters"].items()]
    findings = findings or list(_shared_folders(clusters)) or list(_shared_targets(clusters))
    if findings:
        as_product = form in (FindingFormat.JSON, FindingFormat.SARIF)
        report.report([text.locate(finding) for finding in findings], text, form, as_product=as_product)
        raise FindingsError(ExitCode.FINDINGS)
    return clusters


def _cluster(folder: Path, name: str, written: dict[str, Any]) -> FleetCluster:
    def path(text: str) -> str:
        joined = str(folder / text)
        return f"./{joined}" if joined.startswith("-") else joined  # `-` is standard input, `--x` an option

    overlays = tuple(map(path, written.get("overlays", ())))
    return FleetCluster(name=name, intent=path(written["intent"]), overlays=overlays, output=path(written["output"]))


def _clash(cluster: FleetCluster, message: str, wanted: str, *field: str) -> Finding:
    path = ("clusters", cluster.name, *field)
    return Finding(code="GS740", message=message, path=path, on_key=not field, hints=(f"give each cluster {wanted}",))


def _shared_folders(clusters: list[FleetCluster]) -> Iterator[Finding]:
    """Yield each cluster whose bundle is to be in the folder of another one, or inside it."""
    wanted = "a folder of its own"
    own: dict[Path, FleetCluster] = {}
    for one in clusters:
        owner = own.setdefault(Path(os.path.realpath(one.output)), one)
        if owner is not one:
            yield _clash(one, f"the cluster {owner.name} has the same folder", wanted, "output")
    for output, one in own.items():
        if around := next((own[above] for above in output.parents if above in own), None):
            yield _clash(one, f"the folder is inside that of the cluster {around.name}", wanted, "output")


def _shared_targets(clusters: list[FleetCluster]) -> Iterator[Finding]:
    """Yield each cluster that a GitOps tool syncs from the folder, by the Applications or onto the server of one before it.

    Warns of an output that is not the folder that is synced.
    """
    taken: dict[tuple[str, ...], FleetCluster] = {}
    misplaced = []
    for one in clusters:
        for tool, path, targets in _targets(one):
            parts, synced = _parts(one.output), _parts(path)
            if parts[-len(synced) :] != synced:
                misplaced.append(f"{tool} syncs {one.name} from {path}, but its bundle is written into {one.output}")
            owners = [(taken.setdefault(target, one), message) for target, message in targets.items()]
            for owner, message in [pair for pair in owners if pair[0] is not one][:1]:
                yield _clash(one, f"{message} {owner.name}", "a name and a gitops path of its own, in its overlay")
    for warning in misplaced:
        streams.warn(f"gpushare: warning: {visible(warning)}\n" + streams.hint("write one of the two into the other"))


def _targets(cluster: FleetCluster) -> Iterator[tuple[str, str, dict[tuple[str, ...], str]]]:
    """Yield each tool that syncs a cluster, from which folder, and what no other may have, with the message if one does.

    Reads the intent alone. What cannot be read has none: the cluster's own compile reports it.
    """
    try:
        parts = [source.read(*streams.read(name, source.MAX_BYTES)) for name in (cluster.intent, *cluster.overlays)]
    except CouldNotRunError:
        return
    match overlay.merge(parts).data:
        case {"metadata": {"name": str(name)}, "spec": {"gitops": dict(tools)}}:
            pass
        case _:
            return
    for key, tool in TOOLS.items():
        if not isinstance(given := tools.get(key), dict):
            continue
        settings = {**tool.defaults, **given}
        path, server, title = str(settings.get("path")), settings.get("server"), tool.title
        folder = (title, str(settings.get(tool.repository)), str(settings[tool.revision]), *_parts(path))
        targets = {folder: f"{title} would sync it from {path}, which is the folder of the cluster"}
        if server != tool.defaults.get("server"):  # one tool for several clusters
            application, server = f"{settings['namespace']}/{given.get('name') or f'{name}-gpus'}", str(server).rstrip("/")
            targets |= {
                ("name", application): f"its Applications in {title} would have the names of those of the cluster",
                ("server", server): f"{title} would install it on the server {server}, which is that of the cluster",
            }
        yield title, path, targets


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))
