"""A pool whose MIG instances the DRA driver makes for claims, from intent to pod, and its way to fixed instances and back."""

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster.cluster_fixture import A100, COURSE, ClusterFixture
from tests.e2e.cluster.dra.agents import BACK_END, Agents, dra_intent, with_agents
from tests.e2e.cluster.dra.devices import Object
from tests.e2e.cluster.dra.objects import tenant
from tests.e2e.cluster.test_dra import await_end, finds_nothing, instances, start
from tests.e2e.cluster.test_dra_driver import prepared

NODE = "node-2"
CARD = "card: a100-sxm4-40gb"
ON_DEMAND = f"{CARD}, sharing: {{mode: mig, layout: on-demand, profiles: [1g.5gb, 3g.20gb]}}"
FIXED = f"{CARD}, sharing: {{mode: mig, layout: {{3g.20gb: 2}}}}"
SMALL, LARGE = "gpushare-lab.1g.5gb", "gpushare-lab.3g.20gb"
CAP = 4000
BESIDE = rf"(gpu-\S+)\s+has\s+no\s+room\s+beside\s+(gpu-\S+),\s+in\s+use\s+by\s+pod\s+{COURSE}/([\w-]+)"
"""What `explain` says of a place for an instance that overlaps another."""


@pytest.fixture(scope="module")
def agents(cluster_fixture: ClusterFixture) -> Iterator[Agents]:
    """A node that the device plugin serves with whole GPUs, and the driver is to serve."""
    cluster_fixture.equip(NODE, A100)
    with with_agents(cluster_fixture) as made:
        cluster_fixture.choose(node_2="lab")
        yield made


def capped(bundle: Path) -> None:
    """Give the small instances a cap. No intent does, because the hardware bounds them."""
    policy, values = bundle / "chart/files/policies/lab.yaml", bundle / "chart/values.yaml"
    old = policy.read_text()
    document = yaml.safe_load(old)
    for share in document["spec"]["shares"]:
        share["capMiB"] = CAP if share["profile"] == "1g.5gb" else None
    policy.write_text(yaml.safe_dump(document))
    former, new = (hashlib.sha256(text.encode()).hexdigest()[:8] for text in (old, policy.read_text()))
    values.write_text(values.read_text().replace(former, new))


def install(agents: Agents, cluster_fixture: ClusterFixture, lab: str) -> None:
    agents.install(dra_intent(lab=lab), capped if lab is ON_DEMAND else None)


def places(agents: Agents) -> list[str]:
    """The profiles of the places that the driver offers, those that no instance can be made at now too."""
    devices: dict[str, Object] = agents.devices(NODE)
    assert all("uuid" not in one["attributes"] for one in devices.values())
    return sorted(str(one["attributes"]["profile"]["string"]) for one in devices.values())


def used_mib(cluster_fixture: ClusterFixture) -> list[int]:
    """The memory of each process on the node."""
    return sorted(row[1] for gpu in cluster_fixture.fake_nvml(NODE).show() for row in gpu["processes"])


