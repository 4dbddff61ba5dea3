"""Clusters with AMD's GPUs: Nodes, DeviceConfigs and the config manager's file become pools."""

import json
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.cluster.importing import InputFile, build
from gpushare.core.diagnostics import is_error

PROFILES = {
    "unlike": {
        "profiles": [
            {"computePartition": "SPX", "memoryPartition": "NPS1", "numGPUsAssigned": 1},
            {"computePartition": "CPX", "memoryPartition": "NPS1", "numGPUsAssigned": 3},
        ]
    }
}


def node(name: str, capacity: dict[str, int], device: str = "74a1", **labels: str) -> dict[str, Any]:
    found = {"amd.com/gpu.device-id": device, **{key.replace("__", "/"): value for key, value in labels.items()}}
    shown = {key: str(value) for key, value in capacity.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": found}, "status": {"capacity": shown}}


def imported(*objects: dict[str, Any]) -> tuple[Any, list[str]]:
    text = "---\n".join(yaml.safe_dump(one) for one in objects)
    found = build([InputFile(name="cluster.yaml", data=text.encode())], "lab")
    codes = [one.code for one in found.findings if is_error(one)]
    return (yaml.safe_load(found.text)["spec"] if found.text else None), codes


def checked(spec: Any) -> None:
    document = {"apiVersion": "gpushare.dev/v1", "kind": "ClusterIntent", "metadata": {"name": "lab"}, "spec": spec}
    findings = pipeline.check(yaml.safe_dump(document).encode(), "intent.yaml").findings
    assert not [one for one in findings if is_error(one)], findings


CPX = {"mode": "partition", "compute": "CPX", "memory": "NPS4"}
SPX = {"amd.com__gpu.vram": "192G", "amd.com__gpu.cu-count": "304"}


@pytest.mark.parametrize(
    ("capacity", "device", "labels", "card", "gpus", "sharing"),
    [
        ({"amd.com/cpx_nps4": 64}, "74a1", {}, "mi300x", 8, CPX),
        ({"amd.com/gpu": 8}, "0x74a1", SPX, "mi300x", 8, {"mode": "exclusive"}),
        ({"amd.com/gpu": 8}, "74a1", {"amd.com__gpu.cu-count": "304"}, "mi300x", 8, {"mode": "exclusive"}),
        ({"amd.com/gpu": 4}, "74a8", {"beta.amd.com__gpu.vram": "191G"}, "mi308x", 4, {"mode": "exclusive"}),
        ({"amd.com/spx_nps1": 8}, "74a1", {}, "mi300x", 8, {"mode": "partition", "compute": "SPX", "memory": "NPS1"}),
        ({"amd.com/gpu": 4}, "740f", {}, "mi210", 4, {"mode": "exclusive"}),
        (
            {"amd.com/gpu": 64},
            "74a1",
            {"amd.com__gpu.compute-memory-partition": "cpx_nps4"},
            "mi300x",
            8,
            CPX | {"strategy": "single"},
        ),
        ({"amd.com/gpu": 8}, "740c", {"amd.com__gpu.product-name": "AMD_Instinct_MI250X"}, "mi250x", 8, {"mode": "exclusive"}),
    ],
)
def test_a_pool_follows_from_what_nodes_offer(  # noqa: PLR0917 - the columns of a table
    capacity: dict[str, int], device: str, labels: dict[str, str], card: str, gpus: int, sharing: dict[str, Any]
) -> None:
    spec, codes = imported(node("a", capacity, device, **labels))
    assert codes == []
    [pool] = spec["pools"].values()
    assert (pool["card"], pool["gpusPerNode"], pool["sharing"], pool["nodes"]) == (card, gpus, sharing, {"names": ["a"]})
    assert spec["platform"]["amd"] == {"stack": "existing"}
    checked(spec)


def test_the_profile_of_the_label_says_which_gpus_have_which_mode() -> None:
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "dcm", "namespace": "amd"},
        "data": {"config.json": json.dumps({"gpu-config-profiles": PROFILES})},
    }
    device = {
        "apiVersion": "amd.com/v1alpha1",
        "kind": "DeviceConfig",
        "metadata": {"name": "default", "namespace": "amd"},
        "spec": {},
    }
    labels = {"dcm.amd.com__gpu-config-profile": "unlike"}
    offers = {"amd.com/spx_nps1": 1, "amd.com/cpx_nps1": 24}
    spec, codes = imported(config, device, node("a", offers, **labels))
    assert codes == []
    [pool] = spec["pools"].values()
    assert pool["sharing"]["layouts"] == [{"gpus": [0], "compute": "SPX"}, {"gpus": [1, 2, 3], "compute": "CPX"}]
    assert spec["platform"]["amd"] == {"stack": "existing", "namespace": "amd"}
    checked(spec)


