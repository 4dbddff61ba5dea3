"""Every generated config is one that NVIDIA's programs accept, and with it a node offers what the plan promises.

Judged by `upstream_validators`, over all examples and a matrix of pools and platforms, from the bundle's files alone.
"""

import json
import re
from collections import Counter
from functools import cache
from itertools import combinations, permutations, product
from pathlib import Path
from typing import Any

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.bundle.lock import Lock
from gpushare.core.diagnostics import is_error
from gpushare.facts.catalog import cards
from tests.compiler.golden.update import compiled, examples
from tests.compiler.render.compiled import side
from tests.contract import amd_validators as amd
from tests.contract import upstream_validators as upstream
from tests.contract.upstream_validators import Hardware
from tests.support import rendering, scale

POOLS = {  # card, GPUs of a node, sharing
    "whole": ("t4", 4, "{mode: exclusive}"),
    "whole-mig-card": ("h100-sxm5-80gb", 8, "{mode: exclusive}"),
    "turns": ("t4", 1, "{mode: time-slicing, replicas: 4}"),
    "turns-plain": ("a100-sxm4-40gb", 4, "{mode: time-slicing, replicas: 2, rename: false, placement: pack}"),
    "mps": ("l40s", 2, "{mode: mps, replicas: 48}"),
    "mps-volta": ("v100-pcie-32gb", 4, "{mode: mps, replicas: 16, placement: pack}"),
    "mps-plain": ("a100-pcie-40gb", 2, "{mode: mps, replicas: 2, rename: false}"),
    "alike": ("a100-sxm4-40gb", 4, "{mode: mig, layout: {2g.10gb: 2, 1g.5gb: 3}}"),
    "unlike": (
        "a100-sxm4-80gb",
        4,
        "{mode: mig, replicas: {1g.10gb: 3}, layouts: [{gpus: [3, 0], layout: {1g.10gb: 7}}, {gpus: [1, 2], layout: none}]}",
    ),
    "all-shared": ("a30", 2, "{mode: mig, layout: {2g.12gb: 1, 1g.6gb: 2}, replicas: 2, rename: false, placement: pack}"),
    "media": ("a100-pcie-80gb", 2, "{mode: mig, layout: {1g.10gb+me: 1, 1g.10gb: 6}, replicas: {1g.10gb+me: 2}}"),
    "media-half": ("a30", 1, "{mode: mig, layout: {2g.12gb+me: 1, 2g.12gb: 1}}"),
    "graphics": ("rtx-pro-6000-server", 2, "{mode: mig, layout: {1g.24gb+gfx: 4}, replicas: 2}"),
    "no-media": ("rtx-pro-6000-server", 2, "{mode: mig, layout: {1g.24gb+me.all: 1, 1g.24gb-me: 3}, replicas: 3}"),
    "goal": ("b200-180gb", 8, "{mode: mig, goal: most-instances}"),
    "single": ("h100-nvl-94gb", 2, "{mode: mig, strategy: single, layout: {3g.47gb: 2}}"),
    "single-shared": ("a100-sxm4-40gb", 4, "{mode: mig, strategy: single, layout: {1g.5gb: 7}, replicas: 2}"),
    "single-plain": ("a30", 2, "{mode: mig, strategy: single, goal: {instances: 4}, replicas: {1g.6gb: 2}, rename: false}"),
}
MIRROR = "registry: reg.example.org, imagePullSecrets: [mirror, other]"
PLATFORMS = {
    "operator": "{}",
    "operator-all": '{driver: {version: "580.95.05"}, ' + MIRROR + "}",
    "operator-own-driver": '{driver: {repository: reg.example.org/own, version: "580.10"}, ' + MIRROR + "}",
    "mig-manager": "{partitioner: mig-manager}",
    "mig-manager-all": '{partitioner: mig-manager, driver: {version: "580.95.05"}, ' + MIRROR + "}",
    "plugin": "{stack: device-plugin}",
    "plugin-all": "{stack: device-plugin, " + MIRROR + "}",
    "existing": "{stack: existing}",
}
PLAIN = ("operator", "mig-manager", "plugin", "existing")
KINDS = [("whole",), ("turns",), ("mps",), ("alike",), ("single",)]
MIXTURES = [tuple(name for (name,) in some) for size in (2, 3) for some in combinations(KINDS, size)]

Files = dict[str, str]


