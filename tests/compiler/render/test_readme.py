"""What people read: the bundle's README and the cloud snippets."""

import re

import pytest
import yaml

from gpushare import __version__
from gpushare.facts.catalog.image_registry import reference
from gpushare.facts.nodes.clouds import Cloud
from tests.compiler.render.compiled import POOLS, TAINTING, files, label_of

DIGEST = f"sha256:{'0f' * 32}"


def test_the_readme_has_a_row_for_each_resource_and_a_pod_for_each_pool() -> None:
    text = files()["README.md"]
    rows = [line for line in text.splitlines() if line.startswith("| [")]
    names = [row.removeprefix("| [").partition("]")[0] for row in rows]
    assert names == ["dense", "dense", "dense", "hpc", "notebooks", "serving"]
    pods = [yaml.safe_load(block) for block in re.findall(r"\n\n((?:    .*\n)+)", text) if "kind: Pod" in block]
    assert [pod["spec"]["nodeSelector"] for pod in pods] == [{"gpushare.dev/pool": name} for name in sorted(POOLS)]
    assert pods[2]["spec"]["tolerations"] == [{"key": "school", "operator": "Exists"}]
    assert pods[2]["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu.shared": 1}}


@pytest.mark.parametrize(
    ("platform", "upstream"),
    [
        ("{}", "gpu-operator gpu-operator --repo https://helm.ngc.nvidia.com/nvidia --version v26.7.0"),
        (
            "{stack: device-plugin}",
            "nvidia-device-plugin nvidia-device-plugin --repo https://nvidia.github.io/k8s-device-plugin",
        ),
        ("{stack: existing}", ""),
    ],
)
def test_the_readme_installs_namespace_then_our_chart_then_upstreams(platform: str, upstream: str) -> None:
    text = files("hpc", platform=platform)["README.md"]
    at = [text.index(step) for step in ("kubectl apply -f namespace.yaml", "helm upgrade --install gpushare chart", upstream)]
    assert at[:2] == sorted(at[:2])
    assert not upstream or at[2] > at[1]


def test_nvidias_chart_is_installed_where_the_intent_says() -> None:
    text = files("hpc", platform="{namespace: nvidia}")["README.md"]
    assert "helm upgrade --install gpushare chart --namespace gpu-system --timeout 5m\n" in text
    assert "--namespace nvidia --values gpu-operator/values.yaml" in text


@pytest.mark.parametrize(
    ("nodes", "command"),
    [
        (
            "{matchLabels: {example.org/a: b, cloud.google.com/gke-nodepool: c}, expected: 2}",
            "kubectl label nodes NODE example.org/a=b",
        ),
        ("{matchExpressions: [{key: a, operator: In, values: [b, c]}], expected: 2}", "kubectl label nodes NODE a=b"),
        ("{matchExpressions: [{key: a, operator: Exists}]}", ""),
        ("{matchLabels: {node-role.kubernetes.io/gpu: 'yes'}}", "kubectl label nodes NODE node-role.kubernetes.io/gpu=yes"),
        ("{matchLabels: {eks.amazonaws.com/nodegroup: gpus}}", ""),
        ("{matchLabels: {karpenter.k8s.aws/instance-family: g5}}", ""),
        ("{matchLabels: {node.kubernetes.io/instance-type: g5.xlarge}}", ""),
        ("{names: [n1, n2]}", ""),
    ],
)
def test_readme_labels_nodes_where_no_program_does(nodes: str, command: str) -> None:
    pool = f"{{card: h100-sxm5-80gb, nodes: {nodes}, gpusPerNode: 8, sharing: {{mode: exclusive}}}}"
    found = re.findall(r"^    (kubectl label .*)$", files("hpc", hpc=pool)["README.md"], re.MULTILINE)
    assert found == ([command] if command else [])


def test_readme_lists_the_nodes_of_pools_that_select_by_expressions() -> None:
    expressions = "{key: a, operator: Exists}, {key: b, operator: DoesNotExist}, {key: c, operator: NotIn, values: [v, w]}"
    nodes = f"{{matchLabels: {{d: e}}, matchExpressions: [{expressions}], expected: 2}}"
    text = files("hpc", hpc=POOLS["hpc"].replace("{matchLabels: {p: hpc}, expected: 2}", nodes))["README.md"]
    assert "    kubectl get nodes --selector 'd=e,a,!b,c notin (v,w)'  # pool hpc, 2 nodes\n" in text


def test_readme_promises_a_line_for_each_namespace() -> None:
    text = files("hpc", platform="{namespace: nvidia}")["README.md"]
    assert "prints `namespace/gpu-system created` and `namespace/nvidia created`, later `unchanged`." in text


@pytest.mark.parametrize(
    ("platform", "steps"),
    [
        ("{stack: existing}", ["The device plugin", "gpushare"]),
        ("{stack: existing, namespace: nvidia}", ["gpushare", "The device plugin"]),
        ("{}", ["gpushare", "The device plugin"]),
    ],
)
def test_a_copied_configmap_is_there_before_gpushare(platform: str, steps: list[str]) -> None:
    text = files("hpc", platform=platform)["README.md"]
    assert re.findall(r"^### \d\. (gpushare|The device plugin)$", text, re.MULTILINE) == steps


