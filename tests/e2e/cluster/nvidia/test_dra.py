"""NVIDIA's own DRA driver is held against the tests' double, answer by answer, and the runtime works with both.

node-1 is under NVIDIA's, node-2 under the double, with the same cards. Pods get devices of NVIDIA's, and do not use them.
Needs `NVIDIA=FOLDER` with NVIDIA's program; left out without it.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpushare_node.backends.dra.claims import read_claims
from tests.e2e.cluster.cluster_fixture import A100, COURSE, T4, ClusterFixture
from tests.e2e.cluster.dra.agents import BACK_END, CHECKPOINT, STATE, Agents, dra_intent, with_agents
from tests.e2e.cluster.dra.devices import Object
from tests.e2e.cluster.dra.objects import asked, device_class, template
from tests.e2e.cluster.images import PAUSE
from tests.e2e.cluster.nvidia import dra
from tests.e2e.cluster.test_changes import BOTH
from tests.e2e.cluster.test_dra_driver import EVERYTHING, bring, form, remembered
from tests.e2e.nvidia import charts

pytestmark = [
    pytest.mark.nvidia,
    pytest.mark.skipif(charts.folder() is None, reason="NVIDIA=FOLDER is not given"),
]

GATES: dict[str, Object] = {
    "whole": {},
    "memory": {"featureGates": {"ConsumableShares": True}, "consumableShares": "memory"},
    "counted": {"featureGates": {"ConsumableShares": True}, "consumableShares": "4"},
    "on demand": {"featureGates": {"DynamicMIG": True}},
    "intervals": {"featureGates": {"TimeSlicingSettings": True}},
}
NVIDIAS = dra.BothDrivers.of_nvidia
INSTANCES = (((9, 0), (9, 4)), ((19, 0), (19, 1), (19, 2), (14, 4)))
_QUANTITY = re.compile(r"(\d+)(Ki|Mi|Gi|)")
_UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


@pytest.fixture(scope="module")
def agents(cluster_fixture: ClusterFixture) -> Iterator[Agents]:
    if not dra.is_here():
        pytest.skip(f"the archive of NVIDIA's programs has no {dra.PROGRAM}")
    with with_agents(cluster_fixture, dra.BothDrivers) as made:
        yield made


def restart(cluster_fixture: ClusterFixture, agents: Agents, cards: tuple[str, ...], gates: str, *, mig: bool) -> None:
    """Both drivers, with these settings, over new GPUs of both nodes."""
    cluster_fixture.cluster.kubectl("label", "node", *BOTH, f"{BACK_END}=none", "--overwrite")
    cluster_fixture.cluster.wait(
        lambda: not agents.slices() and not any(map(agents.pods, BOTH)), "neither driver is there any more"
    )
    for node in BOTH:
        fake_nvml = cluster_fixture.fleet.equip(cluster_fixture.node(node), cards)
        for gpu, places in enumerate(INSTANCES if mig else ()):
            fake_nvml.set_mode(gpu, current=True)
            for profile, start in places if gates != "on demand" else ():
                fake_nvml.add_instance(gpu, profile, start)
    agents.install_driver({**GATES[gates], "kubeletPlugin": {"nodeSelector": {BACK_END: "dra"}, **EVERYTHING}})
    cluster_fixture.cluster.kubectl("label", "node", *BOTH, f"{BACK_END}=dra", "--overwrite")
    for node in BOTH:
        cluster_fixture.cluster.wait(lambda node=node: is_complete(agents, node), f"{node} has slices")
    assert [len(cluster_fixture.node(node).processes(dra.INSIDE)) for node in BOTH] == [1, 0]


def is_complete(agents: Agents, node: str) -> bool:
    slices = agents.slices(node)
    return bool(slices) and len(slices) == slices[0]["spec"]["pool"]["resourceSliceCount"]


def published(cluster_fixture: ClusterFixture, agents: Agents, node: str) -> Object:
    """What a node's slices say, in whatever order and units, with names in place of the ids that no two nodes share."""
    devices = {name: plain(cluster_fixture, node, one) for name, one in agents.devices(node).items()}
    sets = [plain(cluster_fixture, node, one) for part in agents.slices(node) for one in part["spec"].get("sharedCounters", ())]
    return {"devices": devices, "counters": {one["name"]: one for one in sets}}


