"""Pools of DRA: every combination of mode, shares, requests and Kubernetes compiles or is refused as stated; each finding."""

import itertools
import re

import pytest

from gpushare import modes, pipeline, rules
from gpushare.bundle import lock
from gpushare.catalog import cards
from gpushare.core.diagnostics import Finding, Severity, is_error
from gpushare.rules import backend
from tests.compiler.rules.intents import check, codes, found, one, pool, written

A100 = {"card": "a100-pcie-40gb", "nodes": "{matchLabels: {node.example.org/flavour: gpu-a100}}"}
NEW, HERE = '"1.36"', "/spec/pools/notebooks"
PLATFORM = {"kubernetes": NEW, "platform": "{dra: {}}"}
COUNT = {"kubernetes": NEW, "platform": "{dra: {shares: count}}"}
SHARING = {
    "exclusive": "{mode: exclusive}",
    "time-slicing": "{mode: time-slicing, replicas: 4}",
    "mig": "{mode: mig, layout: {3g.20gb: 2}}",
    "mig-replicas": "{mode: mig, layout: {3g.20gb: 2}, replicas: 4}",
    "mps": "{mode: mps, replicas: 4}",
    "partition": "{mode: partition, compute: CPX, memory: NPS4}",
    "vgpu": '{mode: vgpu, profile: A100-10C, kernel: "5.15"}',
}
"""A pool of every mode, and of MIG with replicas, each on a card that has MIG."""
OURS = {rule.code for rule in backend.RULES}


def claimed(name: str = "notebooks", **fields: str) -> str:
    """One pool with `backend: dra`."""
    return pool(name, **{"backend": "dra"} | fields)


def whole(name: str = "whole", **fields: str) -> str:
    """One pool of whole A100 with `backend: dra`."""
    return claimed(name, **{**A100, "sharing": "{mode: exclusive}"} | fields)


def sized(sizes: str, platform: dict[str, str] = PLATFORM, **fields: str) -> list[tuple[str, bool, str]]:
    return found(written(claimed(sizes=sizes, **fields), **platform), "GS770")


def hints(text: str, code: str) -> str:
    """The hints of the only finding of the code."""
    (only,) = [finding for finding in check(text) if finding.code == code]
    return "; ".join(only.hints)


# every combination


def refusals(sharing: str, shares: str, requests: str, version: tuple[int, int]) -> set[str]:
    """The codes of errors, from what the driver, Kubernetes and the modes are alone."""
    if sharing in {"mps", "vgpu"}:
        return {"GS760"}
    if sharing == "partition":
        return {"GS320", "GS760"}
    is_shared, has_limits = sharing in {"time-slicing", "mig-replicas"}, requests != "claims"
    old = version < ((1, 36) if is_shared or has_limits else (1, 34))
    # Limits get the default of a device: all of its memory, one share of a GPU, or the instance.
    other_part = has_limits and (sharing == "mig-replicas" or (sharing == "time-slicing" and shares == "memory"))
    return {*(["GS761"] if old else []), *(["GS764"] if other_part else [])}


VERSIONS = [(1, minor) for minor in range(30, 38)]


def test_the_combinations_have_every_mode() -> None:
    assert {sharing.partition("mode: ")[2].partition(",")[0].rstrip("}") for sharing in SHARING.values()} == {
        mode.mode.value for mode in modes.MODES
    }


@pytest.mark.parametrize("sharing", SHARING)
def test_every_combination_is_refused_as_stated_or_has_no_error(sharing: str) -> None:
    outcomes = set()
    for shares, requests, version in itertools.product(("memory", "count"), ("claims", "limits", "both"), VERSIONS):
        manager = ', vgpuManager: {repository: r.example.org/v, version: "595.71.03"}' if sharing == "vgpu" else ""
        text = written(
            claimed(**A100, sharing=SHARING[sharing], requests=requests),
            kubernetes=f'"{version[0]}.{version[1]}"',
            platform=f"{{dra: {{shares: {shares}}}{manager}}}",
        )
        errors = {finding.code for finding in check(text) if is_error(finding)}
        assert errors == refusals(sharing, shares, requests, version), (shares, requests, version)
        outcomes.add(bool(errors))
    assert outcomes == ({True} if sharing in {"mps", "partition", "vgpu"} else {True, False})


