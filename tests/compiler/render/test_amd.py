"""The bundle of pools with AMD's cards: policies, DeviceConfigs, the config manager's file, values; nothing of NVIDIA's."""

import json
import re
from functools import cache
from typing import Any

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.bundle.lock import Lock
from gpushare.facts.catalog import cards
from gpushare.offering.modes.partition import is_offered
from gpushare_node.contract.names import OUR_TAINTS
from tests.compiler.render.compiled import compiled, document, files, intent, side

OPERATOR = "{stack: amd-gpu-operator}"
MIXED = "{amd: {stack: amd-gpu-operator}}"
PARTITIONS = "{mode: partition, compute: CPX, memory: NPS4}"
CONFIG = "chart/files/amd/config.json"


def pool(card: str = "mi300x", sharing: str = PARTITIONS, label: str = "a", gpus: int = 8, more: str = "") -> str:
    nodes = f"{{matchLabels: {{p: {label}}}, expected: 2}}"
    return f"{{card: {card}, nodes: {nodes}, gpusPerNode: {gpus}, sharing: {sharing}{more}}}"


POOLS = {
    "parts": pool(),
    "whole": pool(sharing="{mode: exclusive}", label="b"),
    "old": pool("mi210", "{mode: exclusive}", "c", 4),
}


@cache
def bundle(*names: str, platform: str = OPERATOR, more: str = "", **pools: str) -> dict[str, str]:
    chosen = POOLS | pools
    return files(*(names or chosen), platform=platform, more=more, **chosen)


def spec(texts: dict[str, str], name: str) -> Any:
    return document(texts, f"chart/files/policies/{name}.yaml")["spec"]


def profiles(texts: dict[str, str]) -> Any:
    return json.loads(texts[CONFIG])["gpu-config-profiles"]


def device_config(texts: dict[str, str], name: str) -> Any:
    return document(texts, f"chart/files/amd/device-configs/{name}.yaml")


def test_a_policy_has_the_vendor_the_profile_and_the_modes() -> None:
    found = spec(bundle(), "parts")
    assert (found["vendor"], found["stack"], found["partitioner"]) == ("amd", "amd-gpu-operator", "config-manager")
    assert found["profile"] is found["migConfig"] is None
    [group] = found["gpus"]
    assert group["partition"] == {"compute": "CPX", "memory": "NPS4", "devices": 8, "memoryMiB": 24576}
    assert found["resources"] == {"amd.com/cpx_nps4": 64}
    [share] = found["shares"]
    assert (share["profile"], share["replicas"], share["capMiB"]) == ("cpx_nps4", 1, None)
    assert found["enforcement"]["mechanism"] == "none"


def test_whole_gpus_are_a_profile_where_the_card_can_be_divided() -> None:
    texts = bundle()
    found = spec(texts, "whole")
    assert found["gpus"][0]["partition"] == {"compute": "SPX", "memory": "NPS1", "devices": 1, "memoryMiB": 196608}
    assert profiles(texts)[found["managerConfig"]]["profiles"] == [
        {"computePartition": "SPX", "memoryPartition": "NPS1", "numGPUsAssigned": 8}
    ]
    assert found["resources"] == {"amd.com/gpu": 8}
    old = spec(texts, "old")
    assert (old["partitioner"], old["managerConfig"]) == ("none", None)
    assert "partition" not in old["gpus"][0]


@pytest.mark.parametrize("stack", ["amd-device-plugin", "existing"])
def test_nothing_divides_gpus_with_another_stack(stack: str) -> None:
    single = pool(sharing="{mode: partition, compute: CPX, memory: NPS4, strategy: single}")
    texts = bundle("parts", platform=f"{{stack: {stack}}}", parts=single)
    found = spec(texts, "parts")
    assert (found["stack"], found["partitioner"], found["managerConfig"]) == (stack, "none", None)
    assert found["resources"] == {"amd.com/gpu": 64}
    assert not [path for path in texts if path.startswith("chart/files/amd/")]
    assert (f"{stack}/values.yaml" in texts) == (stack == "amd-device-plugin")