def checked(folder: Path, text: str) -> str:
    """What `check` says of the intent."""
    intent = folder / "quota.yaml"
    intent.write_text(text)
    command = [sys.executable, "-m", "gpushare", "check", str(intent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def await_none(cluster_fixture: ClusterFixture) -> None:
    cluster_fixture.cluster.wait(lambda: not instances(cluster_fixture, NODE), "the instances have gone with their claims")
    assert prepared(cluster_fixture, NODE) == {}


def test_node_is_handed_to_a_driver_that_makes_instances(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    install(agents, cluster_fixture, ON_DEMAND)
    cluster_fixture.await_offer(NODE, "lab")
    assert cluster_fixture.labels(NODE)[BACK_END] == "dra"
    assert cluster_fixture.offer(NODE) == {}
    fake_nvml = cluster_fixture.fake_nvml(NODE)
    assert [fake_nvml.mode(gpu) for gpu in (0, 1)] == [(True, True)] * 2
    assert instances(cluster_fixture, NODE) == set()
    assert [places(agents).count(profile) for profile in ("1g.5gb", "3g.20gb")] == [14, 4]


def test_claim_has_an_instance_of_its_own_for_as_long_as_it_lives(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    start(cluster_fixture, "small", SMALL, "--mib", "3900")
    start(cluster_fixture, "large", LARGE, "--mib", "19000")
    fake_nvml = cluster_fixture.fake_nvml(NODE)
    assert sorted(profile for gpu in (0, 1) for _, profile, *_ in fake_nvml.instances(gpu)) == [9, 19]
    devices = [one["preparedDevices"][0]["devices"][0] for one in prepared(cluster_fixture, NODE).values()]
    assert {one["mig"]["concrete"]["migUUID"] for one in devices} == instances(cluster_fixture, NODE)
    assert used_mib(cluster_fixture) == [3900, 19000]
    cluster_fixture.dismiss("large")
    cluster_fixture.cluster.wait(lambda: len(instances(cluster_fixture, NODE)) == 1, "only the ended claim's has gone")
    assert used_mib(cluster_fixture) == [3900]
    cluster_fixture.dismiss("small")
    await_none(cluster_fixture)
    assert cluster_fixture.condition(NODE)["reason"] == "Ready"


def test_tenant_beyond_its_cap_ends_alone_on_an_instance_that_was_just_made(
    cluster_fixture: ClusterFixture, agents: Agents
) -> None:
    start(cluster_fixture, "neighbour", SMALL, "--mib", str(CAP - 100))
    start(cluster_fixture, "offender", SMALL, "--mib", str(CAP + 300))
    await_end(cluster_fixture, "offender", CAP + 300, CAP)
    assert cluster_fixture.phase("neighbour") == "Running"
    cluster_fixture.dismiss("neighbour", "offender")
    await_none(cluster_fixture)


def test_small_claims_that_came_first_leave_no_place_for_large_ones(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    """As `check` says of such a quota: of a GPU with five small ones none is left for large ones; `explain` names them."""
    quota = f"  quotas: {{{COURSE}: {{lab: {{1g.5gb: 5, 3g.20gb: %s}}}}}}\n"
    names = [f"small-{number}" for number in range(5)]
    for name in names:
        start(cluster_fixture, name, SMALL, "--mib", "1000")
    for name in ("large-0", "large-1"):
        start(cluster_fixture, name, LARGE, "--mib", "1000")
    assert finds_nothing(cluster_fixture, "large-2", LARGE)
    cluster_fixture.cluster.apply(tenant("large-2", LARGE, "--mib", "1"))
    explain = f"{sys.executable} -m gpushare explain {COURSE}/large-2"
    told = cluster_fixture.cluster.wait(
        lambda: re.findall(BESIDE, cluster_fixture.shell(explain).stdout), "explain names others"
    )
    assert {place.partition("-mig-")[2] for place, _, _ in told} == {"3g20gb-9-0", "3g20gb-9-4"}
    assert all(other.startswith("gpu-0-mig-1g5gb-19-") and pod in names for _, other, pod in told)
    cluster_fixture.dismiss("large-2")
    text = dra_intent(lab=ON_DEMAND).replace("}, gpusPerNode", ", expected: 1}, gpusPerNode")
    assert ["GS779" in checked(cluster_fixture.folder, text + quota % number) for number in (2, 3)] == [False, True]
    cluster_fixture.dismiss(*names, "large-0", "large-1")
    await_none(cluster_fixture)


def test_pool_waits_for_claims_and_changes_to_fixed_instances_and_back(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    start(cluster_fixture, "small", SMALL, "--mib", "1000")
    install(agents, cluster_fixture, FIXED)
    assert f"{COURSE}/small" in cluster_fixture.await_reason(NODE, "GPUBusy")["message"]
    assert cluster_fixture.phase("small") == "Running"
    cluster_fixture.dismiss("small")
    cluster_fixture.cluster.wait(lambda: len(instances(cluster_fixture, NODE)) == 4, "the fixed instances are made")
    cluster_fixture.await_offer(NODE, "lab")
    assert {one["attributes"]["uuid"]["string"] for one in agents.devices(NODE).values()} == instances(cluster_fixture, NODE)
    start(cluster_fixture, "large", LARGE, "--mib", "19000")
    install(agents, cluster_fixture, ON_DEMAND)
    cluster_fixture.cluster.wait(lambda: len(instances(cluster_fixture, NODE)) == 1, "instances without a claim have gone")
    assert used_mib(cluster_fixture) == [19000]
    cluster_fixture.dismiss("large")
    cluster_fixture.cluster.wait(lambda: not instances(cluster_fixture, NODE), "the last fixed instance has gone")
    cluster_fixture.await_offer(NODE, "lab")
    # The node was Ready before the last instance went; the driver publishes its places after that.
    cluster_fixture.cluster.wait(
        lambda: all("uuid" not in one["attributes"] for one in agents.devices(NODE).values()), "the driver offers places alone"
    )
    assert [places(agents).count(profile) for profile in ("1g.5gb", "3g.20gb")] == [14, 4]


def test_uninstallation_gives_whole_gpus_back_to_the_plugin(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    start(cluster_fixture, "small", SMALL, "--mib", "1000")
    cluster_fixture.dismiss("small")
    cluster_fixture.release.uninstall()
    cluster_fixture.cluster.wait(
        lambda: cluster_fixture.offer(NODE) == {"nvidia.com/gpu": 2}, "the device plugin serves the node"
    )
    assert not agents.slices(NODE)
    assert [cluster_fixture.fake_nvml(NODE).mode(gpu) for gpu in (0, 1)] == [(False, False)] * 2
