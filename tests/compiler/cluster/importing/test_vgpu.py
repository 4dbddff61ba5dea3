"""Nodes for virtual machines: which pool `import --stack gpu-operator` proposes, and what it cannot express."""

import pytest

from gpushare import pipeline
from gpushare.cluster import importing
from gpushare.cluster.importing import Imported, InputFile, Wanted
from gpushare.core.diagnostics import is_error
from tests.compiler.cluster.importing.imports import T4, config_map, node

POLICY = """\
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata:
  name: cluster-policy
  annotations: {meta.helm.sh/release-namespace: gpu-operator}
  labels: {helm.sh/chart: gpu-operator-v26.7.0}
spec:
  sandboxWorkloads: {enabled: true, defaultWorkload: container}
  vgpuManager: {enabled: true, repository: registry.example.org/nvidia, image: vgpu-manager, version: "595.71.03"}
  vgpuDeviceManager: {enabled: true, config: {name: vgpu-configs, default: default}}
"""
CONFIG = """\
version: v1
vgpu-configs:
  halves:
  - {device-filter: "0x223610DE", devices: all, vgpu-devices: {A10-12Q: 2}}
  mixed:
  - {devices: [0], vgpu-devices: {A10-12Q: 2}}
  - {devices: [1], vgpu-devices: {A10-24Q: 1}}
  fewer:
  - {devices: all, vgpu-devices: {A10-12Q: 1}}
  empty:
  - {devices: all, vgpu-devices: {}}
"""
CONFIGS = config_map(CONFIG, key="config.yaml", name="vgpu-configs")
LABELS = "nvidia.com/gpu.present: 'true', nvidia.com/gpu.workload.config: vm-vgpu"


def status(number: int = 4, kind: str = "A10-12Q", kernel: str = "5.15.0-91-generic") -> str:
    return f"status:\n  capacity: {{nvidia.com/NVIDIA_{kind}: '{number}'}}\n  nodeInfo: {{kernelVersion: {kernel}}}\n"


def machine(config: str = "halves", name: str = "vm-01", labels: str = "example.org/role: desktops", rest: str = "") -> str:
    return node(f"{LABELS}, nvidia.com/vgpu.config: {config}, {labels}", name, rest or status())


def imported(*documents: str, stack: str = "gpu-operator") -> Imported:
    inputs = [InputFile(name="cluster.yaml", data="---\n".join(documents).encode())]
    found = importing.build(inputs, wanted=Wanted(stack=stack))
    return found.checked(pipeline.check(found.text.encode(), "").findings) if found.text else found


def told(found: Imported) -> list[tuple[str, str]]:
    return [(one.code, one.message) for one in found.findings]


def test_nodes_with_a_config_become_a_pool() -> None:
    found = imported(POLICY, CONFIGS, machine(), machine(name="vm-02"))
    assert not [one for one in found.findings if is_error(one)], told(found)
    [pool] = found.draft.pools.values()
    assert pool == {
        "card": "a10",
        "nodes": {"matchLabels": {"example.org/role": "desktops"}, "expected": 2},
        "gpusPerNode": 2,
        "sharing": {"mode": "vgpu", "profile": "A10-12Q", "kernel": "5.15"},
    }
    assert found.draft.spec["platform"]["vgpuManager"] == {
        "repository": "registry.example.org/nvidia",
        "image": "vgpu-manager",
        "version": "595.71.03",
    }
    assert "values" not in found.draft.spec["platform"]
    assert "vGPU config halves" in found.text


def test_nvidias_own_config_is_known_by_its_type() -> None:
    policy = POLICY.replace("vgpu-configs, default", "'', default")
    found = imported(policy, machine("A16-4Q", rest=status(16, "A16-4Q")))
    [pool] = found.draft.pools.values()
    assert (pool["card"], pool["gpusPerNode"], pool["sharing"]["profile"]) == ("a16", 4, "A16-4Q")


def test_a_pool_of_containers_is_beside_it() -> None:
    found = imported(POLICY, CONFIGS, machine(), node(f"{T4}, example.org/role: notebooks"))
    assert {pool["sharing"]["mode"] for pool in found.draft.pools.values()} == {"vgpu", "exclusive"}
    assert not [one for one in found.findings if is_error(one)], told(found)


def test_without_the_operators_stack_such_nodes_are_left_out() -> None:
    found = imported(POLICY, CONFIGS, machine(), node(T4), stack="")
    assert [pool["card"] for pool in found.draft.pools.values()] == ["t4"]
    assert any("left out" in message for code, message in told(found) if code == "GS872")


@pytest.mark.parametrize(
    ("config", "rest", "code", "word"),
    [
        ("mixed", "", "GS862", "not the same on every GPU"),
        ("fewer", "", "GS862", "1 of 2"),
        ("empty", "", "GS862", "no vGPU"),
        ("unknown", "", "GS857", "there is no vGPU config unknown"),
        ("halves", "status: {nodeInfo: {kernelVersion: 5.15.0}}\n", "GS862", "how many GPUs"),
        ("halves", status(kernel="6.8.0-40-generic"), "GS868", "vendor-specific VFIO"),
    ],
)
def test_what_an_intent_cannot_express_is_an_error(config: str, rest: str, code: str, word: str) -> None:
    found = imported(POLICY, CONFIGS, machine(config, rest=rest))
    assert any(one == code and word in message for one, message in told(found)), told(found)


def test_a_node_without_the_label_of_a_config_is_left_out() -> None:
    found = imported(POLICY, CONFIGS, machine(), node(LABELS, "vm-02"))
    assert [pool["nodes"] for pool in found.draft.pools.values()] == [
        {"matchLabels": {"example.org/role": "desktops"}, "expected": 1}
    ]
    assert any("no label names its vGPUs" in message for _, message in told(found))


def test_a_field_that_the_manager_refuses_is_an_error() -> None:
    found = imported(POLICY, CONFIGS.replace("version: v1", "version: v2"), machine())
    assert any(code == "GS850" and "version" in message for code, message in told(found))
