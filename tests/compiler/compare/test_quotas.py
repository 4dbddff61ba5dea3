"""Quotas in a comparison: what changes, what no longer fits, what nobody offers any more."""

from typing import Any

import pytest

from gpushare.compare import compare
from gpushare.compare.changes import Problem
from tests.compiler.compare.plain_sides import side


def document(quotas: dict[str, dict[str, int]], resource: str = "nvidia.com/gpu", nodes: int | None = 2) -> dict[str, Any]:
    device = {"gpu": 0, "resource": resource, "profile": None, "start": 0, "replicas": 4, "memoryMiB": None, "capMiB": None}
    entry = {
        "card": "t4",
        "mode": "time-slicing",
        "nodes": nodes,
        "gpusPerNode": 1,
        "profile": "p",
        "priority": 0,
        "labels": {},
        "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [], "names": []},
        "resources": {resource: {"perNode": 4}},
        "devices": [device],
    }
    return {"pools": {"a": entry}, "quotas": quotas}


def problems(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, str, int | None, int | None, Problem | None]]:
    found = compare(side(old), side(new), lambda _: None).quotas
    return [(one.namespace, one.resource, one.before, one.after, one.problem) for one in found]


@pytest.mark.parametrize("number", [8, 9], ids=["fits", "was too large before"])
def test_a_quota_that_stays_and_fits_as_before_is_not_mentioned(number: int) -> None:
    same = {"atlas": {"requests.nvidia.com/gpu": number}}
    assert problems(document(same), document(same)) == []


def test_a_quota_that_changes_is_mentioned_with_both_numbers() -> None:
    old, new = {"atlas": {"requests.nvidia.com/gpu": 4}}, {"atlas": {"requests.nvidia.com/gpu": 6}}
    assert problems(document(old), document(new)) == [("atlas", "nvidia.com/gpu", 4, 6, None)]


def test_quota_above_the_new_capacity_is_reported() -> None:
    same = {"atlas": {"requests.nvidia.com/gpu": 8}}
    assert problems(document(same), document(same, nodes=1)) == [("atlas", "nvidia.com/gpu", 8, 8, Problem.EXCEEDS)]


def test_quota_on_a_removed_resource_is_reported() -> None:
    old = document({"atlas": {"requests.nvidia.com/gpu": 4}})
    new = document({}, resource="nvidia.com/gpu.shared")
    assert problems(old, new) == [("atlas", "nvidia.com/gpu", 4, None, Problem.VANISHED)]


def test_an_unknown_capacity_breaks_no_quota() -> None:
    same = {"atlas": {"requests.nvidia.com/gpu": 800}}
    assert problems(document(same, nodes=None), document(same, nodes=None)) == []
