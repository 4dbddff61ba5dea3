"""What enforcement does beside the caps: the condition, drift and its repair, labels, leaving, and XIDs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.host.state_dir import StateDirError
from gpushare_node.adapters.host.state_files import FirstCaps
from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL, NodeView
from gpushare_node.contract.names import BACKEND_LABEL, POOL_LABEL, RELEASE_ANNOTATION
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from tests.node.adapters.kube.kube_fixture import server
from tests.node.enforce.enforcement import await_end
from tests.node.enforce.enforcement_loop import LABELS, EnforcementLoop
from tests.support.fake_api.server import ApiServer
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool
from tests.support.waiting import wait_for


def test_healthy_node_reports_ready_once_a_minute(enforcement_loop: EnforcementLoop) -> None:
    enforcement_loop.run(150)
    assert enforcement_loop.api.said == [(ConditionReason.READY, ConditionReason.READY.value.means)] * 3
    assert enforcement_loop.api.deleted == 0


@pytest.mark.parametrize("name", ["first-caps.json", "caps.json"])
def test_unwritable_state_is_a_reason_and_is_logged_once(
    name: str, enforcement_loop: EnforcementLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory in place of a file: what fails at each attempt, though all else is well."""
    folder = enforcement_loop.enforcement.folder
    writes: dict[str, Callable[[], None]] = {
        "first-caps.json": lambda: folder.keep_first_caps(FirstCaps(since=1)),
        "caps.json": lambda: folder.keep_caps({}),
    }
    (folder.path / name).mkdir(parents=True)
    with pytest.raises(StateDirError):
        writes[name]()
    caplog.clear()
    for number in range(3):
        enforcement_loop.enforcement.admit(number, f"tenant-{number}")
        enforcement_loop.run(60)
    reason, message = enforcement_loop.api.said[-1]
    assert reason is ConditionReason.STATE_UNWRITABLE
    assert f"{name} cannot be written" in message
    assert len([one for one in caplog.records if "cannot be written" in one.getMessage()]) <= 1
    (folder.path / name).rmdir()
    writes[name]()
    enforcement_loop.run(61)
    assert enforcement_loop.api.said[-1][0] is ConditionReason.READY


