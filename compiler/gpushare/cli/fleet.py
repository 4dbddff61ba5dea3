"""A fleet: a command runs for every cluster of a file, one after another, and none stops or spoils another."""

import io
import os
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
from gpushare_node.contract.struct import Struct

_WORST = (ExitCode.DONE, ExitCode.CHANGES, ExitCode.FINDINGS, ExitCode.COULD_NOT_RUN, ExitCode.BUG)
"""From the best on."""
_FAILED = {ExitCode.FINDINGS: "findings", ExitCode.COULD_NOT_RUN: "could-not-run", ExitCode.BUG: "bug"}


class FleetCluster(Struct):
    """One cluster of the file. Paths are relative to the working directory or absolute, and never look like options."""

    name: str
    intent: str
    overlays: tuple[str, ...]
    output: str


class Made(Struct):
    """What a command made of a cluster: its exit code, the outcome in a word, what to say in lines, and the result itself."""

    code: ExitCode
    outcome: str
    text: str
    result: Any = None


class Done(Struct):
    """What became of a cluster, and what was said on stderr. Where the command failed, the made has no result."""

    cluster: FleetCluster
    made: Made
    message: str


def run(file: str, form: FindingFormat, make: Callable[[FleetCluster], Made]) -> list[Done]:
    """Return what became of every cluster that the file lists. Raises FindingsError if the file has findings."""
    done: list[Done] = []
    clusters = _read(file, form)
    for cluster in clusters:
        said = io.TextIOWrapper(io.BytesIO(), "utf-8")
        with redirect_stderr(said):
            try:
                made = make(cluster)
            except FindingsError as found:
                made = Made(code=found.code, outcome=_FAILED[found.code], text=found.summary)
            except Exception as problem:
                failed = streams.failure(problem)
                made = Made(code=failed.code, outcome=_FAILED[failed.code], text=failed.line)
                streams.warn(failed.text)
        done.append(Done(cluster=cluster, made=made, message=said.buffer.getvalue().decode()))
        streams.progress(f"{len(done)} of {pluralize(len(clusters), 'cluster')}")
    streams.progress("")
    return done


def worst(done: list[Done]) -> ExitCode:
    """Return the exit code of the whole run."""
    return max((one.made.code for one in done), key=_WORST.index)


def lines(done: list[Done]) -> str:
    """Return a line for every cluster, below a stale one its files, and at the end how many there are of each outcome."""
    width = max(len(one.cluster.name) for one in done)
    outcomes = [one.made.outcome for one in done]
    shown = []
    for one, outcome in zip(done, outcomes, strict=True):
        first, *more = one.made.text.strip().splitlines() or [""]
        shown.append(f"{one.cluster.name:<{width}}  {outcome:<13}  {visible(first)}".rstrip())
        shown += map(visible, more if one.made.code is ExitCode.CHANGES else ())
    kinds = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in sorted(set(outcomes)))
    return "\n".join([*shown, f"{pluralize(len(done), 'cluster')}: {kinds}"]) + "\n"


def document(kind: str, key: str, done: list[Done], results: list[Any], code: ExitCode) -> dict[str, Any]:
    """Return the document of a whole run; `results` are documents of the clusters, which it has as `key`."""
    clusters = [
        {
            "name": one.cluster.name,
            "output": one.cluster.output,
            "outcome": one.made.outcome,
            "exitCode": one.made.code,
            key: result,
            "message": one.message.strip(),
        }
        for one, result in zip(done, results, strict=True)
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


def _shared_folders(clusters: list[FleetCluster]) -> Iterator[Finding]:
    def shared(name: str, message: str) -> Finding:
        hints = ("give each cluster a folder of its own",)
        return Finding(code="GS740", message=message, path=("clusters", name, "output"), hints=hints)

    taken: dict[Path, str] = {}
    for one in clusters:
        owner = taken.setdefault(Path(os.path.realpath(one.output)), one.name)
        if owner != one.name:
            yield shared(one.name, f"the cluster {owner} has the same folder")
    for output, name in taken.items():
        around = next((taken[above] for above in output.parents if above in taken), None)
        if around is not None:
            yield shared(name, f"the folder is inside that of the cluster {around}")


def _shared_targets(clusters: list[FleetCluster]) -> Iterator[Finding]:
    """Yield each cluster that a GitOps tool syncs from the folder, by the Applications or onto the server of one before it.

    Warns of an output that is not the folder that is synced.
    """
    taken: dict[tuple[str, ...], str] = {}
    misplaced = []
    for one in clusters:
        for tool, path, targets in _targets(one):
            parts, wanted = _parts(one.output), _parts(path)
            if parts[-len(wanted) :] != wanted:
                misplaced.append(f"{tool} syncs {one.name} from {path}, but its bundle is written into {one.output}")
            owners = ((taken.setdefault(target, one.name), message) for target, message in targets.items())
            clash = next((f"{message} {owner}" for owner, message in owners if owner != one.name), None)
            if clash:
                hints = ("give each cluster a name and a gitops path of its own, in its overlay",)
                yield Finding(code="GS740", message=clash, path=("clusters", one.name), on_key=True, hints=hints)
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
