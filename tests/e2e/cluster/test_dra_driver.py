"""The double of NVIDIA's DRA driver before real kubelets and a real scheduler: what it publishes, prepares and remembers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpushare.facts.catalog import cards
from tests.e2e.cluster.cluster_fixture import A100, COURSE, T4, ClusterFixture
from tests.e2e.cluster.dra.agents import BACK_END, CHECKPOINT, STATE, Agents, with_agents
from tests.e2e.cluster.dra.devices import Object
from tests.e2e.cluster.dra.objects import asked, device_class, template, tenant
from tests.support.paths import ROOT

WHOLE, DIVIDED = "node-1", "node-2"
CARD = cards.load(A100[0])
RECORDED = ROOT / "tests/node/backends/dra/files"
NONE = "cannot allocate all claims"
"""What the scheduler says of a claim for which there is no device."""
EVERYTHING: Object = {"tolerations": [{"operator": "Exists"}]}


def driver_values(shares: str = "") -> Object:
    """Values of the driver's chart."""
    gate = {"featureGates": {"ConsumableShares": True}, "consumableShares": shares} if shares else {}
    return {**gate, "kubeletPlugin": {"nodeSelector": {BACK_END: "dra"}, **EVERYTHING}}


def plugin_values() -> Object:
    """Values of the device plugin's chart."""
    term = {"matchExpressions": [{"key": BACK_END, "operator": "NotIn", "values": ["none", "dra"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}, **EVERYTHING}


@pytest.fixture(scope="module")
def agents(cluster_fixture: ClusterFixture) -> Iterator[Agents]:
    """T4s on one node, A100s on the other: one with two instances, one with three of another profile and one of a third."""
    cluster_fixture.equip(WHOLE, T4)
    fake_nvml = cluster_fixture.equip(DIVIDED, A100)
    for gpu, places in enumerate((((9, 0), (9, 4)), ((19, 0), (19, 1), (19, 2), (14, 4)))):
        fake_nvml.set_mode(gpu, current=True)
        for profile, start in places:
            fake_nvml.add_instance(gpu, profile, start)
    with with_agents(cluster_fixture) as made:
        made.install_plugin(plugin_values())
        made.install_driver(driver_values("memory"))
        cluster_fixture.cluster.kubectl("label", "node", WHOLE, DIVIDED, f"{BACK_END}=dra")
        for node in (WHOLE, DIVIDED):
            cluster_fixture.cluster.wait(lambda node=node: made.devices(node), f"{node} has slices")
        yield made


def bring(cluster_fixture: ClusterFixture, *objects: Object) -> None:
    """Create the objects, in place of others of their names: the specification of a template cannot be changed."""
    for one in objects:
        if one["kind"] == "ResourceClaimTemplate":
            path = f"/apis/{one['apiVersion']}/namespaces/{COURSE}/resourceclaimtemplates/{one['metadata']['name']}"
            cluster_fixture.cluster.write("DELETE", path)
    cluster_fixture.cluster.apply(*objects)


def run(cluster_fixture: ClusterFixture, *pods: Object, refused: int = 0) -> None:
    """Create pods one after the other, of which all but the last few get what they ask for.

    The next one comes once its predecessor has a place: of pods that come together, the scheduler takes that first whose claim
    is made first.
    """
    names = [pod["metadata"]["name"] for pod in pods]
    served = names[: len(names) - refused]
    for name, pod in zip(names, pods, strict=True):
        cluster_fixture.cluster.apply(pod)
        if name in served:
            cluster_fixture.cluster.wait(lambda name=name: has_place(cluster_fixture, name), f"{name} has a place")
        else:
            cluster_fixture.cluster.wait(lambda name=name: NONE in scheduled(cluster_fixture, name), f"{name} finds no device")
    for name in served:
        cluster_fixture.cluster.wait(lambda name=name: cluster_fixture.phase(name) == "Running", f"{name} runs")


def has_place(cluster_fixture: ClusterFixture, name: str) -> bool:
    """Whether the scheduler has given a node to the pod."""
    return "nodeName" in cluster_fixture.cluster.read(f"/api/v1/namespaces/{COURSE}/pods/{name}")["spec"]


def scheduled(cluster_fixture: ClusterFixture, name: str) -> str:
    """What the scheduler says of a pod that it has no place for."""
    pod = cluster_fixture.cluster.read(f"/api/v1/namespaces/{COURSE}/pods/{name}")
    conditions = pod["status"].get("conditions", ())
    return next((str(one.get("message")) for one in conditions if one["type"] == "PodScheduled"), "")


def prepared(cluster_fixture: ClusterFixture, node: str, version: str = "v2") -> Object:
    """The claims of the driver's checkpoint."""
    return dict(json.loads(cluster_fixture.node(node).path(CHECKPOINT).read_text())[version].get("preparedClaims", {}))


def remembered(text: str) -> list[Object]:
    """The claims of kubelet's own checkpoint."""
    return list(json.loads(json.loads(text)["Data"])["ClaimInfoStateList"])


def form(value: Any) -> Any:
    """What keys a document has, whatever their values, and how many: those that are uids are all alike."""
    if isinstance(value, dict):
        return {key if len(key) < 36 else "uid": form(one) for key, one in value.items()}
    return [form(value[0])] if isinstance(value, list) and value else type(value).__name__


def dismiss_all(cluster_fixture: ClusterFixture) -> None:
    cluster_fixture.cluster.empty(f"/api/v1/namespaces/{COURSE}/pods")


def test_whole_gpu_is_published_with_its_memory(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    [slice_] = agents.slices(WHOLE)
    assert (slice_["spec"]["pool"]["name"], slice_["spec"]["pool"]["resourceSliceCount"]) == (WHOLE, 1)
    devices, fake_nvml = agents.devices(WHOLE), cluster_fixture.fake_nvml(WHOLE)
    assert {name: one["attributes"]["uuid"]["string"] for name, one in devices.items()} == {
        f"gpu-{gpu}": fake_nvml.uuid(gpu) for gpu in (0, 1)
    }
    told = devices["gpu-0"]
    assert {name: one for name, one in told["attributes"].items() if name in ("type", "productName", "architecture")} == {
        "type": {"string": "gpu"},
        "productName": {"string": "Tesla T4"},
        "architecture": {"string": "Turing"},
    }
    limits = {"min": "1Mi", "max": "15Gi", "step": "1Mi"}
    policy = {"default": "15Gi", "validRange": limits}
    assert (told["allowMultipleAllocations"], told["capacity"]) == (
        True,
        {"memory": {"value": "15Gi", "requestPolicy": policy}},
    )


def test_instance_is_published_with_its_place_and_all_that_its_profile_has(agents: Agents) -> None:
    devices = agents.devices(DIVIDED)
    assert sorted(devices) == [
        "gpu-0-mig-3g20gb-9-0",
        "gpu-0-mig-3g20gb-9-4",
        "gpu-1-mig-1g5gb-19-0",
        "gpu-1-mig-1g5gb-19-1",
        "gpu-1-mig-1g5gb-19-2",
        "gpu-1-mig-2g10gb-14-4",
    ]
    told = devices["gpu-0-mig-3g20gb-9-4"]
    assert CARD.mig is not None
    [profile] = [one for one in CARD.mig.profiles if one.name == "3g.20gb"]
    assert told["attributes"]["profile"]["string"] == profile.name
    assert told["capacity"]["memory"]["requestPolicy"]["default"] == f"{profile.memory_mib}Mi"
    assert {name: one["value"] for name, one in told["capacity"].items() if name != "memory"} == {
        "multiprocessors": str(profile.sm),
        "copyEngines": str(profile.engines.copy),
        "decoders": str(profile.engines.decoders),
        "encoders": str(profile.engines.encoders),
        "jpegEngines": str(profile.engines.jpeg),
        "ofaEngines": str(profile.engines.ofa),
        **{f"memorySlice{number}": "1" for number in range(4, 8)},
    }


def test_memory_is_divided_among_claims_of_any_size(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    bring(
        cluster_fixture,
        device_class("notebooks", "Tesla T4"),
        template("share", asked("notebooks", memory="3840Mi")),
        template("large", asked("notebooks", memory="7680Mi")),
    )
    shares = [tenant(f"share-{number}", "share", "--mib", "3000") for number in range(4)]
    large = [tenant(f"large-{number}", "large", "--mib", "6000") for number in range(3)]
    run(cluster_fixture, *shares, *large, refused=1)
    assert {
        name: sorted(row[1] for row in gpu["processes"])
        for name, gpu in zip(("first", "second"), cluster_fixture.fake_nvml(WHOLE).show(), strict=True)
    } == {"first": [3000] * 4, "second": [6000] * 2}
    node = cluster_fixture.node(WHOLE)
    assert form(remembered(node.path(STATE).read_text())) == form(
        remembered((RECORDED / "memory/dra_manager_state").read_text())
    )
    text = (RECORDED / "memory/checkpoint.json").read_text()
    assert form(json.loads(node.path(CHECKPOINT).read_text())) == form(json.loads(text))
    dismiss_all(cluster_fixture)
    cluster_fixture.cluster.wait(lambda: not prepared(cluster_fixture, WHOLE), "nothing is prepared any more")
    assert [*node.path("/run/cdi").iterdir()] == []


def test_an_instance_is_shared_by_claims_of_parts_of_all_that_it_has(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    engines = {"copyEngines": "1", "decoders": "1", "encoders": "0", "jpegEngines": "0", "ofaEngines": "0"}
    halves = [
        asked(
            "halves",
            memory="9984Mi",
            multiprocessors="21",
            **engines,
            **{f"memorySlice{number}": "0" for number in range(start, start + 4)},
        )
        for start in (0, 4)
    ]
    bring(
        cluster_fixture,
        device_class("halves", CARD.name, "3g.20gb"),
        device_class("sevenths", CARD.name, "1g.5gb", "nvidia.com/mig-1g.5gb"),
        template("half", *halves),
        template("seventh", asked("sevenths")),
    )
    run(cluster_fixture, *(tenant(f"half-{number}", "half", "--mib", "9000") for number in range(5)), refused=1)
    run(cluster_fixture, *(tenant(f"seventh-{number}", "seventh", "--mib", "4000") for number in range(2)))
    cluster_fixture.start("by-limits", DIVIDED, "nvidia.com/mig-1g.5gb", "--mib", "4000")
    cluster_fixture.await_tenant("by-limits", "ready")
    devices = [claim["preparedDevices"][0]["devices"] for claim in prepared(cluster_fixture, DIVIDED).values()]
    uuids = [one["mig"]["concrete"]["migUUID"] for [one] in devices]
    fake_nvml = cluster_fixture.fake_nvml(DIVIDED)
    first, second = (fake_nvml.mig_uuid(0, gi) for gi, *_ in fake_nvml.instances(0))
    assert (uuids.count(first), uuids.count(second), len(set(uuids))) == (2, 2, 5)
    assert prepared(cluster_fixture, DIVIDED, "v1").keys() == prepared(cluster_fixture, DIVIDED).keys()
    dismiss_all(cluster_fixture)


def test_shares_are_counted_by_claims_and_by_limits(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    agents.install_driver(driver_values("4"))
    cluster_fixture.cluster.wait(lambda: "shares" in agents.devices(WHOLE)["gpu-1"]["capacity"], "shares are counted")
    bring(
        cluster_fixture,
        device_class("notebooks", "Tesla T4", extended="nvidia.com/gpu.shared"),
        template("share", asked("notebooks")),
        template("all", asked("notebooks", shares="4")),
    )
    run(cluster_fixture, tenant("alone", "all", "--mib", "9000"), tenant("one", "share", "--mib", "100"))
    for number in range(3):
        cluster_fixture.start(f"by-limits-{number}", WHOLE, "nvidia.com/gpu.shared", "--mib", "3000")
        cluster_fixture.await_tenant(f"by-limits-{number}", "ready")
    run(cluster_fixture, tenant("late", "share", "--mib", "100"), refused=1)
    assert sorted(len(gpu["processes"]) for gpu in cluster_fixture.fake_nvml(WHOLE).show()) == [1, 4]
    dismiss_all(cluster_fixture)


def test_without_shares_a_device_has_one_claim(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    agents.install_driver(driver_values())
    for node in (WHOLE, DIVIDED):
        cluster_fixture.cluster.wait(
            lambda node=node: not any("allowMultipleAllocations" in one for one in agents.devices(node).values()),
            f"nothing is shared on {node}",
        )
    bring(cluster_fixture, template("share", asked("notebooks")), template("half", asked("halves")))
    for name in ("share", "half"):
        run(cluster_fixture, *(tenant(f"{name}-{number}", name, "--mib", "9000") for number in range(3)), refused=1)
    dismiss_all(cluster_fixture)


def test_the_label_of_a_node_decides_who_serves_it(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    cluster, name = cluster_fixture.cluster, WHOLE
    assert cluster_fixture.offer(name) == {}
    cluster.kubectl("label", "node", name, f"{BACK_END}=none", "--overwrite")
    cluster.wait(lambda: not agents.slices(name), "kubelet has removed the slices of a driver that has gone")
    assert (agents.pods(name), cluster_fixture.offer(name)) == ([], {})
    cluster.kubectl("label", "node", name, f"{BACK_END}-")
    cluster.wait(lambda: cluster_fixture.offer(name) == {"nvidia.com/gpu": 2}, "the device plugin serves the node")
    assert not agents.slices(name)
    cluster.kubectl("label", "node", name, f"{BACK_END}=dra")
    cluster.wait(lambda: agents.devices(name) and not cluster_fixture.offer(name), "the driver serves the node again")
