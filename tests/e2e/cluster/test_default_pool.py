"""The pool of who chooses none: a MutatingAdmissionPolicy v1, which Kubernetes has from 1.36 on, on a real API server."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.cluster.bundles import NAMESPACE, admitting
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.pods import GPU, POOL, SHARED, SLICE, Object, affinity, created, pod, refusal, term
from tests.e2e.cluster.test_admission import INTENT

NEW = INTENT.replace("spec:", 'spec:\n  kubernetes: "1.36"', 1).replace(
    "namespaces: [course]", "namespaces: [course]\n      default: true"
)
NEW = NEW.replace("sharing: {mode: exclusive}", "sharing: {mode: exclusive}\n      default: true")


@pytest.fixture(scope="module")
def policies(api: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with admitting(api, NEW, tmp_path_factory.mktemp("new")):
        api.wait(lambda: pool_of(api, pod(({GPU: 1},))) == "whole", "the default pool is in force")
        yield api


@pytest.mark.parametrize(
    ("item", "pool"),
    [
        (pod(({GPU: 1},)), "whole"),
        (pod(({GPU: 1},), where="strangers", nodeSelector={"example.org/a": "b"}), "whole"),
        (pod(({GPU: 1},), **affinity({"matchExpressions": [{"key": "a", "operator": "Exists"}]})), "whole"),
        (pod(({SHARED: 1},), where="course"), "notebooks"),
        (pod(initContainers=[{"name": "i", "image": "a", "resources": {"limits": {GPU: 1}}}]), "whole"),
    ],
)
def test_pod_without_a_pool_is_sent_to_its_namespaces_or_the_default_pool(
    item: Object,
    pool: str,
    policies: Cluster,
) -> None:
    assert pool_of(policies, item) == pool


@pytest.mark.parametrize(
    "item",
    [
        pod(({SLICE: 1},)),
        pod(),
        pod(({GPU: 0},)),
        pod(({GPU: 2},), **affinity(term("In", "whole"))),
        pod(({GPU: 2},), **affinity(term("DoesNotExist"))),
        pod(({GPU: 1},), where=NAMESPACE),
        pod(({GPU: 1},), where="agents"),
        pod(({GPU: 1},), where="storage"),
    ],
)
def test_pod_that_needs_no_default_pool_is_not_mutated(item: Object, policies: Cluster) -> None:
    assert pool_of(policies, item) is None


def test_explicitly_chosen_pool_is_kept(policies: Cluster) -> None:
    assert pool_of(policies, pod(({SHARED: 1},), where="course", choose="serving")) == "serving"


def test_pod_without_any_matching_pool_is_refused_with_a_message(policies: Cluster) -> None:
    # The default of this name is a pool of another namespace.
    assert "several pools offer this GPU resource" in refusal(policies, pod(({SHARED: 1},)))
    item = pod(({GPU: 1},), **affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}))
    assert "several pools offer this GPU resource" in refusal(policies, item)
    assert "several pools offer this GPU resource" in refusal(policies, pod(({GPU: 1},), nodeName="a"))


def pool_of(cluster: Cluster, item: Object) -> str | None:
    """The pool that the pod is sent to; an assertion fails if it is refused."""
    answer = created(cluster, item)
    assert answer.refusal == ""
    name: str | None = json.loads(answer.body)["spec"].get("nodeSelector", {}).get(POOL)
    return name
