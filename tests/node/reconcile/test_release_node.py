"""Leaving a pool: exclusive again, or handed over as it is; on the uninstall Job's request; of pools that are gone; by hand."""

from pathlib import Path

import pytest

from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL
from gpushare_node.contract.names import (
    POOL_LABEL,
    PROFILE_LABEL,
    RELEASE_ANNOTATION,
    RELEASED_ANNOTATION,
    REPARTITIONING_TAINT,
    RETRY_ANNOTATION,
)
from gpushare_node.contract.reasons import ConditionReason
from tests.node.reconcile.loop_node import DEPLOY, NAME, SEVEN, TWO, LoopNode, mig, rollout, whole
from tests.support.fake_api.server import ApiServer

OURS = {POOL_LABEL, PROFILE_LABEL, PLUGIN_LABEL}


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    made = LoopNode(tmp_path, api)
    made.run(mig(SEVEN))
    return made


def is_clean(node: LoopNode) -> bool:
    marks = OURS & node.labels().keys(), node.taints(), node.condition(), list(node.folder.path.glob("*.json"))
    return not any(marks) and node.fake_nvml.mode(0) == (False, False) and node.labels()[DEPLOY] == "true"


def test_a_node_that_is_no_longer_selected_becomes_exclusive(node: LoopNode) -> None:
    node.unselect("cpu")
    assert node.run(mig(SEVEN)).reason is ConditionReason.RELEASED
    assert is_clean(node)
    assert node.api.node(NAME)["status"]["allocatable"]["nvidia.com/gpu"] == "1"


@pytest.mark.parametrize("dies", ["at the driver", "before the API server hears of it"])
def test_node_that_failed_its_first_install_is_released_with_its_pool(
    tmp_path: Path,
    api: ApiServer,
    dies: str,
) -> None:
    fresh = LoopNode(tmp_path, api)
    fresh.fake_nvml.fail("nvmlDeviceSetMigMode", 999)
    if dies != "at the driver":
        api.fail("/status", 500, times=-1)
    fresh.run(mig(SEVEN))
    assert (fresh.taints(), fresh.labels()[POOL_LABEL]) == ({REPARTITIONING_TAINT}, "training")
    fresh.fake_nvml.heal()
    api.heal()
    assert fresh.release().reason is ConditionReason.RELEASED
    assert is_clean(fresh)


def test_pool_label_is_removed_last(node: LoopNode) -> None:
    node.unselect("cpu")
    node.api.forget_requests()
    node.run(mig(SEVEN))
    last = [body for (method, path), body in zip(node.api.requests, node.api.bodies, strict=True) if method == "PATCH"][-1]
    assert last["metadata"]["labels"] == {POOL_LABEL: None}
    assert node.api.writes()[-1] == ("PATCH", f"/api/v1/nodes/{NAME}")


def test_second_release_writes_nothing_to_the_node(node: LoopNode) -> None:
    node.unselect("cpu")
    node.run(mig(SEVEN))
    node.api.forget_requests()
    node.fake_nvml.forget_calls()
    assert node.run(mig(SEVEN)).reason is ConditionReason.RELEASED
    assert (node.api.writes(), node.fake_nvml.calls()) == ([], [])


def test_release_waits_for_tenants_as_the_pool_specifies(node: LoopNode) -> None:
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    node.unselect("cpu")
    outcome = node.run(rollout(mig(SEVEN), drain_timeout_seconds=10))
    assert outcome.reason is ConditionReason.GPU_BUSY
    assert node.gpus.stands(0) == set(SEVEN)
    assert node.labels()[POOL_LABEL] == "training"
    assert node.taints() == set()


def test_another_pool_takes_the_gpus_as_they_are(node: LoopNode) -> None:
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    node.unselect("other")
    node.runtime_pod("next")
    node.fake_nvml.forget_calls()
    assert node.run(mig(SEVEN)).reason is ConditionReason.RELEASED
    assert node.fake_nvml.calls() == []
    assert OURS & node.labels().keys() == {PLUGIN_LABEL}, "else the plugin would sell whole GPUs meanwhile"
    assert node.folder.policy() is not None
    other = {"key": "role", "operator": "In", "values": ["other"]}
    node.api.add_daemonset("gpushare-next", terms=[{"matchExpressions": [other]}])
    six = (*SEVEN[:4], ("3g.20gb", 4))
    outcome = node.run(mig(six, pool="next", key="mig-00000009"))
    assert outcome.reason is ConditionReason.READY
    assert node.labels()[POOL_LABEL] == "next"
    assert node.gpus.stands(0) == set(six)


