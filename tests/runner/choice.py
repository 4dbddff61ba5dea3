"""Which suites a run has, and which of their files."""

from collections.abc import Sequence
from dataclasses import replace

from tests.runner import needs, shards, suites
from tests.runner.suites import SUITES, Suite


class ChoiceError(ValueError):
    """What was asked for is not there; the text says what there is."""


def named(text: str) -> list[str]:
    """The suites' names in a list with commas. Raises ChoiceError for a name that no suite has."""
    names = [word.strip() for word in text.split(",") if word.strip()]
    for name in names:
        if name not in suites.NAMES:
            raise ChoiceError(f"no suite {name!r}; there are {', '.join(suites.NAMES)}")
    return names


def choose(wanted: str = "", unwanted: str = "") -> tuple[list[Suite], list[str]]:
    """The suites to run, and a line for each other one. Raises ChoiceError.

    A suite that is asked for by its name is not left out: what it lacks is an error then.
    """
    names, skipped = named(wanted), named(unwanted)
    chosen, left_out = [], []
    for suite in SUITES:
        if names and suite.name not in names:
            continue
        reason = "SKIP names it" if suite.name in skipped else "" if names else needs.is_left_out(suite)
        if reason:
            left_out.append(f"LEFT OUT  {suite.name}: {reason}")
        else:
            chosen.append(suite)
    if not chosen:
        raise ChoiceError("no suite is left to run")
    return chosen, left_out


def divide(chosen: Sequence[Suite], shard: str) -> list[Suite]:
    """The suites with this shard's files alone. Raises ChoiceError for no shard, and where it has no file of a suite."""
    if not shard:
        return list(chosen)
    parts = [replace(suite, folders=shards.files(suite.folders, shards.read(shard))) for suite in chosen]
    empty = [suite.name for suite in parts if not suite.folders]
    if empty:
        raise ChoiceError(f"SHARD={shard} has no file of {', '.join(empty)}: there are more shards than files")
    return parts
