"""Admission with scope `cluster`, on a real API server: everybody is judged, and not everybody may exempt a namespace."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.cluster.bundles import admitting
from tests.e2e.cluster.bypasses import DEVICES
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.common_agents import AGENTS, WORK
from tests.e2e.cluster.control_plane import OPERATOR
from tests.e2e.cluster.pods import Object, refusal
from tests.e2e.cluster.test_admission import INTENT, moved

PLATFORM = "[gpu-operator, nvidia, monitoring, cilium, calico-system, rook-ceph, logging, falco]"
WIDE = INTENT.replace("{localhostProfiles: [listed]}", "{scope: cluster, localhostProfiles: [site]}").replace(
    "[storage]", PLATFORM
)


@pytest.fixture(scope="module")
def policies(api: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with admitting(api, WIDE, tmp_path_factory.mktemp("wide")):
        yield api


@pytest.mark.parametrize("case", DEVICES)
def test_pod_reaching_devices_is_refused_in_every_namespace(case: str, policies: Cluster) -> None:
    item, told = DEVICES[case]
    assert told in refusal(policies, moved(item, "strangers"))


@pytest.mark.parametrize("case", [*AGENTS, *WORK])
def test_agents_in_platform_namespaces_are_admitted(case: str, policies: Cluster) -> None:
    item = {**AGENTS, **WORK}[case]
    if case == "kubectl debug node":  # of namespace default, which the intent does not name
        assert "a folder of the host" in refusal(policies, item)
    else:
        assert refusal(policies, item) == ""


def test_namespace_exemption_needs_permission(policies: Cluster) -> None:
    rules = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create", "get", "patch", "update"]}]
    grant(policies, rules)
    policies.wait(lambda: labelled(policies, "example.org/a") == "", "operators may make namespaces")
    told = "operator may not label namespace exempted"
    policies.wait(lambda: told in labelled(policies), "the policy on exemptions is in force")
    grant(policies, [*rules, {"apiGroups": ["gpushare.dev"], "resources": ["exemptions"], "verbs": ["create"]}])
    policies.wait(lambda: labelled(policies) == "", "the right is there")
    policies.kubectl("delete", "clusterrole,clusterrolebinding", "operators")


def test_a_namespace_that_is_exempt_can_still_be_changed(policies: Cluster) -> None:
    grant(policies, [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "patch"]}])
    change = ("label", "namespace", "agents", "example.org/a=b", "--overwrite", "--dry-run=server", "--token", OPERATOR)
    policies.wait(lambda: policies.try_kubectl(*change).returncode == 0, "its other labels are free")
    policies.kubectl("delete", "clusterrole,clusterrolebinding", "operators")


def grant(cluster: Cluster, rules: list[Object]) -> None:
    """Give group `operators` these rights."""
    group = "rbac.authorization.k8s.io"
    subject = {"apiGroup": group, "kind": "Group", "name": "operators"}
    cluster.apply(
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "operators"}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "operators"},
            "subjects": [subject],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "operators"},
        },
    )


def labelled(cluster: Cluster, label: str = "gpushare.dev/admission") -> str:
    """What the API server says when an operator makes a namespace with the label."""
    body = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "exempted", "labels": {label: "exempt"}}})
    return cluster.control_plane.request("POST", "/api/v1/namespaces?dryRun=All", body, "application/json", OPERATOR).complaint