@pytest.mark.parametrize("sharing", SHARING)
def test_what_is_not_refused_compiles(sharing: str) -> None:
    for shares, requests, version in itertools.product(("memory", "count"), ("claims", "limits", "both"), ((1, 34), (1, 36))):
        if refusals(sharing, shares, requests, version):
            continue
        fields = {**A100, "nodes": "{names: [a, b]}", "sharing": SHARING[sharing], "requests": requests}
        spec = {"kubernetes": f'"{version[0]}.{version[1]}"', "platform": f"{{dra: {{shares: {shares}}}}}"}
        text = written(claimed(**fields), **spec)
        made = pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY)
        assert [finding.code for finding in made.findings if is_error(finding)] == []
        assert made.plan is not None
        devices = {kind.resource: kind.devices for kind in made.plan.pools[0].kinds}
        assert devices == ({"gpushare-notebooks": 4} if "mig" not in sharing else {"gpushare-notebooks-3g-20gb": 8})
        is_shared = sharing in {"time-slicing", "mig-replicas"}
        assert (made.plan.division.by is not None) is is_shared, "shares need a newer Kubernetes than claims do"


@pytest.mark.parametrize("sharing", SHARING)
def test_a_pool_of_the_device_plugin_has_none_of_these_findings(sharing: str) -> None:
    assert not OURS.intersection(codes(pool(**A100, sharing=SHARING[sharing])))


@pytest.mark.parametrize("sharing", ["exclusive", "time-slicing", "mig", "mig-replicas"])
def test_every_card_of_nvidias_is_served_or_refused_with_the_missing_fact(sharing: str) -> None:
    served = 0
    for name in cards.ids():
        card = cards.load(name)
        if card.vendor != "nvidia" or (sharing.startswith("mig") and card.mig is None):
            continue
        profile = card.mig.profiles[0] if card.mig else None
        layout = f"layout: {{{profile.name}: 1}}" if profile else ""
        text = {
            "exclusive": "mode: exclusive",
            "time-slicing": "mode: time-slicing, replicas: 2",
            "mig": f"mode: mig, {layout}",
            "mig-replicas": f"mode: mig, {layout}, replicas: 2",
        }[sharing]
        memory = {"memory": "{cap: none}"} if sharing in {"time-slicing", "mig-replicas"} else {}
        refused = "GS760" in codes(claimed(card=name, sharing=f"{{{text}}}", **memory), **PLATFORM)
        of_instance = profile and (profile.sm, *vars(profile.engines).values(), profile.memory_mib)
        missing = sharing == "time-slicing" and card.memory_mib is None
        missing = missing or (sharing == "mig-replicas" and None in (of_instance or ()))
        assert refused is missing, name
        served += not refused
    assert served


def test_the_back_end_of_the_platform_is_that_of_every_pool() -> None:
    platform = "{backend: dra, dra: {}}"
    path, _, message = one("GS760", pool(**A100), pool("slow", sharing=SHARING["mps"]), kubernetes=NEW, platform=platform)
    assert (path, message) == ("/spec/pools/slow/sharing/mode", "there is no mps with DRA")


# GS760


@pytest.mark.parametrize("mode", ["mps", "vgpu", "partition"])
def test_a_mode_without_dra_is_refused_at_the_mode(mode: str) -> None:
    manager = '{dra: {}, vgpuManager: {repository: r.example.org/v, version: "595.71.03"}}'
    platform = manager if mode == "vgpu" else "{dra: {}}"
    path, _, message = one("GS760", claimed(**A100, sharing=SHARING[mode]), kubernetes=NEW, platform=platform)
    assert (path, message) == (f"{HERE}/sharing/mode", f"there is no {mode} with DRA")


def test_cards_of_amd_are_refused_where_the_back_end_is_written() -> None:
    mi300x = pool("research", "mi300x", "{matchLabels: {node.example.org/flavour: amd}}", "{mode: exclusive}")
    path, _, message = one("GS760", claimed(), mi300x, kubernetes=NEW, platform="{backend: dra, dra: {}, amd: {}}")
    assert path == "/spec/platform/backend"
    assert re.fullmatch(r"NVIDIA's DRA driver does not serve an .*MI300X.* of pool research", message)


@pytest.mark.parametrize(("placement", "refused"), [("spread", True), ("pack", False)])
def test_only_the_placement_of_the_scheduler_is_possible(placement: str, *, refused: bool) -> None:
    sharing = f"{{mode: time-slicing, replicas: 4, placement: {placement}}}"
    places = [path for path, _, _ in found(written(claimed(sharing=sharing), **PLATFORM), "GS760")]
    assert places == ([f"{HERE}/sharing/placement"] if refused else [])


def test_mig_manager_is_refused_beside_a_pool_of_dra() -> None:
    platform = "{dra: {}, partitioner: mig-manager}"
    assert one("GS760", claimed(), kubernetes=NEW, platform=platform)[0] == "/spec/platform/partitioner"
    assert found(written(pool(), platform="{partitioner: mig-manager}"), "GS760") == []


# GS761


