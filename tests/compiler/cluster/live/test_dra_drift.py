"""Pools of NVIDIA's DRA driver in `drift`: classes, templates, policies and slices that differ from the bundle."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compiler.cluster.live.clusters import LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.compiler.cluster.live.dra_cluster import (
    LARGE,
    NOTEBOOKS,
    VALIDATING,
    device,
    replace_slice,
)
from tests.support.fake_api.server import ApiServer


def test_an_installed_bundle_of_dra_has_no_drift(dra: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    done = ask("drift", dra.write(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "no difference\n", "")


def edit_template(change: Callable[[dict[str, Any]], object]) -> Callable[[ApiServer], object]:
    def edit(api: ApiServer) -> None:
        name = "gpushare-notebooks.large"
        api.edit("resourceclaimtemplates", name, lambda one: change(one["spec"]["spec"]["devices"]), namespace="team")

    return edit


def test_what_the_server_writes_otherwise_is_no_difference(dra: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    def change(devices: dict[str, Any]) -> None:
        asked = devices["requests"][0]["exactly"]
        asked.update(allocationMode="ExactCount", count=1, capacity={"requests": {"memory": "7.5Gi"}})

    def add_defaults(policy: dict[str, Any]) -> None:
        constraints = policy["spec"]["matchConstraints"]
        constraints.update(matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
        constraints["resourceRules"][0]["scope"] = "*"

    def add_bound_defaults(binding: dict[str, Any]) -> None:
        binding["spec"]["matchResources"].update(matchPolicy="Equivalent", objectSelector={})

    edit_template(change)(dra.api)
    dra.api.edit("validatingadmissionpolicybindings", "gpushare-claims", add_bound_defaults)
    dra.api.edit(VALIDATING, "gpushare-claims", add_defaults)
    assert ask("drift", dra.write(tmp_path)).stdout == "no difference\n"


EDITED: list[tuple[Callable[[ApiServer], object], str, str, str]] = [
    (lambda api: api.remove("deviceclasses", NOTEBOOKS), "object", f"DeviceClass {NOTEBOOKS}", "missing"),
    (
        lambda api: api.edit("deviceclasses", LARGE, lambda one: one["spec"].pop("extendedResourceName")),
        "object",
        f"DeviceClass {LARGE}",
        "extendedResourceName: none",
    ),
    (
        lambda api: api.edit("deviceclasses", LARGE, lambda one: one["spec"].update(config=[{"opaque": {}}])),
        "object",
        f"DeviceClass {LARGE}",
        "config: [{'opaque': {}}]",
    ),
    (
        lambda api: api.add("deviceclasses", "x", {"metadata": {"labels": {"app.kubernetes.io/name": "gpushare"}}, "spec": {}}),
        "object",
        "DeviceClass x",
        "present",
    ),
    (
        edit_template(lambda one: one["requests"][0]["exactly"]["capacity"]["requests"].update(memory="15Gi")),
        "object",
        "ResourceClaimTemplate team/gpushare-notebooks.large",
        "devices.requests.0.exactly.capacity.requests.memory: 15Gi",
    ),
    (
        edit_template(lambda one: one["requests"][0]["exactly"].update(count=2)),
        "object",
        "ResourceClaimTemplate team/gpushare-notebooks.large",
        "devices.requests.0.exactly.count: 2",
    ),
    (lambda api: replace_slice(api, [device("gpu-0")]), "slices", "node t4-2", f"{NOTEBOOKS}: 1 instead of 2"),
    (
        lambda api: api.edit(
            VALIDATING, "gpushare-slices", lambda one: one["spec"]["validations"][0].update(expression="true")
        ),
        "object",
        "ValidatingAdmissionPolicy gpushare-slices",
        "other validations.0.expression",
    ),
    (
        lambda api: api.edit(
            "validatingadmissionpolicybindings", "gpushare-claims", lambda one: one["spec"].update(validationActions=["Audit"])
        ),
        "object",
        "ValidatingAdmissionPolicyBinding gpushare-claims",
        "Audit",
    ),
    (
        lambda api: api.edit(
            "validatingadmissionpolicybindings",
            "gpushare-claims",
            lambda one: one["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"][0]["values"].append("team"),
        ),
        "object",
        "ValidatingAdmissionPolicyBinding gpushare-claims",
        "other matchResources.namespaceSelector.matchExpressions.0.values",
    ),
    (
        lambda api: api.edit(
            "mutatingadmissionpolicybindings", "gpushare-pool-of-claims", lambda one: one["spec"].update(policyName="other")
        ),
        "object",
        "MutatingAdmissionPolicyBinding gpushare-pool-of-claims",
        "other policyName",
    ),
    (
        lambda api: api.remove("mutatingadmissionpolicybindings", "gpushare-pool-of-claims"),
        "object",
        "MutatingAdmissionPolicyBinding gpushare-pool-of-claims",
        "missing",
    ),
    (
        lambda api: api.edit("nodes", "t4-2", lambda one: one["metadata"]["labels"].update({"gpushare.dev/backend": "none"})),
        "node",
        "node t4-2, label gpushare.dev/backend",
        "none",
    ),
]


@pytest.mark.parametrize(("change", "kind", "subject", "actual"), EDITED, ids=[f"{one[2]} {one[3]}" for one in EDITED])
def test_edited_objects_and_slices_are_differences(  # noqa: PLR0917 - fixtures, and the columns of a table
    dra: LiveCluster,
    ask: Ask,
    tmp_path: Path,
    change: Callable[[ApiServer], object],
    kind: str,
    subject: str,
    actual: str,
) -> None:
    change(dra.api)
    done = ask("drift", dra.write(tmp_path), "--format", "json")
    found = [(one["kind"], one["subject"], one["actual"]) for one in json.loads(done.stdout)["differences"]]
    assert (done.returncode, found) == (3, [(kind, subject, actual)])
