"""`gpushare compile --fleet`, and what `plan --fleet` shares with it: every cluster of a file, each in a process of its own.

A process of its own keeps what goes wrong in one cluster, even a lack of memory, from the others.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpushare.cli import fleet_gitops, report, streams
from gpushare.cli.exits import ExitCode
from gpushare.cli.fleet_cluster import Cluster
from gpushare.cli.report import Format
from gpushare.core import emit
from gpushare.core.diagnostics import Finding
from gpushare.core.printable import visible
from gpushare.core.wording import pluralize
from gpushare.reading import schema, source
from gpushare.reading.source import Source
from gpushare_node.contract.struct import Struct

_WORST = (ExitCode.DONE, ExitCode.CHANGES, ExitCode.FINDINGS, ExitCode.COULD_NOT_RUN)
"""From the best on; any other code is worse than these."""


_MESSAGES = ("gpushare:", "Error:")
"""What a line begins with that says why a compile could not run; before click's own are lines on the usage."""


class Done(Struct):
    """What the process of a cluster returned: its exit code and its two outputs."""

    cluster: Cluster
    code: int
    out: str
    err: str


def compile_fleet(file: str, *, check: bool, jobs: int | None, style: str | None, strict: bool) -> ExitCode:
    """Compile every cluster that the file lists, write what became of each, and return the worst exit code."""
    form = report.chosen(style)
    clusters = read(file, form)
    if clusters is None:
        return ExitCode.FINDINGS
    options = [*(["--check"] if check else []), *(["--strict"] if strict else []), "--format", form.value]
    done = run(clusters, lambda one: ["compile", one.intent, *one.over, "-o", one.output, *options], jobs)
    worst = worst_of(done)
    if form is Format.JSON:
        streams.product(emit.json_text(_document(done, worst, check=check)))
    elif form is Format.SARIF:
        streams.product(emit.json_text(_sarif(done)))
        _tell_failures(done)
    else:
        streams.warn("".join(one.err for one in done if one.err))
        streams.write("".join(_lines(done, check=check)))
    return worst


def read(file: str, form: Format) -> list[Cluster] | None:
    """Return the clusters that the file lists; None if it has findings, which are reported."""
    absent = "list the clusters in it: clusters: {north: {intent: base.yaml, output: clusters/north/bundle}}"
    data, name = streams.read(file, source.MAX_BYTES, absent)
    document = source.read(data, name)
    findings = _findings(document, _folder(file))
    if not findings:
        clusters = _clusters(document.data, _folder(file))
        every = fleet_gitops.synced(clusters)
        findings = [_synced(*clash) for clash in fleet_gitops.clashes(every)]
        for warning in fleet_gitops.misplaced(every):
            streams.warn(f"gpushare: warning: {visible(warning)}\n" + streams.hint("write one of the two into the other"))
        if not findings:
            return clusters
    as_product = form in (Format.JSON, Format.SARIF)
    report.report([document.locate(finding) for finding in findings], document, form, as_product=as_product)
    return None


def worst_of(done: Sequence[Done]) -> ExitCode:
    """Return the exit code of the whole run."""
    worst = max((one.code for one in done), key=_badness)
    return ExitCode(worst) if worst in set(ExitCode) else ExitCode.BUG