@pytest.mark.parametrize(
    ("sharing", "requests", "what", "needed"),
    [
        ("exclusive", "claims", "claims", "1.34"),
        ("mig", "claims", "claims", "1.34"),
        ("exclusive", "both", "the limits", "1.36"),
        ("time-slicing", "claims", "shares", "1.36"),
        ("mig-replicas", "claims", "shares", "1.36"),
    ],
)
def test_the_version_from_which_it_works_is_named(sharing: str, requests: str, what: str, needed: str) -> None:
    fields = {**A100, "sharing": SHARING[sharing], "requests": requests}
    older = f'"1.{int(needed[2:]) - 1}"'
    path, _, message = one("GS761", claimed(**fields), kubernetes=older, platform="{dra: {}}")
    assert path == "/spec/kubernetes"
    assert message.startswith(f"{what} of pool notebooks need Kubernetes {needed}, and")
    assert found(written(claimed(**fields), kubernetes=f'"{needed}"', platform="{dra: {}}"), "GS761") == []


def test_without_a_version_the_finding_is_where_the_back_end_is_written() -> None:
    assert one("GS761", claimed(), platform="{dra: {}}")[0] == f"{HERE}/backend"
    assert one("GS761", pool(), platform="{backend: dra, dra: {}}")[0] == "/spec/platform/backend"


def test_the_greatest_need_of_all_pools_is_named_once() -> None:
    message = one("GS761", whole(), claimed(), kubernetes='"1.30"', platform="{dra: {}}")[2]
    assert message == "shares of pool notebooks need Kubernetes 1.36, and the bundle must install on 1.30"


# GS762


def test_a_pool_without_the_driver_is_refused() -> None:
    path, _, message = one("GS762", claimed(), kubernetes=NEW)
    assert path == f"{HERE}/backend"
    assert "does not say who installs it" in message


@pytest.mark.parametrize(
    ("version", "wrong"),
    [
        ("0.5.0", ""),
        ("0.5.1", ""),
        ("0.10.0", ""),
        ("1.0.0", ""),
        ("0.5.0-rc.1", ""),
        ("0.4.1", "too old"),
        ("v0.5.0", "invalid version"),
        ("0.5", "invalid version"),
        ("latest", "invalid version"),
    ],
)
def test_versions_of_the_driver_are_those_of_its_chart(version: str, wrong: str) -> None:
    reported = found(written(claimed(), kubernetes=NEW, platform=f"{{dra: {{version: {version!r}}}}}"), "GS762")
    assert [path for path, _, _ in reported] == (["/spec/platform/dra/version"] if wrong else [])
    assert all(wrong in message for _, _, message in reported)


@pytest.mark.parametrize(
    ("platform", "root"),
    [
        ("{dra: {}, driver: {}}", "/run/nvidia/driver"),
        ("{dra: {}, driver: {}, values: {hostPaths: {driverInstallDir: /opt/driver}}}", "/opt/driver"),
        ("{dra: {driverRoot: /run/nvidia/driver}, driver: {}}", ""),
        ("{dra: {}}", ""),
    ],
)
def test_the_driver_of_the_operator_is_looked_for_where_it_is(platform: str, root: str) -> None:
    text = written(claimed(), kubernetes=NEW, platform=platform)
    assert [path for path, _, _ in found(text, "GS762")] == (["/spec/platform/dra"] if root else [])
    assert not root or f"driverRoot: {root}}}" in hints(text, "GS762")


def test_settings_of_the_driver_without_a_pool_have_no_effect() -> None:
    assert one("GS508", pool(), platform="{dra: {}}")[0] == "/spec/platform/dra"
    assert found(written(claimed(), **PLATFORM), "GS508") == []


# GS763


def test_unequal_numbers_of_shares_are_refused_under_count_alone() -> None:
    pools = claimed(), claimed("batch", **A100, sharing="{mode: time-slicing, replicas: 8}")
    path, _, message = one("GS763", *pools, **COUNT)
    assert path == "/spec/pools/batch/sharing/replicas"
    assert "4 as in pool notebooks, not 8" in message
    assert found(written(*pools, **PLATFORM), "GS763") == []


def test_replicas_of_instances_are_shares_too() -> None:
    mig = "{mode: mig, layout: {3g.20gb: 1, 1g.5gb: 3}, replicas: {1g.5gb: 2}}"
    assert (
        one("GS763", claimed(), claimed("training", **A100, sharing=mig), **COUNT)[0] == "/spec/pools/training/sharing/replicas"
    )
    assert found(written(claimed("training", **A100, sharing=mig), **COUNT), "GS763") == []


def test_pools_of_the_device_plugin_divide_as_they_like() -> None:
    other = pool("batch", **A100, sharing="{mode: time-slicing, replicas: 8}")
    assert found(written(claimed(), other, **COUNT), "GS763") == []


# GS764


