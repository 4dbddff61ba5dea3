"""Values of the upstream charts, images, and what an existing plugin needs."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.facts.catalog import upstream
from gpushare_node.contract.names import OUR_TAINTS
from tests.compiler.render.compiled import compiled, document, files, intent, side

EVERYTHING = (
    "{partitioner: mig-manager, driver: {}, registry: reg.example.org, imagePullSecrets: [mirror],"
    " values: {cdi: {enabled: false}}}"
)


def operator(*pools: str, **wanted: str) -> Any:
    return document(files(*pools, **wanted), "gpu-operator/values.yaml")


def plugin(*pools: str, **wanted: str) -> Any:
    return document(files(*pools, **wanted), "device-plugin/values.yaml")


def leaves(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key)


@pytest.mark.parametrize(
    ("stack", "platform"),
    [
        ("gpu-operator", "{}"),
        ("gpu-operator", EVERYTHING),
        ("device-plugin", "{stack: device-plugin}"),
        ("device-plugin", "{stack: device-plugin, registry: reg.example.org, imagePullSecrets: [mirror]}"),
    ],
)
def test_every_written_value_is_read_by_the_chart(stack: str, platform: str) -> None:
    values = document(files(platform=platform), f"{stack}/values.yaml")
    chart = upstream.chart(stack)
    for path in leaves(values):
        judged = upstream.check_path(chart, path)
        below_subchart = isinstance(judged, upstream.OpenMap) and judged.above in chart.subcharts
        assert isinstance(judged, upstream.Known) or below_subchart, path
        if isinstance(judged, upstream.Known) and judged.fact:
            value: Any = values
            for key in path:
                value = value[key]
            assert upstream.violations(chart, judged.fact, value, ()) == [], path


@pytest.mark.parametrize(
    ("pools", "strategy"),
    [(("hpc", "dense"), "mixed"), (("serving",), "none"), (("serving", "dense"), ""), (("hpc",), "mixed")],
)
def test_the_operator_gets_one_mig_strategy_or_an_empty_one(pools: tuple[str, ...], strategy: str) -> None:
    assert operator(*pools)["mig"] == {"strategy": strategy}
    told = "--server-side=false" in files(*pools)["README.md"]
    assert told is (strategy == "")


@pytest.mark.parametrize(
    ("before", "after", "strategy"),
    [
        (("dense",), ("serving",), ""),
        (("serving", "dense"), ("dense",), ""),
        (("hpc",), ("serving",), "none"),
        (("serving",), ("hpc",), "none"),
    ],
)
def test_the_operators_strategy_suits_the_profiles_that_nodes_may_still_have(
    before: tuple[str, ...], after: tuple[str, ...], strategy: str
) -> None:
    former = lock.read(files(*before)[lock.FILE].encode())
    assert isinstance(former, lock.Lock)
    bundle = compiled(intent(*after), former)[1]
    assert document(bundle, "gpu-operator/values.yaml")["mig"] == {"strategy": strategy}
    assert side(bundle).mig_strategy == strategy
    assert ("--server-side=false" in bundle["README.md"]) is (strategy == "")


@pytest.mark.parametrize(
    ("charts", "helm", "argocd", "flux"),
    [
        (
            "oci://reg.example.org:5000/charts",
            "oci://reg.example.org:5000/charts/gpu-operator --version",
            "reg.example.org:5000/charts",
            {"url": "oci://reg.example.org:5000/charts", "type": "oci"},
        ),
        (
            "https://charts.example.org/nvidia",
            "gpu-operator --repo https://charts.example.org/nvidia --version",
            "https://charts.example.org/nvidia",
            {"url": "https://charts.example.org/nvidia"},
        ),
    ],
)
def test_chart_mirror_address_is_used_everywhere(charts: str, helm: str, argocd: str, flux: dict[str, str]) -> None:
    address = "'https://git.example.org/gpu.git', path: ."
    settings = f"  gitops: {{argocd: {{repoURL: {address}, project: gpus}}, flux: {{url: {address}}}}}\n"
    bundle = files("hpc", platform=f"{{charts: '{charts}', version: v26.3.3}}", more=settings)
    assert f"helm upgrade --install gpu-operator {helm} v26.3.3" in bundle["README.md"]
    source, _ = document(bundle, "argocd/apps/gpu-operator.yaml")["spec"]["sources"]
    assert (source["repoURL"], source["chart"]) == (argocd, "gpu-operator")
    assert document(bundle, "argocd/project.yaml")["spec"]["sourceRepos"][-1] == argocd
    assert document(bundle, "flux/apps/repository.yaml")["spec"] == {"interval": "1h"} | flux
    assert f"helm show values {helm} v26.3.3" in bundle["images.txt"]
    assert not [path for path, text in bundle.items() if "helm.ngc.nvidia.com" in text]


@pytest.mark.parametrize(
    "charts", ["reg.example.org/charts", "https://user:secret@charts.example.org", "oci://", "file:///charts"]
)
def test_invalid_chart_address_is_refused(charts: str) -> None:
    [finding] = pipeline.check(intent("hpc", platform=f"{{charts: '{charts}'}}"), "intent.yaml").findings
    assert (finding.code, finding.path[-1]) == ("GS105", "charts")


def test_the_operators_plugin_reads_our_configs_and_gives_unlabelled_nodes_whole_gpus() -> None:
    assert operator("hpc")["devicePlugin"]["config"] == {"create": False, "name": "gpushare-profiles", "default": ""}


def test_mig_manager_is_disabled_unless_it_partitions() -> None:
    assert operator("hpc")["migManager"] == {"enabled": False}
    config = {"create": False, "name": "gpushare-mig-parted", "default": "all-disabled"}
    assert operator("hpc", platform="{partitioner: mig-manager}")["migManager"] == {"enabled": True, "config": config}


@pytest.mark.parametrize(
    ("driver", "written"),
    [
        ("{}", {"enabled": False}),
        ("{driver: {}}", {"enabled": True}),
        (
            '{registry: reg.example.org, driver: {repository: other.example.org/nvidia, image: mine, version: "595.91.07"}}',
            {"enabled": True, "repository": "other.example.org/nvidia", "image": "mine", "version": "595.91.07"},
        ),
    ],
)
def test_operator_manages_the_driver_only_if_the_intent_says_so(driver: str, written: dict[str, Any]) -> None:
    values = operator("hpc", platform=driver)["driver"]
    values.pop("manager", None)
    assert values == written


def test_metrics_are_separated_by_pod_in_sharing_pools() -> None:
    assert "dcgmExporter" not in operator("hpc")
    assert operator()["dcgmExporter"] == {
        "env": [
            {"name": "KUBERNETES_VIRTUAL_GPUS", "value": "true"},
            {"name": "NVIDIA_RESOURCE_NAMES", "value": "nvidia.com/gpu.shared,nvidia.com/mig-1g.5gb.shared"},
        ],
        "hostPID": True,
    }


def test_operands_tolerate_their_defaults_our_taints_and_those_of_every_pool() -> None:
    values = operator()
    ours = [*OUR_TAINTS, "school"]
    assert [one["key"] for one in values["daemonsets"]["tolerations"]] == ["nvidia.com/gpu", *ours]
    workers = values["node-feature-discovery"]["worker"]["tolerations"]
    assert [one["key"] for one in workers] == ["node-role.kubernetes.io/control-plane", "nvidia.com/gpu", *ours]
    assert not any("effect" in one for one in workers[2:])


def test_toolkit_ignores_nvidia_visible_devices_of_images() -> None:
    variables = {one["name"]: one["value"] for one in operator("hpc")["toolkit"]["env"]}
    assert variables == {
        "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED": "false",
        "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS": "true",
    }


def test_without_cdi_the_plugin_passes_devices_by_volume_mounts_since_the_toolkit_ignores_variables() -> None:
    assert "env" not in operator("hpc")["devicePlugin"]
    values = operator("hpc", platform="{values: {cdi: {enabled: false}}}")
    assert values["devicePlugin"]["env"] == [{"name": "DEVICE_LIST_STRATEGY", "value": "volume-mounts"}]


def test_values_of_the_intent_are_merged_last_and_environment_lists_keep_ours() -> None:
    more = "{toolkit: {env: [{name: CONTAINERD_SOCKET, value: /run/k3s}]}, dcgm: {enabled: true}, gdrcopy: {args: null}}"
    values = operator("hpc", platform=f"{{values: {more}}}")
    assert [one["name"] for one in values["toolkit"]["env"]] == [
        "CONTAINERD_SOCKET",
        "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED",
        "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS",
    ]
    assert values["dcgm"] == {"enabled": True}
    assert values["gdrcopy"] == {"args": None}


@pytest.mark.parametrize("given", ["null", "[]"])
def test_no_value_of_the_intent_removes_our_variables(given: str) -> None:
    more = f"cdi: {{enabled: false}}, toolkit: {{env: {given}}}, dcgmExporter: {{env: {given}}}, devicePlugin: {{env: {given}}}"
    values, plain = operator(platform=f"{{values: {{{more}}}}}"), operator(platform="{values: {cdi: {enabled: false}}}")
    assert [values[part]["env"] for part in ("toolkit", "dcgmExporter", "devicePlugin")] == [
        plain[part]["env"] for part in ("toolkit", "dcgmExporter", "devicePlugin")
    ]


def test_the_plugin_chart_lets_every_profile_decide_and_brings_feature_discovery() -> None:
    values = plugin(platform="{stack: device-plugin}")
    assert values["config"] == {"name": "gpushare-profiles", "default": "", "fallbackStrategies": ["empty"]}
    assert values["gfd"] == {"enabled": True}
    assert not {"migStrategy", "deviceListStrategy", "failOnInitError"} & set(values)
    assert [one["key"] for one in values["tolerations"]][:2] == ["CriticalAddonsOnly", "nvidia.com/gpu"]


def test_pull_secrets_are_written_as_each_chart_reads_them() -> None:
    values = operator("hpc", platform="{imagePullSecrets: [mirror]}")
    assert values["operator"]["imagePullSecrets"] == ["mirror"]
    assert values["node-feature-discovery"]["imagePullSecrets"] == [{"name": "mirror"}]
    values = plugin("hpc", platform="{stack: device-plugin, imagePullSecrets: [mirror]}")
    assert values["imagePullSecrets"] == [{"name": "mirror"}]


def listed(*pools: str, **wanted: str) -> list[str]:
    return [line for line in files(*pools, **wanted)["images.txt"].splitlines() if not line.startswith("#")]


def names(*pools: str, **wanted: str) -> set[str]:
    return {line.rpartition("/")[2].partition(":")[0] for line in listed(*pools, **wanted)}


@pytest.mark.parametrize("platform", ["{}", "{stack: device-plugin}", EVERYTHING, "{stack: existing}"])
def test_every_image_uses_the_configured_registry(platform: str) -> None:
    plain = listed("hpc", platform=platform)
    assert len(plain) == len(set(plain))
    if "stack: existing" not in platform:
        mirrored = json.dumps({"registry": "reg.example.org", **yaml.safe_load(platform)})
        assert all(line.startswith("reg.example.org/") for line in listed("hpc", platform=mirrored))


def test_images_are_listed_only_for_enabled_operands() -> None:
    operands = {"container-toolkit", "k8s-device-plugin", "dcgm-exporter", "node-feature-discovery"}
    assert names("hpc") == {"node-runtime", "ubuntu", "gpu-operator"} | operands
    more = listed("hpc", platform='{driver: {version: "1.2"}, values: {dcgm: {enabled: true}}}')
    assert {"nvcr.io/nvidia/driver:1.2", "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04"} <= set(more)
    assert names("hpc", platform="{values: {dcgmExporter: {enabled: false}}}") == names("hpc") - {"dcgm-exporter"}
    assert listed("hpc", platform="{stack: device-plugin}")[2:] == [
        "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
        "registry.k8s.io/nfd/node-feature-discovery:v0.19.0",
    ]


def test_an_existing_plugin_gets_the_config_map_and_the_steps_and_no_values() -> None:
    bundle = files(platform="{stack: existing}")
    assert not [path for path in bundle if path.endswith("operator/values.yaml") or path.startswith("device-plugin/")]
    config_map = document(bundle, "existing/configmap.yaml")
    assert "namespace" not in config_map["metadata"]
    profiles = {path.split("/")[-1].removesuffix(".yaml"): bundle[path] for path in bundle if "/files/profiles/" in path}
    assert config_map["data"] == {f"{key}-{side}": text for key, text in profiles.items() for side in "ab"}
    steps = bundle["existing/README.md"]
    assert "existing/configmap.yaml" in steps
    assert "`accept-nvidia-visible-devices-as-volume-mounts = true`" in steps
    assert "DEVICE_LIST_STRATEGY" in steps


def test_our_pods_use_the_operators_kubelet_root() -> None:
    def root(platform: str) -> object:
        return document(files("hpc", platform=platform), "chart/values.yaml")["kubeletRoot"]

    assert root("{}") == root("{stack: device-plugin}") == root("{stack: existing}") == "/var/lib/kubelet"
    assert root("{values: {hostPaths: {kubeletRootDir: /data/kubelet/}}}") == "/data/kubelet"


@pytest.mark.parametrize(
    ("platform", "name"),
    [
        ("{}", "nvidia"),
        ("{values: {operator: {runtimeClass: other}}}", "other"),
        ("{values: {operator: {runtimeClass: null}}}", "nvidia"),
        ("{stack: device-plugin}", ""),
        ("{stack: device-plugin, values: {runtimeClassName: nvidia}}", "nvidia"),
        ("{stack: existing}", ""),
    ],
)
def test_our_pods_use_the_runtime_class_that_upstream_uses(platform: str, name: str) -> None:
    assert document(files("hpc", platform=platform), "chart/values.yaml")["runtimeClassName"] == name


def test_an_existing_plugin_whose_namespace_is_known_needs_no_copy_of_the_config_map() -> None:
    bundle = files(platform="{stack: existing, namespace: nvidia}")
    assert "existing/configmap.yaml" not in bundle
    steps = bundle["existing/README.md"]
    assert "Our chart puts the ConfigMap into `nvidia`" in steps
    assert "kubectl apply" not in steps


@pytest.mark.parametrize(
    ("platform", "more", "has_label"),
    [
        ("{}", "", True),
        ("{version: v26.7.1}", "", True),
        ("{version: v26.3.3}", "", False),
        ("{version: v26.7.0-rc.1}", "", False),
        ("{stack: device-plugin}", "", False),
        ("{stack: existing}", "", False),
        ("{}", "  adoption: observe\n", False),
        ("{version: v26.7.0}", "  adoption: observe\n", True),
    ],
)
def test_our_pods_select_the_label_of_gpu_clients_where_the_operator_is_known_to_set_it(
    platform: str, more: str, has_label: bool
) -> None:
    """Every release from 26.7 on, on every GPU node. What a bundle that observes does not install may be older."""
    assert document(files("hpc", platform=platform, more=more), "chart/values.yaml")["gpuClientLabel"] is has_label
