"""Runs pytest for a suite. What fails is run once more, alone: it has failed all the same, but what passes then is unsteady."""

import json
import random
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SLOWEST = 30
_NOTHING_COLLECTED = 5
"""pytest's exit code where no test was collected."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a suite. `seed` is that of its generated examples, `slowest` has seconds and names, the longest first."""

    seed: int
    failed: tuple[str, ...] = ()
    unsteady: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """The reasons, one for each test."""
    passed: int = 0
    seconds: float = 0
    slowest: tuple[tuple[float, str], ...] = field(default=(), repr=False)
    seconds_of_files: dict[str, float] = field(default_factory=dict, repr=False)
    fault: str = ""
    """Why there is no result: no test was collected, or pytest itself failed."""

    @property
    def is_good(self) -> bool:
        """Whether every test passed, at the first try."""
        return not (self.failed or self.unsteady or self.fault)

    @property
    def has_tests(self) -> bool:
        """Whether a test ran: lint has none."""
        return bool(self.passed or self.failed or self.unsteady or self.skipped)

    @property
    def word(self) -> str:
        """For a table."""
        return "passed" if self.is_good else "FAILED" if self.failed or self.fault else "UNSTEADY"


def run(collected: Sequence[str], options: Sequence[str] = (), *, call: Callable[..., int] | None = None) -> Outcome:
    """Run the tests that pytest collects from these words; `call` starts a command and returns its exit code."""
    start = call or _call
    seed = random.SystemRandom().getrandbits(32)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            *collected,
            f"--hypothesis-seed={seed}",
            # Shorter than pytest's own: the path of a socket has a hundred characters at most.
            f"--basetemp={folder}/t",
            "-o",
            f"cache_dir={folder}/cache",
            "-o",
            "junit_family=xunit1",
        ]
        code = start([*pytest, *options, f"--junit-xml={report}", "-q"])
        found = _read(report)
        failed = _failed(Path(folder))
        fault = _fault(code, failed)
        unsteady: set[str] = set()
        if failed and not fault:
            print(f"\nonce more, what failed (--hypothesis-seed={seed})", flush=True)
            start([*pytest, "--last-failed", "--last-failed-no-failures", "none", "-v"])
            unsteady = failed - _failed(Path(folder))
    return Outcome(
        seed=seed,
        failed=tuple(sorted(failed - unsteady)),
        unsteady=tuple(sorted(unsteady)),
        fault=fault,
        seconds=time.monotonic() - begun,
        passed=found.passed,
        skipped=found.skipped,
        slowest=found.slowest,
        seconds_of_files=found.seconds_of_files,
    )


def _call(command: Sequence[str]) -> int:
    return subprocess.run(command, check=False).returncode


def _fault(code: int, failed: set[str]) -> str:
    if code == _NOTHING_COLLECTED:
        return "no test was collected"
    return f"pytest ended with {code}" if code and not failed else ""


def _failed(folder: Path) -> set[str]:
    """The tests that failed when they were run last, as pytest notes them."""
    noted = folder / "cache" / "v" / "cache" / "lastfailed"
    return set(json.loads(noted.read_text())) if noted.is_file() else set()


@dataclass(frozen=True, kw_only=True)
class _Report:
    passed: int = 0
    skipped: tuple[str, ...] = ()
    slowest: tuple[tuple[float, str], ...] = ()
    seconds_of_files: dict[str, float] = field(default_factory=dict)


def _read(report: Path) -> _Report:
    """What pytest wrote of its run: nothing where it did not get so far."""
    if not report.is_file():
        return _Report()
    cases = list(ET.parse(report).iter("testcase"))
    skips = [str(skip.get("message")) for case in cases for skip in case.iter("skipped")]
    bad = sum(any(case.find(word) is not None for word in ("failure", "error", "skipped")) for case in cases)
    times = sorted(((float(case.get("time", 0)), f"{case.get('file')}::{case.get('name')}") for case in cases), reverse=True)
    files: defaultdict[str, float] = defaultdict(float)
    for spent, name in times:
        files[name.split("::")[0]] += spent
    return _Report(passed=len(cases) - bad, skipped=tuple(skips), slowest=tuple(times[:SLOWEST]), seconds_of_files=dict(files))
