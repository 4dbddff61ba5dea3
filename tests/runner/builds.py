"""What suites share and take minutes to build, each once into the tests' cache. Whoever needs one sooner waits for it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.runner.suites import SUITES, Suite

LOG = Path("build/tests/builds.log")
_FAILED = "BUILD FAILED"
_NICENESS = 5
"""Behind tests that run, and before suites that only compute: clusters wait for what is built."""


def main() -> int:
    """Build the modules that are named, or what all suites share; the exit code."""
    return build(sys.argv[1:] or modules(SUITES))


def build(wanted: Iterable[str]) -> int:
    """Run the modules one after the other; 1 if one of them failed, which is named."""
    failed = [module for module in wanted if not _build(module)]
    if failed:
        print(f"not built: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def modules(suites: Iterable[Suite]) -> tuple[str, ...]:
    """The modules that build for the suites, each once."""
    return tuple(dict.fromkeys(module for suite in suites for module in suite.builds))


def _build(module: str) -> bool:
    begun = time.monotonic()
    print(f"building {module}", flush=True)
    done = subprocess.run([sys.executable, "-m", module], stdin=subprocess.DEVNULL, check=False)
    print(f"{module}: {'built' if done.returncode == 0 else _FAILED} after {time.monotonic() - begun:.0f} s", flush=True)
    return done.returncode == 0


@contextlib.contextmanager
def in_background(suites: Sequence[Suite]) -> Iterator[None]:
    """Build behind everything else, with a log, which is printed if a build fails: it is built again where it is needed."""
    LOG.parent.mkdir(parents=True, exist_ok=True)
    if not modules(suites):
        yield
        return
    command = ["nice", "-n", str(_NICENESS), sys.executable, "-m", "tests.runner.builds", *modules(suites)]
    # A run inside of this one, which a test starts, gets another file.
    LOG.unlink(missing_ok=True)
    with LOG.open("w+", errors="replace") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            log.seek(0)
            said = log.read()
            if _FAILED in said:
                print(f"--- builds, in {LOG}\n{said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