def plain(cluster_fixture: ClusterFixture, node: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(cluster_fixture, node, one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(cluster_fixture, node, one) for one in value]
    if isinstance(value, str):
        quantity = _QUANTITY.fullmatch(value)
        if quantity:
            return int(quantity[1]) * _UNITS[quantity[2]]
        return names(cluster_fixture, node).get(value, value)
    return value


def names(cluster_fixture: ClusterFixture, node: str) -> dict[str, str]:
    """A name for each UUID of the node: of a GPU, or of an instance by its place."""
    fake_nvml, found = cluster_fixture.fake_nvml(node), {}
    for gpu in range(2):
        found[fake_nvml.uuid(gpu)] = f"GPU {gpu}"
        for gi, _, start, *_ in fake_nvml.instances(gpu):
            found[fake_nvml.mig_uuid(gpu, gi)] = f"instance at {start} of GPU {gpu}"
    return found


@pytest.mark.parametrize(
    ("cards", "gates", "mig"),
    [
        (T4, "whole", False),
        (T4, "memory", False),
        (T4, "counted", False),
        (A100, "whole", True),
        (A100, "memory", True),
        (A100, "on demand", True),
    ],
)
def test_both_publish_the_same(
    cluster_fixture: ClusterFixture, agents: Agents, cards: tuple[str, ...], gates: str, *, mig: bool
) -> None:
    restart(cluster_fixture, agents, cards, gates, mig=mig)
    nvidias, doubles = (published(cluster_fixture, agents, node) for node in BOTH)
    assert nvidias["devices"]
    assert nvidias == doubles


def hold(cluster_fixture: ClusterFixture, name: str, node: str, of: str) -> None:
    """A pod that has a device and does not use it."""
    cluster_fixture.cluster.apply(holder(name, node, of))
    cluster_fixture.cluster.wait(lambda: cluster_fixture.phase(name) == "Running", f"{name} runs")


def holder(name: str, node: str, of: str) -> Object:
    """Such a pod."""
    container = {"name": "work", "image": PAUSE, "imagePullPolicy": "Never", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": of}],
        "terminationGracePeriodSeconds": 1,
        **EVERYTHING,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": COURSE}, "spec": spec}


def held(cluster_fixture: ClusterFixture, node: str) -> list[tuple[str, Any, Any]]:
    """What the runtime reads of the node's claims."""
    known = names(cluster_fixture, node)
    found = read_claims(None, cluster_fixture.node(node).path("/var/lib/kubelet")) or ()
    return sorted(
        (
            next(known.get(device, device) for device in one.devices),
            one.claim and one.claim.memory_bytes,
            one.claim and one.claim.shares,
        )
        for one in found
    )


def anywhere(found: list[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    """The same, wherever it is: NVIDIA's driver lists fixed devices in no order, and the scheduler takes the first."""
    return sorted([(re.sub(r"(?<=^GPU) \d+| at \d+", "", name), *rest) for name, *rest in found], key=str)


@pytest.mark.parametrize(
    ("cards", "gates", "mig", "wanted"),
    [
        (T4, "whole", False, {"gpu": asked("whole")}),
        (T4, "memory", False, {"gpu": asked("whole", memory="3840Mi"), "large": asked("whole", memory="7680Mi")}),
        (T4, "counted", False, {"gpu": asked("whole"), "two": asked("whole", shares="2")}),
        (A100, "whole", True, {"gpu": asked("half"), "small": asked("seventh")}),
        (A100, "on demand", True, {"gpu": asked("half"), "small": asked("seventh")}),
    ],
)
def test_the_runtime_reads_the_same_of_what_both_prepare(
    cluster_fixture: ClusterFixture, agents: Agents, cards: tuple[str, ...], gates: str, wanted: dict[str, Object], *, mig: bool
) -> None:
    restart(cluster_fixture, agents, cards, gates, mig=mig)
    classes = [device_class("whole", "Tesla T4")]
    classes += [
        device_class(name, "NVIDIA A100-SXM4-40GB", profile) for name, profile in (("half", "3g.20gb"), ("seventh", "1g.5gb"))
    ]
    bring(cluster_fixture, *classes, *(template(name, one) for name, one in wanted.items()))
    for node in BOTH:
        for name in wanted:
            hold(cluster_fixture, f"{name}-{node}", node, name)
    nvidias, doubles = (anywhere(held(cluster_fixture, node)) for node in BOTH)
    assert len(nvidias) == len(wanted)
    assert nvidias == doubles
    for file, of in ((CHECKPOINT, form), (STATE, lambda text: form(remembered(text)))):
        first, second = (of(cluster_fixture.node(node).path(file).read_text()) for node in BOTH)
        assert first == second
    cluster_fixture.cluster.empty(f"/api/v1/namespaces/{COURSE}/pods")
    cluster_fixture.cluster.wait(lambda: not any(held(cluster_fixture, node) for node in BOTH), "nothing is held any more")


def said_to_gpus(cluster_fixture: ClusterFixture) -> list[str]:
    """What NVIDIA's driver has said to nvidia-smi since this was asked last, without the UUIDs."""
    file = cluster_fixture.fleet.folder / NVIDIAS / "nvidia-smi.log"
    text = file.read_text() if file.exists() else ""
    file.unlink(missing_ok=True)
    return re.sub(r"GPU-\S+", "GPU", text).splitlines()


def set_to(number: int) -> list[str]:
    """What it says for an interval."""
    return ["-i GPU -c DEFAULT", f"compute-policy -i GPU --set-timeslice {number}"]


def sliced(interval: str) -> str:
    return dra_intent(lab=f"card: t4, sharing: {{mode: time-slicing, replicas: 4, interval: {interval}}}")


def test_claims_with_one_interval_share_a_gpu_and_with_two_none(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    restart(cluster_fixture, agents, T4, "memory", mig=False)
    cluster_fixture.cluster.kubectl("label", "node", *BOTH, f"{BACK_END}-")
    cluster_fixture.choose(node_1="lab", node_2="lab")
    agents.install(sliced("short"))
    for node in BOTH:
        cluster_fixture.await_policy(node, "lab")
    said_to_gpus(cluster_fixture)
    for name in ("first", "second"):
        hold(cluster_fixture, name, NVIDIAS, "gpushare-lab.share")
        assert said_to_gpus(cluster_fixture) == set_to(1)
    assert len({device for device, *_ in held(cluster_fixture, NVIDIAS)}) == 1
    agents.install(sliced("long"))
    cluster_fixture.cluster.apply(holder("later", NVIDIAS, "gpushare-lab.share"))
    cluster_fixture.cluster.wait(
        lambda: any("conflicting configuration" in message for _, message in cluster_fixture.events("later")),
        "the driver refuses the other interval",
    )
    cluster_fixture.dismiss("first")
    assert said_to_gpus(cluster_fixture) == []
    assert cluster_fixture.phase("later") == "Pending"
    cluster_fixture.dismiss("second")
    cluster_fixture.cluster.wait(lambda: cluster_fixture.phase("later") == "Running", "later runs")
    assert said_to_gpus(cluster_fixture) == [*set_to(0), *set_to(3)]
    cluster_fixture.dismiss("later")
    assert said_to_gpus(cluster_fixture) == set_to(0)
    cluster_fixture.choose(node_1=None, node_2=None)
    # Until then the runtime gives the nodes back to the device plugin.
    labels = cluster_fixture.labels
    cluster_fixture.cluster.wait(lambda: not any(BACK_END in labels(node) for node in BOTH), "the nodes are released")


def test_with_intervals_no_claim_ends_on_a_gpu_that_has_none(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    restart(cluster_fixture, agents, T4, "intervals", mig=False)
    bring(cluster_fixture, device_class("whole", "Tesla T4"), template("gpu", asked("whole")))
    hold(cluster_fixture, "ending", NVIDIAS, "gpu")
    sign = cluster_fixture.fleet.folder / NVIDIAS / "has-no-intervals"
    sign.touch()
    cluster_fixture.cluster.kubectl("delete", "pod", "ending", "--namespace", COURSE, "--wait=false")
    for _ in range(2):
        cluster_fixture.cluster.wait(lambda: said_to_gpus(cluster_fixture), "the driver tries to reset the GPU")
    assert cluster_fixture.phase("ending") != "Gone"
    sign.unlink()
    cluster_fixture.dismiss("ending")


def test_a_pool_changes_its_layout_and_its_back_end_with_both(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    """The runtime lets both in, verifies what they publish, and sends both away."""
    restart(cluster_fixture, agents, A100, "memory", mig=False)
    cluster_fixture.cluster.kubectl("label", "node", *BOTH, f"{BACK_END}-")
    cluster_fixture.choose(node_1="lab", node_2="lab")
    for backend, sharing, offer in (
        ("dra", "{mode: exclusive}", {}),
        ("dra", "{mode: mig, layout: {3g.20gb: 2}}", {}),
        ("dra", "{mode: mig, layout: on-demand, profiles: [1g.5gb, 3g.20gb]}", {}),
        ("device-plugin", "{mode: exclusive}", {"nvidia.com/gpu": 2}),
    ):
        agents.install(dra_intent(backend=backend, lab=f"card: a100-sxm4-40gb, sharing: {sharing}"))
        for node in BOTH:
            cluster_fixture.await_policy(node, "lab")
            assert bool(agents.slices(node)) == (backend == "dra")
            assert cluster_fixture.offer(node) == offer
    cluster_fixture.choose(node_1=None, node_2=None)
