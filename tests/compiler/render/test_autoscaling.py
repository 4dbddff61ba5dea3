"""What an autoscaler is told, and the key of the taint that its nodes start with."""

import pytest
import yaml

from gpushare.facts.nodes import taints
from gpushare.facts.nodes.clouds import Cloud
from gpushare.intent.types import Autoscaler
from gpushare_node.contract.names import OUR_TAINTS
from tests.compiler.render.compiled import POOLS, TAINTING, document, files, label_of

SELECTS = "nodes: {matchLabels: {p: dense}, expected: 3}"
DEFAULT, AUTOSCALED = taints.of(None), taints.of(Autoscaler.CLUSTER_AUTOSCALER)


def bundle(autoscaler: str, label: str = "p", platform: str = "{}") -> dict[str, str]:
    """The bundle of one pool with MIG slices, MIG shares and whole GPUs."""
    nodes = f"nodes: {{matchLabels: {{{label}: gpus}}, autoscaler: {autoscaler}}}"
    return files("dense", platform=platform, dense=POOLS["dense"].replace(SELECTS, nodes))


def test_without_an_autoscaler_no_page_or_policy_key_is_generated() -> None:
    made = files("dense")
    assert not [path for path in made if path.startswith(("nodes/autoscaling", "nodes/karpenter"))]
    assert "repartitioningTaint" not in made["chart/files/policies/dense.yaml"]
    assert "autoscaler" not in yaml.safe_load(made["intent.yaml"])["spec"]["pools"]["dense"]["nodes"]


@pytest.mark.parametrize(
    ("autoscaler", "key"),
    [("karpenter", None), ("cluster-autoscaler", AUTOSCALED.repartitioning)],
)
def test_the_policy_names_the_key_that_is_not_the_default(autoscaler: str, key: str | None) -> None:
    made = bundle(autoscaler)
    assert yaml.safe_load(made["chart/files/policies/dense.yaml"])["spec"].get("repartitioningTaint") == key
    assert yaml.safe_load(made["intent.yaml"])["spec"]["pools"]["dense"]["nodes"]["autoscaler"] == autoscaler


@pytest.mark.parametrize("stack", ["gpu-operator", "device-plugin", "existing"])
def test_autoscaler_does_not_change_nvidias_values(stack: str) -> None:
    platform = f"{{stack: {stack}}}"
    plain, made = files("dense", platform=platform), bundle("cluster-autoscaler", platform=platform)
    upstream = [path for path in plain if path.startswith(("gpu-operator", "device-plugin", "existing"))]
    assert upstream
    assert all(plain[path] == made[path] for path in upstream)
    assert all(
        all(key in plain[path] for key in OUR_TAINTS) for path in upstream if path.endswith(("/values.yaml", "README.md"))
    )


def test_both_taint_keys_are_tolerated_for_every_autoscaler() -> None:
    for autoscaler in ("karpenter", "cluster-autoscaler"):
        made = document(bundle(autoscaler), "gpu-operator/values.yaml")
        keys = [one["key"] for one in made["daemonsets"]["tolerations"]]
        assert set(OUR_TAINTS) <= set(keys)


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("eks.amazonaws.com/nodegroup", "k8s.io/cluster-autoscaler/node-template/resources/nvidia.com/mig-1g.5gb.shared: 18"),
        (
            "kubernetes.azure.com/agentpool",
            "k8s.io_cluster-autoscaler_node-template_resources_nvidia.com_mig-1g.5gb.shared: 18",
        ),
        ("kubernetes.azure.com/agentpool", "k8s.io_cluster-autoscaler_node-template_label_gpushare.dev_pool: dense"),
        ("node.cluster.x-k8s.io/pool", "capacity.cluster-autoscaler.kubernetes.io/labels: gpushare.dev/pool=dense"),
        ("eks.amazonaws.com/nodegroup", "k8s.io/cluster-autoscaler/node-template/label/eks.amazonaws.com/nodegroup: "),
        ("kubernetes.azure.com/agentpool", "k8s.io_cluster-autoscaler_node-template_label_kubernetes.azure.com_agentpool: "),
        ("node.cluster.x-k8s.io/pool", "labels: gpushare.dev/pool=dense,node.cluster.x-k8s.io/pool="),
        ("node.cluster.x-k8s.io/pool", "they can name one resource, and the node has 3"),
        ("cloud.google.com/gke-nodepool", "let the node pool keep one node"),
    ],
)
def test_cluster_autoscaler_gets_the_resources_of_a_new_node(label: str, told: str) -> None:
    text = bundle("cluster-autoscaler", label)["nodes/autoscaling.md"]
    assert told in text
    assert ("k8s.io/cluster-autoscaler" in text) is label.startswith("eks")


def test_an_unknown_label_gets_every_form_once() -> None:
    text = bundle("cluster-autoscaler")["nodes/autoscaling.md"]
    assert text.count("let the node pool keep one node") == 1
    assert all(word in text for word in ("AWS", "Azure", "Cluster API", "GKE"))
    assert all(f"--ignore-taint={key}" in text for key in (AUTOSCALED.not_ready, AUTOSCALED.repartitioning))


@pytest.mark.parametrize(
    ("autoscaler", "key"), [("karpenter", DEFAULT.not_ready), ("cluster-autoscaler", AUTOSCALED.not_ready)]
)
@pytest.mark.parametrize("cloud", TAINTING, ids=lambda cloud: cloud.name)
def test_the_commands_set_the_key_of_the_pool(cloud: Cloud, autoscaler: str, key: str) -> None:
    text = bundle(autoscaler, label_of(cloud))["nodes/cloud.md"]
    assert text.count(key) >= 2
    other = ({DEFAULT.not_ready, AUTOSCALED.not_ready} - {key}).pop()
    assert other not in text


def test_karpenter_overlay_has_the_resources_unknown_to_the_cloud() -> None:
    overlay = document(bundle("karpenter"), "nodes/karpenter/dense.yaml")
    assert overlay["spec"] == {
        "requirements": [{"key": "gpushare.dev/pool", "operator": "In", "values": ["dense"]}],
        "capacity": {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.5gb.shared": "18", "nvidia.com/mig-2g.10gb": "6"},
    }
    text = bundle("karpenter")["nodes/autoscaling.md"]
    block = text.partition("spec:\n")[2].partition("\n\n")[0]
    template = yaml.safe_load("spec:\n" + "\n".join(line[4:] for line in block.splitlines()))["spec"]["template"]
    assert template["metadata"]["labels"] == {"gpushare.dev/pool": "dense"}
    assert template["spec"]["startupTaints"] == [{"key": DEFAULT.not_ready, "value": "true", "effect": "NoSchedule"}]


def test_whole_gpus_need_no_overlay() -> None:
    made = files("hpc", hpc=POOLS["hpc"].replace("expected: 2", "autoscaler: karpenter"))
    assert "nodes/autoscaling.md" in made
    assert "NodeOverlay" not in made["nodes/autoscaling.md"]
    assert not [path for path in made if path.startswith("nodes/karpenter")]