@pytest.mark.parametrize("card", [name for name in cards.ids() if cards.load(name).partition_modes])
def test_every_profile_counts_every_gpu_and_its_name_is_a_label_value(card: str) -> None:
    for mode in filter(is_offered, cards.load(card).partition_modes):
        sharing = f"{{mode: partition, compute: {mode.compute}, memory: {mode.memory}}}"
        texts = bundle("parts", parts=pool(card, sharing, gpus=4))
        [(name, profile)] = profiles(texts).items()
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)
        assert sum(entry["numGPUsAssigned"] for entry in profile["profiles"]) == 4
        assert len({entry["memoryPartition"] for entry in profile["profiles"]}) == 1
        assert spec(texts, "parts")["resources"] == {f"amd.com/{mode.name}": 4 * mode.partitions}
        assert side(texts).pools["parts"].labels == {
            "gpushare.dev/pool": ["parts"],
            "dcm.amd.com/gpu-config-profile": [name],
        }


def test_the_manager_takes_gpus_in_the_order_of_their_indexes() -> None:
    layouts = "[{gpus: [0, 3], compute: SPX}, {gpus: [1, 2], compute: CPX}]"
    texts = bundle("parts", parts=pool(sharing=f"{{mode: partition, memory: NPS1, layouts: {layouts}}}", gpus=4))
    [(name, profile)] = profiles(texts).items()
    assert [(one["computePartition"], one["numGPUsAssigned"]) for one in profile["profiles"]] == [
        ("SPX", 1),
        ("CPX", 2),
        ("SPX", 1),
    ]
    assert name.startswith("mixed-nps1-4-")
    assert spec(texts, "parts")["resources"] == {"amd.com/cpx_nps1": 16, "amd.com/spx_nps1": 2}
    assert len(spec(texts, "parts")["shares"]) == 2


def test_a_changed_mode_has_another_name_and_the_former_one_stays() -> None:
    first = pipeline.compile_intent(intent("parts", platform=OPERATOR, **POOLS), "", lock.EMPTY)
    before = {file.path: file.text for file in first.artifacts}
    memory = lock.read(before[lock.FILE].encode())
    assert isinstance(memory, Lock)
    changed = {"parts": pool(sharing="{mode: partition, compute: DPX, memory: NPS2}")}
    second = pipeline.compile_intent(intent("parts", platform=OPERATOR, **changed), "", memory)
    after = {file.path: file.text for file in second.artifacts}
    assert profiles(after).items() > profiles(before).items()
    assert memory.vendors == ("amd",)
    again = lock.read(after[lock.FILE].encode())
    assert isinstance(again, Lock)
    assert [*again.manager_configs.former[0]] == [*profiles(before)]


@pytest.mark.parametrize(
    ("stack", "release"),
    [("amd-gpu-operator", "amd-gpu-operator"), ("amd-device-plugin", "amd-device-plugin"), ("existing", None)],
)
def test_the_namespace_stays_when_the_last_pool_has_gone(stack: str, release: str | None) -> None:
    pools = {"whole": POOLS["whole"], "gpu": pool("l4", "{mode: exclusive}", "d")}
    before = intent("whole", "gpu", platform=f"{{amd: {{stack: {stack}, namespace: rocm}}}}", **pools)
    _, texts = compiled(before)
    for _ in range(2):
        memory = lock.read(texts[lock.FILE].encode())
        assert isinstance(memory, Lock)
        _, texts = compiled(intent("gpu", platform="{}", **pools), memory)
        assert document(texts, "chart/values.yaml")["vendors"]["amd"]["namespace"] == "rocm"
        commands = [line.strip() for line in texts["README.md"].splitlines() if "helm uninstall amd" in line]
        assert commands == ([f"helm uninstall {release} --namespace rocm --timeout 10m"] if release else [])


