"""Runs suites in lanes side by side: each takes the next suite when its last one has ended."""

import contextlib
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from tests.runner import running
from tests.runner.suites import Suite

_LANES = 3
"""More than two cores have: in two, the suites of clusters run one after the other, and one of them alone at the end."""
LOGS = Path("build/tests")
"""Where the log of each suite, of lint and of the builds lies."""


def run(chosen: Sequence[Suite], words: Sequence[str]) -> dict[str, running.Outcome]:
    """What came of each suite. `words` are more words for pytest."""
    outcomes: dict[str, running.Outcome] = {}
    waiting = deque(chosen)

    def follow() -> None:
        while True:
            try:
                suite = waiting.popleft()
            except IndexError:
                return
            outcomes[suite.name] = _run(suite, words, is_shown=len(chosen) == 1)

    lanes = [threading.Thread(target=follow) for _ in range(_LANES)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    # A lane that broke off has no result for its suites, and that is none that passed.
    return {suite.name: outcomes.get(suite.name, running.Outcome(seed=0, fault="was not run")) for suite in chosen}


def _run(suite: Suite, words: Sequence[str], *, is_shown: bool) -> running.Outcome:
    """A suite, shown as it goes if nothing runs beside it; else with its log in a file, which is printed at the end."""
    print(f"--- {suite.name}: {suite.title}, begun", flush=True)
    options = (*suite.distribution, *words)
    if is_shown:
        return running.run(suite.folders, options)
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{suite.name}.log"
    with path.open("w") as log:
        outcome = running.run(suite.folders, options, call=_into(log, suite.niceness))
    with contextlib.suppress(OSError):
        print(f"--- {suite.name}: {outcome.word} after {outcome.seconds:.0f} s\n{path.read_text(errors='replace')}", flush=True)
    return outcome


def _into(log: TextIO, niceness: int) -> Callable[[Sequence[str]], int]:
    def call(command: Sequence[str]) -> int:
        command = ["nice", "-n", str(niceness), *command]
        return subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False).returncode

    return call
