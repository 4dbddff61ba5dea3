"""Admission with two thousand pools, on a real API server: each for five namespaces, and with a long name.

With five hundred of NVIDIA's DRA driver, of which there is more to look up.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster.bundles import admitting
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.pods import GPU, SHARED, SLICE, affinity, pod, refusal, term

POOLS = 2000


@pytest.fixture(scope="module")
def policies(api: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("many")
    with admitting(api, many(POOLS), folder, "--show-only", "templates/admission/policies.yaml"):
        yield api


def test_every_cel_expression_is_well_below_the_length_limit(policies: Cluster) -> None:
    for item in policies.get("validatingadmissionpolicies")["items"]:
        assert max(len(one["expression"]) for one in item["spec"].get("variables", ())) <= 100_000


def test_admission_cost_is_independent_of_the_number_of_pools(policies: Cluster) -> None:
    containers = 25
    assert refusal(policies, pod(tuple({} for _ in range(containers)))) == ""
    assert refusal(policies, pod(tuple({GPU: 1} for _ in range(containers)), where="course", choose=name(107))) == ""
    assert "may not use pool" in refusal(policies, pod(({SHARED: 1},) * containers, choose=name(207)))
    assert "may not use every pool" in refusal(policies, pod(({SLICE: 1},) * containers, where="course"))
    named = [name(number) for number in range(100)]
    assert "may not use pool" in refusal(
        policies, pod(({SHARED: 1},) * containers, where="strangers", **affinity(term("In", *named)))
    )
    assert "a folder of the host" in refusal(policies, pod(where="course", volumes=[{"name": "v", "hostPath": {"path": "/"}}]))


def test_the_own_name_of_each_class_leads_to_its_pool_alone(api: Cluster, tmp_path: Path) -> None:
    common = "gpusPerNode: 1, namespaces: [physics], sharing: {mode: exclusive}"
    pools = {name(number): "backend: dra, card: v100-pcie-32gb" for number in range(500)}
    pools |= {"one": "card: l4", "two": "card: t4"}
    lines = (f"    {pool}: {{{more}, nodes: {{matchLabels: {{p: {pool}}}}}, {common}}}\n" for pool, more in pools.items())
    text = (
        "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: many}\n"
        f"spec:\n  kubernetes: '1.36'\n  platform: {{dra: {{}}}}\n  pools:\n{''.join(lines)}"
    )
    with admitting(api, text, tmp_path, "--show-only", "templates/admission/policies.yaml"):
        for number in (0, 499):
            own = ({f"deviceclass.resource.kubernetes.io/gpushare-{name(number)}": 1},)
            other = pod(own, choose=name(499 - number))
            api.wait(lambda other=other: "does not have" in refusal(api, other), "it is refused elsewhere")
            assert refusal(api, pod(own, choose=name(number))) == ""


def name(number: int) -> str:
    """A pool's, of 40 characters."""
    return f"pool-{number:04}-of-a-department-with-a-long-name"


def many(count: int) -> str:
    """An intent of so many pools: shared, sliced and whole ones by turns, each for five namespaces of two hundred."""
    sharing = (
        "card: t4, sharing: {mode: time-slicing, replicas: 4}",
        "card: a100-sxm4-40gb, sharing: {mode: mig, layout: {1g.5gb: 7}}",
        "card: v100-pcie-32gb, sharing: {mode: exclusive}",
    )
    lines = []
    for number in range(count):
        namespaces = ", ".join(
            ["course" if number % 100 == 7 else "physics", *(f"team-{(number + each) % 200}" for each in range(4))]
        )
        nodes = f"nodes: {{matchLabels: {{example.org/pool: p{number}}}}}, gpusPerNode: 1, namespaces: [{namespaces}]"
        lines.append(f"    {name(number)}: {{{nodes}, {sharing[number % 3]}}}")
    return (
        "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: many}\nspec:\n  pools:\n" + "\n".join(lines) + "\n"
    )
