"""A bundle half-way to DRA: a pool that NVIDIA's driver serves beside one of the device plugin, both installed from charts."""

from typing import Any

import yaml

from tests.e2e.cluster.cluster_fixture import COURSE, NOTEBOOKS
from tests.e2e.cluster.dra.agents import DRIVER_SPACE
from tests.e2e.gitops.synced import SyncedCluster
from tests.support.paths import ROOT

DRIVER, PLUGIN = "tests-gpus-dra-driver-nvidia-gpu", "tests-gpus-nvidia-device-plugin"
INSTANCE, TEMPLATE = "nvidia.com/mig-3g.20gb", "gpushare-training.3g.20gb"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{COURSE}/resourceclaims"
TEMPLATES = f"/apis/resource.k8s.io/v1/namespaces/{COURSE}/resourceclaimtemplates"

_EXAMPLE = yaml.safe_load((ROOT / "examples/21-dra-half-way/intent.yaml").read_text())["spec"]["pools"]["training"]


def commit(synced: SyncedCluster, *, notebooks: str = NOTEBOOKS, backend: str = "dra") -> str:
    """Commit the bundle of the example's `training`, and of a pool that stays: the cluster has no MPS for the example's."""
    taken = {key: _EXAMPLE[key] for key in ("card", "sharing", *(["requests"] if backend == "dra" else []))}
    fields = yaml.safe_dump(taken, default_flow_style=True, width=1000).strip().removeprefix("{").removesuffix("}")
    training = f"{fields}, backend: {backend}, namespaces: [{COURSE}]"
    text = synced.intent(notebooks=f"{notebooks}, namespaces: [{COURSE}]", training=training)
    dra = ", dra: {via: chart}" if backend == "dra" else ""
    platform = f"stack: device-plugin, values: {{runtimeClassName: nvidia}}{dra}, "
    assert text.count("  platform: {") == 1
    return synced.commit_intent(text.replace("  platform: {", f"  platform: {{{platform}") + '  kubernetes: "1.36"\n')


def uids(synced: SyncedCluster, path: str) -> dict[str, str]:
    """Of the objects there, by name."""
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in synced.cluster.read(path)["items"]}


def drivers(synced: SyncedCluster) -> list[dict[str, Any]]:
    """The driver's DaemonSet, if it is installed."""
    return list(synced.cluster.read(f"/apis/apps/v1/namespaces/{DRIVER_SPACE}/daemonsets")["items"])


def left(synced: SyncedCluster) -> list[str]:
    """The names of classes, templates and claims."""
    found = synced.cluster.get("deviceclasses,resourceclaimtemplates,resourceclaims", "--all-namespaces")["items"]
    return [one["metadata"]["name"] for one in found]
