"""What contradicts itself or is in an unusual form: read for what it is, or reported with both statements."""

import json
import random

import pytest

from gpushare.cluster import importing
from gpushare.cluster.importing import InputFile, Wanted
from gpushare.core.diagnostics import Severity
from tests.compiler.cluster.importing.imports import (
    A100,
    T4,
    check,
    codes,
    config_map,
    errors,
    imported,
    node,
    selected,
    sharing,
)

PLAIN = sharing().replace("    renameByDefault: true\n", "")
G4DN = "node.kubernetes.io/instance-type: g4dn.xlarge, eks.amazonaws.com/nodegroup: gpu"
QUOTA = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: a}\n"
VALUES = "devicePlugin:\n  config: {name: plugin-configs, default: shared}\nmig: {strategy: none}\n"


def messages(*documents: str) -> str:
    return "\n".join(f"{one.code} {one.message} {one.hints}" for one in imported(*documents).findings)


def capacity(**counts: int) -> str:
    pairs = ", ".join(f"nvidia.com/{name.replace('_', '.')}: '{count}'" for name, count in counts.items())
    return f"status: {{capacity: {{{pairs}}}}}\n"


@pytest.mark.parametrize(
    ("documents", "gpus", "sharing_is"),
    [
        (
            [config_map(PLAIN), VALUES, node(G4DN, rest=capacity(gpu=4))],
            1,
            {"mode": "time-slicing", "replicas": 4, "rename": False},
        ),
        ([config_map(sharing()), VALUES, node(G4DN, rest=capacity(gpu_shared=4))], 1, {"mode": "time-slicing", "replicas": 4}),
        ([node(G4DN, rest=capacity(gpu=4))], 1, {"mode": "time-slicing", "replicas": 4, "rename": False}),
        ([node(G4DN, rest=capacity(gpu=1))], 1, {"mode": "exclusive"}),
        ([node("node.kubernetes.io/instance-type: g4dn.12xlarge", rest=capacity(gpu=4))], 4, {"mode": "exclusive"}),
        (
            [node("node.kubernetes.io/instance-type: Standard_NC24ads_A100_v4", rest=capacity(gpu=7))],
            1,
            {"mode": "mig", "strategy": "single", "layout": {"1g.10gb": 7}},
        ),
    ],
)
def test_machine_type_gives_the_number_of_gpus_without_gfd(
    documents: list[str], gpus: int, sharing_is: dict[str, object]
) -> None:
    found = imported(*documents)
    (pool,) = found.draft.pools.values()
    assert not errors(found)
    assert (pool["gpusPerNode"], pool["sharing"]) == (gpus, sharing_is)


@pytest.mark.parametrize(
    ("document", "code", "both"),
    [
        (
            node('nvidia.com/gpu.product: Tesla-T4, nvidia.com/gpu.count: "1"', rest=capacity(gpu=3)),
            "GS862",
            ("3 nvidia.com/gpu", "count is 1"),
        ),
        (
            node(f"{A100}, nvidia.com/mig.config: all-1g.5gb, nvidia.com/mig.config.state: failed", rest=capacity(gpu=2)),
            "GS862",
            ("all-1g.5gb", "2 nvidia.com/gpu"),
        ),
        (
            node(f"{A100}, nvidia.com/mig.config: all-1g.5gb, nvidia.com/mig.config.state: pending"),
            "GS872",
            ("all-1g.5gb", "pending"),
        ),
        (node(f"{T4}, nvidia.com/gpu.workload.config: vm-passthrough"), "GS872", ("vm-passthrough", "left out")),
        (node(f"{T4}, nvidia.com/gpu.workload.config: vm-vgpu"), "GS872", ("vm-vgpu", "left out")),
        (node(f"{T4}, nvidia.com/gpu.deploy.device-plugin: 'false'"), "GS872", ("false", "left out")),
        (node(f"{T4}, node.kubernetes.io/instance-type: g4dn.xlarge"), "GS872", ("g4dn.xlarge has 1 GPU", "count 4")),
        (node(f"{T4}, node.kubernetes.io/instance-type: g6.12xlarge"), "GS872", ("has l4", "of t4")),
        (
            node(f"{A100}, nvidia.com/mig.config: all-1g.5gb, nvidia.com/mig-2g.10gb.count: '6'"),
            "GS872",
            ("6 2g.10gb", "14 1g.5gb"),
        ),
        (node(T4, rest=capacity(gpu_shared=16)), "GS872", ("16 nvidia.com/gpu.shared", "4 nvidia.com/gpu")),
    ],
)
def test_both_contradicting_statements_are_reported(document: str, code: str, both: tuple[str, str]) -> None:
    said = [one.message for one in imported(document).findings if one.code == code]
    assert any(all(word in message for word in both) for message in said), said


