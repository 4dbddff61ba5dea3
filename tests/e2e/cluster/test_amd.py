"""A cluster with a node of each vendor: installed, each pool changed under tenants, a GPU that fails, removed.

AMD's programs are doubles, as NVIDIA's are.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster.amd_node import CONFIGS, INSIDE, AmdGpus, with_amds_gpus
from tests.e2e.cluster.cluster_fixture import A100, COURSE, KEPT, ClusterFixture, intent
from tests.e2e.cluster.images import PAUSE

AMDS, NVIDIAS = "node-1", "node-2"
SEVENS, HALVES = "1g.5gb: 7", "3g.20gb: 2"
SEVENTH, HALF = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"


def install(cluster_fixture: ClusterFixture, gpus: AmdGpus, modes: str, layout: str) -> None:
    """The bundle of both pools, whose chart mounts the made-up sysfs. `modes` as `CPX/NPS4`."""
    compute, memory = modes.split("/")
    amd = f"card: mi300x, sharing: {{mode: partition, compute: {compute}, memory: {memory}, strategy: single}}"
    nvidia = f"card: a100-sxm4-40gb, sharing: {{mode: mig, layout: {{{layout}}}}}, enforcement: {{grace: 2s}}"
    bundle = cluster_fixture.compile(intent(amd=amd, nvidia=nvidia) + "  platform: {amd: {stack: amd-gpu-operator}}\n")
    pods = bundle / "chart/templates/_pod.tpl"
    before, mounted, after = pods.read_text().partition("    path: {{ $path | quote }}\n")
    assert mounted
    pods.write_text(f"{before}    path: {INSIDE}\n{after}")
    config = json.loads((bundle / "chart/files/amd/config.json").read_text())
    gpus.manager.profiles = {name: modes_of(profile) for name, profile in config["gpu-config-profiles"].items()}
    cluster_fixture.release.install(bundle)


def modes_of(profile: dict[str, Any]) -> list[tuple[str, str]]:
    """The modes of every GPU in a profile of the config manager."""
    entries = profile["profiles"]
    return [(one["computePartition"], one["memoryPartition"]) for one in entries for _ in range(one["numGPUsAssigned"])]


@pytest.fixture(scope="module")
def gpus(cluster_fixture: ClusterFixture) -> Iterator[AmdGpus]:
    for name in (AMDS, NVIDIAS):  # GPUs of an earlier file may still be in MIG mode
        cluster_fixture.equip(name, A100)
    with with_amds_gpus(cluster_fixture, AMDS, "single") as made:
        cluster_fixture.choose(node_1="amd", node_2="nvidia")
        install(cluster_fixture, made, "CPX/NPS4", SEVENS)
        yield made


def sleeper(cluster_fixture: ClusterFixture, name: str, node: str, resource: str) -> None:
    """A pod that has a device and does nothing with it."""
    container = {"name": "work", "image": PAUSE, "imagePullPolicy": "Never", "resources": {"limits": {resource: 1}}}
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container], "terminationGracePeriodSeconds": 1}
    metadata = {"name": name, "namespace": COURSE}
    cluster_fixture.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster_fixture.cluster.wait(lambda: cluster_fixture.phase(name) == "Running", f"{name} runs")


def change_under_tenants(
    cluster_fixture: ClusterFixture, gpus: AmdGpus, desired: tuple[str, str], node: str, offer: dict[str, int]
) -> None:
    """Install what changes this node, from which its tenant is dismissed then; nothing happens to the other one."""
    other = NVIDIAS if node == AMDS else AMDS
    before = cluster_fixture.offer(node)
    settled = cluster_fixture.condition(other), cluster_fixture.offer(other)
    install(cluster_fixture, gpus, *desired)
    assert f"{COURSE}/on-{node}" in cluster_fixture.await_reason(node, "GPUBusy")["message"]
    assert cluster_fixture.offer(node) == before
    cluster_fixture.dismiss(f"on-{node}")
    cluster_fixture.cluster.wait(lambda: cluster_fixture.offer(node) == offer, f"{node} offers {offer}")
    cluster_fixture.await_reason(node, "Ready")
    cluster_fixture.cluster.wait(lambda: not cluster_fixture.taints(node), f"{node} has no taint")
    assert (cluster_fixture.condition(other)["lastTransitionTime"], cluster_fixture.offer(other)) == (
        settled[0]["lastTransitionTime"],
        settled[1],
    )
    assert (cluster_fixture.phase(f"on-{other}"), cluster_fixture.taints(other)) == ("Running", set())


def test_both_nodes_are_divided_and_offer_every_part(cluster_fixture: ClusterFixture, gpus: AmdGpus) -> None:
    cluster_fixture.await_offer(AMDS, "amd")
    cluster_fixture.await_offer(NVIDIAS, "nvidia")
    assert (cluster_fixture.offer(AMDS), cluster_fixture.offer(NVIDIAS)) == ({"amd.com/gpu": 16}, {SEVENTH: 14})
    assert [(gpu.compute, gpu.memory) for gpu in gpus.sysfs.gpus] == [("CPX", "NPS4")] * 2


def test_change_of_either_pool_waits_for_its_tenant_alone(cluster_fixture: ClusterFixture, gpus: AmdGpus) -> None:
    sleeper(cluster_fixture, f"on-{AMDS}", AMDS, "amd.com/gpu")
    sleeper(cluster_fixture, f"on-{NVIDIAS}", NVIDIAS, SEVENTH)
    change_under_tenants(cluster_fixture, gpus, ("DPX/NPS2", SEVENS), AMDS, {"amd.com/gpu": 4})
    sleeper(cluster_fixture, f"on-{AMDS}", AMDS, "amd.com/gpu")
    change_under_tenants(cluster_fixture, gpus, ("DPX/NPS2", HALVES), NVIDIAS, {HALF: 4})
    cluster_fixture.dismiss(f"on-{AMDS}")


def test_gpu_that_fails_is_reported_in_the_managers_words(cluster_fixture: ClusterFixture, gpus: AmdGpus) -> None:
    gpus.sysfs.gpus[1].refuses = "AMDSMI_STATUS_AMDGPU_RESTART_ERR"
    install(cluster_fixture, gpus, "CPX/NPS4", HALVES)
    said = cluster_fixture.await_reason(AMDS, "ConfigManagerFailed")
    assert "GPU 1: Partition failed with reason: AMDSMI_STATUS_AMDGPU_RESTART_ERR" in said["message"]
    assert "amd-dcm" in cluster_fixture.taints(AMDS)
    gpus.sysfs.gpus[1].refuses = ""
    cluster_fixture.cluster.kubectl("annotate", "node", AMDS, "gpushare.dev/retry=now")
    cluster_fixture.await_offer(AMDS, "amd")
    assert cluster_fixture.offer(AMDS) == {"amd.com/gpu": 16}


def test_uninstallation_leaves_the_modes_of_amds_gpus_and_nothing_else(cluster_fixture: ClusterFixture, gpus: AmdGpus) -> None:
    cluster_fixture.release.uninstall()
    cluster_fixture.await_no_trace(KEPT)
    assert cluster_fixture.cluster.read(CONFIGS)["items"] == []
    assert [gpu.compute for gpu in gpus.sysfs.gpus] == ["CPX", "CPX"]