def _processors() -> int:
    """Return how many processors this process may use; where the system does not say (macOS), how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _badness(code: int) -> int:
    return _WORST.index(ExitCode(code)) if code in _WORST else len(_WORST)


def _folder(file: str) -> Path:
    return Path() if file == "-" else Path(file).parent


def _findings(document: Source, folder: Path) -> list[Finding]:
    """Return what is wrong with the file: its text, its shape, or folders that clusters share."""
    if document.findings:
        return list(document.findings)
    wrong = schema.violations(document.data, "fleet.v1", ())
    return wrong or list(_shared_folders(document.data, folder))


def _shared_folders(document: Any, folder: Path) -> Iterator[Finding]:
    taken: dict[Path, str] = {}
    for name, cluster in document["clusters"].items():
        output = Path(os.path.realpath(folder / cluster["output"]))
        owner = taken.setdefault(output, name)
        if owner != name:
            yield _shared(name, f"the cluster {owner} has the same folder")
    for output, name in taken.items():
        around = next((taken[above] for above in output.parents if above in taken), None)
        if around is not None:
            yield _shared(name, f"the folder is inside that of the cluster {around}")


def _shared(name: str, message: str) -> Finding:
    hints = ("give each cluster a folder of its own",)
    return Finding(code="GS740", message=message, path=("clusters", name, "output"), hints=hints)


def _synced(name: str, message: str) -> Finding:
    hints = ("give each cluster a name and a gitops path of its own, in its overlay",)
    return Finding(code="GS740", message=message, path=("clusters", name), on_key=True, hints=hints)


def _clusters(document: Any, folder: Path) -> list[Cluster]:
    def path(written: str) -> str:
        joined = str(folder / written)
        return f"./{joined}" if joined.startswith("-") else joined  # `-` is standard input, `--x` an option

    return [
        Cluster(
            name=name,
            intent=path(cluster["intent"]),
            overlays=tuple(map(path, cluster.get("overlays", ()))),
            output=path(cluster["output"]),
        )
        for name, cluster in document["clusters"].items()
    ]


def run(clusters: Sequence[Cluster], words: Callable[[Cluster], Sequence[str]], jobs: int | None) -> list[Done]:
    """Run a command of gpushare for every cluster, at most `jobs` at a time, and return what became of each, in their order."""

    def run_one(cluster: Cluster) -> Done:
        # -P: a file of the user's that is called like a module of ours is not imported.
        command = [sys.executable, "-P", "-m", "gpushare", *words(cluster)]
        try:
            made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 - our own
        except OSError as problem:  # no memory or no process is left
            err = f"gpushare: cannot start the {command[4]} of {cluster.name}: {problem.strerror}\n"
            return Done(cluster=cluster, code=ExitCode.COULD_NOT_RUN, out="", err=err)
        out, err = made.stdout.decode(errors="replace"), made.stderr.decode(errors="replace")
        if made.returncode < 0:
            err += f"gpushare: signal {-made.returncode} killed the {command[4]} of {cluster.name}\n"
        return Done(cluster=cluster, code=made.returncode, out=out, err=err)

    done = []
    with ThreadPoolExecutor(jobs or _processors()) as threads:
        for one in threads.map(run_one, clusters):
            done.append(one)
            streams.progress(f"{len(done)} of {pluralize(len(clusters), 'cluster')}")
    streams.progress("")
    return done


def _outcome(code: int, *, check: bool) -> str:
    words = {
        ExitCode.DONE: "current" if check else "compiled",
        ExitCode.CHANGES: "stale",
        ExitCode.FINDINGS: "findings",
        ExitCode.COULD_NOT_RUN: "could-not-run",
    }
    return words.get(ExitCode(code), "bug") if code in set(ExitCode) else "bug"


def _lines(done: Sequence[Done], *, check: bool) -> Iterator[str]:
    """Yield a line for every cluster, below a stale one its files, and at the end how many there are of each outcome."""
    width = max(len(one.cluster.name) for one in done)
    outcomes = [_outcome(one.code, check=check) for one in done]
    for one, outcome in zip(done, outcomes, strict=True):
        lines = one.out.strip().splitlines() if one.code in (ExitCode.DONE, ExitCode.CHANGES) else [problem(one)]
        yield line(one, outcome, (lines or [""])[0], width)
        yield from (f"{visible(more)}\n" for more in (lines[1:] if one.code == ExitCode.CHANGES else ()))
    yield total(outcomes)


def line(one: Done, outcome: str, text: str, width: int) -> str:
    """Return the line of a cluster, whose name has at most `width` characters."""
    return f"{one.cluster.name:<{width}}  {outcome:<13}  {visible(text)}".rstrip() + "\n"


def total(outcomes: Sequence[str]) -> str:
    """Return the last line: how many clusters have each outcome."""
    kinds = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in dict.fromkeys(sorted(outcomes)))
    return f"{pluralize(len(outcomes), 'cluster')}: {kinds}\n"


def problem(one: Done) -> str:
    """Return the line of its output that says why a cluster failed; empty if there is none.

    GitHub's form of findings has no last line that counts them: it is made here.
    """
    lines = one.err.strip().splitlines()
    if one.code == ExitCode.FINDINGS:
        kinds = [(sum(line.startswith(f"::{kind} ") for line in lines), kind) for kind in ("error", "warning")]
        return ", ".join(pluralize(number, kind) for number, kind in kinds if number) or (lines[-1] if lines else "")
    messages = [line for line in lines if line.startswith(_MESSAGES)]
    return next(iter(messages or lines), "")


def _tell_failures(done: Sequence[Done]) -> None:
    streams.warn("".join(one.err for one in done if one.code not in (ExitCode.DONE, ExitCode.FINDINGS)))


def read_json(text: str) -> Any:
    """Return the document in an output; None if it is none."""
    try:
        return json.loads(text)
    except ValueError:  # nothing, or a text that was cut when the process was ended
        return None


def _document(done: Sequence[Done], worst: ExitCode, *, check: bool) -> dict[str, Any]:
    clusters = [
        {
            "name": one.cluster.name,
            "output": one.cluster.output,
            "outcome": _outcome(one.code, check=check),
            "exitCode": one.code,
            "findings": read_json(one.out),
            "message": one.err.strip(),
        }
        for one in done
    ]
    return {"apiVersion": "gpushare.dev/v1", "kind": "FleetResult", "clusters": clusters, "exitCode": worst}


def _sarif(done: Sequence[Done]) -> dict[str, Any]:
    """Return a log with one run, as GitHub takes at most 20: every result once, with the clusters that have it.

    A cluster that could not be compiled is a notification of the run.
    """
    from gpushare.report import finding_formats  # noqa: PLC0415 - only for SARIF

    logs = [(one, read_json(one.out)) for one in done]
    runs = [(one.cluster.name, run) for one, log in logs if log for run in log["runs"]]
    rules = {rule["id"]: rule for _, run in runs for rule in run["tool"]["driver"]["rules"]}
    ids = sorted(rules)
    results: dict[str, dict[str, Any]] = {}
    for name, run in runs:
        for result in run["results"]:
            once = results.setdefault(
                json.dumps(result | {"ruleIndex": 0}),
                result
                | {
                    "ruleIndex": ids.index(result["ruleId"]),
                    "properties": {"clusters": []},
                },
            )
            once["properties"]["clusters"].append(name)
    failed = [f"{one.cluster.name}: {problem(one)}" for one, log in logs if not log]
    return finding_formats.sarif_log([rules[code] for code in ids], list(results.values()), failed)
