"""The commands on a cluster whose bundle observes: a mode, and not a failure, with what `enforce` would do."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpushare.reading import schema
from tests.compiler.cluster.live.clusters import INTENT, RELEASE, LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.support.fake_api.server import ApiServer

OBSERVE = INTENT.replace("spec:\n", "spec:\n  adoption: observe\n")
WOULD: Mapping[str, Any] = {
    "pool": "training",
    "gpus": {"0": ["turn MIG on", "create 2g.10gb at 0"]},
    "labels": {"gpushare.dev/pool": "training"},
    "resources": {"nvidia.com/mig-2g.10gb": 2},
    "pods": ["physics/train-0"],
}


@pytest.fixture
def observed(api: ApiServer) -> LiveCluster:
    """Every node is observed; a tenant uses the GPU that would be repartitioned."""
    cluster = LiveCluster(api, OBSERVE)
    for name, labels in (("t4-1", {"example.org/gpu": "t4"}), ("t4-2", {"example.org/gpu": "t4"}), ("a100-1", {})):
        api.add_node(name, labels=labels, allocatable={"nvidia.com/gpu": 1})
        cluster.say(name, "Observing", "Nothing is changed here; enforce would change nothing.")
        tell(cluster, name, json.dumps(WOULD if name == "a100-1" else {"pool": "notebooks"}))
    api.add_pod("train-0", namespace="physics", node="a100-1", limits={"nvidia.com/gpu": 1})
    cluster.add_release()
    return cluster


def tell(cluster: LiveCluster, name: str, text: str) -> None:
    """Write the annotation as the runtime does."""
    cluster.api.edit(
        "nodes", name, lambda node: node["metadata"].setdefault("annotations", {}).update({"gpushare.dev/would": text})
    )


def test_status_shows_observing_nodes_and_what_enforce_would_do(observed: LiveCluster, ask: Ask) -> None:
    done = ask("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 observed  " in done.stdout
    assert "3 nodes observed" in done.stdout
    assert "node a100-1 would be repartitioned (GPU 0), get 1 label" in done.stdout
    assert "in use by physics/train-0" in " ".join(done.stdout.split())
    assert "2 nodes would not be changed" in done.stdout
    assert "explain" not in done.stdout
    assert "not ready" not in ask("status", "-o", "wide").stdout


def test_document_is_valid_under_its_schema(observed: LiveCluster, ask: Ask) -> None:
    document = json.loads(ask("status", "--format", "json").stdout)
    assert schema.accepts(schema.load("status.v1"), document)
    assert document["pools"]["notebooks"]["observed"] == 2
    told = document["observing"]
    assert [told["overCap"], told["actions"], told["refusedRequests"]] == [None, None, None]
    assert told["nodes"][0]["gpus"] == ["0"]


def test_containers_and_pods_are_counted_with_kills(observed: LiveCluster, ask: Ask) -> None:
    observed.api.add_pod(
        "gpushare-notebooks-x",
        namespace=RELEASE,
        node="t4-1",
        labels={"app.kubernetes.io/name": "gpushare", "app.kubernetes.io/component": "node"},
    )
    over = 'gpushare_container_over_cap{namespace="team",pod="lab",container="%s",gpu="%d"} 1\n'
    observed.api.proxied[f"/api/v1/namespaces/{RELEASE}/pods/gpushare-notebooks-x:9408/proxy/metrics"] = (
        over % ("a", 0) + over % ("a", 1) + over % ("b", 0)
    ).encode() + b'gpushare_would_act_total{step="SIGKILL",reason="over-cap"} 5\n'
    check = 'apiserver_validating_admission_policy_check_total{enforcement_action="%s",error_type="no_error",policy="%s"} %d\n'
    observed.api.proxied["/metrics"] = "".join(
        (
            check % ("audit", "gpushare-pods", 2),
            check % ("warn", "gpushare-pods", 2),
            check % ("allow", "gpushare-pods", 9),
            check % ("warn", "another", 7),
        )
    ).encode()
    done = ask("status", "--kills")
    assert "2 containers over their cap now; 5 actions" in done.stdout
    assert "2 pods would have been refused" in done.stdout


def test_metrics_that_cannot_be_read_are_not_zero(observed: LiveCluster, ask: Ask) -> None:
    observed.api.allows = lambda _, path: not path.startswith("/metrics")
    done = ask("status", "--kills", "--format", "json")
    assert json.loads(done.stdout)["observing"]["refusedRequests"] is None
    assert "could not read metrics of the API server: 403" in ask("status", "--kills").stderr


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "7",
        "[" * 3000,
        '{"gpus": 7, "pods": {}, "labels": [1], "unknown": 3}',
        '{"pods": ["\\u001b[2J", "and 9 more"], "gpus": {"\\u001b[31m": []}}',
    ],
)
def test_any_annotation_value_raises_nothing(observed: LiveCluster, ask: Ask, text: str) -> None:
    tell(observed, "a100-1", text)
    done = ask("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout


def test_a_long_annotation_is_read_whole(observed: LiveCluster, ask: Ask) -> None:
    pods = [f"physics/train-{number}-{'x' * 60}" for number in range(20)] + ["and 3 more"]
    tell(observed, "a100-1", json.dumps({**WOULD, "pods": pods}))
    node = json.loads(ask("status", "a100-1", "--format", "json").stdout)["observing"]["nodes"][0]
    assert (len(node["pods"]), node["podCount"]) == (20, 23)


def test_observing_is_not_drift(observed: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    done = ask("drift", observed.write(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "no difference\n", "")


@pytest.mark.parametrize("reason", ["GpuUnreadable", "Ready"])
def test_unobserved_node_is_drift(observed: LiveCluster, ask: Ask, tmp_path: Path, reason: str) -> None:
    observed.api.edit("nodes", "t4-1", lambda node: node["status"].update(conditions=[]))
    observed.say("t4-1", reason, "told")
    done = ask("drift", observed.write(tmp_path))
    assert done.returncode == 3
    assert f"{reason}: told" in done.stdout


def test_a_bundle_that_enforces_differs_from_a_cluster_that_observes(observed: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "enforce.yaml").write_text(INTENT)
    done = ask("drift", tmp_path / "enforce.yaml")
    assert done.returncode == 3
    assert "Observing" in done.stdout


def test_plan_from_observe_to_enforce_lists_disturbed_pods(observed: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "enforce.yaml").write_text(INTENT)
    done = ask("plan", "--live", tmp_path / "enforce.yaml")
    assert "3 nodes would change" in done.stdout
    assert "physics/train-0" in done.stdout
    assert "no node would change" in ask("plan", "--live", observed.write(tmp_path)).stdout