@pytest.mark.parametrize("requests", ["limits", "both"])
@pytest.mark.parametrize(
    ("sharing", "platform", "part"),
    [
        ("time-slicing", PLATFORM, "limits get a whole A100-PCIE-40GB, which 4 pods shall share"),
        ("mig-replicas", PLATFORM, "limits get a whole instance of 3g.20gb, which 4 pods shall share"),
        ("mig-replicas", COUNT, "limits get a whole instance of 3g.20gb, which 4 pods shall share"),
    ],
)
def test_limits_that_get_a_whole_device_are_refused(sharing: str, platform: dict[str, str], part: str, requests: str) -> None:
    path, _, message = one("GS764", claimed(**A100, sharing=SHARING[sharing], requests=requests), **platform)
    assert path == f"{HERE}/requests"
    assert part in message
    assert "1.38" in message


def test_limits_of_whole_gpus_get_one_share_under_count() -> None:
    other = whole(requests="both")
    path, _, message = one("GS764", claimed(), other, **COUNT)
    assert path == "/spec/pools/whole/requests"
    assert "one of 4 shares of a GPU" in message
    assert found(written(other, **COUNT), "GS764") == [], "without a shared pool the driver has no shares"
    assert found(written(claimed(), other, **PLATFORM), "GS764") == [], "all memory is the default"


def test_limits_of_shares_also_get_whole_gpus_of_the_same_card() -> None:
    unshared = claimed("whole", nodes="{matchLabels: {node.example.org/flavour: whole}}", sharing="{mode: exclusive}")
    path, _, message = one("GS764", claimed(requests="limits"), unshared, **COUNT)
    assert path == f"{HERE}/requests"
    assert message == "pods with nvidia.com/gpu.shared in their limits also get the GPUs of pool whole, which are not shared"
    assert found(written(claimed(requests="limits"), whole(), **COUNT), "GS764") == [], "another card has another class"


# GS765


OTHER_T4 = "{matchLabels: {node.example.org/flavour: other}}"


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ({"sharing": "{mode: exclusive}"}, True),
        ({"sharing": "{mode: time-slicing, replicas: 8}"}, True),
        ({"namespaces": "[atlas]"}, True),
        ({}, False),
        ({"sharing": "{mode: exclusive}", "backend": "device-plugin"}, False),
    ],
)
def test_pools_that_get_each_others_devices_are_reported(fields: dict[str, str], *, reported: bool) -> None:
    places = [path for path, _, _ in found(written(claimed(), claimed("b", nodes=OTHER_T4, **fields), **PLATFORM), "GS765")]
    assert places == (["/spec/pools/b/card"] if reported else [])


def test_instances_of_one_profile_are_the_same_devices_and_of_others_not() -> None:
    first = claimed("a", **A100, sharing="{mode: mig, layout: {3g.20gb: 2}}", namespaces="[atlas]")
    second = {**A100, "nodes": OTHER_T4}
    same = claimed("b", **second, sharing="{mode: mig, layout: {3g.20gb: 1, 1g.5gb: 4}}")
    other = claimed("b", **second, sharing="{mode: mig, layout: {1g.5gb: 7}}")
    assert "both have 3g.20gb" in one("GS765", first, same, **PLATFORM)[2]
    assert found(written(first, other, **PLATFORM), "GS765") == []


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        (PLATFORM, "admission sends pods with a pool's templates"),
        (PLATFORM | {"admission": "{enforce: none}"}, "pods must choose their pool"),
    ],
)
def test_the_hint_says_what_admission_does(spec: dict[str, str], hint: str) -> None:
    assert hint in hints(written(claimed(), claimed("b", nodes=OTHER_T4, namespaces="[atlas]"), **spec), "GS765")


# GS766


def test_two_classes_with_one_name_for_limits_are_refused() -> None:
    unshared = claimed(sharing="{mode: exclusive}", requests="both")
    path, _, message = one("GS766", unshared, whole(requests="limits"), **PLATFORM)
    assert path == "/spec/pools/whole/requests"
    assert "notebooks and whole would both have the name nvidia.com/gpu, which" in message
    assert found(written(unshared, whole(), **PLATFORM), "GS766") == []
    assert found(written(unshared, pool("plugin", **A100, sharing="{mode: exclusive}"), **PLATFORM), "GS766") == []


def test_a_name_that_sharing_does_not_change_is_that_of_whole_gpus() -> None:
    plain = claimed(sharing="{mode: time-slicing, replicas: 4, rename: false}", requests="limits")
    batch = claimed("batch", **A100, sharing="{mode: mig, layout: {7g.40gb: 1}, strategy: single}", requests="limits")
    assert "nvidia.com/gpu" in one("GS766", plain, batch, **COUNT)[2]


@pytest.mark.parametrize(("length", "reported"), [(46, False), (47, True)])
def test_a_class_has_at_most_63_characters(length: int, *, reported: bool) -> None:
    name, sharing = "a" * length, "{mode: mig, layout: {1g.10gb: 1}}"
    text = written(claimed(name, **A100, sharing=sharing), **PLATFORM)
    assert [path for path, _, _ in found(text, "GS766")] == ([f"/spec/pools/{name}"] if reported else [])
    assert not reported or "at most 46 characters" in hints(text, "GS766")


