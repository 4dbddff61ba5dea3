"""Helm upgrades pools of DRA: templates, whose specification is immutable, are made again; a class without a pool stays."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster.bundles import NAMESPACE, compiled, namespace
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.release import Release
from tests.e2e.cluster.test_dra_admission import asked, claim, in_template, make
from tests.support import helm

COURSE = "course"
INTENT = """\
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: changed}
spec:
  kubernetes: "1.36"
  platform:
    image: {repository: gpushare-test/node-runtime}
    backend: dra
    dra: {}
  pools:
    notebooks:
      card: t4
      nodes: {matchLabels: {example.org/gpu: t4}}
      gpusPerNode: 2
      sharing: {mode: time-slicing, replicas: REPLICAS}
      namespaces: [course]
"""
TRAINING = """\
    training:
      card: a100-sxm4-40gb
      nodes: {matchLabels: {example.org/gpu: sxm}}
      gpusPerNode: 2
      sharing: {mode: mig, layout: {3g.20gb: 2}}
      namespaces: [course]
"""
SHARE, INSTANCE = "gpushare-notebooks.share", "gpushare-training.3g.20gb"


def memory(cluster: Cluster) -> dict[str, Any]:
    """What each template of the release asks of a GPU's memory."""
    found = cluster.get("resourceclaimtemplates", "--namespace", COURSE)["items"]
    asked = {one["metadata"]["name"]: one["spec"]["spec"]["devices"]["requests"][0]["exactly"] for one in found}
    return {name: one.get("capacity", {}).get("requests", {}).get("memory") for name, one in asked.items()}


@pytest.fixture(scope="module")
def person(api: Cluster) -> Iterator[tuple[str, str]]:
    """What has Helm act for someone who is exempt from no policy, and the namespaces."""
    for name in (NAMESPACE, COURSE):
        namespace(api, name)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "installs"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": "alice"}],
    }
    api.apply(binding)
    yield "--kube-as-user", "alice"
    api.kubectl("delete", "clusterrolebinding", "installs")


@pytest.mark.parametrize("major", helm.MAJORS)
def test_upgrade_and_rollback_make_the_templates_of_the_bundle(
    major: int, api: Cluster, person: tuple[str, str], tmp_path: Path
) -> None:
    release = Release(api, major)
    before = compiled(INTENT.replace("REPLICAS", "4"), tmp_path)
    try:
        release.install(before, *person)
        assert memory(api) == {SHARE: "3840Mi"}
        doomed = in_template(claim("mine", asked("gpushare-training"), where=COURSE))
        api.wait(lambda: make(api, doomed).refusal, "the former policy is in force")
        after = compiled(INTENT.replace("REPLICAS", "2") + TRAINING, tmp_path)
        release.install(after, *person)
        assert memory(api) == {SHARE: "7680Mi", INSTANCE: None}
        release.rollback(*person)
        assert memory(api)[SHARE] == "3840Mi"
    finally:
        release.remove()


ON_DRA = INTENT.replace("{mode: time-slicing, replicas: REPLICAS}", "{mode: exclusive}\n      requests: limits")
BACK = ON_DRA.replace("    backend: dra\n    dra: {}\n", "").replace("      requests: limits\n", "")
OTHER = BACK.replace("notebooks", "lectures")


def classes(cluster: Cluster) -> dict[str, tuple[str, Any]]:
    """The uid of each class of ours, and what it has."""
    found = cluster.get("deviceclasses", "--selector", "app.kubernetes.io/name=gpushare")["items"]
    return {one["metadata"]["name"]: (one["metadata"]["uid"], one["spec"]) for one in found}


@pytest.mark.parametrize("major", helm.MAJORS)
def test_classes_stay_the_same_objects_until_the_uninstallation(
    major: int, api: Cluster, person: tuple[str, str], tmp_path: Path
) -> None:
    """A pool goes back to the device plugin, is removed, and returns; its class is never another, which would lose its name."""
    release = Release(api, major)
    try:
        release.install(compiled(ON_DRA, tmp_path), *person)
        first = classes(api)
        [(_, spec)] = first.values()
        assert spec["extendedResourceName"] == "nvidia.com/gpu"
        for text in (BACK, OTHER, ON_DRA):
            release.install(compiled(text, tmp_path), *person)
            assert classes(api) == first
            if text is not ON_DRA:
                # What claims may ask is still judged: this one takes a whole class of NVIDIA's own.
                doomed = claim("gpushare-notebooks.mine", asked("gpu.nvidia.com"), where=COURSE)
                api.wait(lambda item=doomed: make(api, item).refusal, "the policy on claims is in force")
                granted = claim("gpushare-notebooks.mine", asked("gpushare-notebooks"), where=COURSE)
                api.wait(lambda item=granted: not make(api, item).refusal, "the class is one of the policy's")
        release.rollback(*person)
        assert classes(api) == first
    finally:
        release.remove()
    assert classes(api) == {}
