"""The simulated nodes that measure rollouts and load: that they can run at all is seen here, and not first on a cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
import yaml

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.kube.api_endpoint import ApiEndpoint
from gpushare_node.core.policy import read
from tests.e2e.scale import simulation
from tests.e2e.scale.load import Node
from tests.e2e.scale.still import StillDriver
from tests.e2e.scale.traffic import FastTime, Observed, Traffic
from tests.e2e.scale.virtual_time import VirtualTime
from tests.node.reconcile.loop_node import text_of, whole
from tests.support.fake_api.server import ApiServer
from tests.support.waiting import wait_for

NODES = 12


@pytest.fixture
def address(api: ApiServer) -> ApiEndpoint:
    api.add_daemonset("gpushare-training", desired=NODES, namespace=simulation.NAMESPACE)
    return ApiEndpoint(url=api.url, headers=dict, open_pool=lambda: urllib3.PoolManager(retries=False))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """As much of one as a simulation reads."""
    policy = whole(replicas=4, card="t4")
    files = tmp_path / "chart" / "files"
    for folder, name, text in (
        ("policies", "training", text_of(policy)),
        (
            "profiles",
            policy.profile,
            yaml.safe_dump(
                {
                    "version": "v1",
                    "sharing": {
                        "timeSlicing": {"renameByDefault": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}
                    },
                }
            ),
        ),
    ):
        (files / folder).mkdir(parents=True)
        (files / folder / f"{name}.yaml").write_text(text)
    return tmp_path


@pytest.fixture
def kubelets(api: ApiServer, address: ApiEndpoint, tmp_path: Path) -> simulation.Kubelets:
    """All nodes, each with its kubelet."""
    made = simulation.Kubelets(address, VirtualTime())
    for name in (f"simulated-{number}" for number in range(NODES)):
        whole_gpu = {"nvidia.com/gpu": 1}
        api.add_node(name, allocatable=whole_gpu)
        connection = simulation.Counted(address, made, 0.02)
        made.nodes[name] = simulation.SimulatedNode(name=name, folder=tmp_path / name, connection=connection)
    return made


def test_simulated_nodes_roll_out(kubelets: simulation.Kubelets, bundle: Path) -> None:
    figures = simulation.roll_out(kubelets, bundle)
    assert figures["ready"] == NODES
    assert figures["most_out"] == 1
    assert figures["most_writes"] <= 8


def test_simulation_with_failing_nodes_reports_the_cause(
    kubelets: simulation.Kubelets,
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are threads: what they raise would go nowhere, and the figures would be those of nodes that asked for nothing."""
    monkeypatch.delattr(StillDriver, "versions")
    with pytest.raises(SystemExit, match=rf"{NODES} of {NODES} nodes failed.*(?s:.)*'StillDriver' object has no attribute"):
        simulation.roll_out(kubelets, bundle)


@pytest.fixture
def clock() -> Iterator[FastTime]:
    made = FastTime(100.0)
    yield made
    made.stop()


def test_idle_simulated_node_reports_ready_and_watches(
    api: ApiServer,
    address: ApiEndpoint,
    bundle: Path,
    tmp_path: Path,
    clock: FastTime,
) -> None:
    [policy] = (bundle / "chart" / "files" / "policies").iterdir()
    traffic = Traffic()
    node = Node(
        name="busy-00000",
        folder=StateDir(tmp_path / "state"),
        clock=clock,
        connection=Observed(address, clock, traffic),
        policy=read(policy.read_text()),
    )
    made = node.object(0)
    api.add_node(node.name, labels=made["metadata"]["labels"], allocatable=made["status"]["allocatable"])
    look = node.rest()

    def is_known() -> bool:
        look()
        found = api.condition(node.name)
        return found is not None and found["reason"] == "Ready" and {"WATCH pods", "WATCH nodes"} <= set(traffic.requests)

    wait_for(is_known)
    assert traffic.received
