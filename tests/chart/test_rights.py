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
from tests.chart.test_compiled import INTENTS, written
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