def test_device_configs_select_disjoint_nodes_and_name_every_image_by_version() -> None:
    texts = bundle()
    found = {name: device_config(texts, name) for name in POOLS}
    assert [one["selector"] for one in found.values()] == [{"gpushare.dev/pool": name} for name in POOLS]
    images = re.findall(r"\S+/\S+:\S+", "\n".join(text for path, text in texts.items() if "device-configs" in path))
    assert images
    assert not [image for image in images if image.strip('"').endswith("latest")]
    strategies = [one["devicePlugin"]["devicePluginArguments"]["resource_naming_strategy"] for one in found.values()]
    assert strategies == ["mixed", "single", "single"]
    assert [one["configManager"]["enable"] for one in found.values()] == [True, True, False]


def test_amds_programs_tolerate_our_taints_and_those_of_the_pool_but_not_the_managers() -> None:
    texts = bundle("parts", parts=pool(more=", tolerations: [{key: example.org/gpu, operator: Exists}]"))
    plugin = device_config(texts, "parts")["devicePlugin"]
    for field in ("devicePluginTolerations", "nodeLabellerTolerations"):
        assert [one["key"] for one in plugin[field]] == [*OUR_TAINTS, "example.org/gpu"]


def test_images_come_from_the_registry_of_the_site() -> None:
    texts = bundle("parts", platform="{stack: amd-gpu-operator, registry: registry.example.org/mirror}")
    found = device_config(texts, "parts")
    assert found["configManager"]["image"] == "registry.example.org/mirror/rocm/device-config-manager:v1.5.1"
    assert found["configManager"]["image"] in texts["images.txt"].splitlines()
    manager = document(texts, "amd-gpu-operator/values.yaml")["controllerManager"]["manager"]
    assert manager["image"] == {"repository": "registry.example.org/mirror/rocm/amd-gpu-operator", "tag": "v1.5.1"}


@pytest.mark.parametrize(
    ("more", "operator"),
    [
        ("", "docker.io/rocm/amd-gpu-operator:v1.4.0"),
        (", registry: reg.example.org", "reg.example.org/rocm/amd-gpu-operator:v1.4.0"),
        (", values: {controllerManager: {manager: {image: {tag: fix}}}}", "docker.io/rocm/amd-gpu-operator:fix"),
    ],
)
def test_the_image_of_an_older_operator_has_its_release_as_tag(more: str, operator: str) -> None:
    listed = bundle("parts", platform=f"{{stack: amd-gpu-operator, version: v1.4.0{more}}}")["images.txt"].splitlines()
    assert [line for line in listed if "/amd-gpu-operator" in line] == [operator]


def test_an_installed_stack_of_amd_alone_has_its_namespace_and_no_file_of_nvidia() -> None:
    single = pool(sharing="{mode: partition, compute: CPX, memory: NPS4, strategy: single}")
    texts = bundle("parts", platform="{stack: existing, namespace: rocm}", parts=single, more="  quotas: {team: {parts: 8}}\n")
    values = document(texts, "chart/values.yaml")
    assert (values["vendors"]["amd"]["namespace"], values["stack"]) == ("rocm", "none")
    assert "pluginNamespace" not in values
    assert values["admission"]["platformNamespaces"] == ["gpu-system", "kube-system", "rocm"]
    assert not [path for path in texts if path.startswith("existing/")]
    assert "amd-namespace.yaml" not in texts


def test_beside_an_installed_stack_of_nvidia_amds_namespace_is_the_default() -> None:
    texts = bundle("whole", "gpu", platform="{stack: existing, namespace: nvidia}", gpu=pool("l4", "{mode: exclusive}", "d"))
    values = document(texts, "chart/values.yaml")
    namespaces = values["vendors"]["amd"]["namespace"], values["pluginNamespace"]
    assert (*namespaces, values["stack"]) == ("kube-amd-gpu", "nvidia", "existing")
    assert {"kube-amd-gpu", "nvidia"} <= set(values["admission"]["platformNamespaces"])
    assert "existing/README.md" in texts


