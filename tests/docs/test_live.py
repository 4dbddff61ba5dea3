"""docs/live.md: the commands print what the page shows of a cluster: a node in use, a pending pod, a label edited by hand."""

from pathlib import Path

import pytest

from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.live.clusters import SHARED, LiveCluster
from tests.docs.test_docs import NEEDS_A_CLUSTER, sessions
from tests.docs.test_modes import SECTIONS, intent
from tests.support.fake_api.server import ApiServer
from tests.support.paths import ROOT

PAGE = ROOT / "docs/live.md"
EXITS = {"gpushare drift bundle": 3}


def cluster(api: ApiServer) -> LiveCluster:
    """The cluster of the page: the intent of docs/modes.md for time-slicing, and three nodes."""
    made = LiveCluster(api, intent(SECTIONS["Time-slicing"]))
    for name in ("gpu-0", "gpu-1"):
        made.add_node(name, "notebooks")
    made.add_node("gpu-2", "notebooks", reason="GPUBusy", message="in use by pod course/old", allocatable={SHARED: 6})
    made.add_release()
    owner = {"kind": "Job", "name": "old", "uid": "1", "controller": True}
    api.add_pod("old", namespace="course", node="gpu-2", limits={SHARED: 1}, owner=owner)
    for number in range(4):
        api.add_pod(f"lab-{number}", namespace="course", node="gpu-0", limits={SHARED: 1})
    api.add_pod("train", namespace="course", limits={"nvidia.com/gpu": 1}, phase="Pending")
    api.edit("nodes", "gpu-1", lambda node: node["metadata"]["labels"].update({"gpushare.dev/profile": "by-hand"}))
    return made


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("live")
    with ApiServer(token="secret") as api:
        cluster(api).write(folder)
        return {command: run(command, folder, api.kubeconfig(folder / "kubeconfig")) for command, _ in sessions(PAGE)}


def run(command: str, folder: Path, environment: dict[str, str]) -> str:
    done = gpushare(*command.split()[1:], cwd=folder, environment=environment)
    assert done.returncode == EXITS.get(command, 0), done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("command", "shown"), sessions(PAGE), ids=lambda text: text.partition("\n")[0])
def test_output_on_the_page_equals_the_commands_output(command: str, shown: str, printed: dict[str, str]) -> None:
    assert shown.rstrip() == printed[command].rstrip(), printed[command]


def test_every_command_of_the_page_is_run_here() -> None:
    assert PAGE.name in NEEDS_A_CLUSTER
    assert {command.split()[1] for command, _ in sessions(PAGE)} == {"status", "explain", "drift"}
