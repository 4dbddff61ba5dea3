"""The bundle of pools of NVIDIA's DRA driver: policies, classes, claims, quotas, values of its chart and of the plugin's."""

import ast
import json
from functools import cache
from typing import Any

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.bundle.lock import Lock
from gpushare.facts.catalog import cards, upstream
from gpushare.offering import claims
from gpushare.render.stacks import dra
from gpushare.report.show import offer
from gpushare_node.contract.names import OUR_TAINTS
from tests.compiler.intent.test_cards import X
from tests.compiler.render.compiled import compiled, document, files, intent, side
from tests.compiler.render.test_upstream import leaves

BY_MEMORY = "{stack: device-plugin, backend: dra, dra: {}}"
BY_COUNT = "{stack: device-plugin, backend: dra, dra: {shares: count}}"
HALF_WAY = "{stack: device-plugin, dra: {}}"
NEW = "  kubernetes: '1.36'\n"
QUOTAS = "  quotas: {course: {notebooks: 8}, atlas: {hpc: 2}}\n"


def pool(card: str, sharing: str, label: str, more: str = "", gpus: int = 2) -> str:
    return (
        f"{{card: {card}, nodes: {{matchLabels: {{p: {label}}}, expected: 2}}, gpusPerNode: {gpus}, sharing: {sharing}{more}}}"
    )


SLICED = "{mode: time-slicing, replicas: 4}"
POOLS = {
    "notebooks": pool("t4", SLICED, "a", ", sizes: {large: 7680Mi}, namespaces: [course]"),
    "hpc": pool("a100-pcie-40gb", "{mode: exclusive}", "b"),
    "training": pool("a100-sxm4-40gb", "{mode: mig, layout: {3g.20gb: 1, 1g.5gb+me: 1, 1g.5gb: 3}}", "c"),
    "halves": pool("a30", "{mode: mig, layout: {2g.12gb: 2}, replicas: 2}", "d"),
}


@cache
def bundle(*names: str, platform: str = BY_MEMORY, more: str = NEW, **pools: str) -> dict[str, str]:
    chosen = POOLS | pools
    return files(*(names or chosen), platform=platform, more=more, **chosen)


def spec(texts: dict[str, str], name: str) -> Any:
    return document(texts, f"chart/files/policies/{name}.yaml")["spec"]


def objects(texts: dict[str, str], name: str) -> Any:
    return document(texts, f"chart/files/dra/{name}.yaml")


def driver(texts: dict[str, str]) -> Any:
    return document(texts, dra.VALUES)


def request(texts: dict[str, str], pool: str, template: str) -> Any:
    (found,) = objects(texts, pool)["templates"][template]["devices"]["requests"]
    return found


def test_a_policy_counts_devices_by_class_and_names_the_driver() -> None:
    found = spec(bundle(), "notebooks")
    assert (found["backend"], found["dra"]) == ("dra", {"driver": "gpu.nvidia.com", "shares": "memory", "onDemand": False})
    assert found["profile"] is None
    assert found["resources"] == {"gpushare-notebooks": 2}
    [share] = found["shares"]
    assert (share["resource"], share["replicas"], share["memoryMiB"]) == ("gpushare-notebooks", 4, 15360)
    assert spec(bundle(), "training")["resources"] == {
        "gpushare-training-1g-5gb": 6,
        "gpushare-training-1g-5gb-me": 2,
        "gpushare-training-3g-20gb": 2,
    }


@pytest.mark.parametrize(
    ("platform", "names", "shares"),
    [(BY_MEMORY, ("hpc", "training"), None), (BY_COUNT, ("hpc",), None), (BY_COUNT, ("hpc", "turns"), "count")],
)
def test_a_policy_says_by_what_claims_share_a_device(platform: str, names: tuple[str, ...], shares: str | None) -> None:
    texts = bundle(*names, platform=platform, turns=pool("t4", SLICED, "t"))
    assert spec(texts, "hpc")["dra"]["shares"] == shares


