"""Pools of NVIDIA's DRA driver in `explain` and `plan --live`: why a claim waits, and whom a change disturbs."""

import json
from pathlib import Path

import pytest

from gpushare.cluster.live import claims, slices
from tests.compiler.cluster.live.clusters import LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.compiler.cluster.live.dra_cluster import (
    DRA,
    LARGE,
    LIMIT,
    NOTEBOOKS,
    ON_DEMAND,
    add_claim,
    add_pod,
    add_slice,
    device,
    use,
    words,
)
from tests.support.fake_api.server import ApiServer


def waits(api: ApiServer, memory: str = "3840Mi", device_class: str = NOTEBOOKS) -> None:
    add_pod(api, "team", "waits")
    add_claim(api, "team", "waits", device_class, memory)


def test_capacity_that_is_short_is_explained_with_who_has_it(dra: LiveCluster, ask: Ask) -> None:
    for node, name in (("t4-1", "gpu-1"), ("t4-2", "gpu-0"), ("t4-2", "gpu-1")):
        use(dra.api, f"physics/{node}-{name}", node, name, "15Gi")
    waits(dra.api, "7680Mi")
    told = words(ask("explain", "team/waits").stdout)
    assert "No node can serve request gpu of class gpushare-notebooks" in told
    assert (
        "Node t4-1: gpu-0 has 3840Mi of 15360Mi memory left, and 7680Mi are asked: "
        "pod team/lab-0 has 3840Mi and pod team/large has 7680Mi" in told
    )
    assert "t4-2: gpu-0 has 0Mi of 15360Mi memory left, and 7680Mi are asked: pod physics/t4-2-gpu-0 has 15360Mi" in told


def test_claim_that_fits_again_waits_for_the_scheduler(dra: LiveCluster, ask: Ask) -> None:
    waits(dra.api)
    told = words(ask("explain", "claim/waits-gpu-abcde", "-n", "team").stdout)
    assert "claim team/waits-gpu-abcde: has no device" in told
    assert "fits now: node t4-1 has room" in told
    assert "after five minutes at the latest" in told


def test_place_that_overlaps_one_in_use_is_explained_with_who_has_it(api: ApiServer, ask: Ask) -> None:
    """The two halves of a GPU have room for two of 3g.20gb, and beside one of them for three of 1g.5gb."""
    found, product = LiveCluster(api, ON_DEMAND), "NVIDIA A100-PCIE-40GB"
    found.add_node("a100-1", "training")
    counter = {"value": "1"}
    places = [("1g.5gb", 19, start, 1) for start in range(7)] + [("2g.10gb", 14, start, 2) for start in (0, 2, 4)]
    devices = [
        {
            **device(f"gpu-0-mig-{name.replace('.', '')}-{number}-{start}", product, "4864Mi", mig=name),
            "consumesCounters": [
                {"counterSet": "gpu-0", "counters": {f"memory-slice-{at}": counter for at in range(start, start + size)}}
            ],
        }
        for name, number, start, size in places
    ]
    add_slice(api, "a100-1", devices, count=2)
    add_slice(api, "a100-1", [], name="counters", count=2)
    totals = [{"name": "gpu-0", "counters": {f"memory-slice-{at}": counter for at in range(8)}}]
    api.edit("resourceslices", "counters", lambda one: one["spec"].update(sharedCounters=totals))
    found.add_release()
    for pod, place in (("one", "1g5gb-19-1"), ("two", "2g10gb-14-2")):
        use(api, f"physics/{pod}", "a100-1", f"gpu-0-mig-{place}", "")
    add_pod(api, "physics", "waits")
    api.edit("pods", "waits", lambda pod: pod["spec"].pop("nodeSelector"), namespace="physics")
    add_claim(api, "physics", "waits", "gpushare-training-2g-10gb", "")
    assert "fits now: node a100-1 has room" in words(ask("explain", "physics/waits").stdout)
    use(api, "physics/three", "a100-1", "gpu-0-mig-1g5gb-19-5", "")
    told = words(ask("explain", "physics/waits").stdout)
    assert "gpu-0-mig-2g10gb-14-0 has no room beside gpu-0-mig-1g5gb-19-1, in use by pod physics/one" in told
    assert "gpu-0-mig-2g10gb-14-2 is in use by pod physics/two" in told
    assert "gpu-0-mig-2g10gb-14-4 has no room beside gpu-0-mig-1g5gb-19-5, in use by pod physics/three" in told


