"""Pools of NVIDIA's DRA driver: from a bundle exactly what it was made of; a cluster's objects of DRA are not imported."""

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.cluster import importing
from gpushare.cluster.importing import Imported, InputFile, Wanted
from gpushare.core.diagnostics import is_error
from tests.compiler.cluster.importing.imports import (
    A100,
    TO_DRA,
    codes,
    compiled,
    config_map,
    errors,
    imported,
    node,
    selected,
    sharing,
)

INTENT = """apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {{name: claims}}
spec:
  kubernetes: "{kubernetes}"
  platform: {{stack: device-plugin, {platform}}}
  pools:
    one:
      card: {card}
      nodes: {{matchLabels: {{example.org/pool: one}}, expected: 2}}
      gpusPerNode: 2
      sharing: {sharing}
      {pool}
    two:
      card: l4
      nodes: {{matchLabels: {{example.org/pool: two}}, expected: 2}}
      gpusPerNode: 2
      sharing: {{mode: time-slicing, replicas: 2}}
  quotas: {{team: {{one: 2, two: 3}}}}
"""
DRIVER = """gpuResourcesEnabledOverride: true
featureGates: {ConsumableShares: true}
consumableShares: memory
kubeletPlugin: {nodeSelector: {gpushare.dev/backend: dra}}
"""
OF_DRA = 'nvidia.com/gpu.product: Tesla-T4, nvidia.com/gpu.count: "4", gpushare.dev/backend: dra'
RUNNING = 'status: {nodeInfo: {kubeletVersion: v1.36.3}, capacity: {cpu: "4"}}\n'
ASKED = "device.attributes['gpu.nvidia.com']"
OF_T4 = f"device.driver == 'gpu.nvidia.com' && {ASKED}.type == 'gpu' && {ASKED}.productName == 'Tesla T4'"


def device_class(expression: str = OF_T4, rest: str = "", name: str = "t4") -> str:
    return (
        f"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: {name}}}\nspec:\n  selectors:\n"
        f'  - cel: {{expression: "{expression}"}}\n{rest}'
    )


def template(name: str, asked: str = "", of: str = "t4") -> str:
    return (
        f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: {name}, namespace: team-a}}\n"
        f"spec: {{spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: {of}{asked}}}}}]}}}}}}\n"
    )


def memory(amount: str) -> str:
    return f", capacity: {{requests: {{memory: {amount}}}}}"


def pool(found: Imported) -> dict[str, object]:
    """The only pool of an import that compiles."""
    assert not errors(found), errors(found)
    (only,) = found.draft.pools.values()
    return only


def intent(**changed: str) -> str:
    parts = {"kubernetes": "1.36", "card": "t4", "sharing": "{mode: exclusive}", "pool": "backend: dra"} | changed
    return INTENT.format_map({"platform": "dra: {}"} | parts)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"kubernetes": "1.34", "platform": "dra: {via: existing, driverRoot: /run/nvidia/driver}"},
        {"pool": "backend: dra\n      requests: both"},
        {"sharing": "{mode: time-slicing, replicas: 4}", "pool": "backend: dra\n      sizes: {large: 7680Mi, more: 8Gi}"},
        {"sharing": "{mode: time-slicing, replicas: 4, interval: long}"},
        {"sharing": "{mode: time-slicing, replicas: 4}", "platform": "dra: {shares: count}"},
        {
            "sharing": "{mode: time-slicing, replicas: 4, rename: false}",
            "platform": "dra: {shares: count}",
            "pool": "backend: dra\n      requests: both",
        },
        {"card": "a100-sxm4-40gb", "sharing": "{mode: mig, layout: {3g.20gb: 2}, replicas: {3g.20gb: 2}}"},
        {
            "card": "a100-sxm4-40gb",
            "sharing": "{mode: mig, strategy: single, layout: {3g.20gb: 2}}",
            "pool": "backend: dra\n      requests: both\n      namespaces: [team]",
        },
    ],
    ids=["whole", "existing", "limits", "sizes", "interval", "count", "names", "halves", "single"],
)
def test_a_bundle_with_dra_comes_back_byte_for_byte(changed: dict[str, str]) -> None:
    first = pipeline.compile_intent(intent(**changed).encode(), "intent.yaml", lock.EMPTY)
    assert not [finding.message for finding in first.findings if is_error(finding)]
    written = next(one.text for one in first.artifacts if one.path == lock.INTENT)
    found = importing.build([InputFile(name=lock.INTENT, data=written.encode())])
    assert found.findings == ()
    assert compiled(found).artifacts == first.artifacts


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1", "v1alpha3"])
@pytest.mark.parametrize("kind", ["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceTaintRule"])
def test_each_object_of_dra_is_one_finding_that_names_it(kind: str, version: str) -> None:
    given = f"apiVersion: resource.k8s.io/{version}\nkind: {kind}\nmetadata: {{name: mine, namespace: a}}\nspec: {{x: 1}}\n"
    found = imported(selected(), config_map(sharing()), given)
    assert pool(found)["sharing"] == {"mode": "time-slicing", "replicas": 4}
    [said] = [one for one in found.findings if one.code == "GS874"]
    assert f"{kind} a/mine is not imported" in said.message
    assert "docs/dra.md" in said.hints[0]
    assert (said.file, bool(said.span)) == ("cluster.yaml", True)
    assert "GS871" not in codes(found)


