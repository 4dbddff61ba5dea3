"""What the metrics say of the policy, of changes and requests, of those who lost a process, and of MIG instances."""

import os
from pathlib import Path

import pytest

from gpushare_node.adapters.kube.api_endpoint import in_cluster
from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.connection import Connection
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.reporting.metrics import Registry
from tests.node.adapters.kube.kube_fixture import FakeClock, connection
from tests.node.enforce.enforcement import EnforcementFixture, await_end, pod
from tests.support.fake_api.server import ApiServer
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import GRACEFUL, ProcessPool

MIB = 1 << 20


def test_the_policy_in_force_is_one_series(stage: EnforcementFixture) -> None:
    assert stage.metric("policy_info{") == [
        'policy_info{digest="d1",card="a100-sxm4-40gb",mode="time-slicing",action="kill"} 1']


def test_the_last_change_is_that_of_the_policy_or_of_what_is_published(stage: EnforcementFixture) -> None:
    assert stage.metric("last_change_timestamp_seconds ") == []
    stage.folder.keep_policy("{}")
    stage.folder.keep_profile("mig-00000000-a", ["GPU-1"])
    os.utime(stage.folder.path / "policy.json", (1000, 1000))
    os.utime(stage.folder.path / "profile.json", (2000, 2000))
    stage.folder.keep_first_caps({"nvidia.com/gpu.shared": 1})
    stage.start()
    assert stage.metric("last_change_timestamp_seconds ") == ["last_change_timestamp_seconds 2000"]


def test_a_folder_that_is_a_link_tells_no_change(stage: EnforcementFixture, tmp_path: Path) -> None:
    stage.folder.keep_policy("{}")
    stage.folder.path.rename(tmp_path / "elsewhere")
    stage.folder.path.symlink_to(tmp_path / "elsewhere")
    assert stage.folder.changed_at() is None


def test_requests_are_counted_by_verb_and_status(api: ApiServer, tmp_path: Path) -> None:
    figures = EnforcementMetrics(Registry())
    api.add_node("n1")
    api.fail("GET /api/v1/nodes", 503, times=1)
    wire = connection(api, tmp_path)
    wire.observe = figures.observe_request
    wire.get("/api/v1/nodes/n1")
    next(wire.watch("/api/v1/nodes", {}, seconds=1), None)
    wire.close()
    counted = {(verb, code): figures.api_requests.value(verb, code)
               for verb in ("GET", "WATCH") for code in ("200", "503", "none")}
    assert {key: count for key, count in counted.items() if count} == {
        ("GET", "200"): 1, ("GET", "503"): 1, ("WATCH", "200"): 1}


def test_a_request_without_an_answer_has_no_status(tmp_path: Path) -> None:
    figures = EnforcementMetrics(Registry())
    (tmp_path / "token").write_text("token")
    wire = Connection(in_cluster("http://127.0.0.1:9", tmp_path), FakeClock())
    wire.observe = figures.observe_request
    with pytest.raises(ClusterError):
        wire.get("/api/v1/nodes/n1")
    assert figures.api_requests.value("GET", "none") == 3, "each attempt counts"
    wire.close()


def test_who_lost_a_process_is_named_with_the_cause(stage: EnforcementFixture) -> None:
    pid = stage.admit_and_begin(1, "greedy", 5000, GRACEFUL)
    stage.run(5)
    await_end(pid)
    stage.run(2)
    assert stage.metric("last_kill_info{") == [
        'last_kill_info{namespace="team",pod="greedy",container="main",reason="over-cap"} 1']


def test_only_the_last_are_named_each_once_and_the_unknown_never(stage: EnforcementFixture) -> None:
    for number in (*range(40), 20):
        stage.figures.note_kill(("team", f"pod-{number}", "main"), "over-cap")
    stage.figures.note_kill(("", "", ""), "over-cap")
    named = [line.split('pod="')[1].split('"')[0] for line in stage.metric("last_kill_info{")]
    assert named == [f"pod-{number}" for number in (*range(8, 20), *range(21, 40), 20)]


def test_a_mig_instance_has_the_memory_of_its_processes(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    for _ in range(2):
        two.set_mode(0, current=True)
    first, second = two.add_instance(0, 14, 0), two.add_instance(0, 14, 2)
    resource = "nvidia.com/mig-2g.10gb.shared"
    gpus = [
        {"indexes": [0], "mig": True, "instances": [
            {"profile": "2g.10gb", "profileId": 14, "start": start, "size": 2} for start in (0, 2)]},
        {"indexes": [1], "mig": False, "instances": []},
    ]
    stage = EnforcementFixture(
        tmp_path, two, started, mode="mig", profile="mig-01234567", gpus=gpus,
        share={"resource": resource, "profile": "2g.10gb", "replicas": 2, "memoryMiB": 9856},
    )
    stage.list.known = (pod("one", 1), pod("two", 2))
    uuids = [two.mig_uuid(0, instance) for instance in (first, second)]
    stage.allocate(1, resource, [f"{uuids[0]}::0"])
    for used in (1000, 500):
        stage.begin(1, used, gi=first)
    stage.run()
    found = [line for line in stage.metric("gpu_memory_used_bytes{") if "MIG-" in line]
    assert found == [
        f'gpu_memory_used_bytes{{gpu="{uuids[0]}"}} {1500 * MIB}', f'gpu_memory_used_bytes{{gpu="{uuids[1]}"}} 0']
    stage.begin(2, None, gi=second)
    stage.run()
    assert not [line for line in stage.metric("gpu_memory_used_bytes{") if uuids[1] in line], "the driver tells no usage"
