"""What the metrics say of the policy, of changes and requests, of those who lost a process, and of MIG instances."""

import json
import os
from pathlib import Path

import pytest

from gpushare_node.adapters.host.state_files import FirstCaps
from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.connection import Connection, in_cluster
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.reporting.metrics import Registry
from tests.node.adapters.kube.kube_fixture import FakeClock, connect
from tests.node.enforce.enforcement import MIG_SHARED, EnforcementFixture, await_end, pod, with_instances
from tests.support.fake_api.server import ApiServer
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import GRACEFUL, ProcessPool

MIB = 1 << 20


def test_current_policy_is_one_metric_series(enforcement: EnforcementFixture) -> None:
    assert enforcement.metric("policy_info{") == [
        'policy_info{digest="d1",card="a100-sxm4-40gb",mode="time-slicing",action="kill"} 1'
    ]


def test_last_change_time_is_the_newer_of_policy_and_profile(enforcement: EnforcementFixture) -> None:
    assert enforcement.metric("last_change_timestamp_seconds ") == []
    enforcement.folder.keep_policy("{}")
    enforcement.folder.keep_profile("mig-00000000-a", ["GPU-1"])
    os.utime(enforcement.folder.path / "policy.json", (1000, 1000))
    os.utime(enforcement.folder.path / "profile.json", (2000, 2000))
    enforcement.folder.keep_first_caps(FirstCaps(since=1))
    enforcement.start()
    assert enforcement.metric("last_change_timestamp_seconds ") == ["last_change_timestamp_seconds 2000"]


def test_symlinked_state_dir_gives_no_last_change_time(enforcement: EnforcementFixture, tmp_path: Path) -> None:
    enforcement.folder.keep_policy("{}")
    enforcement.folder.path.rename(tmp_path / "elsewhere")
    enforcement.folder.path.symlink_to(tmp_path / "elsewhere")
    assert enforcement.folder.changed_at() is None


def test_requests_are_counted_by_verb_and_status(api: ApiServer, tmp_path: Path) -> None:
    metrics = EnforcementMetrics(Registry())
    api.add_node("n1")
    api.fail("GET /api/v1/nodes", 503, times=1)
    connection = connect(api, tmp_path)
    connection.observe = metrics.observe_request
    connection.get("/api/v1/nodes/n1")
    next(connection.watch("/api/v1/nodes", {}, seconds=1), None)
    connection.close()
    counted = {
        (verb, code): metrics.api_requests.value(verb, code) for verb in ("GET", "WATCH") for code in ("200", "503", "none")
    }
    assert {key: count for key, count in counted.items() if count} == {
        ("GET", "200"): 1,
        ("GET", "503"): 1,
        ("WATCH", "200"): 1,
    }


def test_denials_are_counted_by_the_policy_that_the_api_server_names(api: ApiServer, tmp_path: Path) -> None:
    metrics = EnforcementMetrics(Registry())
    api.add_node("n1")

    def refuse(words: str, times: int) -> None:
        answer = json.dumps({"kind": "Status", "status": "Failure", "message": words, "code": 403})
        api.garble("GET /api/v1/nodes/n1", answer.encode(), times, status=403)

    words = (
        "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'gpushare-fence' with binding 'gpushare-fence' denied request: x"
    )
    refuse(words, 2)
    connection = connect(api, tmp_path)
    connection.observe_denial = metrics.api_denials.add
    for _ in range(2):
        with pytest.raises(ClusterError, match="denied request"):
            connection.get("/api/v1/nodes/n1")
    refuse("nodes is forbidden: User cannot get it", 1)
    with pytest.raises(ClusterError):
        connection.get("/api/v1/nodes/n1")
    connection.close()
    assert metrics.api_denials.value("gpushare-fence") == 2
    assert sum("api_denials_total{" in line for line in metrics.page().splitlines()) == 1


def test_a_request_without_an_answer_has_no_status(tmp_path: Path) -> None:
    metrics = EnforcementMetrics(Registry())
    (tmp_path / "token").write_text("token")
    connection = Connection(in_cluster("http://127.0.0.1:9", tmp_path), FakeClock())
    connection.observe = metrics.observe_request
    with pytest.raises(ClusterError):
        connection.get("/api/v1/nodes/n1")
    assert metrics.api_requests.value("GET", "none") == 3, "each attempt counts"
    connection.close()


def test_killed_container_is_a_metric_with_its_reason(enforcement: EnforcementFixture) -> None:
    pid = enforcement.admit_and_begin(1, "greedy", 5000, GRACEFUL)
    enforcement.run(5)
    await_end(pid)
    enforcement.run(2)
    assert enforcement.metric("last_kill_info{") == [
        'last_kill_info{namespace="team",pod="greedy",container="main",reason="over-cap"} 1'
    ]


def test_only_the_latest_killed_containers_are_listed_once_each(enforcement: EnforcementFixture) -> None:
    for number in (*range(40), 20):
        enforcement.metrics.note_kill(("team", f"pod-{number}", "main"), "over-cap")
    enforcement.metrics.note_kill(("", "", ""), "over-cap")
    named = [line.split('pod="')[1].split('"')[0] for line in enforcement.metric("last_kill_info{")]
    assert named == [f"pod-{number}" for number in (*range(8, 20), *range(21, 40), 20)]


def test_a_mig_instance_has_the_memory_of_its_processes(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> None:
    enforcement, (first, second) = with_instances(tmp_path, two_gpus, process_pool)
    enforcement.list.known = (pod("one", 1), pod("two", 2))
    uuids = [two_gpus.mig_uuid(0, instance) for instance in (first, second)]
    enforcement.allocate(1, MIG_SHARED, [f"{uuids[0]}::0"])
    for used in (1000, 500):
        enforcement.begin(1, used, gi=first)
    enforcement.run()
    found = [line for line in enforcement.metric("gpu_memory_used_bytes{") if "MIG-" in line]
    assert found == [f'gpu_memory_used_bytes{{gpu="{uuids[0]}"}} {1500 * MIB}', f'gpu_memory_used_bytes{{gpu="{uuids[1]}"}} 0']
    enforcement.begin(2, None, gi=second)
    enforcement.run()
    assert not [line for line in enforcement.metric("gpu_memory_used_bytes{") if uuids[1] in line], "the driver tells no usage"
