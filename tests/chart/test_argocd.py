"""The chart with `uninstall.hook: argocd`: what Argo CD creates after it has deleted everything else."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.chart.bundles import EXISTING, MODES, Bundle, bundle, pool

HOOK = "argocd.argoproj.io/hook"


def for_argocd(each: Bundle, **values: Any) -> Bundle:
    """The same chart, with Argo CD's hook."""
    changed = copy.deepcopy(each.values) | values
    changed["uninstall"] = changed["uninstall"] | {"hook": "argocd"}
    return Bundle(name=f"{each.name}-argocd", values=changed, files=each.files)


@pytest.fixture
def hooks(render: Callable[[Bundle, int], str]) -> Callable[..., dict[str, Any]]:
    """The hooks of a chart for Argo CD by kind; no other object has a name of theirs, and Helm's only hooks are tests."""

    def get(each: Bundle, major: int) -> dict[str, Any]:
        items = [item for item in yaml.safe_load_all(render(each, major)) if item]
        found = {item["kind"]: item for item in items if HOOK in item["metadata"].get("annotations", {})}
        others = [item for item in items if item not in found.values()]
        assert {item["metadata"]["name"] for item in found.values()} <= {"gpushare-uninstall"}
        assert not [item for item in others if item["metadata"]["name"] == "gpushare-uninstall"]
        assert {
            item["metadata"]["annotations"].get("helm.sh/hook", "test") for item in others if "annotations" in item["metadata"]
        } <= {"test"}
        for item in found.values():
            assert item["metadata"]["annotations"] == {HOOK: "PostDelete", f"{HOOK}-delete-policy": "HookSucceeded"}
        return found

    return get


@pytest.mark.parametrize("major", [3, 4])
def test_release_daemonset_covers_every_pool_node_and_has_its_own_rbac(hooks, major: int) -> None:
    found = hooks(for_argocd(MODES), major)
    # Argo CD does not find a cluster-scoped hook again: it would create it forever.
    assert found.keys() == {"ServiceAccount", "Role", "RoleBinding", "ResourceQuota", "DaemonSet"}
    spec = found["DaemonSet"]["spec"]
    # No pod of it ever counts as available, so it is healthy only when no node is left.
    assert spec["minReadySeconds"] == 2**31 - 1
    assert spec["updateStrategy"]["type"] == "RollingUpdate"
    pod = spec["template"]["spec"]
    assert pod["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert pod["containers"][0]["command"] == ["gpushare-node", "release"]
    [term] = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": "gpushare.dev/pool", "operator": "Exists"} in term["matchExpressions"]


def test_no_hook_without_nodes_to_release(hooks) -> None:
    assert hooks(for_argocd(EXISTING), 4) == {}
    kept = bundle("kept-argocd", {"only": pool("exclusive")}, uninstall={"release": False, "timeout": "3m", "goOn": False})
    assert hooks(for_argocd(kept), 4) == {}


def test_observing_bundle_has_a_cleanup_job(hooks) -> None:
    policies = {"only": "spec: {adoption: observe}\n"}
    each = bundle("observed-argocd", {"only": pool("exclusive")}, policies=policies, adoption="observe")
    found = hooks(for_argocd(each), 4)
    assert found.keys() == {"ServiceAccount", "Role", "RoleBinding", "Job"}
    assert "--observed" in found["Job"]["spec"]["template"]["spec"]["containers"][0]["command"]


def test_unknown_gitops_hook_is_refused(chart_of, run_helm) -> None:
    chart = chart_of(bundle("flux-hook", {"only": pool("exclusive")}))
    for major in (3, 4):
        done = run_helm(major, "template", "gpushare", chart, "--set", "uninstall.hook=flux", check=False)
        assert done.returncode
        assert "hook" in done.stderr


def test_release_daemonset_has_the_runtimes_permissions_on_slots(render, hooks) -> None:
    each = for_argocd(MODES)
    roles = [item for item in yaml.safe_load_all(render(each, 4)) if item and item["kind"] == "Role"]
    [own] = [item for item in roles if item["metadata"]["name"] == "gpushare-node"]

    def slots(role: dict[str, Any]) -> list[Any]:
        return [rule for rule in role["rules"] if "leases" in rule["resources"]]

    assert slots(hooks(each, 4)["Role"]) == slots(own) != []
