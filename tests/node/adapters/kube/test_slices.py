"""A node's ResourceSlices and DeviceClasses, as the API server has them, and as one that lies says."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.node_client import NodeClient
from gpushare_node.adapters.kube.slices import MAX_SLICES, PATH
from tests.node.adapters.kube.kube_fixture import FakeClock, server
from tests.support.fake_api.server import ApiServer

DRIVER = "gpu.nvidia.com"


@pytest.fixture
def here(api: ApiServer, tmp_path: Path, clock: FakeClock) -> Iterator[NodeClient]:
    api.add_node("n1")
    made = server(api, tmp_path, clock)
    yield made
    made.close()


def add(api: ApiServer, name: str, *, node: str = "n1", driver: str = DRIVER) -> None:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    api.add(
        "resourceslices", name, {"spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}}
    )


def test_only_this_drivers_slices_of_this_node_are_asked_for(api: ApiServer, here: NodeClient) -> None:
    add(api, "ours")
    add(api, "neighbour", node="n2")
    add(api, "nic", driver="nic.example.com")
    assert [one.name for one in here.slices(DRIVER)] == ["ours"]
    line = api.lines[-1]
    assert f"spec.driver={DRIVER},spec.nodeName=n1" in line
    assert f"limit={MAX_SLICES}" in line


def test_a_slice_that_is_gone_needs_no_deletion(api: ApiServer, here: NodeClient) -> None:
    add(api, "ours")
    add(api, "neighbour", node="n2")
    for _ in range(2):
        here.delete_slice("ours")
    assert [one["metadata"]["name"] for one in api.all("resourceslices")] == ["neighbour"]
    api.fail("DELETE", 403)
    with pytest.raises(ClusterError):
        here.delete_slice("neighbour")


def test_what_a_slice_lacks_is_empty(api: ApiServer, here: NodeClient) -> None:
    add(api, "ours")
    (device,) = here.slices(DRIVER)[0].devices
    assert (device.type, device.profile, device.uuid, device.shares, device.count) == ("", "", "", "", 0)


def test_only_taints_that_keep_claims_away_are_taken_in(api: ApiServer, here: NodeClient) -> None:
    taints = [{"key": effect.lower(), "effect": effect} for effect in ("NoSchedule", "NoExecute", "None")]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": [{"name": "gpu-0", "taints": taints}]}
    api.add("resourceslices", "ours", {"spec": spec})
    assert here.slices(DRIVER)[0].devices[0].taints == ("noschedule", "noexecute")


LIES: list[Any] = [
    {"items": [{"metadata": {"name": "a"}}]},
    {"items": [{"metadata": {"name": "a"}, "spec": {"pool": "n1"}}]},
    {"items": [{"metadata": {"name": "a"}, "spec": {"pool": {"generation": "x"}}}]},
    {"items": [{"metadata": {"name": "a"}, "spec": {"devices": [{"attributes": {}}]}}]},
    {"items": [{"metadata": {"name": "a"}, "spec": {"devices": [{"name": "gpu-0", "taints": [{}]}]}}]},
    {"items": [{"metadata": {"name": "a"}, "spec": {"devices": "many"}}]},
    {"items": ["a"]},
    {"items": 3},
    {"metadata": {"continue": "more"}, "items": []},
    [],
]


@pytest.mark.parametrize("lie", LIES, ids=repr)
def test_an_answer_that_cannot_be_interpreted_is_no_answer(api: ApiServer, here: NodeClient, lie: Any) -> None:
    api.garble(PATH, json.dumps(lie).encode())
    with pytest.raises(ClusterError) as failed:
        here.slices(DRIVER)
    assert failed.value.status is None


def test_a_cluster_without_dra_has_no_slices(api: ApiServer, here: NodeClient) -> None:
    api.fail(PATH, 404)
    assert here.slices(DRIVER) == ()
    api.heal()
    api.fail(PATH, 403)
    with pytest.raises(ClusterError):
        here.slices(DRIVER)


def test_names_by_which_pods_ask_for_a_class(api: ApiServer, here: NodeClient) -> None:
    api.add("deviceclasses", "gpushare-a", {"spec": {"extendedResourceName": "nvidia.com/gpu"}})
    api.add("deviceclasses", "gpushare-b", {"spec": {}})
    assert here.extended_names(["gpushare-a", "gpushare-b", "gpushare-gone"]) == {"nvidia.com/gpu"}
