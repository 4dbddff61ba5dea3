"""Pools of NVIDIA's DRA driver: from a bundle exactly what it was made of, from a cluster what its objects mean."""

import pytest

from gpushare import importing, pipeline
from gpushare.bundle import lock
from gpushare.core.diagnostics import is_error
from gpushare.importing import Imported, InputFile, Wanted
from tests.compiler.importing.imports import (
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


def shares(number: int) -> str:
    return f', capacity: {{requests: {{shares: "{number}"}}}}'


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
    files = {one.path: one.text for one in first.artifacts}
    read = [
        path
        for path in files
        if path.endswith((".yaml", "images.txt")) and "templates/" not in path and "admission/" not in path
    ]
    inputs = [
        InputFile(name=path, data=files[path].encode())
        for path in read
        if path not in ("gpushare.lock.yaml", "chart/Chart.yaml")
    ]
    found = importing.build(inputs)
    made = {one.path: one.text for one in compiled(found).artifacts}
    assert not [one.message for one in found.compared(inputs, made).findings]
    assert {path: made[path] for path in read if path != "gpushare.lock.yaml"} == {
        path: files[path] for path in read if path != "gpushare.lock.yaml"
    }


@pytest.mark.parametrize(
    ("driver", "claims", "expected"),
    [
        (DRIVER, [], {"sharing": {"mode": "exclusive"}}),
        (DRIVER, [template("all")], {"sharing": {"mode": "exclusive"}}),
        (DRIVER, [template("quarter", memory("3840Mi"))], {"sharing": {"mode": "time-slicing", "replicas": 4}}),
        (
            DRIVER,
            [template("quarter", memory("3840Mi")), template("half", memory("7680Mi")), template("whole")],
            {"sharing": {"mode": "time-slicing", "replicas": 4}, "sizes": {"half": "7680Mi", "whole": "15360Mi"}},
        ),
        (
            DRIVER,
            [template("some", memory("4Gi"))],
            {"sharing": {"mode": "time-slicing", "replicas": 3}, "sizes": {"some": "4096Mi"}},
        ),
        (DRIVER.replace("memory", '"4"'), [], {"sharing": {"mode": "time-slicing", "replicas": 4}}),
        (DRIVER.replace("memory", '"4"'), [template("one", shares(1))], {"sharing": {"mode": "time-slicing", "replicas": 4}}),
        (DRIVER.replace("memory", '"4"'), [template("all", shares(4))], {"sharing": {"mode": "exclusive"}}),
    ],
)
def test_claims_and_the_drivers_values_say_how_gpus_are_shared(
    driver: str, claims: list[str], expected: dict[str, object]
) -> None:
    found = imported(device_class(), driver, node(OF_DRA, rest=RUNNING), *claims)
    only = pool(found)
    assert {key: only[key] for key in ("sharing", "sizes") if key in only} == expected
    assert only["backend"] == "dra"
    plan = compiled(found).plan
    assert plan is not None
    assert plan.dra_pools


def claim(name: str, asked: str, annotation: str) -> str:
    """A claim that Kubernetes made for a pod, as its controllers write it."""
    return (
        f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata:\n  name: {name}\n  generateName: {name}-\n"
        f"  namespace: team-a\n  annotations: {{{annotation}}}\n  finalizers: [resource.kubernetes.io/delete-protection]\n"
        "spec: {devices: {requests: [{name: gpu, exactly:"
        f" {{allocationMode: ExactCount, count: 1, deviceClassName: t4{asked}}}}}]}}}}\n"
    )


def test_claims_of_pods_add_nothing_to_their_templates() -> None:
    half = memory("7680Mi")
    made = claim("a-pod-gpu-x2x4z", half, "resource.kubernetes.io/pod-claim-name: gpu")
    found = imported(
        device_class(), DRIVER, node(OF_DRA, rest=RUNNING), made, template("quarter", memory("3840Mi")), template("half", half)
    )
    assert pool(found)["sizes"] == {"half": "7680Mi"}
    assert "GS871" not in codes(found)


def test_claims_that_kubernetes_makes_for_limits_are_no_claims_of_users() -> None:
    named = device_class(rest="  extendedResourceName: nvidia.com/gpu\n")
    made = claim("pod-extended-resources-x2x4z", "", 'resource.kubernetes.io/extended-resource-claim: "true"')
    assert pool(imported(named, DRIVER, node(OF_DRA, rest=RUNNING), made))["requests"] == "limits"


def config(interval: str, indent: int) -> str:
    driver = "{driver: gpu.nvidia.com, parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: GpuConfig, sharing: "
    sharing = f"{{strategy: TimeSlicing, timeSlicingConfig: {{interval: {interval}}}}}}}}}"
    return f"{' ' * indent}config: [{{opaque: {driver}{sharing}}}]\n"


def configured(name: str, interval: str, amount: str = "3840Mi", requests: str = "[]") -> str:
    """A template whose claims configure their GPU, as the driver's documentation has it."""
    own = config(interval, 0).strip().replace("opaque", f"requests: {requests}, opaque")
    return template(name, memory(amount)).replace("{devices: {requests", f"{{devices: {{{own}, requests")


@pytest.mark.parametrize(
    ("rest", "claims", "interval"),
    [
        (config("Short", 2), [template("quarter", memory("3840Mi"))], "short"),
        ("", [configured("quarter", "Long")], "long"),
        (config("Short", 2), [configured("quarter", "Long")], "long"),
        ("", [configured("quarter", "Medium"), configured("half", "Medium", "7680Mi")], "medium"),
        ("", [configured("quarter", "Default")], None),
        (config("Short", 2), [configured("quarter", "Default")], None),
        (config("Short", 2), [configured("quarter", "Long", requests="[nic]")], "short"),
        (config("Short", 2), [configured("quarter", "Long", requests="[nic, gpu/at-0]")], "long"),
        (config("Short", 2), [configured("quarter", "Long").replace("kind: GpuConfig", "kind: MigDeviceConfig")], "short"),
    ],
)
def test_intervals_of_classes_and_claims_are_that_of_the_pool(rest: str, claims: list[str], interval: str | None) -> None:
    values = DRIVER.replace("true}", "true, TimeSlicingSettings: true}", 1)
    found = imported(device_class(rest=rest), values, node(OF_DRA, rest=RUNNING), *claims)
    shared = pool(found)["sharing"]
    assert isinstance(shared, dict)
    assert shared.get("interval") == interval
    assert not [one.message for one in found.findings if "TimeSlicingSettings" in one.message]


def test_intervals_of_claims_that_never_share_a_gpu_are_reported() -> None:
    claims = [configured("quarter", "Short"), template("half", memory("7680Mi"))]
    found = imported(device_class(), DRIVER, node(OF_DRA, rest=RUNNING), *claims)
    assert pool(found)["sharing"] == {"mode": "time-slicing", "replicas": 4}
    assert [one.code for one in found.findings if "intervals default and short" in one.message] == ["GS861"]


def test_names_in_limits_are_kept_where_they_get_the_same() -> None:
    named = device_class(rest="  extendedResourceName: nvidia.com/gpu\n")
    assert pool(imported(named, DRIVER, node(OF_DRA, rest=RUNNING)))["requests"] == "limits"
    assert pool(imported(named, DRIVER, node(OF_DRA, rest=RUNNING), template("all")))["requests"] == "both"
    found = imported(named, DRIVER, node(OF_DRA, rest=RUNNING), template("quarter", memory("3840Mi")))
    assert "requests" not in pool(found)
    assert "GS861" in codes(found)


@pytest.mark.parametrize(
    ("document", "code", "words"),
    [
        (device_class(OF_T4 + " && device.attributes['x.org'].rack == 'a'"), "GS861", "taken as all of its product"),
        (device_class(f"device.driver == 'gpu.nvidia.com' && {ASKED}.index < 2"), "GS861", "left out"),
        (
            device_class(rest="  config:\n  - opaque: {driver: gpu.nvidia.com, parameters: {kind: GpuConfig}}\n"),
            "GS871",
            "GpuConfig",
        ),
        (device_class() + "---\n" + template("two", ", count: 2"), "GS871", "count: 2"),
        (device_class() + "---\n" + template("all", ", allocationMode: All"), "GS871", "allocationMode"),
        (template("foreign", of="unknown"), "GS869", "unknown"),
        (template("instance", of="mig.nvidia.com"), "GS855", "mig.nvidia.com"),
        (device_class() + "---\n" + template("mine", memory("3840Mi")), "GS873", "team-a/mine"),
    ],
)
def test_what_no_pool_has_is_reported_at_its_line(document: str, code: str, words: str) -> None:
    found = imported(DRIVER, node(OF_DRA, rest=RUNNING), document)
    said = [one for one in found.findings if one.code == code and words in one.message]
    assert said
    assert all(one.span and one.file == "cluster.yaml" for one in said)


@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        (DRIVER.replace("true}", "true, DynamicMIG: true}", 1), "GS861", "DynamicMIG"),
        (DRIVER.replace("{ConsumableShares: true}", "{}"), "GS861", "no effect"),
        (DRIVER.partition("kubeletPlugin")[0], "GS873", "node selector"),
    ],
)
def test_values_of_the_driver_that_no_pool_has_are_reported(values: str, code: str, words: str) -> None:
    found = imported(values, device_class(), node(OF_DRA, rest=RUNNING))
    assert [one.code for one in found.findings if words in one.message] == [code]


