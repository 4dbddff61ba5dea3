"""Admission and enforcement call the same ones tenants: what a bundle writes, the schema allows, and the node runtime reads."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpushare.reading import schema
from gpushare_node.contract.strict_document import PolicyError
from gpushare_node.core import tenancy
from tests.contract.test_node_policy import VALUES, inner, places
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
VALIDATOR = jsonschema.Draft7Validator(schema.load("tenancy.v1"))
DOCUMENT = {
    "apiVersion": "gpushare.dev/v1",
    "kind": "Tenancy",
    "spec": {"scope": "tenants", "admission": "deny", "platformNamespaces": ["kube-system"], "tenantNamespaces": ["atlas"]},
}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/bundle/chart/files/tenancy.json")), ids=lambda path: path.parts[-5])
def test_tenancy_of_every_example_is_read_by_the_node_runtime(path: Path) -> None:
    values = yaml.safe_load((path.parents[1] / "values.yaml").read_text())
    VALIDATOR.validate(json.loads(path.read_text()))
    found = tenancy.read(path.read_text())
    assert found.ignored == ()
    assert found.platform == {values["namespace"], "kube-system", *values["admission"]["platformNamespaces"]}
    named = {one for pool in values["pools"].values() for one in pool["namespaces"]}
    assert found.tenant_namespaces == named | set(values["admission"]["tenants"])


@pytest.mark.parametrize("path", list(places(DOCUMENT)), ids=str)
def test_runtime_and_schema_agree_on_mutated_tenancies(path: tuple[Any, ...]) -> None:
    for value in VALUES:
        changed = copy.deepcopy(DOCUMENT)
        if path:
            inner(changed, path[:-1])[path[-1]] = value
        text = json.dumps(changed if path else value)
        if VALIDATOR.is_valid(json.loads(text)):
            tenancy.read(text)
        else:
            with pytest.raises(PolicyError):
                tenancy.read(text)


def test_fields_of_a_later_release_are_ignored_and_named() -> None:
    later = copy.deepcopy(DOCUMENT)
    later["spec"]["exempt"] = ["x"]  # type: ignore[index]
    found = tenancy.read(json.dumps(later))
    assert found == tenancy.read(json.dumps(DOCUMENT))
    assert found.ignored == ("spec.exempt",)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "NaN", "\x00", "apiVersion: gpushare.dev/v1"])
def test_invalid_tenancy_text_raises_a_policy_error(text: str) -> None:
    with pytest.raises(PolicyError):
        tenancy.read(text)