def test_many_claims_are_few_findings() -> None:
    found = imported(node(), *(template(f"t{number}") for number in range(200)))
    assert codes(found).count("GS874") == 51


def test_nodes_of_the_driver_are_left_out_and_others_are_not() -> None:
    plugin = node(name="gpu-02", rest='status: {capacity: {nvidia.com/gpu: "4"}}\n')
    unknown = node(name="gpu-03")
    for one, given in (
        (node(OF_DRA, rest=RUNNING), []),
        (node(rest=RUNNING), [device_class()]),
        (node(rest=RUNNING), [DRIVER]),
    ):
        found = imported(one, plugin, unknown, *given)
        assert pool(found)["nodes"] == {"names": ["gpu-02", "gpu-03"]}
        [said] = [each for each in found.findings if each.code == "GS872"]
        assert "node gpu-01 has" in said.message
        assert "left out" in said.message
    assert pool(imported(node(rest=RUNNING)))["nodes"] == {"names": ["gpu-01"]}


def test_a_node_that_both_serve_is_one_of_the_plugin() -> None:
    both = RUNNING.replace('cpu: "4"', 'nvidia.com/gpu: "4"')
    assert "backend" not in pool(imported(DRIVER, node(OF_DRA, rest=both)))


def test_what_kubelet_counts_of_a_plugin_that_went_is_not_offered() -> None:
    """For five minutes; such a node is the driver's."""
    left = RUNNING.replace('cpu: "4"', 'nvidia.com/gpu: "16"').replace("}}", '}, allocatable: {nvidia.com/gpu: "0"}}')
    found = imported(node(OF_DRA, rest=left), node(name="gpu-02"))
    assert pool(found)["nodes"] == {"names": ["gpu-02"]}


def test_values_of_the_driver_are_one_finding_and_its_release_stays() -> None:
    documents = DRIVER, node(rest=RUNNING.replace('cpu: "4"', 'nvidia.com/gpu: "4"'))
    found = imported(*documents)
    assert "dra" not in found.draft.spec["platform"]
    assert [one.message for one in found.findings if one.code == "GS874"] == [
        "the values of dra-driver-nvidia-gpu are not imported: the intent has nothing of the DRA driver"
    ]
    moved = imported(*documents, wanted=TO_DRA)
    assert pool(moved)["backend"] == "dra"
    assert moved.draft.spec["platform"]["dra"] == {"via": "existing"}, "no second release beside it"


def test_quotas_on_classes_are_reported() -> None:
    quota = (
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus, namespace: team-a}\n"
        'spec: {hard: {t4.deviceclass.resource.k8s.io/devices: "3"}}\n'
    )
    found = imported(device_class(), node(), quota)
    assert "quotas" not in found.draft.spec
    assert [one.message for one in found.findings if one.code == "GS863" and "t4" in one.message]