@pytest.mark.parametrize("profile", ["mig-00000009", "mig-00000001"])
def test_labels_that_the_next_pool_sets_at_once_are_not_taken_away(node: LoopNode, profile: str) -> None:
    """Its runtime takes the node as soon as the pool's label is gone, and applies labels under the same name as ours."""
    node.unselect("other")
    node.runtime_pod("next")
    theirs = {POOL_LABEL: "next", PROFILE_LABEL: profile, PLUGIN_LABEL: f"{profile}-a"}
    patch, look = f"PATCH /api/v1/nodes/{NAME}?fieldManager=gpushare", f"GET /api/v1/nodes/{NAME}"
    node.api.before(patch, lambda: node.api.before(look, lambda: node.server("next").apply_labels(theirs)))
    node.run(mig(SEVEN))
    assert {name: node.labels().get(name) for name in theirs} == theirs


def test_node_that_already_belongs_to_another_pool_is_not_changed(node: LoopNode) -> None:
    node.label(role="other", **{POOL_LABEL: "next"})
    node.api.forget_requests()
    assert node.run(mig(SEVEN)).reason is ConditionReason.RELEASED
    assert node.gpus.stands(0) == set(SEVEN)
    assert node.api.writes() == []


def test_label_without_a_pod_does_not_override_the_pool_of_the_layout(node: LoopNode) -> None:
    """That pool's pod is away at this moment: it is the label that brings the next."""
    own = {"key": POOL_LABEL, "operator": "In", "values": ["next"]}
    node.api.add_daemonset("gpushare-next", terms=[{"matchExpressions": [own]}])
    node.label(**{POOL_LABEL: "next"})
    node.fake_nvml.forget_calls()
    assert node.run(mig(TWO, pool="next", key="mig-00000009")).reason is ConditionReason.RELEASED
    assert node.fake_nvml.calls() == []
    assert node.labels()[POOL_LABEL] == "training"
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert node.fake_nvml.calls() == []


def test_release_request_is_answered_before_the_pool_label_is_removed(node: LoopNode) -> None:
    node.annotate(RELEASE_ANNOTATION, node.api.asking())
    node.api.forget_requests()
    assert node.run(mig(SEVEN)).reason is ConditionReason.RELEASED
    assert is_clean(node)
    assert node.annotations()[RELEASED_ANNOTATION] == "exclusive"
    assert node.api.writes("leases") == [], "an uninstall is not paced"


def test_holding_run_stays_released_until_the_request_is_withdrawn(node: LoopNode) -> None:
    node.annotate(RELEASE_ANNOTATION, node.api.asking())
    quiet = []

    def take_back(time: float) -> None:
        if 1000 < time < 2000:
            quiet.append((list(node.api.writes()), list(node.watched)))
        if time > 2000:
            node.annotate(RELEASE_ANNOTATION, None)

    node.on_tick = take_back
    assert node.run(mig(SEVEN), hold=True).reason is ConditionReason.READY
    assert quiet[0] == quiet[-1], "neither the node is written nor is anybody held to a cap"
    assert RELEASED_ANNOTATION not in node.annotations()
    assert node.gpus.stands(0) == set(SEVEN)


