"""A pod that the runtime moves is told so before: by a change, a release, another back end. Its Job counts no failure."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpushare_node.contract.policy import OnBusy
from gpushare_node.contract.reasons import ConditionReason
from tests.node.gpus.gpu_node import A100
from tests.node.reconcile.dra_node import DraNode, by_claims
from tests.node.reconcile.loop_node import SEVEN, TWO, LoopNode, mig, rollout, text_of, whole
from tests.support.fake_api.server import ApiServer

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-of-train", "controller": True}
EVICTING: dict[str, Any] = {"on_busy": OnBusy.EVICT, "drain_timeout_seconds": 30}


def told(api: ApiServer, name: str = "train-x") -> list[tuple[str, str]]:
    """What was written of the pod, in order."""
    return [(method, path.rsplit("/", 1)[-1]) for method, path in api.writes(f"/science/pods/{name}")]


MOVED = [("PATCH", "status"), ("POST", "eviction"), ("DELETE", "train-x")]


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    made = LoopNode(tmp_path, api)
    made.run(rollout(mig(SEVEN), **EVICTING))
    made.tenant("train-x", made.fake_nvml.mig_uuid(0, made.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb", owner=JOB)
    return made


def test_pod_in_the_way_of_a_change_is_told(node: LoopNode) -> None:
    assert node.run(rollout(mig(TWO, key="mig-00000002"), **EVICTING)).reason is ConditionReason.READY
    assert told(node.api) == MOVED


def test_pod_in_the_way_of_a_release_is_told(node: LoopNode) -> None:
    node.folder.keep_policy(text_of(rollout(mig(SEVEN), **EVICTING)))
    node.unselect()
    assert node.run(rollout(mig(SEVEN), **EVICTING)).reason is ConditionReason.RELEASED
    assert told(node.api) == MOVED


def test_pod_in_the_way_of_another_back_end_is_told(tmp_path: Path) -> None:
    node = DraNode(tmp_path, Random(1), A100)
    node.start(rollout(whole(1), **EVICTING))
    node.tenant("train-x", node.fake_nvml.uuid(0), owner=JOB)
    node.start(rollout(by_claims(whole(1)), **EVICTING))
    assert told(node.api)[:3] == MOVED


def test_condition_outlives_a_slow_end_of_the_pod(node: LoopNode) -> None:
    node.api.lingers = True
    node.run(rollout(mig(TWO, key="mig-00000002"), **EVICTING))
    pod = node.api.get("pods", "train-x", namespace="science")
    assert pod["metadata"]["deletionTimestamp"]
    [found] = [one for one in pod["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert (found["status"], found["reason"]) == ("True", "GPUShareRepartitioning")
