"""What came of the suites, in lines for people, and one for programs."""

import json
from collections.abc import Iterable
from pathlib import Path

from tests.runner.running import SLOWEST, Outcome


def lines(name: str, outcome: Outcome) -> list[str]:
    """A line with the counts, and one for each test that did not pass at once and each reason to skip."""
    counts = f"{outcome.passed} passed, {len(outcome.failed)} failed, {len(outcome.skipped)} skipped"
    parts = [f"{outcome.seconds:.0f} s", *([counts] if outcome.has_tests else []), *([outcome.fault] if outcome.fault else [])]
    told = [f"{outcome.word:8}  {name}: {', '.join(parts)}"]
    told += [f"  failed (--hypothesis-seed={outcome.seed}): {test}" for test in outcome.failed]
    told += [f"  passed only at the second try (--hypothesis-seed={outcome.seed}): {test}" for test in outcome.unsteady]
    told += [f"  {outcome.skipped.count(reason)} skipped: {reason}" for reason in dict.fromkeys(outcome.skipped)]
    return told


def slowest(outcomes: Iterable[Outcome]) -> list[str]:
    """The longest tests of all suites, in seconds."""
    slow = sorted((one for outcome in outcomes for one in outcome.slowest), reverse=True)[:SLOWEST]
    return [f"the {len(slow)} slowest tests:", *(f"  {seconds:7.1f} s  {name}" for seconds, name in slow)]


def write_seconds(outcomes: Iterable[Outcome], path: Path) -> None:
    """How long each file's tests took; seconds.json, by which shards are balanced, is a copy of it."""
    seconds = {name: round(of, 1) for outcome in outcomes for name, of in sorted(outcome.seconds_of_files.items())}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(seconds, indent=2) + "\n", encoding="utf-8")


def totals(outcomes: Iterable[Outcome]) -> str:
    """The plain line that programs read."""
    every = list(outcomes)
    passed = sum(one.passed for one in every)
    failed = sum(len(one.failed) + len(one.unsteady) + bool(one.fault) for one in every)
    return f"{passed} passed, {failed} failed, {sum(len(one.skipped) for one in every)} skipped"
