"""Which nodes a DaemonSet wants, for another reason than the label that the runtime itself has set."""

from typing import Any

import pytest

from gpushare_node.adapters.kube.cluster import NodeView
from gpushare_node.adapters.kube.node_client import is_selected, matches


def node(**labels: str) -> NodeView:
    named = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    return NodeView(name="n1", uid="u", labels=named, annotations={}, taints=(), allocatable={})


def need(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def daemonset(*terms: dict[str, Any], **spec: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"spec": {"template": {"spec": {"affinity": {"nodeAffinity": required}, **spec}}}}


@pytest.mark.parametrize(
    ("requirement", "value", "holds"),
    [
        (need("a", "In", "x", "y"), "x", True),
        (need("a", "In", "x"), "z", False),
        (need("a", "In", "x"), None, False),
        (need("a", "NotIn", "x"), "x", False),
        (need("a", "NotIn", "x"), "z", True),
        (need("a", "NotIn", "x"), None, True),
        (need("a", "Exists"), "", True),
        (need("a", "Exists"), None, False),
        (need("a", "DoesNotExist"), None, True),
        (need("a", "DoesNotExist"), "", False),
        (need("a", "Gt", "7"), "8", True),
        (need("a", "Gt", "7"), "7", False),
        (need("a", "Gt", "7"), None, False),
        (need("a", "Lt", "10"), "9", True),
        (need("a", "Lt", "10"), "x", False),
        (need("a", "Lt", "10"), "1_0", False),
        (need("a", "Gt", "x"), "8", False),
        (need("a", "Gt", "1", "2"), "8", False),
        (need("a", "Like", "x"), "x", False),
    ],
)
def test_node_selector_requirement_matches_like_the_scheduler(
    requirement: dict[str, Any], value: str | None, holds: bool
) -> None:
    have = node() if value is None else node(a=value)
    assert matches({"matchExpressions": [requirement]}, have) is holds


def test_requirements_of_a_term_are_anded_and_terms_are_ored() -> None:
    both = {"matchExpressions": [need("a", "Exists"), need("b", "Exists")]}
    assert not is_selected(daemonset(both), node(a="1"))
    assert is_selected(daemonset(both), node(a="1", b="1"))
    assert is_selected(daemonset(both, {"matchExpressions": [need("c", "Exists")]}), node(c="1"))


def test_nodes_are_chosen_by_name_too() -> None:
    assert is_selected(daemonset({"matchFields": [need("metadata.name", "In", "n1")]}), node())
    assert not is_selected(daemonset({"matchFields": [need("metadata.name", "In", "n2")]}), node())


def test_terms_on_our_own_pool_label_do_not_count_as_selection() -> None:
    client = need("nvidia.com/gpu.deploy.client", "NotIn", "false")
    own = {"matchExpressions": [need("gpushare.dev/pool", "In", "train"), client]}
    here = node(gpushare_dev__pool="train")
    assert matches(own, here)
    assert not is_selected(daemonset(own, {"matchExpressions": [need("team", "In", "a")]}), here)


@pytest.mark.failure_case(95)
@pytest.mark.parametrize("who", ["client", "operator-validator"])
def test_node_with_paused_gpu_clients_remains_in_its_pool(who: str) -> None:
    label = f"nvidia.com/gpu.deploy.{who}"
    terms = {"matchExpressions": [need("team", "In", "a"), need(label, "NotIn", "paused-for-driver-upgrade")]}
    paused = node(team="a", **{label.replace("/", "__").replace(".", "_"): "paused-for-driver-upgrade"})
    assert label in paused.labels
    assert is_selected(daemonset(terms), paused)


def test_empty_term_matches_no_node_and_missing_affinity_matches_all() -> None:
    assert not is_selected(daemonset({}), node())
    assert not is_selected(daemonset(), node())
    assert is_selected({"spec": {"template": {}}}, node())


def test_plain_node_selector_is_respected() -> None:
    wants = daemonset({"matchExpressions": [need("a", "Exists")]}, nodeSelector={"b": "1"})
    assert not is_selected(wants, node(a="1"))
    assert is_selected(wants, node(a="1", b="1"))