@pytest.mark.failure_case(81)
@pytest.mark.parametrize("end", ["it failed", "it is gone", "it is ending", "another of its name", "by hand"])
def test_release_request_of_a_dead_job_is_ignored_and_removed(node: LoopNode, end: str) -> None:
    request = node.api.asking()
    name, _, uid = request.partition("/")
    job = {"namespace": "gpushare"}
    match end:
        case "it failed":
            node.api.edit("pods", name, lambda pod: pod["status"].update(phase="Failed"), **job)
        case "it is gone":
            node.api.remove("pods", name, **job)
        case "it is ending":
            node.api.edit("pods", name, lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"), **job)
        case "another of its name":
            request = f"{name}/another-{uid}"
        case _:
            request = "requested"
    node.annotate(RELEASE_ANNOTATION, request)
    node.annotate(RELEASED_ANNOTATION, "exclusive")
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert node.annotations().keys().isdisjoint({RELEASE_ANNOTATION, RELEASED_ANNOTATION})


@pytest.mark.failure_case(81)
def test_released_node_rejoins_its_pool_when_the_job_dies(node: LoopNode) -> None:
    request = node.api.asking()
    node.annotate(RELEASE_ANNOTATION, request)
    seen: list[set[tuple[str, int]]] = []

    def die(time: float) -> None:
        if time > 2000 and not seen:
            seen.append(node.gpus.stands(0))
            name = request.partition("/")[0]
            node.api.edit("pods", name, lambda pod: pod["status"].update(phase="Failed"), namespace="gpushare")

    node.on_tick = die
    assert node.run(mig(SEVEN), hold=True).reason is ConditionReason.READY
    assert seen == [set()]
    assert node.gpus.stands(0) == set(SEVEN)
    assert RELEASE_ANNOTATION not in node.annotations()


@pytest.mark.failure_case(81)
def test_release_request_of_the_next_job_is_not_removed_with_the_old_one(node: LoopNode) -> None:
    node.annotate(RELEASE_ANNOTATION, "gpushare-uninstall-y/uid-of-a-former-job")
    request = node.api.asking()
    node.api.before(f"PATCH /api/v1/nodes/{NAME}", lambda: node.annotate(RELEASE_ANNOTATION, request))
    node.server().node()
    assert node.server().node().annotations[RELEASE_ANNOTATION] == request


def test_a_request_interrupts_the_wait_for_tenants(node: LoopNode) -> None:
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    start = node.clock.now()
    node.on_tick = lambda time: node.annotate(RELEASE_ANNOTATION, node.api.asking()) if time > start + 60 else None
    outcome = node.run(mig(TWO))
    assert outcome.reason is ConditionReason.RELEASING
    assert node.clock.now() - start < 90
    assert node.taints() == set()
    assert not node.holds_slot()


@pytest.mark.failure_case(81)
@pytest.mark.parametrize("taken_back", ["the request", "the label"])
def test_release_withdrawn_during_the_drain_is_cancelled(node: LoopNode, taken_back: str) -> None:
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    request, role = node.api.asking(), node.labels()["role"]
    if taken_back == "the request":
        node.annotate(RELEASE_ANNOTATION, request)
    else:
        node.unselect("cpu")
    start = node.clock.now()

    def take_back(time: float) -> None:
        if time < start + 60:
            return
        node.on_tick = lambda _: None
        if taken_back == "the label":
            node.label(role=role)
        else:
            node.api.remove("pods", request.partition("/")[0], namespace="gpushare")

    node.on_tick = take_back
    assert node.run(mig(SEVEN), hold=True).reason is ConditionReason.READY
    assert node.clock.now() - start < 120
    assert node.taints() == set()
    assert RELEASE_ANNOTATION not in node.annotations()
    assert node.gpus.stands(0) == set(SEVEN)


def test_node_of_a_deleted_pool_is_released_from_its_stored_policy(node: LoopNode) -> None:
    node.api.remove("daemonsets", "gpushare-training", namespace="gpushare")
    assert node.release().reason is ConditionReason.RELEASED
    assert is_clean(node)


def test_node_without_a_state_dir_is_released_from_its_hardware(node: LoopNode) -> None:
    node.folder.remove()
    assert node.release().reason is ConditionReason.RELEASED
    assert is_clean(node)


def test_a_vanished_pools_pod_that_is_still_there_is_waited_for(node: LoopNode) -> None:
    node.runtime_pod("training")
    assert node.release().reason is ConditionReason.WAITING_FOR_POOL
    assert node.gpus.stands(0) == set(SEVEN)


def test_a_shared_node_is_not_released_under_its_tenants(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api)
    node.run(whole(replicas=4))
    node.tenant("sleeper", f"{node.fake_nvml.uuid(0)}::0", "nvidia.com/gpu.shared")
    node.unselect("cpu")
    assert node.run(rollout(whole(replicas=4), drain_timeout_seconds=10)).reason is ConditionReason.GPU_BUSY
    assert node.labels()[PLUGIN_LABEL] == "time-slicing-00000004-a"


def test_standalone_release_resets_hardware_and_state_dir(node: LoopNode) -> None:
    node.api.forget_requests()
    assert node.release(cluster=False).reason is ConditionReason.RELEASED
    assert node.fake_nvml.mode(0) == (False, False)
    assert not list(node.folder.path.glob("*.json"))
    assert node.api.requests == []


@pytest.mark.failure_case(19)
def test_hardware_that_cannot_be_released_keeps_its_taint_and_its_pool(node: LoopNode) -> None:
    node.fake_nvml.fail("nvmlGpuInstanceDestroy", 999)
    node.unselect("cpu")
    outcome = node.run(mig(SEVEN))
    assert outcome.reason is not ConditionReason.RELEASED
    assert "cannot leave" in outcome.message
    assert node.labels()[POOL_LABEL] == "training"
    assert REPARTITIONING_TAINT in node.taints()


def test_a_pool_label_that_was_rewritten_after_the_attempt_began_stays(node: LoopNode) -> None:
    node.unselect("cpu")
    node.annotate(RETRY_ANNOTATION, "now")
    node.before_step = lambda result: node.label(**{POOL_LABEL: "another"}) if result.step == "retry" else None
    outcome = node.run(mig(SEVEN))
    assert (outcome.reason, outcome.message) == (ConditionReason.RELEASED, "the node already belongs to pool another")
    assert node.labels()[POOL_LABEL] == "another"
    assert node.gpus.stands(0) == set(SEVEN)