def intent(pools: tuple[str, ...], platform: str) -> bytes:
    head = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: lab}\nspec:\n"
    toleration = "tolerations: [{key: school, operator: Exists}]"
    lines = (
        f"    {name}: {{card: {POOLS[name][0]}, nodes: {{matchLabels: {{pool: {name}}}, expected: 2}},"
        f" gpusPerNode: {POOLS[name][1]}, sharing: {POOLS[name][2]}, {toleration}}}\n"
        for name in pools
    )
    return f"{head}  platform: {platform}\n  pools:\n{''.join(lines)}".encode()


def bundle(pools: tuple[str, ...], platform: str, previous: Lock = lock.EMPTY) -> Files:
    compilation = pipeline.compile_intent(intent(pools, platform), "intent.yaml", previous)
    assert not [finding.message for finding in compilation.findings if is_error(finding)]
    return {artifact.path: artifact.text for artifact in compilation.artifacts}


def below(files: Files, folder: str) -> dict[str, Any]:
    """The YAML documents of a folder, by name without extension."""
    inside = {path.removeprefix(folder): text for path, text in files.items() if path.startswith(folder)}
    return {name.removesuffix(".yaml"): upstream.read(text) for name, text in inside.items()}


def hardware(spec: Any) -> Hardware:
    """The node that a policy describes: every GPU once, every instance at a place of its own that NVIDIA allows."""
    card = cards.load(spec["card"]["id"])
    node: dict[int, Counter[str] | None] = {}
    for group in spec["gpus"]:
        if spec.get("dra", {}).get("onDemand"):
            # Up to Ampere MIG mode must be on before the driver starts, which then lists every place of the card.
            assert (group["mig"], group["instances"]) == (compute_capability(spec["card"]["id"]) < (9, 0), [])
            places = {profile.name: len(profile.placements) for profile in card.profiles.values()}
            node |= {index: Counter(places) for index in group["indexes"]}
            continue
        assert group["mig"] is bool(group["instances"])
        taken: set[int] = set()
        for instance in group["instances"]:
            assert card.mig is not None
            profile = next(one for one in card.mig.profiles if one.name == instance["profile"])
            assert (instance["start"], instance["size"]) in {(one.start, one.size) for one in profile.placements}
            assert instance["profileId"] == profile.profile_id
            slices = set(range(instance["start"], instance["start"] + instance["size"]))
            assert not slices & taken
            assert max(slices) < card.mig.units
            taken |= slices
        for index in group["indexes"]:
            assert index not in node
            node[index] = Counter(one["profile"] for one in group["instances"]) if group["mig"] else None
    assert sorted(node) == list(range(spec["gpusPerNode"]))
    return [node[index] for index in sorted(node)]


def compute_capability(card: str) -> tuple[int, int]:
    """That of one of NVIDIA's cards."""
    known = cards.load(card).compute_capability
    assert known is not None, card
    return known


def plugin_environments(files: Files, stack: str) -> list[str]:
    """MIG_STRATEGY as the plugin may find it: the operator's setting, and nothing where the profiles decide."""
    if stack == "gpu-operator":
        return [upstream.read(files["gpu-operator/values.yaml"])["mig"]["strategy"]]
    told = re.search(r"`mig\.strategy: ([^`]*)`", files.get("existing/README.md", ""))
    return ["", told[1].strip('"')] if told else [""]


def check_nodes(files: Files) -> None:
    """Each pool's node, as plugin and partitioner make it, offers what its policy promises."""
    profiles, pools = below(files, "chart/files/profiles/"), side(dict(files)).pools
    for name, policy in below(files, "chart/files/policies/").items():
        if policy["spec"].get("vendor") == "amd":
            check_amd(files, name, policy["spec"])
            continue
        spec, node = policy["spec"], hardware(policy["spec"])
        if spec.get("backend") == "dra":
            check_dra(files, name, spec, node)
            continue
        capability = compute_capability(spec["card"]["id"])
        for strategy in plugin_environments(files, spec["stack"]):
            assert upstream.advertised(profiles[spec["profile"]], node, strategy, capability) == spec["resources"], name
        assert pools[name].resources == spec["resources"]
        assert pools[name].labels["nvidia.com/device-plugin.config"] == [f"{spec['profile']}-a", f"{spec['profile']}-b"]
        assert spec["mode"] == spec["profile"].rpartition("-")[0]
        assert spec["mode"] == "mig" or not any(node)
        check_shares(spec, node)
        check_partitioner(files, spec, node)