def test_an_interval_is_in_the_class_of_its_pool_and_a_gate_of_the_driver() -> None:
    texts = bundle("notebooks", "hpc", notebooks=pool("t4", "{mode: time-slicing, replicas: 4, interval: medium}", "a"))
    [config] = objects(texts, "notebooks")["classes"]["gpushare-notebooks"]["config"]
    assert config["opaque"] == {
        "driver": "gpu.nvidia.com",
        "parameters": {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "GpuConfig",
            "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Medium"}},
        },
    }
    assert "config" not in objects(texts, "hpc")["classes"]["gpushare-hpc"]
    assert driver(texts)["featureGates"] == {"ConsumableShares": True, "TimeSlicingSettings": True}
    assert driver(bundle())["featureGates"] == {"ConsumableShares": True}


def test_a_class_names_the_card_as_the_driver_does() -> None:
    [selector] = objects(bundle(), "notebooks")["classes"]["gpushare-notebooks"]["selectors"]
    assert selector["cel"]["expression"] == (
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
        " && device.attributes['gpu.nvidia.com'].productName == 'Tesla T4'"
    )
    [selector] = objects(bundle(), "training")["classes"]["gpushare-training-1g-5gb-me"]["selectors"]
    assert "profile == '1g.5gb+me'" in selector["cel"]["expression"]
    card = cards.load("a100-sxm4-40gb")
    assert all(f"'{name}'" in selector["cel"]["expression"] for name in (card.name, *card.name_aliases))
    assert set(objects(bundle(), "training")["classes"]["gpushare-training-1g-5gb-me"]) == {"selectors"}


@pytest.mark.parametrize("name", ["Joe's GPU", 'a "card"', "a\\b", "x' || true || '", "\u00e9", "a\tb"])
def test_a_class_selects_a_card_of_ones_own_by_its_whole_name(name: str) -> None:
    """CEL and Python read these texts alike."""
    more = NEW + f"  cards: {json.dumps({'mine': X | {'name': name}})}\n"
    texts = files("own", platform=BY_MEMORY, more=more, own=pool("mine", "{mode: exclusive}", "o"))
    [selector] = objects(texts, "own")["classes"]["gpushare-own"]["selectors"]
    *_, written = selector["cel"]["expression"].partition(".productName == ")
    assert ast.literal_eval(written) == name


@pytest.mark.parametrize(("requests", "has_name"), [("claims", False), ("limits", True), ("both", True)])
def test_a_class_has_the_plugins_name_where_pods_ask_in_limits(requests: str, has_name: bool) -> None:
    texts = bundle("hpc", "training", **{name: f"{POOLS[name][:-1]}, requests: {requests}}}" for name in ("hpc", "training")})
    hpc, training = objects(texts, "hpc")["classes"], objects(texts, "training")["classes"]
    names = [
        hpc["gpushare-hpc"].get("extendedResourceName"),
        training["gpushare-training-1g-5gb-me"].get("extendedResourceName"),
    ]
    assert names == (["nvidia.com/gpu", "nvidia.com/mig-1g.5gb.me"] if has_name else [None, None])


def test_claims_by_memory_ask_for_a_part_of_it_and_whole_ones_for_nothing() -> None:
    texts = bundle()
    share = request(texts, "notebooks", "gpushare-notebooks.share")
    assert share == {
        "name": "gpu",
        "exactly": {"deviceClassName": "gpushare-notebooks", "capacity": {"requests": {"memory": "3840Mi"}}},
    }
    assert request(texts, "notebooks", "gpushare-notebooks.large")["exactly"]["capacity"]["requests"] == {"memory": "7680Mi"}
    assert request(texts, "hpc", "gpushare-hpc.gpu") == {"name": "gpu", "exactly": {"deviceClassName": "gpushare-hpc"}}
    assert request(texts, "training", "gpushare-training.1g.5gb-me")["exactly"] == {
        "deviceClassName": "gpushare-training-1g-5gb-me"
    }
    assert driver(texts)["consumableShares"] == "memory"