def test_profiles_whose_classes_would_have_one_name_are_refused() -> None:
    card = {"card": "rtx-pro-6000-server", "nodes": "{matchLabels: {node.example.org/flavour: rtx}}"}
    names = [profile.name for profile in cards.load(card["card"]).profiles.values()]
    pairs = [(a, b) for a, b in itertools.combinations(names, 2) if re.sub("[.+]", "-", a) == re.sub("[.+]", "-", b)]
    for first, second in pairs:
        text = written(claimed(**card, sharing=f"{{mode: mig, layout: {{{first}: 1, {second}: 1}}}}"), **PLATFORM)
        assert [path for path, _, _ in found(text, "GS766")] == [f"{HERE}/sharing"], (first, second)
    assert pairs


@pytest.mark.parametrize(("name", "reported"), [("a-1g-5gb", True), ("a-2g-10gb", False)])
def test_an_instance_of_one_pool_and_a_gpu_of_another_may_not_have_one_class(name: str, *, reported: bool) -> None:
    parts = claimed("a", **A100, sharing="{mode: mig, layout: {1g.5gb: 7}}")
    text = written(parts, claimed(name, nodes=OTHER_T4, sharing="{mode: exclusive}"), **PLATFORM)
    assert [path for path, _, _ in found(text, "GS766")] == ([f"/spec/pools/{name}"] if reported else [])
    plugin = pool(name, nodes=OTHER_T4, sharing="{mode: exclusive}")
    assert found(written(parts, plugin, **PLATFORM), "GS766") == []


# GS767 and quotas


def test_a_number_of_claims_of_several_sizes_is_reported_with_what_it_may_hold() -> None:
    quotas = "{atlas: {notebooks: 8}}"
    path, _, message = one("GS767", claimed(sizes="{large: 7680Mi, half: 1Gi}"), **PLATFORM, quotas=quotas)
    assert path == "/spec/quotas/atlas/notebooks"
    assert message.endswith("8 claims of size large of pool notebooks hold 60Gi")
    assert found(written(claimed(), **PLATFORM, quotas=quotas), "GS767") == []


def test_memory_cannot_be_counted_in_claims_of_several_sizes() -> None:
    quotas = "{atlas: {notebooks: {memory: 56Gi}}}"
    message = one("GS604", claimed(sizes="{large: 7680Mi}"), **PLATFORM, quotas=quotas)[2]
    assert message == "claims of pool notebooks have several sizes, so memory cannot be counted in shares"
    assert found(written(claimed(), **PLATFORM, quotas=quotas), "GS604") == []


def test_a_quota_is_compared_with_the_claims_of_all_nodes() -> None:
    nodes = "{names: [a, b]}"
    assert found(written(claimed(nodes=nodes), **PLATFORM, quotas="{atlas: {notebooks: 32}}"), "GS606") == []
    assert "16 on each of 2 nodes" in one("GS606", claimed(nodes=nodes), **PLATFORM, quotas="{atlas: {notebooks: 33}}")[2]


# GS768


@pytest.mark.parametrize(
    ("nodes", "place"),
    [
        ("{matchLabels: {karpenter.sh/nodepool: t4}, expected: 3, autoscaler: karpenter}", "autoscaler"),
        ("{matchLabels: {a: b}, expected: 0, autoscaler: cluster-autoscaler}", "expected"),
        ("{matchLabels: {a: b}, expected: 1, autoscaler: cluster-autoscaler}", ""),
        ("{matchLabels: {a: b}, autoscaler: cluster-autoscaler}", ""),
        ("{matchLabels: {a: b}, expected: 0}", ""),
    ],
)
def test_nodes_that_no_autoscaler_adds_are_refused(nodes: str, place: str) -> None:
    places = [path for path, _, _ in found(written(claimed(nodes=nodes), **PLATFORM), "GS768")]
    assert places == ([f"{HERE}/nodes/{place}"] if place else [])
    assert found(written(pool(nodes=nodes)), "GS768") == []


@pytest.mark.parametrize(("more", "reported"), [("", True), (', cloud.google.com/gke-gpu-dra-driver: "true"', False)])
def test_nodes_of_dra_are_ready_for_cluster_autoscaler_only_with_its_label(more: str, *, reported: bool) -> None:
    label = "cloud.google.com/gke-accelerator"
    nodes = f"{{matchLabels: {{{label}: a{more}}}, autoscaler: cluster-autoscaler}}"
    text = written(claimed(nodes=nodes, sharing="{mode: exclusive}"), **PLATFORM)
    assert bool(found(text, "GS217")) is reported
    assert not reported or "gke-gpu-dra-driver" in hints(text, "GS217")
    assert found(written(pool(nodes=nodes, sharing="{mode: exclusive}")), "GS217") == []


