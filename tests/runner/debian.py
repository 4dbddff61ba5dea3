"""`make test-deps`: installs the Debian packages that the suites need. Needs nothing but Python.

Every line of apt is shown, a lock that another program holds is waited for, and no daemon is started: neither now nor at boot.
"""

import argparse
import importlib.util
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.runner import choice, needs
from tests.runner.suites import SUITES, Suite

_COMPILER = ("gcc", "libc6-dev")
_LOCK_SECONDS = 600
_LOCKED = "E: Could not get lock "
_POLICY = Path("/usr/sbin/policy-rc.d")
"""What Debian's packages ask before they start a daemon: 101 forbids it (invoke-rc.d(8))."""
_FORBIDDEN = "#!/bin/sh\n# gpushare's make test-deps: no daemon is started while it installs.\nexit 101\n"


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.runner.debian", description=__doc__)
    parser.add_argument("--suite", default="", help="what these suites need, with commas between them; without it, all of them")
    try:
        names = choice.named(parser.parse_args().suite)
    except choice.ChoiceError as error:
        print(f"make test-deps: {error}", file=sys.stderr)
        return 2
    # A killed run, too, takes its policy away.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return install([suite for suite in SUITES if not names or suite.name in names])


def install(suites: list[Suite]) -> int:
    """The exit code: 0 if everything that has a package is there afterwards."""
    wanted = packages(suites)
    if not wanted:
        print("every Debian package that the suites need is installed")
        return 0
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        print(
            "only root on Debian installs packages here. As root:\n"
            f"  apt-get install --no-install-recommends {shlex.join(wanted)}",
            file=sys.stderr,
        )
        return 1
    print(f"installing {len(wanted)} packages of Debian: {shlex.join(wanted)}", flush=True)
    with _no_daemons(_POLICY):
        code = _apt("update") or _apt("install", "-y", "--no-install-recommends", *wanted)
    absent = packages(suites)
    if code or absent:
        print(f"not installed: {shlex.join(absent or wanted)}; apt-get ended with {code}", file=sys.stderr)
        return 1
    return 0


def packages(suites: list[Suite]) -> list[str]:
    """The packages with what is missing here, sorted."""
    needs.forget()
    found = {suite.tools[tool] for suite in suites for tool in needs.missing_tools(suite)} - {""}
    found |= {"less"} - {"less" if shutil.which("less") else ""}
    if needs.without_compiler():
        found |= set(_COMPILER)
    if importlib.util.find_spec("ensurepip") is None:
        found.add("python3-venv")
    return sorted(found)


def _apt(*words: str) -> int:
    """Run apt-get, again while another program holds a lock: it has no option to wait for that of the lists of packages."""
    command = ["apt-get", "-q", "-o", f"DPkg::Lock::Timeout={_LOCK_SECONDS}", *words]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        is_locked = False
        with subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as apt:
            assert apt.stderr is not None
            for line in apt.stderr:
                is_locked |= line.startswith(_LOCKED)
                print(line, end="", file=sys.stderr, flush=True)
        if not is_locked or apt.returncode == 0 or time.monotonic() > until:
            return apt.returncode
        print(f"another program holds a lock of apt's: waiting, at most {_LOCK_SECONDS} s", flush=True)
        time.sleep(2)


@contextmanager
def _no_daemons(policy: Path) -> Iterator[None]:
    """Forbid packages to start what they install, now and at boot; a policy that is there already comes back afterwards."""
    former = policy.read_bytes() if policy.exists() and policy.read_bytes() != _FORBIDDEN.encode() else None
    mode = stat.S_IMODE(policy.stat().st_mode) if former is not None else 0
    enabled = _enabled()
    policy.write_text(_FORBIDDEN)
    policy.chmod(0o755)
    try:
        yield
    finally:
        if former is None:
            policy.unlink(missing_ok=True)
        else:
            policy.write_bytes(former)
            policy.chmod(mode)
        new = sorted(_enabled() - enabled)
        if new:
            print(f"not to be started at boot: {' '.join(new)}", flush=True)
            subprocess.run(["systemctl", "disable", "--quiet", *new], check=False)


def _enabled() -> set[str]:
    """The units that systemd starts at boot; none where there is no systemd."""
    if not shutil.which("systemctl"):
        return set()
    said = subprocess.run(
        ["systemctl", "list-unit-files", "--state=enabled", "--no-legend", "--plain"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return {line.split()[0] for line in said.splitlines() if line.split()}


if __name__ == "__main__":
    sys.exit(main())