def test_claim_of_another_pod_is_explained(dra: LiveCluster, ask: Ask) -> None:
    waits(dra.api)
    add_pod(dra.api, "team", "second")
    named = [{"name": "gpu", "resourceClaimName": "waits-gpu-abcde"}]
    dra.api.edit("pods", "second", lambda one: one["spec"].update(resourceClaims=named), namespace="team")
    told = words(ask("explain", "team/second").stdout)
    assert "ResourceClaim team/waits-gpu-abcde was made for pod waits, and admission lets no other pod use it" in told
    assert "was made for pod" not in words(ask("explain", "team/waits").stdout)


def test_nodes_that_take_no_pods_are_explained(dra: LiveCluster, ask: Ask) -> None:
    dra.api.edit("nodes", "t4-1", lambda one: one["spec"].update(unschedulable=True))
    dra.api.edit("nodes", "t4-2", lambda one: one["metadata"]["labels"].pop("gpushare.dev/pool"))
    waits(dra.api)
    told = words(ask("explain", "team/waits").stdout)
    assert "t4-1: it is cordoned" in told
    assert "t4-2: the pod's nodeSelector wants gpushare.dev/pool=notebooks" in told


def test_missing_class_and_foreign_selectors_are_said(dra: LiveCluster, ask: Ask) -> None:
    waits(dra.api, device_class="gpushare-notebook")
    assert "DeviceClass gpushare-notebook of request gpu does not exist" in words(ask("explain", "team/waits").stdout)
    selectors = [{"cel": {"expression": "device.driver == 'gpu.nvidia.com' && true"}}]
    dra.api.add("deviceclasses", "gpushare-notebook", {"spec": {"selectors": selectors}})
    assert "not of gpushare's form and are not evaluated" in words(ask("explain", "team/waits").stdout)


def test_selector_that_matches_no_device_is_explained(dra: LiveCluster, ask: Ask) -> None:
    for node in ("t4-1", "t4-2"):
        dra.api.edit(
            "resourceslices",
            f"00000-gpu.nvidia.com-{node}",
            lambda one: one["spec"].update(devices=[device("gpu-0", "NVIDIA L4")]),
        )
    waits(dra.api)
    told = words(ask("explain", "team/waits").stdout)
    assert "No device matches DeviceClass gpushare-notebooks (type gpu, productName Tesla T4)" in told
    assert "2 of type gpu, productName NVIDIA L4" in told


def test_class_of_other_namespaces_is_explained(dra: LiveCluster, ask: Ask) -> None:
    waits(dra.api, "", LARGE)
    told = words(ask("explain", "team/waits").stdout)
    assert f"DeviceClass {LARGE} belongs to pool training, which is for namespaces physics" in told


def test_claim_that_was_not_made_is_explained_with_the_refusal(dra: LiveCluster, ask: Ask) -> None:
    add_pod(dra.api, "team", "waits")
    dra.api.edit("pods", "waits", lambda one: one["status"].pop("resourceClaimStatuses"), namespace="team")
    dra.api.add_event(
        "Pod",
        "waits",
        "FailedResourceClaimCreation",
        "PodResourceClaim gpu: ValidatingAdmissionPolicy 'gpushare-claims' denied request: may not use pool x",
        namespace="team",
    )
    told = words(ask("explain", "team/waits").stdout)
    assert "No ResourceClaim has been made for the pod's claim gpu from template gpushare-notebooks.share" in told
    assert "may not use pool x" in told


