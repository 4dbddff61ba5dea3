"""`make test-deps`: installs the Debian packages that the suites need. Needs nothing but Python.

Every line of apt is shown, a lock that another program holds is waited for, and no daemon is started.
"""

import os
import shlex
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.runner import needs
from tests.runner.suites import OPTIONAL, SUITES

ALWAYS = ("gcc", "libc6-dev")
"""What a C compiler and its headers are called; apt leaves them alone where they are installed."""
_LOCK_SECONDS = 600
_LISTS = "E: Could not get lock /var/lib/apt/lists/lock"
_POLICY = Path("/usr/sbin/policy-rc.d")
"""What Debian's packages ask before they start a daemon: 101 forbids it (invoke-rc.d(8))."""
_FORBIDDEN = "#!/bin/sh\n# gpushare's make test-deps: no daemon is started while it installs.\nexit 101\n"


def main() -> int:
    """The exit code."""
    wanted = sorted(packages())
    if not wanted:
        print("everything that the suites need is installed")
        return 0
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        print("only root on Debian installs packages here. These are missing:\n"
              f"  apt-get install --no-install-recommends {shlex.join(wanted)}", file=sys.stderr)
        return 1
    print(f"installing {len(wanted)} packages of Debian: {shlex.join(wanted)}", flush=True)
    with _no_daemons():
        code = _update() or _apt("install", "-y", "--no-install-recommends", *wanted)
    absent = sorted(packages())
    if code or absent:
        print(f"not installed: {shlex.join(absent)}" if absent else f"apt-get failed with {code}", file=sys.stderr)
        return 1
    return 0


def packages() -> set[str]:
    """The packages with the programs that are missing here."""
    found = {suite.tools[tool] for suite in SUITES if suite.name not in OPTIONAL for tool in needs.missing_tools(suite)}
    needs.forget()
    return found - {""} | set(ALWAYS if needs.without_compiler() else ())


def _update() -> int:
    """Read the lists of packages. apt has no option to wait for their lock, so it is asked again."""
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        done = subprocess.run(["apt-get", "-q", "update"], text=True, stderr=subprocess.PIPE, check=False)
        sys.stderr.write(done.stderr)
        if done.returncode == 0 or _LISTS not in done.stderr or time.monotonic() > until:
            return done.returncode
        print("another program reads the lists of packages: waiting for it", flush=True)
        time.sleep(2)


def _apt(*words: str) -> int:
    command = ["apt-get", "-q", "-o", f"DPkg::Lock::Timeout={_LOCK_SECONDS}", *words]
    return subprocess.run(command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, check=False).returncode


@contextmanager
def _no_daemons() -> Iterator[None]:
    """Forbid packages to start what they install; a policy that is there already comes back afterwards."""
    former = _POLICY.read_bytes() if _POLICY.exists() and _POLICY.read_text() != _FORBIDDEN else None
    mode = stat.S_IMODE(_POLICY.stat().st_mode) if former is not None else 0
    _POLICY.write_text(_FORBIDDEN)
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if former is None:
            _POLICY.unlink(missing_ok=True)
        else:
            _POLICY.write_bytes(former)
            _POLICY.chmod(mode)


if __name__ == "__main__":
    sys.exit(main())
