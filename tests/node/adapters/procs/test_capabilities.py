"""What this program may do to others, and how a security module's refusal is told from a missing capability."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare_node.adapters.procs.capabilities import Capabilities, own_rights
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.processes import Signal, SignalResult
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from tests.node.enforce.enforcement import EnforcementFixture
from tests.support.process_fixtures import SLEEPING, FakeProc, ProcessPool, needs_root, systemd_path


def proc(folder: Path, capabilities: str, profile: str | None) -> Path:
    (folder / "self/attr").mkdir(parents=True)
    (folder / "self/status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    if profile is not None:
        (folder / "self/attr/current").write_text(profile)
    return folder


@pytest.mark.failure_case(80)
@pytest.mark.parametrize(
    ("profile", "shown"),
    [
        (None, None),
        ("", None),
        ("unconfined\n", None),
        ("kernel", None),
        ("docker-default (complain)\n", None),
        ("cri-containerd.apparmor.d (enforce)\n", "cri-containerd.apparmor.d (enforce)"),
        ("system_u:system_r:spc_t:s0\0", None),
        ("unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023\0", None),
        ("system_u:system_r:container_t:s0:c1,c2\0", "system_u:system_r:container_t:s0:c1,c2"),
    ],
)
def test_confining_security_profile_is_detected_at_start(tmp_path: Path, profile: str | None, shown: str | None) -> None:
    assert own_rights(proc(tmp_path, "0000000000080020", profile)) == Capabilities(may_kill=True, profile=shown)


@pytest.mark.parametrize(("capabilities", "may_kill"), [("0000000000000020", True), ("0000000000080000", False), ("0", False)])
def test_a_missing_capability_is_known_at_the_start(tmp_path: Path, capabilities: str, *, may_kill: bool) -> None:
    assert own_rights(proc(tmp_path, capabilities, None)).may_kill is may_kill


def test_capabilities_are_unknown_without_proc(tmp_path: Path) -> None:
    assert own_rights(tmp_path) == Capabilities(may_kill=None, profile=None)


@needs_root
def test_missing_capability_is_detected_on_a_real_kernel() -> None:
    code = "from gpushare_node.adapters.procs.capabilities import own_rights; print(own_rights().may_kill)"
    command = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill", sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.failure_case(80)
@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("pidfd", [True, False])
def test_security_module_refusal_differs_from_a_missing_capability(
    tmp_path: Path, process_pool: ProcessPool, monkeypatch: pytest.MonkeyPatch, number: int, *, pidfd: bool
) -> None:
    def refuse(error: int) -> Callable[..., int]:
        def call(*_: object) -> int:
            raise OSError(error, os.strerror(error))

        return call

    monkeypatch.setattr(os, "kill", refuse(number))
    monkeypatch.setattr(signal, "pidfd_send_signal", refuse(number))
    if not pidfd:
        monkeypatch.setattr(os, "pidfd_open", refuse(errno.ENOSYS))
    fake_proc = FakeProc(tmp_path)
    processes = LinuxProcesses(fake_proc.root)
    pid = fake_proc.show(process_pool.pid(SLEEPING), systemd_path())
    seen = processes.look([pid])[pid]
    assert processes.send(seen, Signal.TERM) is (SignalResult.DENIED if number == errno.EACCES else SignalResult.REFUSED)


@pytest.mark.failure_case(80)
def test_a_missing_capability_and_a_refusing_module_are_reasons_of_their_own(
    enforcement: EnforcementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcement.enforcer.config = replace(enforcement.enforcer.config, rights=Capabilities(may_kill=False))
    enforcement.run(1)
    found = enforcement.enforcer.reason()
    assert found is not None
    assert found[0] is ConditionReason.CAPABILITY_MISSING
    enforcement.enforcer.config = replace(
        enforcement.enforcer.config, rights=Capabilities(may_kill=True, profile="docker-default (enforce)")
    )
    monkeypatch.setattr(enforcement.processes, "send", lambda *_: SignalResult.DENIED)
    enforcement.admit_and_begin(1, "untouchable", 5000)
    enforcement.run(30)
    found = enforcement.enforcer.reason()
    assert found is not None
    assert found[0] is ConditionReason.SIGNALS_DENIED
    assert "docker-default (enforce)" in found[1]
    assert enforcement.told.reasons("untouchable")[:2] == ["GPUMemoryOverCap", "GPUProcessKillFailed"]
    assert "AppArmor" in enforcement.told.events[1].message
    assert enforcement.metric('kills_suppressed_total{reason="security-module"}')
    assert [pod.name for pod in enforcement.told.evicted] == ["untouchable"]
    assert enforcement.told.forced == 1
