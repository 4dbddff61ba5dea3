"""Pools of the DRA driver for the first Kubernetes that has it, on any API server since: whole GPUs and fixed MIG."""

from pathlib import Path

import pytest

from tests.e2e.cluster.bundles import NAMESPACE, compiled, namespace
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.release import Release
from tests.e2e.cluster.test_dra_admission import asked, claim, make
from tests.support import helm

INTENT = """
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: oldest}
spec:
  kubernetes: "1.34"
  platform:
    stack: device-plugin
    backend: dra
    dra: {}
  pools:
    hpc:
      card: a100-pcie-40gb
      nodes: {matchLabels: {example.org/gpu: a100}}
      gpusPerNode: 2
      sharing: {mode: exclusive}
    training:
      card: a100-sxm4-40gb
      nodes: {matchLabels: {example.org/gpu: sxm}}
      gpusPerNode: 2
      sharing: {mode: mig, layout: {3g.20gb: 1, 1g.5gb+me: 1, 1g.5gb: 3}}
  quotas:
    team-b: {hpc: 2, training: {1g.5gb+me: 1}}
"""


@pytest.mark.parametrize("major", helm.MAJORS)
def test_pools_without_shares_install_and_their_claims_are_judged(major: int, api: Cluster, tmp_path: Path) -> None:
    bundle = compiled(INTENT, tmp_path)
    for name in (NAMESPACE, "team-b"):
        namespace(api, name)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "everything", "namespace": "team-b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": "alice"}],
    }
    api.apply(binding)
    release = Release(api, major)
    try:
        release.install(bundle)
        release.install(bundle)
        doomed = claim("gpushare-hpc.a", asked("gpu.nvidia.com"), where="team-b")
        api.wait(lambda: "not all are those of a pool" in make(api, doomed).refusal, "the policy on claims is in force")
        whole = claim("gpushare-hpc.a", asked("gpushare-hpc", count=2), where="team-b")
        instance = claim("gpushare-training.a", asked("gpushare-training-1g-5gb-me"), where="team-b")
        assert [make(api, item).refusal for item in (whole, instance)] == ["", ""]
        every = claim("gpushare-hpc.a", asked("gpushare-hpc", allocationMode="All"), where="team-b")
        assert "nor allocationMode All" in make(api, every).refusal
    finally:
        release.remove()
        api.kubectl("delete", "rolebinding", "everything", "--namespace", "team-b")
        api.kubectl("delete", "resourceclaimtemplates", "--all-namespaces", "--selector", "app.kubernetes.io/name=gpushare")
