"""The simulated nodes that measure rollouts and load: that they can run at all is seen here, and not first on a cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.kube.connection import ApiEndpoint
from gpushare_node.contract.policy import Mode, Policy
from tests.e2e.scale import simulation
from tests.e2e.scale.load import Node, NodeCrowd
from tests.e2e.scale.still import StillDriver
from tests.e2e.scale.traffic import FastTime, Observed, Traffic
from tests.e2e.scale.virtual_time import VirtualTime
from tests.node.reconcile.dra_node import by_claims
from tests.node.reconcile.loop_node import SEVEN, TWO, mig, rollout, text_of, whole
from tests.support.fake_api.server import ApiServer
from tests.support.waiting import wait_for

NODES = 6


@pytest.fixture
def address(api: ApiServer) -> ApiEndpoint:
    api.add_daemonset("gpushare-training", desired=NODES, namespace=simulation.NAMESPACE)
    return ApiEndpoint(url=api.url, headers=dict, open_pool=lambda: urllib3.PoolManager(retries=False))


def written(folder: Path, policy: Policy) -> Path:
    """As much of a bundle as a simulation reads."""
    files = folder / "chart" / "files"
    configs: dict[Mode, dict[str, Any]] = {
        Mode.TIME_SLICING: {
            "sharing": {"timeSlicing": {"renameByDefault": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}
        },
        Mode.MIG: {"flags": {"migStrategy": "mixed"}},
    }
    for kind, name, text in (
        ("policies", "training", text_of(policy)),
        ("profiles", policy.profile or "none", yaml.safe_dump({"version": "v1", **configs[policy.mode]})),
    ):
        (files / kind).mkdir(parents=True)
        (files / kind / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return written(tmp_path / "bundle", whole(replicas=4, card="t4"))


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


def test_simulated_nodes_go_over_to_dra_and_back(kubelets: simulation.Kubelets, api: ApiServer, tmp_path: Path) -> None:
    steps = (mig(TWO), by_claims(mig(TWO)), by_claims(mig(SEVEN)), mig(SEVEN, key="mig-00000002"))
    for number, policy in enumerate(steps):
        paced = rollout(policy, max_unavailable=3)
        figures = simulation.roll_out(kubelets, written(tmp_path / str(number), paced))
        assert (figures["ready"], figures["offered_twice"]) == (NODES, 0)
        assert 1 < figures["most_out"] <= 3
        is_dra = policy.dra is not None
        slices = api.all("resourceslices")
        assert [len(one["spec"]["devices"]) for one in slices] == [len(policy.gpus[0].instances)] * NODES * is_dra
        labels = {node["metadata"]["labels"].get("gpushare.dev/backend") for node in api.all("nodes")}
        assert labels == {"dra" if is_dra else None}
        offers = [node["status"]["allocatable"] for node in api.all("nodes")]
        gpus = [sum(int(count) for name, count in one.items() if name.startswith("nvidia.com/")) for one in offers]
        assert gpus == [0 if is_dra else len(policy.gpus[0].instances)] * NODES


def test_simulation_sees_that_both_back_ends_offer_a_gpu(kubelets: simulation.Kubelets, tmp_path: Path) -> None:
    kubelets.policy = by_claims(mig(TWO))
    node = kubelets.nodes["simulated-0"]
    labels = {"gpushare.dev/backend": "dra"}
    kubelets.see({"metadata": {"name": node.name, "labels": labels}, "spec": {}})
    kubelets.follow(node, 2.5)
    assert kubelets.offered_twice == {node.name}


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


@pytest.mark.parametrize(
    ("policy", "watched"),
    [
        (whole(replicas=4, card="t4"), {"pods", "nodes"}),
        (by_claims(whole(replicas=4, card="t4")), {"pods", "nodes", "resourceslices"}),
    ],
    ids=["plugin", "dra"],
)
def test_idle_simulated_node_reports_ready_and_watches(
    api: ApiServer, address: ApiEndpoint, tmp_path: Path, clock: FastTime, *, policy: Policy, watched: set[str]
) -> None:
    traffic = Traffic()
    node = Node(
        name="busy-00000",
        folder=StateDir(tmp_path / "state"),
        clock=clock,
        connection=Observed(address, clock, traffic),
        policy=policy,
    )
    made = node.object(0)
    api.add_node(node.name, labels=made["metadata"]["labels"], allocatable=made["status"]["allocatable"])
    nodes = NodeCrowd(nodes=[node], address=address, clock=clock, traffic=traffic)
    with nodes.sliced():
        look = node.rest()

        def is_known() -> bool:
            look()
            found = api.condition(node.name)
            return (
                found is not None
                and found["reason"] == "Ready"
                and {f"WATCH {one}" for one in watched} <= set(traffic.requests)
            )

        wait_for(is_known)
        clock.set_speed(1000.0)
        for _ in range(3):
            clock.sleep(60.0)
            look()
        assert (api.condition(node.name) or {})["reason"] == "Ready", "nothing is wrong with what the node offers"
    assert traffic.received
    assert api.all("resourceslices") == []