def test_claims_by_count_ask_for_all_shares_of_a_whole_gpu() -> None:
    texts = bundle("hpc", "turns", platform=BY_COUNT, turns=pool("t4", SLICED, "t"))
    assert request(texts, "turns", "gpushare-turns.share")["exactly"] == {"deviceClassName": "gpushare-turns"}
    assert request(texts, "hpc", "gpushare-hpc.gpu")["exactly"]["capacity"]["requests"] == {"shares": "4"}
    assert driver(texts)["consumableShares"] == "4"


@pytest.mark.parametrize(("platform", "asked"), [(BY_MEMORY, {"memory": "5984Mi"}), (BY_COUNT, {})])
def test_a_share_of_an_instance_asks_for_a_part_of_all_it_has_at_every_place(platform: str, asked: dict[str, str]) -> None:
    texts = bundle("halves", platform=platform)
    found = request(texts, "halves", "gpushare-halves.2g.12gb-share")
    parts = {
        "multiprocessors": "14",
        "copyEngines": "1",
        "decoders": "1",
        "encoders": "0",
        "jpegEngines": "0",
        "ofaEngines": "0",
    }
    assert found["firstAvailable"] == [
        {
            "name": f"at-{number}",
            "deviceClassName": "gpushare-halves-2g-12gb",
            "capacity": {"requests": {**asked, **parts, **dict.fromkeys(slices, "0")}},
        }
        for number, slices in enumerate([("memorySlice0", "memorySlice1"), ("memorySlice2", "memorySlice3")])
    ]


@pytest.mark.parametrize("card_id", [one for one in cards.ids() if cards.load(one).mig])
def test_shares_of_an_instance_add_up_to_no_more_than_it_has(card_id: str) -> None:
    for profile in cards.load(card_id).profiles.values():
        if claims.missing(profile):
            continue
        name = profile.name
        sharing = f"{{mode: mig, layout: {{{name}: 1}}, replicas: 2}}"
        data = intent("one", platform=BY_MEMORY, more=NEW, one=pool(card_id, sharing, "a"))
        plan = pipeline.compile_intent(data, "intent.yaml", lock.EMPTY).plan
        assert plan is not None
        (shape,) = claims.shapes(plan.pools[0].pool, plan.pools[0].card, plan.pools[0].kinds, plan.division)
        assert 1 <= len(shape.alternatives) <= 8  # what a request may list
        engines = profile.engines
        has = {
            "memory": profile.memory_mib,
            "multiprocessors": profile.sm,
            "copyEngines": engines.copy,
            "decoders": engines.decoders,
            "encoders": engines.encoders,
            "jpegEngines": engines.jpeg,
            "ofaEngines": engines.ofa,
        }
        for alternative in shape.alternatives:
            own = {key: int(text.removesuffix("Mi")) for key, text in alternative.items() if not key.startswith("memorySlice")}
            assert own.keys() == has.keys()
            assert all(2 * own[key] <= (has[key] or 0) for key in own)
        places = [{key for key in one if key.startswith("memorySlice")} for one in shape.alternatives]
        assert sorted(map(sorted, places)) == sorted(
            sorted(f"memorySlice{at}" for at in range(place.start, place.start + place.size)) for place in profile.placements
        )


def test_templates_are_in_the_pools_namespaces_or_in_those_with_quotas() -> None:
    texts = bundle(more=NEW + QUOTAS)
    assert objects(texts, "notebooks")["namespaces"] == ["course"]
    assert objects(texts, "hpc")["namespaces"] == ["atlas", "course"]
    assert objects(bundle(), "hpc")["namespaces"] == []


def test_quotas_count_by_class_and_by_every_name_that_pods_may_ask_for() -> None:
    pools = {"hpc": f"{POOLS['hpc'][:-1]}, requests: both}}"}
    texts = bundle(more=NEW + QUOTAS, **pools)
    assert document(texts, "chart/values.yaml")["quotas"] == {
        "atlas": {"gpushare-hpc.deviceclass.resource.k8s.io/devices": 2, "requests.nvidia.com/gpu": 2},
        "course": {"gpushare-notebooks.deviceclass.resource.k8s.io/devices": 8},
    }


