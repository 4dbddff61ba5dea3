"""What the compiler and the node read of objects alike: Kubernetes' rules, whatever a field has in it."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpushare_node.contract import objects

WRONG = (None, 5, "text", [1, "x"], {"a": 1}, True)


def container(number: int, **more: Any) -> dict[str, Any]:
    return {"resources": {"limits": {"nvidia.com/gpu": number}}, **more}


def counted(one: Mapping[str, Any]) -> dict[str, int]:
    return {name: value for name, value in objects.container_resources(one).items() if isinstance(value, int)}


@pytest.mark.parametrize(
    ("containers", "init", "number"),
    [
        ([1, 2], [], 3),
        ([1], [(4, False)], 4),
        ([3], [(2, False), (1, False)], 3),
        ([1], [(1, True)], 2),
        ([1], [(1, True), (3, False)], 4),
        ([1], [(3, False), (1, True)], 3),
        ([1], [(1, True), (2, True), (1, False)], 4),
        ([], [(2, True), (5, False), (4, True)], 7),
    ],
)
def test_requests_of_a_pod_are_what_the_scheduler_counts(
    containers: list[int], init: list[tuple[int, bool]], number: int
) -> None:
    """A sidecar stays beside the init containers that come after it, and beside the containers."""
    listed = [container(count, **({"restartPolicy": "Always"} if stays else {})) for count, stays in init]
    spec = {"containers": list(map(container, containers)), "initContainers": listed}
    assert objects.pod_requests(spec, counted) == {"nvidia.com/gpu": number}


def test_a_claim_that_was_found_to_be_unnecessary_is_none() -> None:
    spec = {
        "resourceClaims": [
            {"name": "own", "resourceClaimName": "mine"},
            {"name": "made", "resourceClaimTemplateName": "t"},
            {"name": "waits", "resourceClaimTemplateName": "t"},
            {"name": "unneeded", "resourceClaimTemplateName": "t"},
        ]
    }
    status = {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "pod-made-x"}, {"name": "unneeded"}]}
    assert list(objects.pod_claims(spec, status)) == [("own", "mine", ""), ("made", "pod-made-x", "t"), ("waits", "", "t")]


@pytest.mark.parametrize(
    ("operator", "value", "listed", "holds"),
    [
        ("Gt", "8", ["7"], True),
        ("Gt", "7", ["7"], False),
        ("Lt", "-1", ["0"], True),
        ("Gt", "1_0", ["7"], False),
        ("Gt", " 8", ["7"], False),
        ("Gt", "8", ["7", "1"], False),
        ("Gt", "\u0668", ["7"], False),
        ("Gt", None, ["7"], False),
        ("NotIn", None, ["7"], True),
        ("In", "a", "abc", False),
        ("Like", "a", ["a"], False),
    ],
)
def test_requirements_match_as_the_scheduler_has_it(operator: str, value: str | None, listed: Any, holds: bool) -> None:
    term = {"matchExpressions": [{"key": "a", "operator": operator, "values": listed}]}
    assert objects.term_matches(term, "n", {} if value is None else {"a": value}) is holds


def test_a_term_that_asks_only_what_is_ignored_matches_nothing() -> None:
    term = {"matchExpressions": [{"key": "paused/x", "operator": "Exists"}]}
    assert not objects.term_matches(term, "n", {"paused/x": "1"}, ("paused/",))
    assert not objects.term_matches({}, "n", {})
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    assert objects.term_matches(named, "n", {})


@pytest.mark.parametrize("wrong", WRONG)
def test_any_value_in_any_field_counts_as_missing(wrong: Any) -> None:
    assert list(objects.pod_claims({"resourceClaims": wrong}, {"resourceClaimStatuses": wrong})) == []
    assert list(objects.claimed_limits({"extendedResourceClaimStatus": {"requestMappings": wrong}})) == []
    assert objects.pod_requests({"containers": wrong, "initContainers": wrong}, counted) == {}
    assert objects.pod_requests({"containers": [{"resources": {"limits": [wrong]}}, {"resources": wrong}]}, counted) == {}
    assert not objects.term_matches({"matchExpressions": wrong, "matchFields": wrong}, "n", {})


@pytest.mark.parametrize(
    ("toleration", "holds"),
    [
        ({"key": "a", "operator": "Equal", "value": "x", "effect": "NoSchedule"}, True),
        ({"key": "a", "value": "x"}, True),
        ({"key": "a", "value": "y"}, False),
        ({"key": "a"}, False),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "b", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Equal", "value": "x"}, False),
        ({"key": "a", "operator": "Like", "value": "x"}, False),
        ({}, False),
    ],
)
def test_tolerations_of_requests_are_those_of_kubernetes(toleration: dict[str, str], holds: bool) -> None:
    assert objects.tolerates(toleration, {"key": "a", "value": "x", "effect": "NoSchedule"}) is holds


def test_only_taints_of_a_known_effect_keep_claims_away() -> None:
    taints = [{"key": effect, "effect": effect} for effect in ("NoSchedule", "NoExecute", "None", "Later")]
    assert [one["key"] for one in objects.device_taints({"taints": taints})] == ["NoSchedule", "NoExecute"]


@pytest.mark.parametrize(
    ("capacity", "shares"),
    [
        ({}, "unlimited"),
        ({"memory": {"value": "40Gi"}}, "memory"),
        ({"memory": {"value": "40Gi", "requestPolicy": {}}}, "memory"),
        ({"memory": {"value": "40Gi", "requestPolicy": {"default": "10Gi"}}}, "memory"),
        ({"memory": {"value": "40Gi", "requestPolicy": {"default": "0"}}}, "unlimited"),
        ({"memory": {"value": "40Gi"}, "shares": {"value": "4"}}, "count"),
        *(({"memory": value}, "unlimited") for value in WRONG),
    ],
)
def test_what_claims_share_a_device_by_is_what_one_takes_that_asks_for_nothing(capacity: dict[str, Any], shares: str) -> None:
    assert objects.division({"allowMultipleAllocations": True, "capacity": capacity}) == shares
    assert not objects.division({"capacity": capacity})
