"""`make test-deps`: apt in sight, its locks waited for, and no daemon started; with an apt-get of the test's own."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.runner import debian
from tests.runner.suites import Suite

SUITE = Suite(name="some", title="some", folders=(), tools={"some-program": "some-package", "sh": "dash", "go": ""})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all the programs of this machine, where the test puts its own."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "gcc", "cc", "as", "ld", "less", "touch", "chmod", "cat", "rm"):
        found = shutil.which(name)
        if found:
            (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(debian, "_POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return programs


def program(machine: Path, name: str, script: str) -> None:
    (machine / name).write_text(f"#!/bin/sh\n{script}\n")
    (machine / name).chmod(0o755)


INSTALLS = 'case "$*" in *install*) printf "#!/bin/sh" > {0}/some-program; chmod +x {0}/some-program ;; esac'


def test_only_missing_packages_are_installed(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program(machine, "apt-get", 'echo "apt-get $*"; ' + INSTALLS.format(machine))
    assert debian.install([SUITE]) == 0
    said = capfd.readouterr().out
    assert "installing 1 packages of Debian: some-package" in said
    assert "apt-get -q -o DPkg::Lock::Timeout=600 install -y --no-install-recommends some-package" in said
    assert debian.install([SUITE]) == 0
    assert capfd.readouterr().out == "every Debian package that the suites need is installed\n"


def test_apt_lock_is_waited_for(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    locked = (
        f'case "$*" in *update*) if [ ! -e {machine}/asked ]; then touch {machine}/asked; '
        'echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7" >&2; exit 100; fi ;; esac; '
    )
    program(machine, "apt-get", locked + INSTALLS.format(machine))
    assert debian.install([SUITE]) == 0
    said = capfd.readouterr()
    assert "held by process 7" in said.err
    assert "another program holds a lock of apt's: waiting, at most 600 s" in said.out


def test_a_lock_that_is_never_released_is_a_failure(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "_LOCK_SECONDS", -1)
    program(machine, "apt-get", 'echo "E: Could not get lock /var/lib/dpkg/lock-frontend." >&2; exit 100')
    assert debian.install([SUITE]) == 1


def test_missing_package_is_reported_as_a_failure(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program(machine, "apt-get", 'case "$*" in *install*) echo "E: Unable to locate package some-package" >&2; exit 100 ;; esac')
    assert debian.install([SUITE]) == 1
    said = capfd.readouterr().err
    assert "E: Unable to locate package some-package" in said
    assert "not installed: some-package; apt-get ended with 100" in said


def test_a_package_without_its_program_is_a_failure(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program(machine, "apt-get", "exit 0")
    assert debian.install([SUITE]) == 1
    assert "not installed: some-package" in capfd.readouterr().err


@pytest.mark.parametrize("code", [0, 100])
@pytest.mark.parametrize("former", [None, "#!/bin/sh\nexit 0\n"])
def test_policy_rc_d_forbids_daemons_during_the_install_and_is_restored(
    former: str | None,
    code: int,
    machine: Path,
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy-rc.d"
    if former:
        policy.write_text(former)
        policy.chmod(0o700)
    program(machine, "apt-get", f"[ -x {policy} ] && {policy}; echo $? >> {tmp_path}/answers; exit {code}")
    debian.install([SUITE])
    assert set((tmp_path / "answers").read_text().split()) == {"101"}
    assert (policy.read_text(), stat.S_IMODE(policy.stat().st_mode)) == (former, 0o700) if former else not policy.exists()


def test_policy_rc_d_left_by_a_killed_run_is_removed(machine: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text(debian._FORBIDDEN)
    program(machine, "apt-get", INSTALLS.format(machine))
    assert debian.install([SUITE]) == 0
    assert not policy.exists()


def test_a_service_that_a_package_enables_is_not_started_at_boot(machine: Path, tmp_path: Path) -> None:
    program(machine, "apt-get", INSTALLS.format(machine))
    units = f'echo "ssh.service enabled enabled"; [ ! -e {machine}/some-program ] || echo "some.service enabled enabled"'
    program(machine, "systemctl", f'case "$1" in disable) echo "$*" > {tmp_path}/disabled ;; *) {units} ;; esac')
    assert debian.install([SUITE]) == 0
    assert (tmp_path / "disabled").read_text() == "disable --quiet some.service\n"


def test_without_root_the_install_command_is_printed(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program(machine, "apt-get", f"touch {machine}/called")
    assert debian.install([SUITE]) == 1
    assert "apt-get install --no-install-recommends some-package" in capfd.readouterr().err
    assert not (machine / "called").exists()


def test_without_apt_missing_packages_are_listed(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert debian.install([SUITE]) == 1
    assert "some-package" in capfd.readouterr().err