def test_pod_by_limits_is_explained_and_counted_by_its_claim(dra: LiveCluster, ask: Ask) -> None:
    """The scheduler makes the claim when it has found a device. One that it made before devices were shared has it whole."""
    for number, at in enumerate((0, 2)):
        name = f"train-{number}"
        dra.api.add_pod(name, namespace="physics", node="a100-1", limits={LIMIT: 1}, uid=f"uid-{name}")
        on = ("a100-1", f"gpu-0-mig-2g10gb-14-{at}")
        claim = add_claim(dra.api, "physics", name, LARGE, "", on, consumed="9856Mi" if at else "")
        mapping = {"containerName": "main", "requestName": "gpu", "resourceName": LIMIT}
        status = {"extendedResourceClaimStatus": {"requestMappings": [mapping], "resourceClaimName": claim}}
        dra.api.edit("pods", name, lambda one, status=status: one["status"].update(status), namespace="physics")  # type: ignore[misc]
    document = json.loads(ask("status", "--format", "json").stdout)
    assert document["pools"]["training"]["shares"][LARGE] == {"wanted": 2, "offered": 2, "used": 2, "free": 0}
    [node] = document["pools"]["training"]["nodes"]
    assert [(one["name"], one["shares"]) for one in node["pods"]] == [("train-0", {LARGE: 1}), ("train-1", {LARGE: 1})]
    dra.api.add_pod("waits", namespace="physics", limits={LIMIT: 1}, phase="Pending")
    told = words(ask("explain", "physics/waits").stdout)
    assert f"No node can serve request {LIMIT} of class {LARGE}" in told
    assert "gpu-0-mig-2g10gb-14-0 is in use by pod physics/train-0" in told
    assert "gpu-0-mig-2g10gb-14-2 has 0Mi of 9856Mi memory left, and 9856Mi are asked: pod physics/train-1 has 9856Mi" in told
    assert "No node offers" not in told


def test_running_pod_with_a_claim_has_no_problems(dra: LiveCluster, ask: Ask) -> None:
    told = ask("explain", "team/lab-0").stdout
    assert "claim lab-0-gpu-abcde" in words(told)
    assert "No problems found." in told


# What is recognised of expressions.


@pytest.mark.parametrize(
    ("expression", "selects"),
    [
        ("{type} == 'gpu' && {product} == 'Tesla T4'", "type gpu, productName Tesla T4"),
        (
            "{type} == 'mig' && {profile} == '1g.5gb+me' && {product} in ['A', 'B c']",
            "type mig, profile 1g.5gb+me, productName A or B c",
        ),
        ("{type} == 'mig' && {product} == 'A'", "None"),
        ("{type} == 'gpu' && {profile} == '1g.5gb' && {product} == 'A'", "None"),
        ("{type} == 'gpu' && {product} == 'A' || true", "None"),
        ("{type} == 'gpu' && {product} == 'A\\'", "None"),
    ],
)
def test_only_expressions_of_our_form_are_recognised(expression: str, selects: str) -> None:
    names = {name: f"device.attributes['gpu.nvidia.com'].{of}" for name, of in _ATTRIBUTES}
    text = f"device.driver == 'gpu.nvidia.com' && {expression.format(**names)}"
    found = claims.device_class({"metadata": {"name": "x"}, "spec": {"selectors": [{"cel": {"expression": text}}]}})
    assert str(found.selection) == selects


_ATTRIBUTES = [("type", "type"), ("profile", "profile"), ("product", "productName")]


# plan --live


def test_plan_of_what_is_installed_changes_no_node(dra: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    assert ask("plan", "--live", dra.write(tmp_path)).stdout == "no node would change\n"


def test_plan_names_the_pods_that_hold_devices_by_claims(dra: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    new = tmp_path / "intent.yaml"
    new.write_text(DRA.replace("replicas: 4", "replicas: 2").replace("      sizes: {large: 7680Mi}\n", ""))
    done = ask("plan", "--live", new)
    assert "2 nodes would change" in done.stdout
    assert "team/lab-0" in done.stdout


def test_claim_with_admin_access_has_no_device_of_others_and_informing_taints_keep_nothing_away() -> None:
    result = {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0", "request": "gpu"}
    asked = {"deviceClassName": "c", "adminAccess": True, "tolerations": [{"key": "a", "operator": "Exists"}]}
    watcher, user = (
        claims.claim(
            {
                "metadata": {"name": name, "namespace": "team"},
                "spec": {
                    "devices": {"requests": [{"name": "gpu", "exactly": asked if is_admin else {"deviceClassName": "c"}}]}
                },
                "status": {"allocation": {"devices": {"results": [result | ({"adminAccess": True} if is_admin else {})]}}},
            }
        )
        for name, is_admin in (("watcher", True), ("user", False))
    )
    assert [held.claim.name for held in slices.allocations([watcher, user])["n", "gpu-0"]] == ["user"]
    [[request]] = watcher.requests
    assert (request.is_admin, [str(one) for one in request.tolerations]) == (True, ["a:"])
    taints = [{"key": "look", "effect": "None"}, {"key": "broken", "effect": "NoSchedule"}]
    found = claims.resource_slice({"spec": {"devices": [{"name": "gpu-0", "taints": taints}]}})
    assert [str(one) for one in found.devices[0].taints] == ["broken:NoSchedule"]
