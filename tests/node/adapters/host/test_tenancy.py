"""Who is a tenant is read while enforcement runs: from a file that comes, changes, breaks and goes without a restart."""

import json
from argparse import Namespace
from pathlib import Path
from typing import cast

import pytest

from gpushare_node.adapters.host.tenancy import TenancyFile
from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.cli.run import Run
from gpushare_node.cli.wiring import tenancy_file
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.tenancy import AdmissionMode
from gpushare_node.reconcile.run_context import DrainEvictions
from gpushare_node.reconcile.usage import DeviceHolder
from tests.node.enforce.enforcement import EnforcementFixture, await_end, lives, tenancy_text
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool


def broken(path: Path, how: str) -> None:
    """What may have become of the file."""
    match how:
        case "missing":
            path.unlink()
        case "unreadable":
            path.unlink()
            path.mkdir()
        case "empty":
            path.write_text("")
        case "cut off":
            path.write_text(path.read_text()[:-20])
        case "too large":
            path.write_text(path.read_text() + " " * (1 << 20))
        case "not UTF-8":
            path.write_bytes(b"\xff")
        case "another kind":
            path.write_text(path.read_text().replace("Tenancy", "Tenants"))


BROKEN = pytest.mark.parametrize("how", ["missing", "unreadable", "empty", "cut off", "too large", "not UTF-8", "another kind"])


def projected(folder: Path, text: str) -> Path:
    """The file as kubelet projects it: a link by way of `..data`, which another text replaces in one step."""
    number = len(list(folder.glob("..20*")))
    (folder / f"..20{number}").mkdir()
    (folder / f"..20{number}" / "tenancy.json").write_text(text)
    (folder / "..data_tmp").symlink_to(f"..20{number}")
    (folder / "..data_tmp").rename(folder / "..data")
    link = folder / "tenancy.json"
    if not link.is_symlink():
        link.symlink_to("..data/tenancy.json")
    return link


def test_tenancy_file_is_reread_only_when_its_projection_changes(tmp_path: Path) -> None:
    path = projected(tmp_path, tenancy_text(tenantNamespaces=["atlas"]))
    file = TenancyFile(path, "gpushare")
    first = file.find()
    assert first.tenant_namespaces == {"atlas"}
    assert first.platform == {"gpu-operator", "gpushare", "kube-amd-gpu", "kube-system"}
    assert file.find() is first
    projected(tmp_path, tenancy_text(tenantNamespaces=["cms"]))
    assert file.find().tenant_namespaces == {"cms"}


def test_a_name_with_line_feeds_in_the_file_forges_no_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tenancy.json"
    path.write_text(json.dumps(json.loads(tenancy_text()) | {"a\nforged": 1}))
    TenancyFile(path, "gpushare").find()
    path.write_text(tenancy_text(scope="a\nforged"))
    TenancyFile(path, "gpushare").find()
    assert len(caplog.messages) == 2
    assert "\n" not in "".join(caplog.messages)


@pytest.mark.failure_case(104)
@BROKEN
def test_a_file_that_breaks_leaves_the_last_known_one_and_is_reported(tmp_path: Path, how: str) -> None:
    path = tmp_path / "tenancy.json"
    path.write_text(tenancy_text())
    file = TenancyFile(path, "gpushare")
    known = file.find()
    broken(path, how)
    assert file.find() == file.find() == known
    assert file.problem.startswith(f"{path}: ")
    path.rmdir() if path.is_dir() else None
    path.write_text(tenancy_text(admission="warn"))
    assert file.find().admission is AdmissionMode.WARN
    assert file.problem == ""


@pytest.mark.failure_case(104)
@BROKEN
def test_without_a_tenancy_file_no_process_is_killed_as_foreign_use(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, how: str
) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool)
    broken(enforcement.tenancy, how)
    enforcement.admit(1, "wanderer")
    pid = enforcement.begin(1, 600, gpu=1)
    enforcement.run(30)
    assert lives(pid)
    assert enforcement.told.reasons("wanderer") == ["GPUNotAllocated"]
    told = enforcement.enforcer.reason()
    assert told is not None
    assert told[0] is ConditionReason.TENANCY_UNKNOWN
    enforcement.tenancy.rmdir() if enforcement.tenancy.is_dir() else None
    enforcement.tenancy.write_text(tenancy_text())
    enforcement.run(12)
    await_end(pid)
    assert enforcement.enforcer.reason() is None


@pytest.mark.failure_case(104)
def test_caps_are_enforced_without_a_tenancy_file(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool)
    enforcement.tenancy.unlink()
    pid = enforcement.admit_and_begin(1, "offender", 5000)
    enforcement.run(12)
    await_end(pid)


@pytest.mark.parametrize("change", [{"admission": "deny"}, {"scope": "cluster"}, {"tenantNamespaces": ["team", "elsewhere"]}])
def test_pod_becomes_a_tenant_without_a_runtime_restart(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, change: dict[str, object]
) -> None:
    before = {"admission": "warn"} if "admission" in change else {}
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, tenancy=before)
    enforcement.arrive(1, "wanderer", namespace="team" if before else "elsewhere")
    enforcement.admit(2, "somebody")
    pid, owner = enforcement.begin(1, 600, gpu=1), enforcement.begin(2, 4000)
    enforcement.run(12)
    assert lives(pid)
    enforcement.tenancy.write_text(tenancy_text(**before | change))
    enforcement.run(12)
    await_end(pid)
    assert lives(owner)


def test_pod_in_a_new_platform_namespace_is_left_alone(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool)
    enforcement.tenancy.write_text(tenancy_text(platformNamespaces=["team"]))
    enforcement.arrive(1, "wanderer")
    enforcement.list.age_seconds = 100.0
    pid = enforcement.begin(1, 600, gpu=1)
    enforcement.run(3)
    enforcement.list.age_seconds = 0.0
    enforcement.run(30)
    assert lives(pid)
    assert enforcement.told.events == []


def test_no_pod_is_evicted_while_the_platform_is_unknown(tmp_path: Path) -> None:
    file = TenancyFile(tmp_path / "tenancy.json", "gpushare")
    assert file.platform() is None
    pod = PodView(
        uids=("u1",),
        namespace="monitoring",
        name="dcgm",
        labels={},
        phase="Running",
        is_terminating=False,
        owner="",
        containers={},
    )
    holder = DeviceHolder(pod_uid="u1", pod=pod, devices=frozenset({"GPU-1"}), resources=frozenset({"nvidia.com/gpu"}))
    assert not DrainEvictions().can_move(holder, file.platform())
    projected(tmp_path, tenancy_text(platformNamespaces=["monitoring"]))
    assert not DrainEvictions().can_move(holder, file.platform())
    projected(tmp_path, tenancy_text())
    assert DrainEvictions().can_move(holder, file.platform())
    (tmp_path / "tenancy.json").unlink()
    assert DrainEvictions().can_move(holder, file.platform()), "the last known list holds"


def test_node_release_reads_the_platform_from_the_charts_mount_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "gpushare")
    seen: list[Path] = []
    monkeypatch.setattr(TenancyFile, "_renew", lambda _, path: seen.append(path))
    tenancy_file(cast("Run", Namespace(arguments=Namespace(standalone=False)))).find()
    assert seen == [Path("/etc/gpushare/tenancy.json")]
