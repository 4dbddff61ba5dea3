"""Pools of DRA: every combination of mode, shares, requests and Kubernetes compiles or is refused as stated; what DRA lacks."""

import itertools
import re

import pytest

from gpushare import pipeline, rules
from gpushare.bundle import lock
from gpushare.core.diagnostics import Finding, Severity, is_error
from gpushare.facts.catalog import cards
from gpushare.offering import modes
from gpushare.rules import backend, device_classes
from tests.compiler.rules.dra_intents import A100, HERE, NEW, OTHER_T4, PLATFORM, SHARING, claimed, hints, whole
from tests.compiler.rules.intents import check, codes, found, one, pool, written

MODULES = {module.__name__ for module in (backend, device_classes)}
OURS = {code for code, check in rules.RULES.items() if check.__module__ in MODULES}


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


# pools of DRA beside others


def test_the_release_of_the_device_plugin_does_not_concern_pools_of_dra() -> None:
    platform = "{stack: device-plugin, version: 0.19.0, dra: {}}"
    sharing = "{mode: time-slicing, replicas: 4, placement: pack}"
    assert found(written(claimed(sharing=sharing), kubernetes=NEW, platform=platform), "GS707") == []
    assert found(written(pool(sharing=sharing), platform=platform), "GS707")


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
    assert {f"GS{number}" for number in range(760, 776)} == OURS <= rules.RULES.keys()


def test_instances_of_dra_do_not_decide_the_strategy_of_the_plugin() -> None:
    mig, mps = claimed(**A100, sharing=SHARING["mig"]), pool("serving", "l40s", OTHER_T4, SHARING["mps"])
    assert found(written(mig, mps, **PLATFORM), "GS713") == []
    assert found(written(mig.replace("backend: dra", "backend: device-plugin"), mps, **PLATFORM), "GS713")


@pytest.mark.parametrize("requests", ["claims", "limits"])
def test_partitions_of_amds_cards_are_refused_alone(requests: str) -> None:
    amd = pool("research", "mi300x", sharing=SHARING["partition"].replace("NPS4", "NPS1"), backend="dra", requests=requests)
    errors = [finding.code for finding in check(written(amd, kubernetes=NEW, platform="{stack: amd-gpu-operator, dra: {}}"))]
    assert [code for code in errors if code in OURS] == ["GS760"]
