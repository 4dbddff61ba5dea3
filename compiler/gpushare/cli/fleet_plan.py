"""`gpushare plan --fleet`: what the next compile of a fleet changes on each cluster, in a line each."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpushare.bundle import lock
from gpushare.cli import fleet, streams
from gpushare.cli.exits import ExitCode
from gpushare.cli.fleet import Done
from gpushare.cli.fleet_cluster import Cluster
from gpushare.cli.report import Format
from gpushare.core import emit
from gpushare.core.printable import visible
from gpushare.report.comparison_markdown import code

_OUTCOMES = {
    ExitCode.DONE: "unchanged",
    ExitCode.CHANGES: "changes",
    ExitCode.FINDINGS: "findings",
    ExitCode.COULD_NOT_RUN: "could-not-run",
}
_NEW = "new"


def plan_fleet(file: str, *, jobs: int | None, style: str, exit_code: bool, strict: bool) -> ExitCode:
    """Compare the intent of every cluster that the file lists with its bundle; a cluster without one is new.

    Returns the worst exit code, as `compile --fleet`; changes count only with `exit_code`.
    """
    clusters = fleet.read(file, Format.JSON if style == "json" else Format.TEXT)
    if clusters is None:
        return ExitCode.FINDINGS
    strictly = ["--strict"] if strict else []

    def words(one: Cluster) -> list[str]:
        if _is_new(one):
            return ["check", one.intent, *one.over, *strictly]
        form = "markdown" if style == "markdown" else "json"
        return ["plan", one.output, one.intent, *one.over, *strictly, "--format", form, "--exit-code"]

    done = fleet.run(clusters, words, jobs)
    worst = fleet.worst_of(done)
    if worst is ExitCode.DONE and any(_outcome(one) == _NEW for one in done):
        worst = ExitCode.CHANGES
    if worst is ExitCode.CHANGES and not exit_code:
        worst = ExitCode.DONE
    if style == "json":
        streams.product(emit.json_text(_document(done, worst)))
    elif style == "markdown":
        streams.warn("".join(one.err for one in done))
        streams.product(_page(done))
    else:
        streams.warn("".join(one.err for one in done))
        streams.page("".join(_lines(done)))
    return worst


def _is_new(cluster: Cluster) -> bool:
    return not Path(cluster.output, lock.FILE).is_file() and not Path(cluster.output, "nodes").is_dir()


def _outcome(one: Done) -> str:
    if one.code == ExitCode.DONE and _is_new(one.cluster):
        return _NEW
    return _OUTCOMES.get(ExitCode(one.code), "bug") if one.code in set(ExitCode) else "bug"


def _plan(one: Done) -> Any:
    return None if _outcome(one) == _NEW else fleet.read_json(one.out)


def _lines(done: Sequence[Done]) -> Iterator[str]:
    """Yield a line for every cluster, and at the end how many there are of each outcome."""
    width = max(len(one.cluster.name) for one in done)
    outcomes = [_outcome(one) for one in done]
    for one, outcome in zip(done, outcomes, strict=True):
        plan = _plan(one)
        text = plan["summary"] if plan else "" if outcome == _NEW else fleet.problem(one)
        yield fleet.line(one, outcome, text, width)
    yield fleet.total(outcomes)


def _page(done: Sequence[Done]) -> str:
    """Return a table with a row for every cluster, and below it the page of each that changes, folded."""
    rows, folds = [], []
    for one in done:
        name, outcome = code(one.cluster.name), _outcome(one)
        text = ""
        if outcome == "changes":
            text = one.out.partition("\n")[0].strip("*").replace("|", "\\|")
            folds += ["", f"<details><summary>{one.cluster.name}</summary>", "", one.out.rstrip(), "", "</details>"]
        elif outcome not in (_NEW, "unchanged"):
            text = code(visible(fleet.problem(one)))
        rows.append(f"| {name} | {outcome} | {text} |")
    return "\n".join(["| cluster | outcome | |", "|---|---|---|", *rows, *folds]) + "\n"


def _document(done: Sequence[Done], worst: ExitCode) -> dict[str, Any]:
    clusters = [
        {
            "name": one.cluster.name,
            "output": one.cluster.output,
            "outcome": _outcome(one),
            "exitCode": one.code,
            "plan": _plan(one),
            "message": one.err.strip(),
        }
        for one in done
    ]
    return {"apiVersion": "gpushare.dev/v1", "kind": "FleetPlan", "clusters": clusters, "exitCode": worst}