def test_node_feature_discovery_comes_with_one_operator_only() -> None:
    alone, both = bundle(), bundle("parts", "gpu", platform=MIXED, gpu=pool("l4", "{mode: exclusive}", "d"))
    for texts, is_alone in ((alone, True), (both, False)):
        values = document(texts, "amd-gpu-operator/values.yaml")
        assert values["node-feature-discovery"]["enabled"] is values["installdefaultNFDRule"] is is_alone
        assert values["crds"]["defaultCR"]["install"] is False
    assert "gpu-operator/values.yaml" in both
    assert not [path for path in alone if path.startswith(("gpu-operator/", "chart/files/profiles/", "existing/"))]


CATALOGUE = sorted(device[2:6].lower() for card in ("mi300x", "mi210") for device in cards.load(card).pci_device_ids)


@pytest.mark.parametrize(
    ("stack", "section"),
    [("gpu-operator", "node-feature-discovery"), ("device-plugin", "nfd"), ("none", "node-feature-discovery")],
)
def test_nodes_of_amds_have_the_label_without_which_its_operator_removes_others(stack: str, section: str) -> None:
    tolerated = pool(more=", tolerations: [{key: example.org/gpu, operator: Exists}]")
    beside = [] if stack == "none" else ["gpu"]
    platform = OPERATOR if stack == "none" else f"{{stack: {stack}, amd: {{stack: amd-gpu-operator}}}}"
    texts = bundle("parts", "old", *beside, platform=platform, parts=tolerated, gpu=pool("l4", "{mode: exclusive}", "d"))
    for path in (
        ["amd-gpu-operator/values.yaml"] if stack == "none" else [f"{stack}/{each}values.yaml" for each in ("", "restore-")]
    ):
        worker = document(texts, path)[section]["worker"]
        assert {"amd-dcm", "example.org/gpu"} <= {one["key"] for one in worker["tolerations"]}
        if stack != "none":
            [rule] = worker["config"]["sources"]["custom"]
            assert rule["labels"] == {"feature.node.kubernetes.io/amd-gpu": "true"}
            [feature] = rule["matchFeatures"]
            assert feature["matchExpressions"]["device"] == {"op": "In", "value": CATALOGUE}
    assert ("feature.node.kubernetes.io/amd-gpu" in texts["README.md"]) is False


def test_an_installed_node_feature_discovery_must_label_amds_nodes_itself() -> None:
    platform = "{stack: existing, namespace: nvidia, amd: {stack: amd-gpu-operator}}"
    texts = bundle("parts", "gpu", platform=platform, gpu=pool("l4", "{mode: exclusive}", "d"))
    assert "the label `feature.node.kubernetes.io/amd-gpu=true`" in texts["README.md"]


@pytest.mark.parametrize("amd", ["{stack: amd-device-plugin}", "{stack: existing}"])
def test_without_amds_operator_nothing_is_added_to_nvidias_chart(amd: str) -> None:
    texts = bundle("old", "gpu", platform=f"{{amd: {amd}}}", gpu=pool("l4", "{mode: exclusive}", "d"))
    text = texts["gpu-operator/values.yaml"]
    assert "amd" not in text
    assert "custom" not in text


def test_the_intents_own_values_are_merged_last() -> None:
    own = "{kmm: {enabled: false}, controllerManager: {replicas: 2}, node-feature-discovery: {enabled: false}}"
    texts = bundle("parts", platform=f"{{stack: amd-gpu-operator, values: {own}}}")
    values = document(texts, "amd-gpu-operator/values.yaml")
    assert values["kmm"] == {"enabled": False}
    assert values["node-feature-discovery"]["enabled"] is False
    assert values["controllerManager"] == {"replicas": 2}
    assert values["crds"] == {"defaultCR": {"install": False, "upgrade": False}}