@pytest.mark.parametrize(
    ("documents", "sharing_of_pool"),
    [
        ([node(rest=RUNNING)], {"mode": "exclusive"}),
        ([config_map(sharing()), selected()], {"mode": "time-slicing", "replicas": 4}),
        ([node(f"{A100}, nvidia.com/mig.config: all-3g.20gb", rest=RUNNING)], {"mode": "mig", "layout": {"3g.20gb": 2}}),
    ],
)
def test_pools_of_the_plugin_are_proposed_on_dra(documents: list[str], sharing_of_pool: dict[str, object]) -> None:
    found = imported(*documents, wanted=TO_DRA)
    only = pool(found)
    assert (only["backend"], only["sharing"]) == ("dra", sharing_of_pool)
    plan = compiled(found).plan
    assert plan is not None
    assert [one.name for one in plan.dra_pools] == list(found.draft.pools)


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([config_map(sharing(how="mps")), selected()], "no mps"),
        (
            [config_map(sharing()), selected() + RUNNING.replace("1.36.3", "1.35.1")],
            "needs Kubernetes 1.36, and the oldest node has 1.35",
        ),
        (
            [node("amd.com/gpu.device-id: 74a1, amd.com/gpu.cu-count: '304'", rest='status: {capacity: {amd.com/gpu: "8"}}\n')],
            "AMD",
        ),
        (
            [node('nvidia.com/gpu.product: Tesla-T4, nvidia.com/gpu.count: "4", karpenter.sh/nodepool: gpus', rest=RUNNING)],
            "Karpenter",
        ),
    ],
    ids=["mps", "kubernetes", "amd", "karpenter"],
)
def test_a_pool_that_cannot_follow_stays_and_says_why(documents: list[str], words: str) -> None:
    found = imported(*documents, wanted=TO_DRA)
    assert "backend" not in pool(found)
    said = [one for one in found.findings if one.code == "GS875"]
    assert [words in one.message for one in said] == [True]
    assert said[0].span
    assert "stays on the device plugin" in found.text
    assert compiled(found).plan is not None


def test_names_of_the_plugin_do_not_follow() -> None:
    text = sharing().replace("    renameByDefault: true\n", "")
    found = imported(config_map(text), selected(), wanted=TO_DRA)
    assert pool(found)["sharing"] == {"mode": "time-slicing", "replicas": 4}
    assert [one.message for one in found.findings if one.code == "GS875" and "rename: false" in one.message]


def test_pools_with_one_quota_get_one_each_on_dra() -> None:
    quota = (
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus, namespace: team-a}\n"
        'spec: {hard: {requests.nvidia.com/gpu: "3"}}\n'
    )
    other = node('nvidia.com/gpu.product: NVIDIA-L4, nvidia.com/gpu.count: "2"', name="gpu-02", rest=RUNNING)
    found = imported(node(rest=RUNNING), other, quota, wanted=TO_DRA)
    assert [one.code for one in found.findings if "a quota of its own" in one.message] == ["GS863"]
    assert not errors(found)


@pytest.mark.parametrize("stack", ["", "device-plugin"])
@pytest.mark.parametrize(
    "document",
    [
        DRIVER.replace("{ConsumableShares: true}", "[1]").replace("memory", "{a: [b]}"),
        "consumableShares: memory\nfeatureGates: {ConsumableShares: 'true'}\nkubeletPlugin: 7\nnvidiaDriverRoot: [x]\n",
        device_class("(((", rest="  extendedResourceName: [1]\n"),
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nspec: {selectors: {cel: 1}}\n",
        device_class(f"device.driver == 'gpu.nvidia.com' && {ASKED}.productName in [' && ']"),
        template("small", memory('"1"')) + "---\n" + device_class(),
        template("odd", ", capacity: {requests: {memory: [1], shares: {}}}") + "---\n" + device_class(),
        (
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: 5\n"
            "spec: {devices: {requests: [1, {firstAvailable: [2]}]}}\n"
        ),
    ],
)
def test_anything_in_objects_of_dra_gives_findings(document: str, stack: str) -> None:
    found = imported(
        document, DRIVER, node(OF_DRA, rest=RUNNING), node(name="gpu-02"), wanted=Wanted(stack=stack, backend="dra")
    )
    assert found.text
