"""The rights of a bundle's identities: each write that RBAC grants is also held by an admission policy for that account."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from tests.chart.reading import Object, documents
from tests.chart.test_compiled import INTENTS, intent, written
from tests.support import scale

OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
READS = {"get", "list", "watch"}
TOOLS = ("helm", "argocd")
SMALL = [name for name in INTENTS if name not in {"fifty", "vgpu-alone"}]
"""Pools of virtual machines have no node runtime."""

ACCOUNTS = re.compile(r"request\.userInfo\.username (?:==|in) \[?([^]]+)\]?")

Write = tuple[str, str, str]
"""Account, resource and operation."""


def in_force(name: str, tool: str, folder: Path, run_helm: Any) -> Iterator[Object]:
    """Yield the objects of the chart as this tool installs it, and what it keeps beside the chart."""
    compilation = pipeline.compile_intent(INTENTS[name], name, lock.EMPTY)
    assert compilation.plan is not None
    namespace = compilation.plan.intent.namespace
    options = ("--namespace", namespace, "--set", f"uninstall.hook={tool}")
    yield from documents(run_helm(3, "template", "gpushare", written(compilation, folder), *options).stdout)
    for artifact in compilation.artifacts:
        if tool == "argocd" and artifact.path.startswith("argocd/rights/"):
            yield yaml.safe_load(artifact.text)


def granted(objects: list[Object]) -> Iterator[Write]:
    """Yield what a role lets an account write."""
    roles = {(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]): one for one in objects if "rules" in one}
    for binding in objects:
        if binding["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        of_role = binding["roleRef"]
        where = binding["metadata"].get("namespace") if of_role["kind"] == "Role" else None
        for rule in roles[of_role["kind"], where, of_role["name"]]["rules"]:
            for verb in set(rule["verbs"]) - READS:
                for subject in binding["subjects"]:
                    account = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
                    yield from ((account, resource, OPERATIONS[verb]) for resource in rule["resources"])


def held(objects: list[Object]) -> Iterator[Write]:
    """Yield what a policy judges that denies, of the accounts that its only condition names."""
    denying = {
        one["spec"]["policyName"]
        for one in objects
        if one["kind"] == "ValidatingAdmissionPolicyBinding"
        and one["spec"]["validationActions"] == ["Deny"]
        and "matchResources" not in one["spec"]
    }
    for policy in objects:
        if policy["kind"] != "ValidatingAdmissionPolicy" or policy["metadata"]["name"] not in denying:
            continue
        spec = policy["spec"]
        conditions = [one["expression"] for one in spec.get("matchConditions", ())]
        if len(conditions) != 1 or not (found := ACCOUNTS.fullmatch(conditions[0])):
            continue
        assert spec["failurePolicy"] == "Fail"
        for account in found[1].split(", "):
            for rule in spec["matchConstraints"]["resourceRules"]:
                for operation in rule["operations"]:
                    yield from ((account.strip("'"), resource, operation) for resource in rule["resources"])


@pytest.mark.parametrize("name", scale.part(SMALL, 8))
@pytest.mark.parametrize("tool", TOOLS)
def test_every_write_is_held_by_a_policy_for_its_account(tool: str, name: str, run_helm, tmp_path) -> None:
    objects = list(in_force(name, tool, tmp_path, run_helm))
    writes = set(granted(objects))
    assert writes, "a runtime writes its condition at the least"
    # What releases nodes under Argo CD has a policy beside the chart only where the intent names Argo CD.
    if tool == "argocd" and "argocd" not in INTENTS[name].decode():
        writes = {one for one in writes if not one[0].endswith(":gpushare-uninstall")}
    assert writes - set(held(objects)) == set()


def test_argo_cds_rights_are_held_without_the_chart(run_helm, tmp_path) -> None:
    """It deletes the chart before it runs what releases the nodes."""
    objects = list(in_force("15-argocd", "argocd", tmp_path, run_helm))
    beside = [one for one in objects if one["metadata"]["name"] == "gpushare-fence-uninstall"]
    writes = {one for one in granted(objects) if one[0].endswith(":gpushare-uninstall")}
    assert {resource for _, resource, _ in writes} == {"nodes", "nodes/status", "events", "pods", "leases"}
    assert writes - set(held(beside)) == set()


@pytest.mark.parametrize("name", ["02-t4-notebooks", "20-dra", "15-argocd"])
def test_nothing_may_be_done_with_secrets_or_rights(name: str, run_helm, tmp_path) -> None:
    for tool in TOOLS:
        for role in in_force(name, tool, tmp_path / tool, run_helm):
            for rule in role.get("rules", ()):
                assert not {"*", "secrets", "configmaps", "serviceaccounts", "clusterroles", "roles"} & set(rule["resources"])
                assert not {"*", "escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])


def containers(pod: Object) -> Iterator[Object]:
    yield from [*pod.get("initContainers", []), *pod["containers"]]


def pods(objects: list[Object]) -> Iterator[Object]:
    for one in objects:
        if one["kind"] in {"DaemonSet", "Job"}:
            yield one["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", scale.part(SMALL, 8))
def test_no_container_sees_the_volumes_of_pods(name: str, run_helm, tmp_path) -> None:
    """Their Secrets are there: whoever mounts a folder above covers it."""
    covered = 0
    for tool in TOOLS:
        objects = list(in_force(name, tool, tmp_path / tool, run_helm))
        for pod in pods(objects):
            volumes = {one["name"]: one for one in pod.get("volumes", ())}
            for container in containers(pod):
                mounts = container.get("volumeMounts", ())
                empty = {one["mountPath"] for one in mounts if "emptyDir" in volumes[one["name"]]}
                for mount in mounts:
                    path = Path(volumes[mount["name"]].get("hostPath", {}).get("path", "/none"))
                    root = Path("/var/lib/k0s/kubelet" if name == "k0s" else "/var/lib/kubelet")
                    assert path not in {root / "pods", root / "pki"}
                    if root.is_relative_to(path):
                        inside = Path(mount["mountPath"]) / (root / "pods").relative_to(path)
                        assert str(inside) in empty
                        covered += 1
    assert covered


def test_kubelets_folder_without_pods_is_not_covered(run_helm, tmp_path) -> None:
    """A mount on a folder that is not there, in one that is read-only, would keep the container from starting."""
    compilation = pipeline.compile_intent(INTENTS["one"], "one", lock.EMPTY)
    chart = written(compilation, tmp_path)
    found = documents(
        run_helm(4, "template", "gpushare", chart, "--namespace", "gpu-system", "--set", "kubeletHasPods=false").stdout
    )
    for pod in pods(found):
        assert not [
            one for container in containers(pod) for one in container.get("volumeMounts", ()) if one["name"] == "covered"
        ]
        assert not [one for one in pod.get("volumes", ()) if one["name"] == "covered"]


@pytest.mark.parametrize("action", ["kill", "evict", "warn", "none"])
def test_only_pools_that_kill_containers_trace_processes(action: str, run_helm, tmp_path) -> None:
    pool = "{card: t4, nodes: {matchLabels: {a: b}}, gpusPerNode: 1, sharing: {mode: time-slicing, replicas: 2}"
    text = intent(f"only: {pool}, enforcement: {{action: {action}}}}}\n")
    compilation = pipeline.compile_intent(text, "only", lock.EMPTY)
    found = documents(run_helm(3, "template", "gpushare", written(compilation, tmp_path), "--namespace", "gpu-system").stdout)
    [pod] = [one["spec"]["template"]["spec"] for one in found if one["metadata"]["name"] == "gpushare-only"]
    for container in containers(pod):
        assert ("SYS_PTRACE" in container["securityContext"]["capabilities"]["add"]) == (action == "kill"), container["name"]


def test_what_observes_neither_signals_nor_traces(run_helm, tmp_path) -> None:
    objects = list(in_force("observed", "helm", tmp_path, run_helm))
    for pod in pods(objects):
        for container in containers(pod):
            assert set(container["securityContext"]["capabilities"].get("add", ())) <= {"SYS_ADMIN"}