@pytest.mark.parametrize(
    ("values", "more"),
    [
        ("{}", []),
        ("{labeller: {enabled: true}}", ["docker.io/rocm/k8s-device-plugin:labeller-1.31.0.10"]),
        ("{nfd: {enabled: true}}", ["# Those of its subcharts: helm show values amd-gpu"]),
    ],
)
def test_every_image_of_the_device_plugins_chart_is_pinned_and_listed(values: str, more: list[str]) -> None:
    texts = bundle("old", platform=f"{{stack: amd-device-plugin, values: {values}}}")
    _, _, listed = texts["images.txt"].partition("# AMD's chart")
    found = [line.partition(" --repo")[0] for line in listed.splitlines()[1:]]
    assert found == ["docker.io/rocm/k8s-device-plugin:1.31.0.10", *more]
    labeller = document(texts, "amd-device-plugin/values.yaml")["lbl"]["image"]
    assert labeller == {"repository": "docker.io/rocm/k8s-device-plugin", "tag": "labeller-1.31.0.10"}


@pytest.mark.parametrize(
    ("monitoring", "monitor"),
    [
        ("serviceMonitor: true", {"enable": True}),
        ("serviceMonitor: true, labels: {release: prom}", {"enable": True, "labels": {"release": "prom"}}),
        ("serviceMonitor: true, operator: false", None),
        ("dashboard: true, alerts: true", None),
    ],
)
def test_amds_exporter_is_monitored_as_the_node_runtime_is(monitoring: str, monitor: dict[str, Any] | None) -> None:
    texts = bundle("parts", more=f"  monitoring: {{{monitoring}}}\n")
    exporter = device_config(texts, "parts")["metricsExporter"]
    assert exporter.get("prometheus") == (monitor and {"serviceMonitor": monitor})
    assert "monitoring/dcgm-metrics.csv" not in texts
    assert "dcgm" not in texts["README.md"]


@pytest.mark.parametrize(("tool", "address"), [("argocd", "repoURL"), ("flux", "url")])
def test_a_tool_syncs_the_bundle_beside_an_installed_stack(tool: str, address: str) -> None:
    gitops = f"  gitops: {{{tool}: {{{address}: 'https://git.example.org/gpu.git', path: clusters/b}}}}\n"
    texts = bundle("parts", platform="{stack: existing, namespace: rocm}", more=gitops)
    apps = {path.rpartition("/")[2] for path in texts if path.startswith(f"{tool}/apps/")}
    assert apps - {"rights.yaml", "kustomization.yaml"} == {"gpushare.yaml", "namespace.yaml"}
    [deleting] = [line for line in texts["README.md"].splitlines() if line.startswith("Deleting ")]
    assert "releases every node" in deleting
    assert "gpushare-profiles" not in texts["README.md"]


def test_quotas_count_partitions() -> None:
    texts = bundle("parts", more="  quotas: {team: {parts: 12}}\n")
    assert document(texts, "chart/values.yaml")["quotas"] == {"team": {"requests.amd.com/cpx_nps4": 12}}


def test_a_cluster_without_amds_cards_has_nothing_of_it() -> None:
    texts = bundle("gpu", platform="{}", gpu=pool("l4", "{mode: exclusive}", "d"))
    assert not [path for path in texts if "amd" in path]
    assert "amd" not in document(texts, "chart/values.yaml")
    assert "vendor" not in spec(texts, "gpu")


def test_the_readme_installs_amds_chart_before_ours() -> None:
    text = bundle()["README.md"]
    assert text.index("### 3. AMD's chart") < text.index("### 4. gpushare")
    assert "that of ROCm 6.4 on AMD Instinct MI300X" in text
    assert "amd-dcm=up:NoExecute" in text
    assert "nvidia" not in text.lower().replace("nvidia.com/gpu", "")


def test_an_observing_bundle_leaves_amds_stack_alone() -> None:
    texts = bundle(more="  adoption: observe\n")
    assert not [path for path in texts if path.startswith(("amd-", "chart/files/amd/"))]