@pytest.mark.parametrize(
    ("platform", "name"),
    [
        ("{}", "nvidia"),
        ("{values: {operator: {runtimeClass: other}}}", "other"),
        ("{stack: device-plugin}", None),
        ("{stack: device-plugin, values: {runtimeClassName: nvidia}}", "nvidia"),
        ("{stack: existing}", None),
    ],
)
def test_the_readmes_pod_has_the_runtime_class_that_the_stack_needs(platform: str, name: str | None) -> None:
    section = files("hpc", platform=platform)["README.md"].partition("## hpc")[2].partition("##")[0]
    (pod,) = re.findall(r"\n\n((?:    .*\n)+)", section)
    assert yaml.safe_load(pod)["spec"].get("runtimeClassName") == name


@pytest.mark.parametrize("platform", ["{}", "{registry: registry.example.org}", "{stack: existing}"])
def test_the_readmes_image_is_listed(platform: str) -> None:
    bundle = files("hpc", platform=platform)
    (image,) = re.findall(r"^ +image: (\S+)", bundle["README.md"], re.MULTILINE)
    assert image.strip('"') in bundle["images.txt"].splitlines()


@pytest.mark.parametrize(
    ("platform", "image"),
    [
        ("{image: {repository: reg.example.org/own/agent}}", f"reg.example.org/own/agent:{__version__}"),
        ("{image: {repository: own/agent, tag: v1}, registry: reg.example.org}", "reg.example.org/own/agent:v1"),
        (f"{{image: {{repository: reg.example.org:5000/a, digest: {DIGEST}}}}}", f"reg.example.org:5000/a@{DIGEST}"),
        (f"{{image: {{digest: {DIGEST}}}, registry: reg.example.org}}", f"reg.example.org/gpushare/node-runtime@{DIGEST}"),
    ],
)
def test_the_nodes_pull_the_image_that_the_intent_names(platform: str, image: str) -> None:
    bundle = files("hpc", platform=platform)
    assert image in bundle["images.txt"].splitlines()
    assert f"`{image}`" in bundle["README.md"]
    assert reference(yaml.safe_load(bundle["chart/values.yaml"])["image"]) == image


@pytest.mark.parametrize(
    ("platform", "pushed", "said"),
    [
        ("{}", f"registry.example.org/gpushare/node-runtime:{__version__}", "Nothing is published there."),
        ("{image: {tag: mine}}", "registry.example.org/gpushare/node-runtime:mine", "Nothing is published there."),
        (
            "{image: {repository: registry.example.org/a}}",
            f"registry.example.org/a:{__version__}",
            "The registry is an example:",
        ),
        ("{registry: reg.example.net}", f"reg.example.net/gpushare/node-runtime:{__version__}", ""),
        (f"{{image: {{repository: reg.example.net/a, digest: {DIGEST}}}}}", f"reg.example.net/a:{__version__}", ""),
    ],
)
def test_readme_has_the_commands_that_push_the_image(platform: str, pushed: str, said: str) -> None:
    section = files("hpc", platform=platform)["README.md"].partition("## Installing")[2].partition("In this order")[0]
    assert f"    docker buildx build --push --platform linux/amd64 -t {pushed} node-runtime\n" in section
    assert f"    podman build --platform linux/amd64 -t {pushed} node-runtime && podman push {pushed}\n" in section
    assert said in section
    assert len(
        {"Nothing is published", "is an example"} & set(re.findall("Nothing is published|is an example", section))
    ) == bool(said)


def test_the_readme_says_what_this_version_does_not_generate() -> None:
    heading = "## Not in this bundle yet"
    assert heading not in files("hpc")["README.md"]
    assert "toolkit" in files("hpc", platform="{stack: device-plugin}")["README.md"].partition(heading)[2]


@pytest.mark.parametrize("pools", [("hpc",), ("serving", "dense")])
def test_the_readme_says_when_the_operators_strategy_may_change(pools: tuple[str, ...]) -> None:
    told = "Where it changes, upgrade the operator first."
    assert told in files(*pools)["README.md"]
    assert told not in files(*pools, platform="{stack: device-plugin}")["README.md"]


@pytest.mark.parametrize(
    ("platform", "told"),
    [
        ("{}", False),
        ("{values: {toolkit: {enabled: false}}}", True),
        ("{stack: device-plugin}", True),
        ("{stack: existing}", True),
    ],
)
def test_readme_warns_if_the_toolkit_is_not_managed(platform: str, told: bool) -> None:
    assert ("The container toolkit's settings" in files("hpc", platform=platform)["README.md"]) is told


@pytest.mark.parametrize("cloud", TAINTING, ids=lambda cloud: cloud.name)
def test_a_pool_on_a_clouds_own_label_gets_the_command_for_the_start_up_taint(cloud: Cloud) -> None:
    label = label_of(cloud)
    command = cloud.startup_taint.format(pool="gpus", POOL="GPUS", taint="gpushare.dev/not-ready")
    expression = f"{{key: {label}, operator: In, values: [gpus]}}"
    for nodes in (f"{{matchLabels: {{{label}: gpus}}}}", f"{{matchExpressions: [{expression}]}}"):
        bundle = files("hpc", hpc=POOLS["hpc"].replace("{matchLabels: {p: hpc}, expected: 2}", nodes))
        text = bundle["nodes/cloud.md"]
        assert command in text
        assert "remove" in text.partition("## hpc")[2]
        assert bundle["README.md"].count("[nodes/cloud.md](nodes/cloud.md)") == 1


def test_other_labels_get_no_cloud_page() -> None:
    bundle = files()
    assert "nodes/cloud.md" not in bundle
    assert "nodes/cloud.md" not in bundle["README.md"]
