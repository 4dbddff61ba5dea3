"""`gpushare plan --live`: the pods that a change disturbs by name, quotas in use, nodes that are not ready."""

import json
from pathlib import Path

import pytest

from gpushare.reading import schema
from tests.compiler.cluster.live.clusters import INTENT, SHARED, LiveCluster
from tests.compiler.cluster.live.conftest import Ask

OBSERVING = "  adoption: observe\n  platform: {registry: registry.example.org}\n"


@pytest.fixture
def write(tmp_path: Path, live: LiveCluster) -> Path:
    """An intent beside the installed one."""
    live.api.edit(
        "resourcequotas", "gpushare", lambda one: one.update(status={"used": {f"requests.{SHARED}": "3"}}), namespace="team"
    )
    return tmp_path / "new.yaml"


def test_plan_of_the_installed_intent_has_no_changes(write: Path, ask: Ask) -> None:
    write.write_text(INTENT)
    done = ask("plan", "--live", "--exit-code", write)
    assert done.returncode == 0, done.stderr
    assert "no node would change" in done.stdout
    assert "t4-2  GPUBusy" in done.stdout


def test_live_plan_lists_pods_with_their_owners(write: Path, ask: Ask) -> None:
    write.write_text(INTENT.replace("replicas: 4", "replicas: 2"))
    done = ask("plan", "--live", "--exit-code", write)
    assert done.returncode == 3, done.stderr
    assert "2 nodes would change" in done.stdout
    assert "team/lab-0  StatefulSet/lab" in done.stdout
    assert "at most" in done.stdout
    assert "train-0" not in done.stdout


def test_layout_that_keeps_the_instances_disturbs_no_pods(write: Path, ask: Ask) -> None:
    write.write_text(INTENT.replace("{2g.10gb: 2, 1g.5gb: 3}", "{2g.10gb: 2, 1g.5gb: 2}"))
    done = ask("plan", "--live", write, "--format", "json")
    document = json.loads(done.stdout)
    assert schema.accepts(schema.load("live-plan.v1"), document)
    (node,) = document["nodes"]
    assert (node["name"], node["from"], node["to"], node["sharesRemoved"]) == ("a100-1", "training", "training", 1)
    assert [pod["name"] for pod in node["pods"]] == ["train-0"]


def test_live_plan_reports_used_quotas_that_do_not_fit(write: Path, ask: Ask) -> None:
    write.write_text(INTENT.replace("{notebooks: 6}", "{notebooks: 2}"))
    assert ["team", SHARED, "3", "2"] in [line.split() for line in ask("plan", "--live", write).stdout.splitlines()]


def test_a_pool_that_is_removed_releases_its_nodes(write: Path, ask: Ask) -> None:
    write.write_text(INTENT.partition("    training:")[0])
    done = ask("plan", "--live", write)
    assert "a100-1: training → no pool" in done.stdout
    assert "physics/train-0" in done.stdout


def test_observing_bundle_changes_no_node(write: Path, ask: Ask) -> None:
    write.write_text(INTENT.replace("replicas: 4", "replicas: 2").partition("    training:")[0] + OBSERVING)
    done = ask("plan", "--live", "--exit-code", write)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no node would change" in done.stdout


@pytest.mark.parametrize(("shared_by", "is_known"), [("time-slicing", True), ("mps", False)])
def test_node_with_equal_shares_without_gpushare_loses_none(
    shared_by: str, is_known: bool, write: Path, live: LiveCluster, ask: Ask
) -> None:
    labels = {"example.org/new": "t4", "nvidia.com/gpu.sharing-strategy": shared_by}
    live.add_node("t4-9", labels=labels, allocatable={SHARED: 4, "nvidia.com/gpu": 0})
    live.api.add_pod("hand", namespace="team", node="t4-9", limits={SHARED: 1})
    write.write_text(INTENT.replace("example.org/gpu: t4", "example.org/new: t4"))
    document = json.loads(ask("plan", "--live", write, "--format", "json").stdout)
    node = next(one for one in document["nodes"] if one["name"] == "t4-9")
    assert node["sharesRemoved"] == (0 if is_known else None)
    assert [pod["name"] for pod in node["pods"]] == ([] if is_known else ["hand"])


def test_live_plan_reports_unreadable_pods(write: Path, live: LiveCluster, ask: Ask) -> None:
    live.api.allows = lambda _, path: "/pods" not in path
    write.write_text(INTENT.replace("replicas: 4", "replicas: 2"))
    done = ask("plan", "--live", write)
    assert "its pods were not seen" in done.stdout
    assert "could not read pods" in done.stderr


def test_live_plan_fails_if_nodes_cannot_be_read(write: Path, live: LiveCluster, ask: Ask) -> None:
    live.api.allows = lambda _, path: "/nodes" not in path
    write.write_text(INTENT)
    done = ask("plan", "--live", write)
    assert done.returncode == 2
    assert "their changes are unknown" in done.stderr


@pytest.mark.parametrize("wrong", [("a",), ("--live", "a", "b"), ("--live", "a", "--format", "markdown"), ()])
def test_invalid_live_plan_calls_are_refused(ask: Ask, wrong: tuple[str, ...]) -> None:
    assert ask("plan", *wrong).returncode == 2
