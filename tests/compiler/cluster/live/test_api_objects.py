"""Objects as the API server should not send them: nothing raises, nothing unsafe passes."""

from collections.abc import Callable
from typing import Any

import pytest

from gpushare.cluster.live import live_pools, objects, runtime_metrics
from gpushare.core.wording import clean

VIEWS: list[Callable[[dict[str, Any]], object]] = [
    objects.node,
    objects.pod,
    objects.quota,
    objects.config_map,
    objects.daemonset,
    objects.event,
]
WRONG: list[Any] = [None, [], [None, 3, {}], "text", 7, True, {}, {"": None}, {"a": {"a": []}}]
FIELDS = (
    ("metadata", ("name", "namespace", "labels", "annotations", "ownerReferences", "deletionTimestamp")),
    ("spec", ("taints", "containers", "initContainers", "nodeName", "hard", "template", "unschedulable")),
    ("status", ("conditions", "allocatable", "capacity", "used", "phase", "reason", "message", "containerStatuses")),
    ("data", ("policy.yaml",)),
    ("involvedObject", ("name",)),
    ("series", ("count", "lastObservedTime")),
)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_any_field_value_raises_nothing(view: Callable[[dict[str, Any]], object]) -> None:
    for part, fields in FIELDS:
        for wrong in WRONG:
            view({part: wrong})
            for field in fields:
                view({part: {field: wrong}})
                view({part: {field: [wrong, {"resources": wrong}, {"resources": {"limits": {"nvidia.com/gpu": wrong}}}]}})


@pytest.mark.parametrize("wrong", WRONG)
def test_any_list_field_value_raises_nothing(wrong: Any) -> None:
    condition = {"type": wrong, "status": wrong, "reason": wrong}
    conditions = [condition, {"type": "Ready", "status": "True"}]
    node = objects.node({"status": {"conditions": conditions}, "spec": {"taints": [{"key": wrong}]}})
    assert node.is_up
    states = [{"name": wrong, "state": {state: {"reason": wrong, "message": wrong}}} for state in ("waiting", "terminated")]
    objects.pod({"status": {"conditions": [condition], "containerStatuses": states, "initContainerStatuses": states}})
    hash(objects.event({"series": {"count": wrong, "lastObservedTime": wrong}, "lastTimestamp": wrong, "count": wrong}))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("4", 4),
        (4, 4),
        ("4k", 4000),
        ("1500m", 2),
        ("-1", None),
        ("x", None),
        (None, None),
        ([], None),
        (True, None),
    ],
)
def test_quantities_are_parsed(given: object, kept: int | None) -> None:
    assert objects.gpus({"nvidia.com/gpu": given, "nvidia.com/rdma": "3", "cpu": "4"}) == (
        {} if kept is None else {"nvidia.com/gpu": kept}
    )


def test_pod_request_is_the_sum_of_containers_or_the_largest_init_container() -> None:
    def container(number: int) -> dict[str, Any]:
        return {"name": "x", "resources": {"limits": {"nvidia.com/gpu": str(number)}}}

    pod = objects.pod({"spec": {"containers": [container(1), container(2)], "initContainers": [container(5), container(4)]}})
    assert pod.requests == {"nvidia.com/gpu": 5}


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\nb", "a\u202eb", "a\x00b", "a\ud800b"])
def test_no_text_controls_a_terminal(text: str) -> None:
    assert clean(text).isprintable()
    assert clean(text).startswith("a\\")


def test_huge_text_is_truncated() -> None:
    node = objects.node({"metadata": {"name": "n", "annotations": {"gpushare.dev/x": "y" * (1 << 20)}}})
    assert len(node.annotations["gpushare.dev/x"]) == 1000


@pytest.mark.parametrize(
    "line",
    [
        "gpushare_kills_total",
        "gpushare_kills_total NaN",
        "gpushare_kills_total 1e999",
        "gpushare_kills_total{a=b} 1",
        'gpushare_kills_total{a="b} 1',
        "other_total 3",
        "\x1b",
        "gpushare_kills_total --1",
    ],
)
def test_foreign_or_invalid_metric_lines_are_ignored(line: str) -> None:
    assert runtime_metrics.parse("n", line).kills == 0


@pytest.mark.parametrize("wrong", WRONG)
def test_arbitrary_daemonset_terms_raise_nothing(wrong: Any) -> None:
    def selects(term: object) -> dict[str, Any]:
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": term}}
        return {"spec": {"template": {"spec": {"affinity": {"nodeAffinity": affinity}}}}}

    for term in (
        wrong,
        [wrong],
        [{"matchExpressions": wrong}],
        [{"matchFields": [wrong]}],
        [{"matchExpressions": [{"key": wrong, "operator": "In", "values": wrong}]}],
        [{"matchExpressions": [{"key": "a", "operator": wrong}]}],
    ):
        found = objects.daemonset(selects(term))
        assert live_pools.pool_of(objects.node({"metadata": {"name": "n"}}), {"p": found.terms or ()}) == ""
    selector = objects.daemonset({"spec": {"template": {"spec": {"nodeSelector": wrong}}}}).node_selector
    assert {type(text) for pair in selector.items() for text in pair} <= {str}
