"""An import means what the cluster has, by NVIDIA's own rules: names and numbers of resources, and what is refused."""

import json
from itertools import permutations

import pytest

from gpushare.cluster.importing import InputFile
from gpushare.core.diagnostics import Severity
from tests.compiler.cluster.importing.imports import (
    A100,
    T4,
    check,
    codes,
    compiled,
    config_map,
    errors,
    imported,
    node,
    selected,
    sharing,
)

OPERATOR = "devicePlugin: {config: {name: plugin-configs, default: shared}}\nmig: {strategy: mixed}\n"
MIG_CONFIG = """version: v1
mig-configs:
  halves:
  - {devices: [0], mig-enabled: true, mig-devices: {3g.20gb: 2}}
  - {devices: [1], mig-enabled: false}
"""
PLAIN = sharing().replace("    renameByDefault: true\n", "")


def offered(*documents: str) -> dict[str, int]:
    """The resources of each node of the only pool, after the import is compiled."""
    found = imported(*documents)
    assert not errors(found), errors(found)
    plan = compiled(found).plan
    assert plan is not None
    (pool,) = plan.pools
    return {resource.name: resource.per_node for resource in pool.resources}


@pytest.mark.parametrize(
    ("documents", "resources"),
    [
        ([node()], {"nvidia.com/gpu": 4}),
        ([config_map(sharing()), selected()], {"nvidia.com/gpu.shared": 16}),
        ([config_map(PLAIN), selected()], {"nvidia.com/gpu": 16}),
        ([config_map(sharing(how="mps")), selected()], {"nvidia.com/gpu.shared": 16}),
        ([config_map(sharing(2) + sharing(3, "mps").partition("sharing:\n")[2]), selected()], {"nvidia.com/gpu.shared": 12}),
        ([config_map(sharing(resource="gpu")), selected()], {"nvidia.com/gpu.shared": 16}),
        ([config_map(sharing(1)), selected()], {"nvidia.com/gpu": 4}),
        ([config_map(sharing(resource="nvidia.com/mig-1g.5gb")), selected()], {"nvidia.com/gpu": 4}),
        ([config_map(sharing()), OPERATOR, node()], {"nvidia.com/gpu.shared": 16}),
        ([config_map(sharing()), OPERATOR.replace(", default: shared", ""), node()], {"nvidia.com/gpu": 4}),
        ([config_map(sharing()), "config: {name: plugin-configs}\n", node()], {"nvidia.com/gpu.shared": 16}),
        (
            [node(f"{T4}, nvidia.com/gpu.sharing-strategy: time-slicing, nvidia.com/gpu.replicas: '3'")],
            {"nvidia.com/gpu.shared": 12},
        ),
        ([node(f"{A100}, nvidia.com/mig.config: all-1g.5gb")], {"nvidia.com/mig-1g.5gb": 14}),
        ([node(f"{A100}, nvidia.com/mig.config: all-1g.5gb.me")], {"nvidia.com/mig-1g.5gb.me": 2}),
        ([node(f"{A100}, nvidia.com/mig.config: all-disabled")], {"nvidia.com/gpu": 2}),
        (
            [node(f"{A100}, nvidia.com/mig.config: all-balanced")],
            {"nvidia.com/mig-1g.5gb": 4, "nvidia.com/mig-2g.10gb": 2, "nvidia.com/mig-3g.20gb": 2},
        ),
        ([MIG_CONFIG, node(f"{A100}, nvidia.com/mig.config: halves")], {"nvidia.com/mig-3g.20gb": 2, "nvidia.com/gpu": 1}),
        (
            [config_map(sharing(2, resource="nvidia.com/mig-1g.5gb")), selected(f"{A100}, nvidia.com/mig.config: all-1g.5gb")],
            {"nvidia.com/mig-1g.5gb.shared": 28},
        ),
        (
            [
                node(
                    "nvidia.com/gpu.product: A100-SXM4-40GB-MIG-1g.5gb-SHARED, nvidia.com/gpu.count: '14', "
                    "nvidia.com/gpu.sharing-strategy: time-slicing, nvidia.com/gpu.replicas: '2', "
                    "nvidia.com/mig.strategy: single"
                )
            ],
            {"nvidia.com/gpu": 28},
        ),
        (
            [node(f"{A100}, nvidia.com/mig-2g.10gb.count: '4', nvidia.com/mig-2g.10gb.replicas: '1'")],
            {"nvidia.com/mig-2g.10gb": 4},
        ),
        (
            [
                node(
                    "cloud.google.com/gke-accelerator: nvidia-tesla-a100, cloud.google.com/gke-gpu-partition-size: 1g.5gb",
                    rest="status: {capacity: {nvidia.com/gpu: '14'}}\n",
                )
            ],
            {"nvidia.com/gpu": 14},
        ),
        (
            [
                node(
                    "cloud.google.com/gke-accelerator: nvidia-l4, cloud.google.com/gke-gpu-sharing-strategy: time-sharing, "
                    "cloud.google.com/gke-max-shared-clients-per-gpu: '3'",
                    rest="status: {capacity: {nvidia.com/gpu: '6'}}\n",
                )
            ],
            {"nvidia.com/gpu": 6},
        ),
        (
            [
                node(
                    "karpenter.k8s.aws/instance-gpu-name: a100, karpenter.k8s.aws/instance-gpu-memory: '40960', "
                    "karpenter.k8s.aws/instance-gpu-count: '8'"
                )
            ],
            {"nvidia.com/gpu": 8},
        ),
        (
            [
                node(
                    "kubernetes.azure.com/accelerator: nvidia, node.kubernetes.io/instance-type: Standard_NC64as_T4_v3",
                    rest="status: {capacity: {nvidia.com/gpu: '4'}}\n",
                )
            ],
            {"nvidia.com/gpu": 4},
        ),
    ],
)
def test_imported_pool_has_the_resources_of_the_node(documents: list[str], resources: dict[str, int]) -> None:
    assert offered(*documents) == resources


