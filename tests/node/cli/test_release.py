"""`release --all-nodes` as the chart's Job starts it: a process, its output, its exit code, what it leaves on the cluster."""

import json
import os
from pathlib import Path

import pytest

from tests.node.adapters.kube.kube_fixture import add_runtimes
from tests.node.cli import cli_environment as shell
from tests.support.fake_api.server import ApiServer
from tests.support.forked import Process
from tests.support.waiting import PATIENCE, wait_for

PROGRAM = """import sys
from gpushare_node.cli import main
from gpushare_node.adapters.kube import uninstall
uninstall.POLL_SECONDS = 0.05
sys.exit(main(sys.argv[1:]))"""
"""The command, which looks more often than a Job need."""


@pytest.fixture
def cluster(api: ApiServer) -> ApiServer:
    """Two nodes with a runtime each."""
    add_runtimes(api, "n1", "n2")
    return api


def start(cluster: ApiServer, folder: Path, *arguments: str) -> Process:
    pod = {"POD_NAMESPACE": "gpushare", "POD_NAME": "gpushare-uninstall-x", "POD_UID": "uid-x", "NODE_NAME": "n1"}
    environment = os.environ | cluster.kubeconfig(folder / "kubeconfig") | pod
    return shell.start(PROGRAM, ["release", "--all-nodes", *arguments], environment)


def asked(cluster: ApiServer) -> list[str]:
    """The nodes on which a request stands."""
    return [
        node["metadata"]["name"] for node in cluster.all("nodes") if "gpushare.dev/release" in node["metadata"]["annotations"]
    ]


def answer(cluster: ApiServer, *names: str) -> None:
    """What the runtime of a node does once it is asked."""
    wait_for(lambda: set(asked(cluster)) >= set(names))
    for name in names:
        cluster.patch("nodes", name, {"metadata": {"annotations": {"gpushare.dev/released": "exclusive"}}}, manager="runtime")


def test_daemonsets_are_deleted_when_all_nodes_have_answered(cluster: ApiServer, tmp_path: Path) -> None:
    with start(cluster, tmp_path) as job:
        answer(cluster, "n1", "n2")
        out, _ = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0
    assert "changed n1      release\nchanged n2      release\n" in out
    assert "ok=0 changed=2 failed=0 skipped=0\nAll nodes have left their pools.\n" in out
    assert (cluster.all("daemonsets"), asked(cluster)) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "stay"),
    [
        (("--claim-templates", "--timeout", "0s", "--go-on"), False),
        (("--claim-templates", "--observed"), False),
        (("--claim-templates", "--timeout", "0s"), True),
        (("--timeout", "0s", "--go-on"), True),
    ],
)
def test_claim_templates_are_deleted_after_an_uninstall_alone(
    arguments: tuple[str, ...], stay: bool, cluster: ApiServer, tmp_path: Path
) -> None:
    ours = {"metadata": {"labels": {"app.kubernetes.io/name": "gpushare"}}}
    cluster.add("resourceclaimtemplates", "gpushare-train.gpu", ours, namespace="course")
    with start(cluster, tmp_path, *arguments) as job:
        job.communicate(timeout=PATIENCE)
    assert bool(cluster.all("resourceclaimtemplates")) == stay


def test_commands_that_are_left_to_do_are_printed_after_an_uninstall_alone(cluster: ApiServer, tmp_path: Path) -> None:
    steps = ("--next-step", "helm upgrade a", "--next-step", "kubectl delete b")
    with start(cluster, tmp_path, "--timeout", "0s", *steps) as job:
        out, _ = job.communicate(timeout=PATIENCE)
    assert "helm upgrade a" not in out
    with start(cluster, tmp_path, "--timeout", "0s", "--go-on", *steps) as job:
        out, _ = job.communicate(timeout=PATIENCE)
    assert out.endswith("Left to do, in the folder of the bundle:\nhelm upgrade a\nkubectl delete b\n")


def test_node_that_does_not_answer_in_time_blocks_the_uninstall(cluster: ApiServer, tmp_path: Path) -> None:
    with start(cluster, tmp_path, "--timeout", "5s", "--format", "json") as job:
        answer(cluster, "n1")
        out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 1
    document = json.loads(out)
    assert [(one["target"], one["status"]) for one in document["results"]] == [("n1", "changed"), ("n2", "failed")]
    assert document["message"] == "Nodes did not answer; nothing was uninstalled."
    assert "waiting for 1 of 2 nodes: n2" in err
    assert (len(cluster.all("daemonsets")), asked(cluster)) == (1, [])


def test_go_on_uninstalls_and_reports_unresponsive_nodes(cluster: ApiServer, tmp_path: Path) -> None:
    with start(cluster, tmp_path, "--timeout", "0s", "--go-on") as job:
        out, _ = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0
    assert "failed  n1      release: did not answer in time" in out
    assert "All nodes have left their pools" not in out
    assert (cluster.all("daemonsets"), asked(cluster)) == ([], [])


def test_release_without_permission_to_read_nodes_reports_403(cluster: ApiServer, tmp_path: Path) -> None:
    cluster.fail("GET", 403)
    with start(cluster, tmp_path) as job:
        _, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 2
    assert err.startswith("gpushare-node: ")
    assert "403" in err


def test_terminated_release_job_withdraws_its_requests(cluster: ApiServer, tmp_path: Path) -> None:
    with start(cluster, tmp_path) as job:
        wait_for(lambda: len(asked(cluster)) == 2)
        job.terminate()
        assert job.wait(PATIENCE) == 143
    assert (len(cluster.all("daemonsets")), asked(cluster)) == (1, [])