def check_dra(files: Files, name: str, spec: Any, node: Hardware) -> None:
    """A pool's node, as NVIDIA's DRA driver publishes it, has the devices that its policy promises, each of one class."""
    classes = upstream.read(files[f"chart/files/dra/{name}.yaml"])["classes"]
    published = Counter(profile for gpu in node for profile in ([None] if gpu is None else gpu.elements()))
    of_class = {
        key: next((found[1] for found in [re.search(r"profile == '([^']+)'", expression)] if found), None)
        for key, one in classes.items()
        for expression in [one["selectors"][0]["cel"]["expression"]]
    }
    assert {key: published[profile] for key, profile in of_class.items()} == spec["resources"]
    assert spec["dra"]["onDemand"] or sum(spec["resources"].values()) == published.total()
    assert spec["profile"] is None


def check_amd(files: Files, name: str, spec: Any) -> None:
    """A pool's node, as AMD's config manager and device plugin make it, offers what its policy promises."""
    modes: dict[int, tuple[amd.Mode | None, int]] = {}
    for group in spec["gpus"]:
        part = group.get("partition")
        mode = ((part["compute"], part["memory"]), part["devices"]) if part else (None, 1)
        modes |= dict.fromkeys(group["indexes"], mode)
    gpus = [modes[index] for index in range(spec["gpusPerNode"])]
    config = upstream.read(files[f"chart/files/amd/device-configs/{name}.yaml"])
    assert (
        amd.advertised(gpus, config["devicePlugin"]["devicePluginArguments"]["resource_naming_strategy"]) == spec["resources"]
    )
    assert config["selector"] == {"gpushare.dev/pool": name}
    assert config["configManager"]["enable"] is (spec["managerConfig"] is not None)
    if spec["managerConfig"]:
        profiles = json.loads(files["chart/files/amd/config.json"])["gpu-config-profiles"]
        assert amd.divided(profiles[spec["managerConfig"]], spec["gpusPerNode"]) == [mode for mode, _ in gpus]


def check_shares(spec: Any, node: Hardware) -> None:
    offered: Counter[str] = Counter()
    for share in spec["shares"]:
        whole = share["profile"] is None
        devices = node.count(None) if whole else sum((gpu or Counter())[share["profile"]] for gpu in node)
        offered[share["resource"]] += devices * share["replicas"]
    assert offered == spec["resources"]


def check_partitioner(files: Files, spec: Any, node: Hardware) -> None:
    if spec["partitioner"] == "gpushare":
        assert spec["migConfig"] is None
        return
    configs = upstream.read(files["chart/files/mig-parted/config.yaml"])["mig-configs"]
    card = cards.load(spec["card"]["id"])
    assert (spec["migConfig"] is None) is (card.mig_supported is not True)
    if spec["migConfig"]:
        assert upstream.partitioned(configs[spec["migConfig"]], spec["gpusPerNode"]) == node


def check_configs(files: Files) -> None:
    """Everything that upstream reads, former generations included."""
    for key, config in below(files, "chart/files/profiles/").items():
        upstream.check_plugin_config(config)
        for half in "ab":
            upstream.check_key(f"{key}-{half}")
    if "chart/files/mig-parted/config.yaml" in files:
        upstream.check_mig_parted(upstream.read(files["chart/files/mig-parted/config.yaml"]))


def check_metrics(values: Any, specs: list[Any]) -> None:
    """dcgm-exporter maps nvidia.com/gpu, nvidia.com/mig-* and the names that it is given."""
    exporter = values.get("dcgmExporter", {})
    variables = {one["name"]: one["value"] for one in exporter.get("env", [])}
    named = set(filter(None, variables.get("NVIDIA_RESOURCE_NAMES", "").split(",")))
    offered = {resource for spec in specs for resource in spec["resources"]}
    assert {one for one in offered if one != upstream.GPU and not one.startswith("nvidia.com/mig-")} <= named <= offered
    shared = any(share["replicas"] > 1 for spec in specs for share in spec["shares"])
    assert (variables.get("KUBERNETES_VIRTUAL_GPUS"), exporter.get("hostPID")) == (("true", True) if shared else (None, None))