def test_the_label_alone_tells_of_the_driver() -> None:
    """The objects of DRA may be such as the user may not read."""
    assert pool(imported(node(OF_DRA, rest=RUNNING)))["backend"] == "dra"


def test_a_node_that_both_serve_is_one_of_the_plugin() -> None:
    both = RUNNING.replace('cpu: "4"', 'nvidia.com/gpu: "4"')
    found = imported(DRIVER, node(OF_DRA, rest=both))
    assert "backend" not in pool(found)
    assert "GS872" in codes(found)


def test_what_kubelet_counts_of_a_plugin_that_went_is_not_offered() -> None:
    """For five minutes; a node that the plugin left before is alike, and with the count alone the number of GPUs is known."""
    left = RUNNING.replace('cpu: "4"', 'nvidia.com/gpu: "16"').replace("}}", '}, allocatable: {nvidia.com/gpu: "0"}}')
    with_sharing = f"{OF_DRA}, nvidia.com/gpu.sharing-strategy: time-slicing, nvidia.com/gpu.replicas: '4'"
    nodes = [node(with_sharing, name=f"n{number}", rest=rest) for number, rest in enumerate((left, RUNNING))]
    found = imported(DRIVER, device_class(), *nodes)
    only = pool(found)
    assert (only["backend"], only["gpusPerNode"], only["nodes"]) == ("dra", 4, {"names": ["n0", "n1"]})
    assert "GS872" not in codes(found)


def test_quotas_on_classes_become_those_of_the_pool() -> None:
    quota = (
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus, namespace: team-a}\n"
        'spec: {hard: {t4.deviceclass.resource.k8s.io/devices: "3", other.deviceclass.resource.k8s.io/devices: "5"}}\n'
    )
    found = imported(DRIVER, device_class(), node(OF_DRA, rest=RUNNING), quota)
    assert list(found.draft.spec["quotas"]["team-a"].values()) == [3]
    assert [one.message for one in found.findings if one.code == "GS863" and "other" in one.message]


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
    found = imported(document, DRIVER, node(OF_DRA, rest=RUNNING), wanted=Wanted(stack=stack, backend="dra"))
    assert found.text
