"""Admission and enforcement call the same ones tenants: what a bundle writes, the node runtime reads, and no more."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare_node.contract import tenancy
from gpushare_node.contract.strict_document import PolicyError
from tests.contract.test_node_policy import NAMES, VALUES, inner, places
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
DOCUMENT = {
    "apiVersion": "gpushare.dev/v1",
    "kind": "Tenancy",
    "spec": {"scope": "tenants", "admission": "deny", "platformNamespaces": ["kube-system"], "tenantNamespaces": ["atlas"]},
}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/bundle/chart/files/tenancy.json")), ids=lambda path: path.parts[-5])
def test_tenancy_of_every_example_is_read_by_the_node_runtime(path: Path) -> None:
    values = yaml.safe_load((path.parents[1] / "values.yaml").read_text())
    found = tenancy.read(path.read_text())
    assert tenancy.document(found) == json.loads(path.read_text())
    assert found.ignored == ()
    assert found.platform == {values["namespace"], "kube-system", *values["admission"]["platformNamespaces"]}
    named = {one for pool in values["pools"].values() for one in pool["namespaces"]}
    assert found.tenant_namespaces == named | set(values["admission"]["tenants"])


ACCEPTED: dict[tuple[Any, ...], list[Any]] = {
    ("spec", "platformNamespaces"): [[], ["x"]],
    ("spec", "platformNamespaces", 0): [name for name in NAMES if len(name) <= 63],
    ("spec", "tenantNamespaces"): [[], ["x"]],
    ("spec", "tenantNamespaces", 0): [name for name in NAMES if len(name) <= 63],
}
"""Which of VALUES each place may have; none where a place is not listed."""


@pytest.mark.parametrize("path", list(places(DOCUMENT)), ids=str)
def test_each_place_has_the_values_that_it_may_have(path: tuple[Any, ...]) -> None:
    for value in VALUES:
        changed = copy.deepcopy(DOCUMENT)
        if path:
            inner(changed, path[:-1])[path[-1]] = value
        text = json.dumps(changed if path else value)
        if repr(value) in map(repr, ACCEPTED.get(path, [])):
            found = tenancy.read(text)
            assert tenancy.read(json.dumps(tenancy.document(found))) == found
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