@pytest.mark.parametrize(
    ("text", "code", "severity"),
    [
        (sharing(how="mps", flags="flags:\n  migStrategy: mixed\n"), "GS856", Severity.ERROR),
        ("version: v2\nsharing: {}\n", "GS850", Severity.ERROR),
        (sharing("'4'"), "GS850", Severity.ERROR),
        (sharing("4.5"), "GS850", Severity.ERROR),
        (sharing(resource="amd.com/gpu"), "GS850", Severity.ERROR),
        (sharing().replace("replicas: 4", "replicas: 4\n      devices: [GPU-1]"), "GS852", Severity.WARNING),
        (sharing().replace("replicas: 4", "replicas: 4\n    - {name: gpu, replicas: 8}"), "GS854", Severity.WARNING),
        (sharing().replace("GreaterThanOne: true", "GreaterThanOne: no"), "GS861", Severity.WARNING),
        (sharing(49, "mps"), "GS868", Severity.ERROR),
        ("version: v1\nresources: {gpus: [{pattern: '*', name: t4}]}\n", "GS852", Severity.WARNING),
    ],
)
def test_device_plugin_behaviour_for_a_config_is_reported(text: str, code: str, severity: Severity) -> None:
    found = [finding for finding in imported(config_map(text), selected()).findings if finding.code == code]
    assert found
    assert {finding.severity for finding in found} == {severity}


@pytest.mark.parametrize(
    "rows",
    [
        "- {devices: '0', mig-enabled: false}",
        "- {devices: all}",
        "- {devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}",
        "- {devices: all, mig-enabled: true, mig-devices: {1g.5gb: x}}",
        "- {device: all, mig-enabled: false}",
        "[]",
    ],
)
def test_config_refused_by_mig_parted_is_an_error(rows: str) -> None:
    found = imported(f"version: v1\nmig-configs:\n  a:\n    {rows}\n", node(f"{A100}, nvidia.com/mig.config: a"))
    assert "GS850" in codes(found)


def test_gpus_that_a_mig_config_does_not_mention_are_an_error() -> None:
    found = imported(MIG_CONFIG, node(A100.replace('"2"', '"4"') + ", nvidia.com/mig.config: halves"))
    assert codes(found) == ["GS862"]


def test_intent_is_independent_of_object_order_and_form() -> None:
    documents = [config_map(sharing()), selected(), node(A100 + ", nvidia.com/mig.config: all-1g.5gb", "gpu-02"), OPERATOR]
    texts = {imported(*order).text for order in permutations(documents)}
    files = [InputFile(name=f"{number}.yaml", data=text.encode()) for number, text in enumerate(documents)]
    assert texts == {check(files).text} == {check(files[::-1]).text}


def test_objects_that_a_program_has_parsed_are_read_like_a_file() -> None:
    parsed = {
        "kind": "NodeList",
        "items": [
            {
                "kind": "Node",
                "metadata": {"name": "gpu-01", "labels": {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "4"}},
            }
        ],
    }
    from_program = check([InputFile(name="the cluster", document=parsed)])
    from_file = check([InputFile(name="nodes.json", data=json.dumps(parsed).encode())])
    assert from_program.text == from_file.text == imported(node()).text


def test_cloud_node_pool_label_on_exactly_the_nodes_becomes_the_selector() -> None:
    labels = T4 + ", cloud.google.com/gke-nodepool: gpus"
    both = imported(node(labels, "a"), node(labels, "b"))
    assert "cloud.google.com/gke-nodepool: gpus" in both.text
    assert "names:" in imported(node(labels, "a"), node("cloud.google.com/gke-nodepool: gpus", "plain")).text


def test_configs_that_name_no_card_are_one_finding() -> None:
    [finding] = errors(imported(config_map(sharing(), key="four", name="a"), config_map(sharing(2), key="two", name="b")))
    assert finding.code == "GS859"
    assert finding.message == "the card is unknown: no Node was given, and four and two name no card"


def test_a_setting_that_the_chart_dropped_is_named_before_the_reason() -> None:
    values = "operator: {defaultRuntime: containerd}\ndriver: {enabled: true}\ntoolkit: {enabled: true}\n"
    result = check([InputFile(name="values.yaml", data=values.encode()), InputFile(name="nodes.yaml", data=node().encode())])
    [finding] = [one for one in result.findings if one.code == "GS871"]
    assert finding.message.startswith("1 setting of the values of gpu-operator not imported, which gpu-operator v")
    assert finding.hints[0].startswith("operator.defaultRuntime: the operator reads the runtime from the nodes")
