"""A node with AMD's GPUs: installed, changed under a tenant, with a GPU that fails, released. AMD's programs are doubles."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster.amd_node import INSIDE, AmdGpus, with_amds_gpus
from tests.e2e.cluster.cluster_fixture import COURSE, POOL, ClusterFixture
from tests.e2e.cluster.images import PAUSE
from tests.support.fake_amd.config_manager import LABEL

NODE = "node-1"
INTENT = f"""apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {{name: tests}}
spec:
  platform: {{stack: amd-gpu-operator}}
  pools:
    amd:
      card: mi300x
      nodes: {{matchLabels: {{{POOL}: amd}}}}
      gpusPerNode: 2
      sharing: {{mode: partition, compute: %s, memory: %s, strategy: single}}
"""


def install(cluster_fixture: ClusterFixture, gpus: AmdGpus, compute: str, memory: str) -> None:
    """The intent's bundle, whose chart mounts the made-up sysfs."""
    bundle = cluster_fixture.compile(INTENT % (compute, memory))
    pods = bundle / "chart/templates/_pod.tpl"
    pods.write_text(pods.read_text().replace("path: /sys\n", f"path: {INSIDE}\n"))
    config = json.loads((bundle / "chart/files/amd/config.json").read_text())
    gpus.manager.profiles = {name: modes_of(profile) for name, profile in config["gpu-config-profiles"].items()}
    cluster_fixture.release.install(bundle)


def modes_of(profile: dict[str, Any]) -> list[tuple[str, str]]:
    """The modes of every GPU in a profile of the config manager."""
    entries = profile["profiles"]
    return [(one["computePartition"], one["memoryPartition"]) for one in entries for _ in range(one["numGPUsAssigned"])]


@pytest.fixture(scope="module")
def gpus(cluster_fixture: ClusterFixture) -> Iterator[AmdGpus]:
    with with_amds_gpus(cluster_fixture, NODE, "amd", "single") as made:
        cluster_fixture.choose(node_1="amd")
        install(cluster_fixture, made, "CPX", "NPS4")
        yield made


def test_new_node_is_divided_and_offers_every_partition(cluster_fixture: ClusterFixture, gpus: AmdGpus) -> None:
    cluster_fixture.await_offer(NODE, "amd")
    assert cluster_fixture.offer(NODE) == {"amd.com/gpu": 16}
    assert [(gpu.compute, gpu.memory) for gpu in gpus.sysfs.gpus] == [("CPX", "NPS4")] * 2


def test_change_waits_for_a_tenant(cluster_fixture: ClusterFixture, gpus: AmdGpus) -> None:
    container = {"name": "work", "image": PAUSE, "imagePullPolicy": "Never", "resources": {"limits": {"amd.com/gpu": 1}}}
    spec = {"nodeSelector": {"kubernetes.io/hostname": NODE}, "containers": [container], "terminationGracePeriodSeconds": 1}
    metadata = {"name": "tenant", "namespace": COURSE}
    cluster_fixture.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster_fixture.cluster.wait(lambda: cluster_fixture.phase("tenant") == "Running", "the tenant runs")
    install(cluster_fixture, gpus, "DPX", "NPS2")
    cluster_fixture.await_reason(NODE, "GPUBusy")
    assert cluster_fixture.offer(NODE) == {"amd.com/gpu": 16}
    cluster_fixture.dismiss("tenant")
    cluster_fixture.cluster.wait(lambda: cluster_fixture.offer(NODE) == {"amd.com/gpu": 4}, "the node offers halves")
    cluster_fixture.await_offer(NODE, "amd")


def test_gpu_that_fails_is_reported_in_the_managers_words(cluster_fixture: ClusterFixture, gpus: AmdGpus) -> None:
    gpus.sysfs.gpus[1].refuses = "AMDSMI_STATUS_AMDGPU_RESTART_ERR"
    install(cluster_fixture, gpus, "CPX", "NPS4")
    said = cluster_fixture.await_reason(NODE, "ConfigManagerFailed")
    assert "GPU 1: Partition failed with reason: AMDSMI_STATUS_AMDGPU_RESTART_ERR" in said["message"]
    assert "amd-dcm" in cluster_fixture.taints(NODE)
    gpus.sysfs.gpus[1].refuses = ""
    cluster_fixture.cluster.kubectl("annotate", "node", NODE, "gpushare.dev/retry=now")
    cluster_fixture.await_offer(NODE, "amd")
    assert cluster_fixture.offer(NODE) == {"amd.com/gpu": 16}


def test_uninstallation_leaves_the_modes_and_nothing_else(cluster_fixture: ClusterFixture, gpus: AmdGpus) -> None:
    cluster_fixture.release.uninstall()
    assert cluster_fixture.taints(NODE) == set()
    assert not {name for name in cluster_fixture.labels(NODE) if name.startswith("gpushare.dev/") or name == LABEL}
    assert [gpu.compute for gpu in gpus.sysfs.gpus] == ["CPX", "CPX"]