# GS769 and GS771


def test_more_memory_than_a_gpu_has_is_refused_under_memory_alone() -> None:
    memory = "{cap: 5Gi, oversubscribe: 150%}"
    assert one("GS769", claimed(memory=memory), **PLATFORM)[0] == f"{HERE}/memory/oversubscribe"
    assert found(written(claimed(memory=memory), **COUNT), "GS769") == []
    assert found(written(claimed(memory="{oversubscribe: 150%}"), **PLATFORM), "GS769") == [], "GS508 reports it"


@pytest.mark.parametrize(
    ("cap", "words"),
    [
        ("even", ""),
        ("3724Mi", ""),
        ("3723Mi", "asks for 3840Mi of Tesla T4, and its containers may use 3723Mi"),
        ("none", "asks for 3840Mi of Tesla T4, and without a cap its containers may use all"),
    ],
)
def test_a_cap_that_differs_from_the_claim_is_reported(cap: str, words: str) -> None:
    reported = found(written(claimed(memory=f"{{cap: {cap}}}"), **PLATFORM), "GS771")
    assert [path for path, _, _ in reported] == ([f"{HERE}/memory/cap"] if words else [])
    assert all(words in message for _, _, message in reported)
    assert found(written(claimed(memory=f"{{cap: {cap}}}"), **COUNT), "GS771") == []


def test_the_caps_of_instances_are_compared_by_profile() -> None:
    memory = "{cap: {3g.20gb: 1Gi}}"
    assert one("GS771", claimed(**A100, sharing=SHARING["mig-replicas"], memory=memory), **PLATFORM)[0] == (
        f"{HERE}/memory/cap/3g.20gb"
    )


# GS770


@pytest.mark.parametrize(
    ("sizes", "place", "words"),
    [
        ("{large: 7680Mi}", None, ""),
        ("{all: 15360Mi}", None, ""),
        ("{one: 2Mi}", None, ""),
        ("{large: 15361Mi}", "large", "more than the 15360Mi of Tesla T4"),
        ("{large: 7680}", "large", "a size of 7680 bytes is less than 1Mi"),
        ("{one: 1Mi}", "one", "would have no usable memory"),
        ("{share: 1Gi}", "share", "a claim named share already"),
        ("{gpu: 1Gi}", "gpu", "a claim named gpu already"),
        ("{3g.20gb: 1Gi}", "3g.20gb", "invalid name of a size '3g.20gb'"),
        ("{Large: 1Gi}", "Large", "invalid name of a size 'Large'"),
    ],
)
def test_a_size_has_a_name_of_its_own_and_fits_the_gpu(sizes: str, place: str | None, words: str) -> None:
    reported = sized(sizes)
    assert [path for path, _, _ in reported] == ([f"{HERE}/sizes/{place}"] if place else [])
    assert all(words in message for _, _, message in reported)


@pytest.mark.parametrize(
    ("fields", "platform", "words"),
    [
        ({"backend": "device-plugin"}, PLATFORM, "has the device plugin"),
        ({"sharing": "{mode: exclusive}"}, PLATFORM, "does not share whole GPUs"),
        ({**A100, "sharing": SHARING["mig-replicas"]}, PLATFORM, "does not share whole GPUs"),
        ({}, COUNT, "claims do not ask for memory"),
    ],
)
def test_only_time_slicing_by_memory_has_sizes(fields: dict[str, str], platform: dict[str, str], words: str) -> None:
    ((path, on_key, message),) = sized("{large: 7680Mi}", platform, **fields)
    assert (path, on_key) == (f"{HERE}/sizes", True)
    assert words in message


# GS772


@pytest.mark.parametrize(
    ("labels", "sharing", "cloud"),
    [
        ("cloud.google.com/gke-nodepool: t4", "time-slicing", "GKE"),
        ("cloud.google.com/gke-accelerator: nvidia-tesla-t4", "mig", "GKE"),
        ("cloud.google.com/gke-nodepool: t4", "exclusive", ""),
        ("eks.amazonaws.com/compute-type: auto", "exclusive", "EKS Auto Mode"),
        ("eks.amazonaws.com/compute-type: hybrid", "exclusive", ""),
        ("eks.amazonaws.com/nodegroup: t4", "time-slicing", ""),
    ],
)
def test_clouds_that_do_not_support_the_claims_are_named(labels: str, sharing: str, cloud: str) -> None:
    nodes = f"{{matchLabels: {{{labels}}}}}"
    fields = {"card": "a100-pcie-40gb", "nodes": nodes, "sharing": SHARING[sharing]}
    reported = found(written(claimed(**fields), **PLATFORM), "GS772")
    assert [path for path, _, _ in reported] == ([f"{HERE}/nodes"] if cloud else [])
    assert all(cloud in message for _, _, message in reported)
    assert found(written(pool(**fields)), "GS772") == []


