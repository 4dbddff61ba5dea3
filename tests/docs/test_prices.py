"""docs/prices.md tells what OpenCost makes of our shares: its formula, in our words, on the nodes that each sharing makes.

OpenCost's code counts GPUs as `requested` and `counted` do. Labels are those that NVIDIA's feature discovery sets.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import NamedTuple

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.resolved import costs
from gpushare.resolved.plan import PoolPlan
from tests.compiler.rules.intents import pool, written
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/prices.md").read_text(encoding="utf-8")
GPUS = 2
COUNT, REPLICAS = "nvidia.com/gpu.count", "nvidia.com/gpu.replicas"
NAMED = ("container_gpu_allocation", "node_gpu_hourly_cost")
"""OpenCost's metrics that the page names: the cost of a container is their product."""
WHOLE, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


class Metrics(StrEnum):
    """Where OpenCost has its metrics from."""

    PROMETHEUS = "Prometheus"
    COLLECTOR = "collector"


class Node(NamedTuple):
    """What OpenCost reads of a node."""

    capacity: Mapping[str, int]
    labels: Mapping[str, int]


def counted(node: Node) -> float:
    """OpenCost's number of the node's GPUs."""
    return node.labels[COUNT] if REPLICAS in node.labels else node.capacity.get(WHOLE, 0)


def virtual(node: Node) -> float:
    """How many GPUs the node offers, shares included."""
    if REPLICAS in node.labels:
        return node.capacity.get(SHARED, node.capacity.get(WHOLE, node.labels[COUNT]))
    return node.capacity.get(WHOLE, 0)


def requested(node: Node, resource: str, metrics: Metrics) -> float:
    """The GPUs that OpenCost allocates to a container that requests one of a resource: the first of NAMED."""
    whole = 1.0 if resource == WHOLE else 0.0
    divided = metrics is Metrics.COLLECTOR and whole and virtual(node)
    return whole * counted(node) / virtual(node) if divided else whole


@cache
def plan(sharing: str) -> PoolPlan:
    card = "a100-sxm4-40gb" if "mig" in sharing else "t4"
    text = written(pool(card=card, sharing=f"{{{sharing}}}", gpusPerNode=str(GPUS)))
    found = pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY)
    assert found.plan is not None, found.findings
    return found.plan.pools[0]


def node_of(one: PoolPlan, *, is_discovered: bool = True) -> Node:
    """A node of the pool: what the plugin offers, and what feature discovery says of its GPUs."""
    capacity = {resource.name: resource.per_node for resource in one.resources}
    if not is_discovered:
        return Node(capacity, {})
    is_single = one.mode == "mig" and not any("mig-" in name for name in capacity)
    of_gpus = one.mode != "mig" or is_single
    replicas = max(device.replicas for device in one.devices) if of_gpus else 0
    return Node(capacity, {COUNT: len(one.devices) if is_single else GPUS, REPLICAS: replicas})


def containers(sharing: str, metrics: Metrics, price: float = 1.0) -> float:
    """What OpenCost charges for an hour of all shares of a node."""
    one = plan(sharing)
    node = node_of(one)
    return sum(requested(node, name, metrics) * number * price for name, number in node.capacity.items())


def rows(header: str) -> list[list[str]]:
    """The rows of the page's table whose header begins so, without backquotes."""
    (table,) = re.findall(rf"^\| {header} .*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip().replace("`", "") for cell in line.strip("| \n").split("|")] for line in table.splitlines()]


@pytest.mark.parametrize("row", rows("sharing"), ids=lambda row: row[0])
def test_the_page_has_what_opencost_and_usage_make_of_a_node(row: list[str]) -> None:
    sharing, resource, shares, *money = row
    one = plan(sharing)
    (offered,) = one.resources
    parts = costs.parts_of_resources(one)
    usage = (parts[resource] or 0) * offered.per_node
    charged = [containers(sharing, metrics) for metrics in Metrics]
    assert (resource, int(shares)) == (offered.name, offered.per_node)
    assert money == [f"{number:.2f}" for number in (*charged, counted(node_of(one)), usage)]


def test_the_page_names_the_metrics() -> None:
    assert all(f"`{name}`" in PAGE for name in NAMED)


def test_the_page_has_every_mode_and_name_of_shares() -> None:
    listed = [row[0] for row in rows("sharing")]
    assert {re.findall(r"mode: ([a-z-]+)", one)[0] for one in listed} == {"exclusive", "time-slicing", "mps", "mig"}
    assert len(listed) == len(set(listed)) == 10


@pytest.mark.parametrize("row", [row for row in rows("to correct") if row[0].startswith("mode")], ids=lambda row: row[0])
def test_the_prices_that_correct_the_cost_of_containers(row: list[str]) -> None:
    sharing, price, charged, of_node = row
    sharing = sharing.removesuffix(", Prometheus")
    divisor = int(price.removeprefix("price / "))
    assert divisor == plan(sharing).resources[0].per_node // GPUS, "the shares of a GPU"
    assert f"{containers(sharing, Metrics.PROMETHEUS, 1 / divisor):.2f}" == charged
    assert f"{counted(node_of(plan(sharing))) / divisor:.2f}" == of_node


def test_without_feature_discovery_plain_shares_are_gpus_of_the_node() -> None:
    one = plan("mode: time-slicing, replicas: 4, rename: false")
    assert counted(node_of(one, is_discovered=False)) == 8
    assert counted(node_of(plan("mode: time-slicing, replicas: 4"), is_discovered=False)) == 0