@pytest.fixture
def mig(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> EnforcementLoop:
    """A node whose first GPU has the two instances that its policy wants."""
    two_gpus.set_mode(0, current=True)
    for start in (0, 2):
        two_gpus.add_instance(0, 14, start)
    gpus = [
        {
            "indexes": [0],
            "mig": True,
            "instances": [{"profile": "2g.10gb", "profileId": 14, "start": start, "size": 2} for start in (0, 2)],
        },
        {"indexes": [1], "mig": False, "instances": []},
    ]
    return EnforcementLoop(tmp_path, two_gpus, process_pool, mode="mig", profile="mig-01234567", gpus=gpus)


def test_drift_is_reported_and_repaired_once(mig: EnforcementLoop, two_gpus: FakeNvml) -> None:
    mig.run(31)
    assert mig.api.said[-1][0] is ConditionReason.READY
    two_gpus.add_instance(0, 14, 4)
    mig.run(70)
    assert mig.api.said[-1] == (ConditionReason.DRIFTED, "GPU 0 no longer matches the policy.")
    assert mig.api.deleted == 1
    assert "GPULayoutDrifted" in mig.api.reasons()
    mig.start()
    mig.run(200)
    assert mig.api.deleted == 1
    mig.enforcement.clock.time += 3600
    mig.run(1)
    assert mig.api.deleted == 2


def test_transient_mode_change_triggers_no_repair(enforcement_loop: EnforcementLoop, two_gpus: FakeNvml) -> None:
    enforcement_loop.run(31)
    two_gpus.set_mode(1, current=False, pending=True)
    enforcement_loop.run(30)
    assert enforcement_loop.monitor.reason(0)[0] is ConditionReason.PENDING_FOREIGN_CHANGE
    two_gpus.set_mode(1, current=False, pending=False)
    enforcement_loop.run(90)
    assert enforcement_loop.api.deleted == 0
    assert enforcement_loop.api.said[-1][0] is ConditionReason.READY


def test_gpu_switched_externally_is_repaired(enforcement_loop: EnforcementLoop, two_gpus: FakeNvml) -> None:
    enforcement_loop.run(31)
    two_gpus.set_mode(1, current=True)

    def is_repaired() -> bool:
        enforcement_loop.run(31)
        return enforcement_loop.api.deleted == 1

    wait_for(is_repaired)


def test_repair_that_cannot_be_recorded_is_not_started(
    enforcement_loop: EnforcementLoop, two_gpus: FakeNvml, tmp_path: Path
) -> None:
    two_gpus.set_mode(1, current=True)
    (tmp_path / "state").rmdir()
    (tmp_path / "state").write_text("no folder")
    enforcement_loop.run(120)
    assert enforcement_loop.api.deleted == 0


@pytest.mark.parametrize("reason", ["release", "pool", "selector"])
def test_a_node_that_is_to_leave_deletes_the_runtimes_pod(enforcement_loop: EnforcementLoop, reason: str) -> None:
    enforcement_loop.run(1)
    match reason:
        case "release":
            enforcement_loop.api.view = replace(enforcement_loop.api.view, annotations={RELEASE_ANNOTATION: "requested"})
        case "pool":
            enforcement_loop.api.view = replace(enforcement_loop.api.view, labels={**LABELS, POOL_LABEL: "other"})
        case _:
            enforcement_loop.api.is_selected, enforcement_loop.api.is_deleted = False, True
    enforcement_loop.monitor.trigger()
    enforcement_loop.run(2)
    assert enforcement_loop.api.deleted == 1
    assert enforcement_loop.api.said[-1][0] is ConditionReason.RELEASING


def test_unchanged_node_is_read_rarely(enforcement_loop: EnforcementLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, selections = [], []
    node = enforcement_loop.api.node

    def look() -> NodeView:
        looks.append(1)
        return node()

    def selects(_: NodeView) -> bool:
        selections.append(1)
        return True

    monkeypatch.setattr(enforcement_loop.api, "node", look)
    monkeypatch.setattr(enforcement_loop.api, "selects", selects)
    enforcement_loop.run(290)
    assert (len(selections), len(looks)) == (1, 1 + 7)
    enforcement_loop.run(320)
    assert len(selections) == 2


def test_failed_node_read_is_retried_soon(enforcement_loop: EnforcementLoop) -> None:
    enforcement_loop.api.is_down = True
    enforcement_loop.run(1)
    enforcement_loop.api.is_down = False
    enforcement_loop.api.is_selected, enforcement_loop.api.is_deleted = False, True
    enforcement_loop.run(17)
    assert enforcement_loop.api.deleted == 1


def test_changed_node_is_read_in_the_next_cycle(enforcement_loop: EnforcementLoop) -> None:
    enforcement_loop.run(2)
    enforcement_loop.api.view = replace(enforcement_loop.api.view, annotations={RELEASE_ANNOTATION: "requested"})
    enforcement_loop.run(5)
    assert enforcement_loop.api.deleted == 0
    enforcement_loop.monitor.trigger()
    enforcement_loop.run(1)
    assert enforcement_loop.api.deleted == 1


def test_condition_written_by_partition_is_not_written_again(
    enforcement_loop: EnforcementLoop, api: ApiServer, tmp_path: Path
) -> None:
    """Both say Ready in the same words, so the condition of a node that starts again is left as it is."""
    api.add_node("n1", labels=LABELS)
    api.add_daemonset("gpushare-train")
    (tmp_path / "account").mkdir()
    partition, enforce = (server(api, tmp_path / "account") for _ in range(2))
    partition.set_condition(ConditionReason.READY, ConditionReason.READY.value.means)
    api.forget_requests()
    enforcement_loop.monitor.cluster = enforce
    enforcement_loop.run(70)
    assert ("GET", "/api/v1/nodes/n1") in api.requests
    assert api.writes() == []
    partition.close()
    enforce.close()


def test_removed_label_is_restored_without_blaming_a_writer(enforcement_loop: EnforcementLoop) -> None:
    """A pool's runtime that hands the node over removes labels, and the API server does not keep who did."""
    enforcement_loop.api.view = replace(
        enforcement_loop.api.view, labels={PLUGIN_LABEL: LABELS[PLUGIN_LABEL]}, owners={PLUGIN_LABEL: "gpushare"}
    )
    enforcement_loop.run(1)
    assert enforcement_loop.api.applied == [LABELS]
    assert enforcement_loop.api.said[-1] == (
        ConditionReason.LABEL_CONFLICT,
        f"The runtime's labels were corrected: {POOL_LABEL} was removed.",
    )


def test_rewritten_label_is_restored_once_a_minute_and_its_writer_reported(enforcement_loop: EnforcementLoop) -> None:
    enforcement_loop.api.view = replace(
        enforcement_loop.api.view, labels={**LABELS, PLUGIN_LABEL: "theirs"}, owners={PLUGIN_LABEL: "kubectl"}
    )
    enforcement_loop.run(59)
    assert enforcement_loop.api.applied == [LABELS]
    assert enforcement_loop.api.said[-1][0] is ConditionReason.LABEL_CONFLICT
    assert "by kubectl" in enforcement_loop.api.said[-1][1]
    enforcement_loop.run(20)
    assert len(enforcement_loop.api.applied) == 2
    assert enforcement_loop.enforcement.metric("label_conflicts_total ") == ["label_conflicts_total 2"]


@pytest.mark.parametrize("label", ["none", "dra"])
def test_a_label_that_permits_another_back_end_is_left_to_a_new_pod(enforcement_loop: EnforcementLoop, label: str) -> None:
    loop = enforcement_loop
    loop.api.view = replace(loop.api.view, labels={**LABELS, BACKEND_LABEL: label}, owners={BACKEND_LABEL: "kubectl"})
    loop.run(1)
    assert loop.api.applied == []
    assert loop.api.deleted == 1
    assert [event.reason for event in loop.api.events] == ["LabelConflict"]
    assert f"{BACKEND_LABEL} was rewritten by kubectl" in loop.api.events[0].message


@pytest.mark.failure_case(69)
def test_xid_caused_by_our_kill_is_ignored_and_others_are_reported(
    enforcement_loop: EnforcementLoop, two_gpus: FakeNvml
) -> None:
    pid = enforcement_loop.enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement_loop.run(6)
    await_end(pid)
    _hear(enforcement_loop, two_gpus, [(0, 43), (0, 45), (1, 43), (0, 79)])
    told = [event.message for event in enforcement_loop.api.events if event.reason == "GPUXid"]
    assert [text.split()[4] for text in told] == ["43", "79"]
    assert two_gpus.uuid(1) in told[0]


def _hear(enforcement_loop: EnforcementLoop, two_gpus: FakeNvml, xids: list[tuple[int, int]]) -> list[Any]:
    """What upkeep has heard, once the driver has told all of these."""
    for gpu, xid in xids:
        two_gpus.xid(gpu, xid)

    def has_heard_all() -> bool:
        enforcement_loop.run(1)
        return len(enforcement_loop.monitor.recent) == len(xids)

    wait_for(has_heard_all)
    return list(enforcement_loop.monitor.recent)