# GS773 and settings of limits


@pytest.mark.parametrize(
    ("sharing", "platform", "name"),
    [
        ("exclusive", PLATFORM, "nvidia.com/gpu"),
        ("mig", PLATFORM, "nvidia.com/mig-3g.20gb"),
        ("time-slicing", COUNT, "nvidia.com/gpu.shared"),
    ],
)
def test_limits_after_the_device_plugin_are_reported_with_the_name(sharing: str, platform: dict[str, str], name: str) -> None:
    path, _, message = one("GS773", claimed(**A100, sharing=SHARING[sharing], requests="limits"), **platform)
    assert path == f"{HERE}/requests"
    assert message.startswith(f"kubelet refuses {name} in limits on nodes")
    assert found(written(claimed(**A100, sharing=SHARING[sharing]), **platform), "GS773") == []


# GS774


def test_the_name_of_whole_gpus_is_that_of_the_drivers_own_class_too() -> None:
    path, _, message = one("GS774", claimed(sharing=SHARING["exclusive"], requests="both"), **PLATFORM)
    assert path == f"{HERE}/requests"
    assert message.startswith("device class gpu.nvidia.com, which NVIDIA's chart makes, has the name nvidia.com/gpu too")


@pytest.mark.parametrize("sharing", ["mig", "time-slicing"])
def test_other_names_are_of_no_class_of_the_drivers(sharing: str) -> None:
    assert found(written(claimed(**A100, sharing=SHARING[sharing], requests="limits"), **COUNT), "GS774") == []


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"requests": "claims", "backend": "device-plugin"}, "requests"),
        ({"sharing": "{mode: time-slicing, replicas: 4, rename: false}"}, "sharing/rename"),
        ({**A100, "sharing": "{mode: mig, layout: {7g.40gb: 1}, strategy: single}"}, "sharing/strategy"),
    ],
)
def test_settings_of_limits_have_no_effect_on_claims(fields: dict[str, str], place: str) -> None:
    other = whole("other", nodes="{matchLabels: {node.example.org/flavour: other}}", sharing=SHARING["mig"])
    paths = [path for path, _, _ in found(written(claimed(**fields), other, **PLATFORM), "GS508")]
    assert paths == [f"{HERE}/{place}"]


@pytest.mark.parametrize("sharing", ["{mode: time-slicing, replicas: 4, rename: false}", "{mode: exclusive}"])
def test_a_name_for_limits_is_compared_with_that_of_the_plugins_pools(sharing: str) -> None:
    plugin = pool("plugin", **A100, sharing="{mode: exclusive}")
    assert found(written(plugin, claimed(sharing=sharing), **COUNT), "GS210") == []
    assert (
        "nvidia.com/gpu means different things" in one("GS210", plugin, claimed(sharing=sharing, requests="both"), **COUNT)[2]
    )


def test_a_default_pool_of_claims_has_no_effect() -> None:
    plugin = pool("plugin", **A100, sharing="{mode: time-slicing, replicas: 4}")
    text = written(plugin, claimed(default="true"), **PLATFORM)
    assert [message.partition(": ")[2] for _, _, message in found(text, "GS624")] == [
        "its pods have claims, which name their pool"
    ]


def test_two_default_pools_for_one_name_are_refused_across_back_ends() -> None:
    plugin = pool("plugin", **A100, sharing="{mode: exclusive}", default="true")
    fields = {"sharing": "{mode: exclusive}", "default": "true"}
    assert one("GS623", plugin, claimed(**fields, requests="limits"), **PLATFORM)[0] == f"{HERE}/default"
    assert found(written(plugin, claimed(**fields), **PLATFORM), "GS623") == []


def test_the_release_of_the_device_plugin_does_not_concern_pools_of_dra() -> None:
    platform = "{stack: device-plugin, version: 0.19.0, dra: {}}"
    sharing = "{mode: time-slicing, replicas: 4, placement: pack}"
    assert found(written(claimed(sharing=sharing), kubernetes=NEW, platform=platform), "GS707") == []
    assert found(written(pool(sharing=sharing), platform=platform), "GS707")


# GS775


SHORT = "{mode: time-slicing, replicas: 4, interval: short}"
P4 = {"card": "p4", "nodes": "{matchLabels: {node.example.org/flavour: gpu-p4}}"}