def test_every_value_for_the_drivers_chart_is_one_that_it_reads() -> None:
    platform = "{registry: reg.example.org, imagePullSecrets: [mirror], backend: dra, dra: {driverRoot: /run/nvidia/driver},"
    platform += " values: {hostPaths: {kubeletRootDir: /var/lib/k0s/kubelet}}}"
    values = driver(bundle(platform=platform))
    chart = upstream.chart(upstream.DRA)
    for path in leaves(values):
        judged = upstream.check_path(chart, path)
        known = judged if isinstance(judged, upstream.Known) else upstream.check_path(chart, path[:-1])
        if isinstance(judged, upstream.OpenMap):
            known = upstream.check_path(chart, tuple(judged.above.split(".")))
        assert isinstance(known, upstream.Known), path
        assert known.fact is not None
        value: Any = values
        for key in known.fact.path.split("."):
            value = value[key]
        assert upstream.violations(chart, known.fact, value, ()) == [], path
    assert values["image"]["repository"] == "reg.example.org/dra-driver-nvidia/dra-driver-nvidia-gpu"
    assert values["imagePullSecrets"] == [{"name": "mirror"}]
    assert values["kubeletPlugin"]["kubeletPluginsDirectoryPath"] == "/var/lib/k0s/kubelet/plugins"