def test_strategy_of_the_values_overrides_the_configs_and_is_reported() -> None:
    config = config_map("version: v1\nflags: {migStrategy: mixed}\n")
    said = messages(config, VALUES.replace("none", "single"), node(A100.partition(", nvidia.com/mig.strategy")[0]))
    assert "GS872 config shared has migStrategy: mixed" in said
    assert "MIG strategy single, which wins" in said


@pytest.mark.parametrize(
    "text",
    [
        "version: v1\nbuilt: yesterday\n",
        "version: 3\nflags: {darkMode: true}\n",
        "server:\n  flags: {a: b}\n",
        "version: v1\nflags: {darkMode: true}\n",
        "{{ broken",
    ],
)
def test_foreign_configmap_changes_nothing(text: str) -> None:
    plain = [config_map(sharing()), VALUES, node()]
    foreign = config_map(text, "settings.yaml", "web-settings")
    assert imported(*plain, foreign).text == imported(*plain).text
    assert codes(imported(*plain, foreign)) == codes(imported(*plain)) == []
    assert "sharing" not in codes(imported(node(), foreign))
    assert imported(node(), foreign).text == imported(node()).text


def indented(text: str, spaces: int) -> str:
    return "".join(f"{' ' * spaces}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "form",
    [
        "gpu-operator:\n" + indented(VALUES, 2),
        "apiVersion: helm.cattle.io/v1\nkind: HelmChartConfig\nmetadata: {name: gpu-operator, namespace: kube-system}\n"
        "spec:\n  valuesContent: |-\n" + indented(VALUES, 4),
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nhelmCharts:\n- name: gpu-operator\n"
        "  valuesInline:\n" + indented(VALUES, 4),
        "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: gpu}\nspec:\n  template:\n    spec:\n"
        "      source:\n        chart: gpu-operator\n        helm:\n          valuesObject:\n" + indented(VALUES, 12),
        "defaultNamespace: gpu\nhelm:\n  chart: nvidia/gpu-operator\n  values:\n" + indented(VALUES, 4),
    ],
    ids=["umbrella", "helmchartconfig", "kustomize", "applicationset", "fleet"],
)
def test_helm_values_are_read_in_every_tools_form(form: str) -> None:
    (pool,) = imported(config_map(sharing()), form, node()).draft.pools.values()
    assert pool["sharing"] == {"mode": "time-slicing", "replicas": 4}


def test_an_object_that_installs_the_chart_in_an_unknown_form_is_refused_by_name() -> None:
    found = imported("apiVersion: x/v1\nkind: Release\nmetadata: {name: g}\nspec: {chart: nvidia/gpu-operator}\n", node())
    (one,) = errors(found)
    assert (one.code, "Release g names gpu-operator" in one.message) == ("GS874", True)


def test_nvidiadriver_object_is_reported_with_its_fields() -> None:
    driver = "apiVersion: nvidia.com/v1alpha1\nkind: NVIDIADriver\nmetadata: {name: d}\nspec: {version: '570'}\n"
    said = messages(driver, node())
    assert "GS874 NVIDIADriver d is not read: spec.version: 570" in said


def test_the_nodes_of_a_raw_list_need_no_kind() -> None:
    entry = {"metadata": {"name": "a", "labels": {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "4"}}}
    raw = {"kind": "NodeList", "apiVersion": "v1", "items": [entry]}
    assert list(check([InputFile(name="nodes.json", data=json.dumps(raw).encode())]).draft.pools) == ["t4-exclusive"]


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([config_map(sharing(flags="flags:\n  renameByDefault: true\n")), selected()], "move it below sharing.timeSlicing"),
        (["version: v1\nmig-configs:\n  a:\n  - {devices: 7, mig-enabled: false}\n"], "write devices: [7]"),
        (["config:\n  map: {}\n  default: |-\n    version: v1\n    sharing: {}\n", node()], "default is the text of a config"),
        (
            [
                node(
                    "nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB-MIG-INVALID, nvidia.com/mig.config: all-balanced, "
                    "nvidia.com/mig.strategy: single"
                )
            ],
            "MIG strategy single needs one profile on all GPUs",
        ),
        ([config_map(sharing("${GPU_REPLICAS:=4}")), selected()], "${GPU_REPLICAS:=4} is a placeholder"),
        ([config_map(sharing("{{ .Values.replicas }}")), selected()], "give the file as it is applied"),
        ([QUOTA + "spec: {hard: {limit.nvidia.com/gpumem: '2000'}}\n", node()], "HAMi's"),
        (
            [QUOTA + "spec: {hard: {requests.nvidia.com/gpu: '2'}, scopes: [NotTerminating]}\n", node()],
            "counts only pods of a scope",
        ),
        ([config_map("version: v1\nimex: {channelIDs: [0], required: true}\n"), selected()], "imex.required: true"),
    ],
)
def test_a_common_mistake_has_its_exact_cause(documents: list[str], words: str) -> None:
    assert words in messages(*documents)