@pytest.mark.parametrize("interval", ["short", "medium", "long"])
def test_turns_on_whole_gpus_of_dra_have_an_interval(interval: str) -> None:
    sharing = SHORT.replace("short", interval)
    assert codes(claimed(sharing=sharing), **PLATFORM) == codes(claimed(sharing=sharing), **COUNT) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sharing": SHORT, "backend": "device-plugin"}, "the device plugin sets no interval"),
        ({**A100, "sharing": "{mode: mig, layout: {3g.20gb: 2}, replicas: 2, interval: long}"}, "not on MIG instances"),
        ({**A100, "sharing": "{mode: mig, layout: on-demand, interval: long}"}, "not on MIG instances"),
        ({**P4, "sharing": SHORT}, "cannot be set"),
    ],
)
def test_an_interval_that_nothing_sets_is_refused(fields: dict[str, str], words: str) -> None:
    place, is_refused, message = one("GS775", claimed(**fields), **PLATFORM)
    assert (place, is_refused) == (f"{HERE}/sharing/interval", True)
    assert words in message


@pytest.mark.parametrize("mode", ["exclusive", "mps", "partition", "vgpu"])
def test_other_modes_have_no_interval(mode: str) -> None:
    sharing = SHARING[mode].replace("}", ", interval: short}")
    messages = {finding.message for finding in check(written(claimed(sharing=sharing, **A100), **PLATFORM))}
    assert f"interval does not belong to mode {mode}" in messages


def test_with_an_interval_gpus_that_have_none_are_refused_on_the_same_driver_alone() -> None:
    old = {"name": "old", **P4, "sharing": "{mode: exclusive}"}
    place, _, message = one("GS775", claimed(sharing=SHORT), claimed(**old), **PLATFORM)
    assert place == "/spec/pools/old/card"
    assert "no claim on a Tesla P4 of pool old ends" in message
    assert codes(claimed(sharing=SHORT), claimed(**old, backend="device-plugin"), **PLATFORM) == []
    assert codes(claimed(), claimed(**old), **PLATFORM) == []


def test_claims_of_two_pools_with_one_card_and_two_intervals_block_each_other() -> None:
    other = claimed("b", nodes=OTHER_T4, sharing=SHORT.replace("short", "long"))
    assert one("GS765", claimed(sharing=SHORT), other, **PLATFORM)[0] == "/spec/pools/b/card"


def test_every_rule_has_a_severity_of_its_own() -> None:
    """What blocks a bundle is an error; what may be meant, or depends on the cluster, a warning."""
    warnings = {"GS765", "GS767", "GS771", "GS772", "GS773", "GS774"}
    texts = [
        written(claimed(requests="limits", memory="{cap: none}"), claimed("b", nodes=OTHER_T4, sharing="{mode: exclusive}")),
        written(claimed(sizes="{large: 8Gi}"), **PLATFORM, quotas="{atlas: {notebooks: 8}}"),
        written(claimed(sharing=SHARING["exclusive"], requests="limits"), **PLATFORM),
        written(claimed(nodes="{matchLabels: {cloud.google.com/gke-nodepool: t4}}", memory="{cap: none}"), **PLATFORM),
    ]
    reported: list[Finding] = [finding for text in texts for finding in check(text) if finding.code in OURS]
    assert all((finding.severity is Severity.WARNING) is (finding.code in warnings) for finding in reported)
    assert warnings <= {finding.code for finding in reported}


def test_the_rules_are_in_the_registry() -> None:
    assert {f"GS{number}" for number in range(760, 776)} == OURS <= {rule.code for rule in rules.RULES}


def test_a_class_shares_the_budget_of_its_name_for_limits() -> None:
    plugin, quotas = pool("plugin", **A100, sharing="{mode: exclusive}"), "{atlas: {plugin: 2, notebooks: 3}}"
    claims = claimed(sharing="{mode: exclusive}")
    message = one("GS607", plugin, claimed(sharing="{mode: exclusive}", requests="both"), **PLATFORM, quotas=quotas)[2]
    assert message == "atlas gets one budget of 5 nvidia.com/gpu for pools plugin and notebooks together"
    assert found(written(plugin, claims, **PLATFORM, quotas=quotas), "GS607") == []


def test_instances_of_dra_do_not_decide_the_strategy_of_the_plugin() -> None:
    mig, mps = claimed(**A100, sharing=SHARING["mig"]), pool("serving", "l40s", OTHER_T4, SHARING["mps"])
    assert found(written(mig, mps, **PLATFORM), "GS713") == []
    assert found(written(mig.replace("backend: dra", "backend: device-plugin"), mps, **PLATFORM), "GS713")


@pytest.mark.parametrize("requests", ["claims", "limits"])
def test_partitions_of_amds_cards_are_refused_alone(requests: str) -> None:
    amd = pool("research", "mi300x", sharing=SHARING["partition"].replace("NPS4", "NPS1"), backend="dra", requests=requests)
    errors = [finding.code for finding in check(written(amd, kubernetes=NEW, platform="{stack: amd-gpu-operator, dra: {}}"))]
    assert [code for code in errors if code in OURS] == ["GS760"]
