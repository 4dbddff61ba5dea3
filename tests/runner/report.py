"""What came of the suites, in lines for people, and one for programs."""

from collections.abc import Iterable

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


def totals(outcomes: Iterable[Outcome]) -> str:
    """The plain line that programs read."""
    every = list(outcomes)
    passed = sum(one.passed for one in every)
    failed = sum(len(one.failed) + len(one.unsteady) + bool(one.fault) for one in every)
    return f"{passed} passed, {failed} failed, {sum(len(one.skipped) for one in every)} skipped"