def test_nodes_alike_are_one_pool_that_a_label_of_the_users_selects() -> None:
    nodes = [node(name, {"amd.com/cpx_nps4": 64}, example__role="chat") for name in ("a", "b")]
    for one in nodes:
        one["metadata"]["labels"]["example.org/role"] = one["metadata"]["labels"].pop("example/role")
    spec, codes = imported(*nodes)
    assert codes == []
    assert spec["pools"]["chat"]["nodes"] == {"matchLabels": {"example.org/role": "chat"}, "expected": 2}


def test_quotas_on_partitions_are_carried() -> None:
    hard = {"requests.amd.com/cpx_nps4": "12"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "team"},
        "spec": {"hard": hard},
    }
    spec, codes = imported(quota, node("a", {"amd.com/cpx_nps4": 64}))
    assert codes == []
    assert spec["quotas"] == {"team": {"mi300x-partition": 12}}


@pytest.mark.parametrize(
    ("devices", "device", "vram", "units", "gpus", "compute"),
    [
        (16, "74a1", "96G", "152", 8, "DPX"),
        (32, "74a1", "48G", "76", 8, "QPX"),
        (64, "74a1", "24G", "38", 8, "CPX"),
        (8, "74a1", "24G", "38", 1, "CPX"),
        (32, "74a2", "48G", "20", 8, "CPX"),
        (8, "75a8", "36G", "32", 2, "CPX"),
    ],
)
def test_memory_and_compute_units_of_a_device_say_the_mode_where_no_label_does(  # noqa: PLR0917 - the columns of a table
    devices: int, device: str, vram: str, units: str, gpus: int, compute: str
) -> None:
    labels = {"amd.com__gpu.vram": vram, "amd.com__gpu.cu-count": units}
    spec, codes = imported(node("a", {"amd.com/gpu": devices}, device, **labels))
    assert codes == []
    [pool] = spec["pools"].values()
    sharing = {"mode": "partition", "compute": compute, "memory": "NPS1", "strategy": "single"}
    assert (pool["gpusPerNode"], pool["sharing"]) == (gpus, sharing)
    checked(spec)


def test_the_memory_mode_is_that_of_the_managers_profile_or_is_reported_as_assumed() -> None:
    dpx = {"dpx": {"profiles": [{"computePartition": "DPX", "memoryPartition": "NPS2", "numGPUsAssigned": 8}]}}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "dcm", "namespace": "amd"},
        "data": {"config.json": json.dumps({"gpu-config-profiles": dpx})},
    }
    labels = {"amd.com__gpu.cu-count": "152", "dcm.amd.com__gpu-config-profile": "dpx"}
    one = node("a", {"amd.com/gpu": 16}, **labels)
    for objects, memory, codes in (([config, one], "NPS2", []), ([one], "NPS1", ["GS860"])):
        text = "---\n".join(yaml.safe_dump(thing) for thing in objects)
        found = build([InputFile(name="cluster.yaml", data=text.encode())], "lab")
        [pool] = found.draft.pools.values()
        assert (pool["sharing"]["memory"], [finding.code for finding in found.findings]) == (memory, codes)


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"amd.com__gpu.vram": "96G", "amd.com__gpu.cu-count": "304"},
        {"amd.com__gpu.vram": "7G"},
        {"amd.com__gpu.cu-count": "100"},
        {"amd.com__gpu.cu-count": "38"},
        {"amd.com__gpu.vram.96G": "2", "amd.com__gpu.vram.192G": "10"},
        {"amd.com__gpu.compute-memory-partition": "octo_nps9", **SPX},
    ],
)
def test_devices_of_which_no_label_says_whether_they_are_whole_gpus_are_an_error(labels: dict[str, str]) -> None:
    assert imported(node("a", {"amd.com/gpu": 12}, **labels)) == (None, ["GS862"])


@pytest.mark.parametrize(
    ("capacity", "device"),
    [
        ({"amd.com/gpu": 8}, "ffff"),
        ({"amd.com/cpx_nps4": 63}, "74a1"),
        ({"amd.com/spx_nps1": 1, "amd.com/cpx_nps1": 24}, "74a1"),
        ({"amd.com/gpu": 17}, "740f"),
        ({"amd.com/cpx_nps4": 136}, "74a1"),
    ],
)
def test_what_is_no_mode_of_the_card_is_an_error(capacity: dict[str, int], device: str) -> None:
    assert imported(node("a", capacity, device))[1] == ["GS862"]


def test_the_managers_taint_is_no_toleration_of_a_pool() -> None:
    one = node("a", {"amd.com/cpx_nps4": 64})
    lasting = {"key": "example.org/gpu", "effect": "NoSchedule"}
    one["spec"] = {"taints": [{"key": "amd-dcm", "value": "up", "effect": "NoExecute"}, lasting]}
    spec, codes = imported(one)
    assert codes == []
    [pool] = spec["pools"].values()
    assert pool["tolerations"] == [{"key": "example.org/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    checked(spec)


def test_a_file_of_the_manager_that_is_no_json_is_an_error() -> None:
    data = {"config.json": "gpu-config-profiles: {}"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dcm", "namespace": "amd"}, "data": data}
    assert imported(config, node("a", {"amd.com/gpu": 8}, **SPX))[1] == ["GS850"]