def check_bundle(files: Files) -> None:
    check_configs(files)
    check_nodes(files)
    amd.check_device_configs(below(files, "chart/files/amd/device-configs/"))
    every = [policy["spec"] for policy in below(files, "chart/files/policies/").values()]
    specs = [spec for spec in every if spec.get("vendor") != "amd"]
    by_plugin = [spec for spec in specs if spec.get("backend") != "dra"]
    for stack in ("gpu-operator", "device-plugin"):
        assert (f"{stack}/values.yaml" in files) is (specs[0]["stack"] == stack)
    if specs[0]["stack"] == "gpu-operator":
        check_metrics(upstream.read(files["gpu-operator/values.yaml"]), by_plugin)
    assert specs[0]["stack"] == "existing" or "existing/README.md" not in files
    if "existing/configmap.yaml" in files:
        data = upstream.read(files["existing/configmap.yaml"])["data"]
        expected = {path: text for path, text in files.items() if path.startswith("chart/files/profiles/")}
        names = {Path(path).stem: text for path, text in expected.items()}
        assert data == {f"{key}-{side}": text for key, text in names.items() for side in "ab"}


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_example_bundle_is_valid_upstream(example: Path) -> None:
    check_bundle({artifact.path: artifact.text for artifact in compiled(example).artifacts})


@pytest.mark.parametrize(
    ("pools", "platform"),
    scale.part(list(product([*((name,) for name in POOLS), *MIXTURES], PLAIN)), 3),
    ids=lambda part: part if isinstance(part, str) else "+".join(part),
)
def test_pools_on_each_platform_are_valid_upstream(pools: tuple[str, ...], platform: str) -> None:
    check_platform(bundle(pools, PLATFORMS[platform]))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_all_pools_together_are_valid_upstream(platform: str) -> None:
    check_platform(bundle(tuple(POOLS), PLATFORMS[platform]))


def check_platform(files: Files) -> None:
    check_bundle(files)
    for stack in ("gpu-operator", "device-plugin"):
        if f"{stack}/values.yaml" in files:
            values, restoring = (upstream.read(files[f"{stack}/{name}.yaml"]) for name in ("values", "restore-values"))
            upstream.check_values(stack, values)
            upstream.check_restoring_values(stack, restoring)
            assert sorted(repositories(restoring)) == sorted(repositories(values))


def test_operator_strategy_is_empty_only_if_pools_need_different_ones() -> None:
    for pools in MIXTURES:
        mps, mixed, single = "mps" in pools, "alike" in pools, "single" in pools
        strategy = upstream.read(bundle(pools, "{}")["gpu-operator/values.yaml"])["mig"]["strategy"]
        assert (strategy == "") is (mixed and (mps or single)), pools


@pytest.mark.parametrize("stack", ["gpu-operator", "existing"])
def test_unchanged_node_advertises_the_same_under_the_next_strategy(stack: str) -> None:
    """The operator's setting changes on every node at once, and busy nodes keep their layout and their profile."""
    platform = f"{{stack: {stack}}}"
    first = cache(lambda pools: bundle(pools, platform))
    for before, after in scale.some(list(permutations((*KINDS, *MIXTURES), 2)), 11):
        files = first(before)
        memory = lock.read(files[lock.FILE].encode())
        assert isinstance(memory, Lock)
        strategies = plugin_environments(bundle(after, platform, memory), stack)
        profiles = below(files, "chart/files/profiles/")
        for policy in below(files, "chart/files/policies/").values():
            spec = policy["spec"]
            capability = compute_capability(spec["card"]["id"])
            for strategy in strategies:
                offered = upstream.advertised(profiles[spec["profile"]], hardware(spec), strategy, capability)
                assert offered == spec["resources"], (before, after, strategy)


def test_previous_generations_never_break_the_plugin_or_mig_parted() -> None:
    memory, seen = lock.EMPTY, set[str]()
    for step in (*((name,) for name in POOLS), ("whole",), ("mps", "alike"), tuple(POOLS), ("turns",)):
        files = bundle(step, PLATFORMS["mig-manager"], memory)
        check_bundle(files)
        read = lock.read(files[lock.FILE].encode())
        assert isinstance(read, Lock)
        memory = read
        kept = set(below(files, "chart/files/profiles/"))
        assert seen <= kept
        seen = kept
    assert len(seen) > 12


def test_chart_has_every_profile_under_both_names() -> None:
    compilation = pipeline.compile_intent(intent(tuple(POOLS), PLATFORMS["mig-manager"]), "intent.yaml", lock.EMPTY)
    files = {artifact.path: artifact.text for artifact in compilation.artifacts}
    maps = {one["metadata"]["name"]: one for one in rendering.objects(files) if one["kind"] == "ConfigMap"}
    data = maps["gpushare-profiles"]["data"]
    assert len(data) == 2 * len(below(files, "chart/files/profiles/"))
    for key, text in data.items():
        upstream.check_key(key)
        upstream.check_plugin_config(upstream.read(text))
    assert list(maps["gpushare-mig-parted"]["data"]) == ["config.yaml"]
    upstream.check_mig_parted(upstream.read(maps["gpushare-mig-parted"]["data"]["config.yaml"]))
    assert {maps[name]["metadata"]["namespace"] for name in ("gpushare-profiles", "gpushare-mig-parted")} == {"gpu-system"}


