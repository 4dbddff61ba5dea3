"""`gpushare compile --fleet`: every cluster of a file in one run, each compiled by a process of its own.

A process of its own keeps what goes wrong in one cluster, even a lack of memory, from the others, and `compile` already writes
either a whole bundle or nothing.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpushare.cli import report, streams
from gpushare.cli.exits import ExitCode
from gpushare.cli.report import Format
from gpushare.core import emit
from gpushare.core.diagnostics import Finding
from gpushare.core.printable import visible
from gpushare.core.record import Record
from gpushare.core.wording import counted
from gpushare.reading import schema, source
from gpushare.reading.source import Source

_WORST = (ExitCode.DONE, ExitCode.CHANGES, ExitCode.FINDINGS, ExitCode.COULD_NOT_RUN)
"""From the best on; any other code is worse than these."""


_MESSAGES = ("gpushare:", "Error:")
"""What a line begins with that says why a compile could not run; before click's own are lines on the usage."""


class _Cluster(Record):
    """One cluster of the file. Paths are relative to the working directory or absolute, and never look like options."""

    name: str
    intent: str
    overlays: tuple[str, ...]
    output: str


class _Done(Record):
    """What the compile of a cluster returned: its exit code and its two outputs."""

    cluster: _Cluster
    code: int
    out: str
    err: str


def compile_fleet(file: str, *, check: bool, jobs: int | None, style: str | None, strict: bool) -> ExitCode:
    """Compile every cluster that the file lists, write what became of each, and return the worst exit code."""
    data, name = streams.read(file, source.MAX_BYTES)
    document = source.read(data, name)
    form = report.chosen(style)
    findings = _findings(document, _folder(file))
    if findings:
        as_product = form in (Format.JSON, Format.SARIF)
        report.report([document.locate(finding) for finding in findings], document, form, as_product=as_product)
        return ExitCode.FINDINGS
    clusters = _clusters(document.data, _folder(file))
    options = [*(["--check"] if check else []), *(["--strict"] if strict else []), "--format", form.value]
    done = _run(clusters, options, jobs or _processors())
    worst = max((one.code for one in done), key=_badness)
    if form is Format.JSON:
        streams.product(emit.json_text(_document(done, worst, check=check)))
    elif form is Format.SARIF:
        streams.product(emit.json_text(_sarif(done)))
        _tell_failures(done)
    else:
        streams.tell("".join(one.err for one in done if one.err))
        streams.say("".join(_lines(done, check=check)))
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


def _clusters(document: Any, folder: Path) -> list[_Cluster]:
    def path(written: str) -> str:
        joined = str(folder / written)
        return f"./{joined}" if joined.startswith("-") else joined  # `-` is standard input, `--x` an option

    return [
        _Cluster(
            name=name,
            intent=path(cluster["intent"]),
            overlays=tuple(map(path, cluster.get("overlays", ()))),
            output=path(cluster["output"]),
        )
        for name, cluster in document["clusters"].items()
    ]


def _run(clusters: Sequence[_Cluster], options: Sequence[str], jobs: int) -> list[_Done]:
    """Return what became of every cluster, in their order; at most `jobs` are compiled at a time."""

    def compile_one(cluster: _Cluster) -> _Done:
        over = [word for overlay in cluster.overlays for word in ("--overlay", overlay)]
        # -P: a file of the user's that is called like a module of ours is not imported.
        command = [sys.executable, "-P", "-m", "gpushare", "compile", cluster.intent, *over, "-o", cluster.output, *options]
        try:
            made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 - our own
        except OSError as problem:  # no memory or no process is left
            err = f"gpushare: cannot start the compile of {cluster.name}: {problem.strerror}\n"
            return _Done(cluster=cluster, code=ExitCode.COULD_NOT_RUN, out="", err=err)
        out, err = made.stdout.decode(errors="replace"), made.stderr.decode(errors="replace")
        if made.returncode < 0:
            err += f"gpushare: signal {-made.returncode} ended the compile of {cluster.name}\n"
        return _Done(cluster=cluster, code=made.returncode, out=out, err=err)

    done = []
    with ThreadPoolExecutor(jobs) as threads:
        for one in threads.map(compile_one, clusters):
            done.append(one)
            streams.progress(f"{len(done)} of {counted(len(clusters), 'cluster')}")
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


def _lines(done: Sequence[_Done], *, check: bool) -> Iterator[str]:
    """Yield a line for every cluster, below a stale one its files, and at the end how many there are of each outcome."""
    width = max(len(one.cluster.name) for one in done)
    outcomes = [_outcome(one.code, check=check) for one in done]
    for one, outcome in zip(done, outcomes, strict=True):
        told = (one.out or one.err).strip().splitlines() if one.code != ExitCode.FINDINGS else one.err.strip().splitlines()[-1:]
        said = [line for line in told if line.startswith(_MESSAGES)] if one.code == ExitCode.COULD_NOT_RUN else []
        lines = told if one.code == ExitCode.CHANGES else (said or told)[:1]
        yield f"{one.cluster.name:<{width}}  {outcome:<13}  {visible(lines[0]) if lines else ''}".rstrip() + "\n"
        yield from (f"{visible(line)}\n" for line in lines[1:])
    kinds = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in dict.fromkeys(sorted(outcomes)))
    yield f"{counted(len(done), 'cluster')}: {kinds}\n"


def _tell_failures(done: Sequence[_Done]) -> None:
    streams.tell("".join(one.err for one in done if one.code not in (ExitCode.DONE, ExitCode.FINDINGS)))


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # nothing, or a text that was cut when the process was ended
        return None


def _document(done: Sequence[_Done], worst: int, *, check: bool) -> dict[str, Any]:
    clusters = [
        {
            "name": one.cluster.name,
            "output": one.cluster.output,
            "outcome": _outcome(one.code, check=check),
            "exitCode": one.code,
            "findings": _read_json(one.out),
            "message": one.err.strip(),
        }
        for one in done
    ]
    return {"apiVersion": "gpushare.dev/v1", "kind": "FleetResult", "clusters": clusters,
            "exitCode": worst if worst in set(ExitCode) else int(ExitCode.BUG)}


def _sarif(done: Sequence[_Done]) -> dict[str, Any]:
    """Return one log with a run for every cluster whose intent could be read."""
    from gpushare.cli.formats import SARIF_SCHEMA  # noqa: PLC0415 - only for SARIF

    logs = [(one.cluster.name, _read_json(one.out)) for one in done]
    runs = [run | {"automationDetails": {"id": f"gpushare/{name}"}} for name, log in logs if log for run in log["runs"]]
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": runs}
