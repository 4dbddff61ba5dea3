"""Helm makes claim templates of DRA again, while the former policy is in force: their specification is immutable."""

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


@pytest.mark.parametrize("major", helm.MAJORS)
def test_upgrade_and_rollback_make_the_templates_of_the_bundle(major: int, api: Cluster, tmp_path: Path) -> None:
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
    release, person = Release(api, major), ("--kube-as-user", "alice")
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
        api.kubectl("delete", "clusterrolebinding", "installs")