OPERANDS = {"gpu-operator", "container-toolkit", "k8s-device-plugin", "dcgm-exporter", "node-feature-discovery"}
DRIVER = {"driver", "k8s-driver-manager"}
EXAMPLE = "ubuntu"
"""The image of the README's pod."""


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("operator", OPERANDS),
        ("operator-all", OPERANDS | DRIVER),
        ("operator-own-driver", OPERANDS | DRIVER),
        ("mig-manager", OPERANDS | {"k8s-mig-manager"}),
        ("mig-manager-all", OPERANDS | DRIVER | {"k8s-mig-manager"}),
        ("plugin", {"k8s-device-plugin", "node-feature-discovery"}),
        ("plugin-all", {"k8s-device-plugin", "node-feature-discovery"}),
        ("existing", set()),
    ],
)
def test_listed_images_are_those_the_charts_pull(platform: str, expected: set[str]) -> None:
    files = bundle(("alike", "mps"), PLATFORMS[platform])
    lines = [line for line in files["images.txt"].splitlines() if not line.startswith("#")]
    assert sorted(line.rpartition("/")[2].rpartition(":")[0] for line in lines) == sorted({"node-runtime", EXAMPLE} | expected)
    if MIRROR in PLATFORMS[platform]:
        assert all(line.startswith("reg.example.org/") for line in lines)
        values = upstream.read(next(files[path] for path in files if path.endswith("/values.yaml") and path[:5] != "chart"))
        assert repositories(values)
        assert all(one.startswith("reg.example.org/") for one in repositories(values))
    else:
        assert not any("reg.example.org" in text for text in files.values())


def repositories(values: Any) -> list[str]:
    found = [value for key, value in values.items() if key == "repository"]
    return found + [one for value in values.values() if isinstance(value, dict) for one in repositories(value)]


def test_secrets_reach_every_section_that_gets_an_image() -> None:
    values = upstream.read(bundle(("alike",), PLATFORMS["mig-manager-all"])["gpu-operator/values.yaml"])
    running = ["operator", "validator", "driver", "toolkit", "devicePlugin", "gfd", "dcgmExporter", "migManager"]
    assert all(values[section]["imagePullSecrets"] == ["mirror", "other"] for section in running)
    assert values["node-feature-discovery"]["imagePullSecrets"] == [{"name": "mirror"}, {"name": "other"}]
    values = upstream.read(bundle(("alike",), PLATFORMS["plugin-all"])["device-plugin/values.yaml"])
    assert values["imagePullSecrets"] == values["nfd"]["imagePullSecrets"] == [{"name": "mirror"}, {"name": "other"}]


AMD = [card for card in map(cards.load, cards.ids()) if card.vendor == "amd"]
AMD_SHARINGS = [
    *((card.id, "{mode: exclusive}") for card in AMD),
    *(
        (card.id, f"{{mode: partition, compute: {mode.compute}, memory: {mode.memory}, strategy: {strategy}}}")
        for card in AMD
        for mode in card.partition_modes
        for strategy in ("mixed", "single")
        if mode.compute in amd.COMPUTE
    ),
    ("mi325x", "{mode: partition, memory: NPS1, layouts: [{gpus: [0, 2], compute: SPX}, {gpus: [1, 3], compute: CPX}]}"),
]
"""Every mode that AMD's config manager sets, under both kinds of names, and GPUs unlike each other."""


def test_amds_pools_are_valid_upstream() -> None:
    head = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: amd}\nspec:\n"
    pools = "".join(
        f"    p{number}: {{card: {card}, nodes: {{matchLabels: {{p: p{number}}}}}, gpusPerNode: 4, sharing: {sharing}}}\n"
        for number, (card, sharing) in enumerate(AMD_SHARINGS)
    )
    text = f"{head}  platform: {{stack: amd-gpu-operator}}\n  pools:\n{pools}".encode()
    compilation = pipeline.compile_intent(text, "amd.yaml", lock.EMPTY)
    assert not [one for one in compilation.findings if is_error(one)]
    files = {artifact.path: artifact.text for artifact in compilation.artifacts}
    check_nodes(files)
    amd.check_device_configs(below(files, "chart/files/amd/device-configs/"))