def test_a_card_that_the_catalogue_lacks_is_described_from_the_labels() -> None:
    found = imported(
        node(
            'nvidia.com/gpu.product: NVIDIA-Test-Card-9, nvidia.com/gpu.count: "1", '
            'nvidia.com/gpu.memory: "20000", '
            'nvidia.com/gpu.compute.major: "8", nvidia.com/gpu.compute.minor: "6"'
        )
    )
    assert not errors(found)
    assert found.draft.spec["cards"] == {
        "test-card-9": {
            "name": "NVIDIA Test Card 9",
            "product": "NVIDIA-Test-Card-9",
            "computeCapability": "8.6",
            "memoryMiB": 20000,
        }
    }
    assert [one["card"] for one in found.draft.pools.values()] == ["test-card-9"]


def test_card_with_another_memory_size_becomes_a_custom_card() -> None:
    found = imported(
        node(
            'nvidia.com/gpu.product: NVIDIA-GeForce-RTX-3060, nvidia.com/gpu.count: "1", '
            'nvidia.com/gpu.memory: "8192", '
            'nvidia.com/gpu.compute.major: "8", nvidia.com/gpu.compute.minor: "6"'
        )
    )
    assert not errors(found)
    assert [one["memoryMiB"] for one in found.draft.spec["cards"].values()] == [8192]
    (said,) = [one.message for one in found.findings if one.code == "GS860"]
    assert "8192 MiB" in said
    assert "12288 MiB" in said
    other = node(
        'nvidia.com/gpu.product: Tesla-T4, nvidia.com/gpu.count: "1", nvidia.com/gpu.memory: "40960", '
        'nvidia.com/gpu.compute.major: "8", nvidia.com/gpu.compute.minor: "0"'
    )
    assert "are of two cards" in messages(other)


def test_installed_stack_is_kept_unless_one_is_chosen() -> None:
    chart = (
        "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {name: g, namespace: kube-system}\nspec:\n"
        "  chart: gpu-operator\n  version: v25.3.4\n  targetNamespace: gpu-operator\n  valuesContent: |-\n"
        "    driver: {version: 580.105.08}\n    toolkit: {env: [{name: A, value: b}]}\n    unheardOf: 1\n"
    )
    files = [InputFile(name="all.yaml", data="---\n".join([chart, node()]).encode())]
    stays, replaces = importing.build(files), importing.build(files, "", Wanted(stack="gpu-operator"))
    assert stays.draft.spec["adoption"] == "observe"
    assert stays.draft.spec["platform"] == {"stack": "existing", "namespaces": ["gpu-operator"], "runtimeClass": "nvidia"}
    assert 'driver.version: "580.105.08"' in stays.text
    assert replaces.draft.spec["namespace"] == "gpu-operator"
    assert replaces.draft.spec["platform"] == {
        "stack": "gpu-operator",
        "version": "v25.3.4",
        "driver": {"version": "580.105.08"},
        "values": {"toolkit": {"env": [{"name": "A", "value": "b"}]}},
    }
    assert codes(stays) == codes(replaces) == ["GS871"]


def test_chosen_stack_without_values_warns_about_lost_settings() -> None:
    found = importing.build([InputFile(name="n.yaml", data=node().encode())], "", Wanted(stack="gpu-operator"))
    said = [one.message for one in found.findings if one.code == "GS873"]
    assert {one.severity for one in found.findings} == {Severity.WARNING}
    assert all(any(word in message for message in said) for word in ("second one", "lose", "would install"))


def test_a_label_of_the_users_own_that_has_exactly_the_nodes_selects_them() -> None:
    labels = f"{T4}, node.example.org/gpu: t4"
    found = imported(node(labels, "a"), node(labels, "b"), node("x/y: z", "c"))
    (pool,) = found.draft.pools.values()
    assert pool["nodes"] == {"matchLabels": {"node.example.org/gpu": "t4"}, "expected": 2}


def test_no_edit_of_a_file_raises() -> None:
    whole = "---\n".join([config_map(sharing()), VALUES, node(A100), node(G4DN, "b", capacity(gpu=4))])
    dice = random.Random(29)
    marks = ["<<<<<<< HEAD\n", "=======\n", "{{", "${X}", "\x00", "- ", ": ", "&a ", "*a", "[", "\t", "'", "|", "null", "!!x "]
    for _ in range(60):
        text = whole
        for _ in range(dice.randint(1, 3)):
            at, length = dice.randrange(len(text)), dice.randint(0, 12)
            text = text[:at] + dice.choice(marks) + text[at + length :]
        check([InputFile(name="edited.yaml", data=text.encode())])