def test_the_driver_runs_where_the_runtime_lets_it_and_before_a_node_is_ready() -> None:
    pools = {"hpc": f"{POOLS['hpc'][:-1]}, tolerations: [{{key: school, operator: Exists}}]}}"}
    plugin = driver(bundle(**pools))["kubeletPlugin"]
    assert plugin["nodeSelector"] == {"gpushare.dev/backend": "dra"}
    assert {one["key"] for one in plugin["tolerations"]} == {"nvidia.com/gpu", "school", *OUR_TAINTS}
    assert plugin["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1}


def test_shares_are_the_drivers_business_only_where_a_pool_has_them() -> None:
    values = driver(bundle("hpc", "training"))
    assert not {"featureGates", "consumableShares"} & values.keys()


def affinity(texts: dict[str, str]) -> Any:
    return document(texts, "device-plugin/values.yaml").get("affinity")


def test_the_plugin_keeps_off_the_drivers_nodes_also_after_the_last_pool_has_left_dra() -> None:
    turns = pool("t4", SLICED, "t")
    without = intent("turns", platform="{stack: device-plugin}", more=NEW, turns=turns)
    assert affinity(compiled(without)[1]) is None
    default = upstream.chart("device-plugin").path("affinity")
    assert default is not None
    _, mixed = compiled(
        intent("turns", "hpc", platform=HALF_WAY, more=NEW, turns=turns, hpc=f"{POOLS['hpc'][:-1]}, backend: dra}}")
    )
    required = affinity(mixed)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    theirs = default.default["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    away = {"key": "gpushare.dev/backend", "operator": "NotIn", "values": ["none", "dra"]}
    assert required == [{"matchExpressions": [*term["matchExpressions"], away]} for term in theirs]
    before = lock.read(mixed[lock.FILE].encode())
    assert isinstance(before, Lock)
    assert before.has_dra
    _, after = compiled(without, before)
    assert affinity(after) == affinity(mixed)
    assert "helm uninstall dra-driver-nvidia-gpu" in after["README.md"]
    assert not [path for path in after if path.startswith(("chart/files/dra/", "dra"))]


def generations(*intents: bytes) -> dict[str, str]:
    """The bundle of the last of several intents, each compiled in the place of the one before."""
    previous, texts = lock.EMPTY, dict[str, str]()
    for data in intents:
        _, texts = compiled(data, previous)
        read = lock.read(texts[lock.FILE].encode())
        assert isinstance(read, Lock), read
        previous = read
    return texts


MOVING = f"{POOLS['hpc'][:-1]}, namespaces: [atlas]}}"
ON_DRA = intent(
    "hpc", platform=BY_MEMORY, more=f"{NEW}  quotas: {{atlas: {{hpc: 2}}}}\n", hpc=f"{MOVING[:-1]}, requests: limits}}"
)
BACK = intent("hpc", platform="{stack: device-plugin}", more=f"{NEW}  quotas: {{atlas: {{hpc: 2}}}}\n", hpc=MOVING)


def test_a_class_that_no_pool_has_any_more_stays_with_what_its_nodes_need() -> None:
    before, after = generations(ON_DRA), generations(ON_DRA, BACK)
    spec = objects(before, "hpc")["classes"]["gpushare-hpc"]
    assert document(after, dra.FORMER) == {"gpushare-hpc": {"pool": "hpc", "spec": spec}}
    assert spec["extendedResourceName"] == "nvidia.com/gpu"
    values = document(after, "chart/values.yaml")
    # By the name alone that is only the class's: the other one is the plugin's again, of which a pod may have several.
    implicit = "deviceclass.resource.kubernetes.io/gpushare-hpc"
    assert values["dra"] == {
        "driverNamespace": "dra-driver-nvidia-gpu",
        "former": {"class.gpushare-hpc": "hpc", f"named.{implicit}": "gpushare-hpc"},
    }
    assert "dra-driver-nvidia-gpu" in values["admission"]["platformNamespaces"]
    assert values["quotas"] == {"atlas": {"gpushare-hpc.deviceclass.resource.k8s.io/devices": 2, "requests.nvidia.com/gpu": 2}}
    assert generations(ON_DRA, BACK, BACK) == after


def test_a_class_of_a_removed_pool_stays_for_the_namespaces_of_the_pool() -> None:
    other = intent("turns", platform="{stack: device-plugin}", more=NEW, turns=pool("t4", SLICED, "t"))
    texts = generations(ON_DRA, other)
    assert list(document(texts, dra.FORMER)) == ["gpushare-hpc"]
    former = document(texts, "chart/values.yaml")["dra"]["former"]
    assert former["limited.hpc"] == "true"
    assert former["namespace.atlas"] == "hpc"


def test_a_class_of_a_former_layout_stays() -> None:
    layouts = [
        intent("training", platform=BY_MEMORY, more=NEW, training=pool("a100-sxm4-40gb", f"{{mode: mig, layout: {one}}}", "c"))
        for one in ("{3g.20gb: 2}", "{2g.10gb: 3}")
    ]
    texts = generations(*layouts)
    assert list(objects(texts, "training")["classes"]) == ["gpushare-training-2g-10gb"]
    assert list(document(texts, dra.FORMER)) == ["gpushare-training-3g-20gb"]


def test_the_driver_keeps_what_nodes_need_that_leave_it() -> None:
    """Without the tolerations its pods would leave these nodes, and without shares running pods would have none.

    Without the gate for intervals it would prepare no claim of the class that stays.
    """
    turns = "{mode: time-slicing, replicas: 4, interval: short}"
    school = "tolerations: [{key: school, operator: Exists}]"
    hpc = f"{POOLS['hpc'][:-1]}, backend: dra}}"
    both, one = (
        intent("hpc", "turns", platform=HALF_WAY, more=NEW, hpc=hpc, turns=pool("t4", sharing, "t", f", {school}{backend}"))
        for sharing, backend in ((turns, ", backend: dra"), (SLICED, ""))
    )
    first, then = driver(generations(both)), driver(generations(both, one))
    assert first["consumableShares"] == "memory"
    assert {"key": "school", "operator": "Exists"} in first["kubeletPlugin"]["tolerations"]
    assert then["featureGates"] == first["featureGates"]
    assert then["consumableShares"] == "memory"
    assert {"key": "school", "operator": "Exists"} in then["kubeletPlugin"]["tolerations"]
    assert spec(generations(both, one), "hpc")["dra"]["shares"] == "memory"
    old = intent("hpc", platform=HALF_WAY, more=NEW, hpc=hpc.replace("a100-pcie-40gb", "p4"))
    assert first["featureGates"] == {"ConsumableShares": True, "TimeSlicingSettings": True}
    assert driver(generations(both, old))["featureGates"] == {"ConsumableShares": True}


def test_a_class_stays_when_the_bundle_begins_to_observe() -> None:
    """Nodes keep their back end then."""
    observing = intent("hpc", platform=BY_MEMORY, more=f"{NEW}  adoption: observe\n", hpc=f"{MOVING[:-1]}, requests: limits}}")
    assert list(document(generations(ON_DRA, observing), dra.FORMER)) == ["gpushare-hpc"]


def test_a_class_is_its_pools_again_when_the_pool_comes_back() -> None:
    texts = generations(ON_DRA, BACK, ON_DRA)
    first = generations(ON_DRA)
    assert objects(texts, "hpc") == objects(first, "hpc")
    assert dra.FORMER not in texts
    assert document(texts, "chart/values.yaml")["dra"] == document(first, "chart/values.yaml")["dra"]


def test_a_cluster_without_such_pools_has_nothing_of_dra() -> None:
    texts = files(more=NEW)
    assert not [path for path in texts if "dra" in path]
    assert "dra" not in document(texts, "chart/values.yaml")
    assert "dra" not in document(texts, lock.FILE)


def test_an_observing_bundle_offers_no_claims() -> None:
    texts = bundle(more=f"{NEW}  adoption: observe\n")
    assert not [path for path in texts if path.startswith(("chart/files/dra/", "dra"))]


def test_an_existing_driver_is_given_the_same_values_and_no_namespace() -> None:
    texts = bundle(platform="{stack: device-plugin, backend: dra, dra: {via: existing}}")
    assert driver(texts) == driver(bundle())
    assert "dra-namespace.yaml" not in texts
    assert document(texts, "chart/values.yaml")["dra"] == {"driverNamespace": ""}
    assert "helm upgrade --install dra-driver" not in texts["README.md"]
    assert "registry.k8s.io/dra-driver-nvidia" not in texts["images.txt"]


def test_images_name_the_driver_and_its_chart() -> None:
    lines = bundle()["images.txt"].splitlines()
    assert "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:v0.5.0" in lines
    charts = "oci://registry.k8s.io/dra-driver-nvidia/charts/dra-driver-nvidia-gpu --version 0.5.0"
    assert f"# The DRA driver's chart: helm pull {charts}" in lines


def test_users_are_shown_the_claim_and_all_its_shapes() -> None:
    text = bundle(more=NEW + QUOTAS)["README.md"]
    assert "          resourceClaimTemplateName: gpushare-notebooks.share" in text
    assert "| `gpushare-notebooks.large` | 7680Mi of a GPU |" in text
    assert "| `gpushare-training.1g.5gb-me` | an instance 1g.5gb+me |" in text
    assert "Claim templates are in `atlas` and `course`." in text


def test_nodes_and_offers_name_claims_and_limits() -> None:
    pools = {"hpc": f"{POOLS['hpc'][:-1]}, requests: both}}"}
    plan, texts = compiled(intent(*POOLS, platform=BY_MEMORY, more=NEW, **(POOLS | pools)))
    found = offer(plan)["pools"]
    assert found["notebooks"]["backend"] == "dra"
    assert found["notebooks"]["claims"] == {
        "gpushare-notebooks.large": "gpushare-notebooks",
        "gpushare-notebooks.share": "gpushare-notebooks",
    }
    assert (found["notebooks"]["limits"], found["hpc"]["limits"]) == ({}, {"nvidia.com/gpu": "gpushare-hpc"})
    assert side(texts).pools["hpc"].labels["gpushare.dev/backend"] == ["dra"]


def test_names_in_limits_are_ambiguous_where_another_pools_nodes_could_serve_them() -> None:
    both = {name: pool("t4", "{mode: exclusive}", name) for name in ("one", "two")}
    alone = document(bundle("hpc", hpc=f"{POOLS['hpc'][:-1]}, requests: limits}}"), "chart/values.yaml")
    assert alone["admission"]["ambiguous"] == ["deviceclass.resource.kubernetes.io/gpushare-hpc"]
    both["one"] = f"{both['one'][:-1]}, requests: limits}}"
    assert "nvidia.com/gpu" in document(bundle("one", "two", **both), "chart/values.yaml")["admission"]["ambiguous"]
