"""What a comparison says of pools: the kind of change, what stays on a GPU, and how many pods it may cost."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpushare import pipeline
from gpushare.bundle.lock import EMPTY
from gpushare.compare import compare, files, sides
from gpushare.compare.changes import Change, Comparison
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Geometry
from gpushare.reading import source
from tests.compiler.compare.plain_sides import side
from tests.support.paths import ROOT

INTENT = ROOT / "examples" / "01-heterogeneous" / "intent.yaml"


def geometry_of(card: str) -> Geometry | None:
    return cards.load(card).mig if card in cards.ids() else None


def device(
    resource: str, profile: str | None = None, start: int = 0, *, replicas: int = 1, cap: int | None = None
) -> dict[str, Any]:
    placed = {"resource": resource, "profile": profile, "start": start, "size": 1}
    return placed | {"memoryMiB": None, "replicas": replicas, "capMiB": cap}


def labelled(name: str) -> dict[str, Any]:
    return {"matchLabels": {"pool": name}, "matchExpressions": [], "names": []}


def pool(*devices: Mapping[str, Any], gpus: int = 1, nodes: int | None = 2, **other: Any) -> dict[str, Any]:
    """A pool all of whose GPUs have the same devices."""
    every = [{"gpu": gpu, **one} for gpu in range(gpus) for one in devices]
    resources: dict[str, dict[str, int]] = {}
    for one in every:
        resources.setdefault(one["resource"], {"perNode": 0})["perNode"] += one["replicas"]
    entry = {"card": "a100-sxm4-40gb", "mode": "mig", "nodes": nodes, "gpusPerNode": gpus, "profile": "mig-00000000"}
    selector = labelled("a") | other.pop("selector", {})
    return entry | {"priority": 0, "labels": {}, "resources": resources, "devices": every, "selector": selector} | other


def instances(*placed: tuple[str, int], **attributes: Any) -> list[dict[str, Any]]:
    return [device(f"nvidia.com/mig-{profile}", profile, start, **attributes) for profile, start in placed]


def shared(replicas: int, cap: int | None = None, resource: str = "nvidia.com/gpu.shared") -> dict[str, Any]:
    return device(resource, replicas=replicas, cap=cap)


def slicing(*devices: Mapping[str, Any], **other: Any) -> dict[str, Any]:
    return pool(*devices, **({"card": "t4", "mode": "time-slicing", "profile": "time-slicing-00000000"} | other))


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> Comparison:
    return compare(side({"pools": old}), side({"pools": new}), geometry_of)


def test_equal_documents_have_no_changes() -> None:
    comparison = compared({"a": slicing(shared(4))}, {"a": slicing(shared(4))})
    assert comparison.is_empty
    assert not comparison.is_configmap_only
    assert [(one.name, one.change) for one in comparison.pools] == [("a", Change.NONE)]


def test_changed_cap_is_a_policy_change_and_disturbs_no_pods() -> None:
    comparison = compared({"a": slicing(shared(4, cap=3000))}, {"a": slicing(shared(4, cap=2000))})
    (only,) = comparison.pools
    assert only.change is Change.POLICY
    assert (only.touched, only.disturbed) == (0, 0)
    assert comparison.is_configmap_only


def test_changed_expected_nodes_changes_only_the_capacity() -> None:
    comparison = compared({"a": slicing(shared(4), nodes=2)}, {"a": slicing(shared(4), nodes=3)})
    assert comparison.pools[0].change is Change.NONE
    assert [(name, one.before, one.after) for name, one in comparison.capacity] == [("nvidia.com/gpu.shared", 8, 12)]
    assert not comparison.is_empty
    assert comparison.is_configmap_only


def test_more_replicas_relabel_and_disturb_no_pods() -> None:
    (only,) = compared({"a": slicing(shared(4))}, {"a": slicing(shared(8), profile="time-slicing-11111111")}).pools
    assert only.change is Change.RELABEL
    assert (only.touched, only.disturbed) == (2, 0)


def test_fewer_replicas_may_cost_every_share_of_the_device() -> None:
    (only,) = compared({"a": slicing(shared(8))}, {"a": slicing(shared(4), profile="time-slicing-11111111")}).pools
    assert only.change is Change.RELABEL
    assert (only.disturbed_per_node, only.disturbed) == (8, 16)


def test_a_renamed_resource_costs_every_share() -> None:
    new = slicing(shared(4, resource="nvidia.com/gpu"), profile="time-slicing-11111111")
    (only,) = compared({"a": slicing(shared(4))}, {"a": new}).pools
    assert (only.change, only.disturbed) == (Change.RELABEL, 8)
    assert [(one.name, one.total.before, one.total.after) for one in only.resources] == [
        ("nvidia.com/gpu", 0, 8),
        ("nvidia.com/gpu.shared", 8, 0),
    ]


def test_relabel_of_an_mps_pool_disturbs_all_its_clients() -> None:
    old, new = (slicing(shared(number), mode="mps", profile=f"mps-{number}") for number in (4, 8))
    (only,) = compared({"a": old}, {"a": new}).pools
    assert (only.change, only.disturbed) == (Change.RELABEL, 8)


def test_an_unknown_number_of_nodes_makes_unknown_totals_and_not_zero() -> None:
    comparison = compared({"a": slicing(shared(8), nodes=None)}, {"a": slicing(shared(4), nodes=None, profile="x")})
    assert comparison.disturbed is None
    assert comparison.touched is None
    assert comparison.pools[0].disturbed_per_node == 8


def test_instances_that_fit_into_the_new_layout_stay_and_their_pods_too() -> None:
    old = pool(*instances(("3g.20gb", 0), ("3g.20gb", 4)))
    new = pool(*instances(("2g.10gb", 0), ("2g.10gb", 2), ("3g.20gb", 4)), profile="mig-11111111")
    (only,) = compared({"a": old}, {"a": new}).pools
    (gpu,) = only.gpus
    assert only.change is Change.REPARTITION
    assert gpu.kept == (("3g.20gb", 4),)
    assert gpu.destroyed == (("3g.20gb", 0),)
    assert gpu.created == (("2g.10gb", 0), ("2g.10gb", 2))
    assert (only.disturbed_per_node, only.disturbed) == (1, 2)


def test_equal_layout_at_other_placements_is_no_change() -> None:
    old = pool(*instances(("1g.5gb", 0), ("3g.20gb", 4)))
    new = pool(*instances(("3g.20gb", 0), ("1g.5gb", 4)))
    assert compared({"a": old}, {"a": new}).is_empty


def test_replicas_on_an_instance_that_stays_disturb_its_pod_because_the_resource_is_renamed() -> None:
    old = pool(*instances(("1g.5gb", 0)))
    new = pool(device("nvidia.com/mig-1g.5gb.shared", "1g.5gb", 0, replicas=2), profile="mig-11111111")
    (only,) = compared({"a": old}, {"a": new}).pools
    assert (only.change, only.disturbed) == (Change.RELABEL, 2)


def test_switching_mig_on_disturbs_all_pods_of_the_gpu() -> None:
    old = pool(shared(4), mode="time-slicing", gpus=2)
    new = pool(*instances(("7g.40gb", 0)), gpus=2, profile="mig-11111111")
    (only,) = compared({"a": old}, {"a": new}).pools
    assert (only.change, only.disturbed_per_node, only.disturbed) == (Change.REPARTITION, 8, 16)
    assert [gpu.created for gpu in only.gpus] == [(("7g.40gb", 0),)] * 2


def test_changed_card_disturbs_all_pods_of_the_old_nodes() -> None:
    (only,) = compared({"a": slicing(shared(4))}, {"a": slicing(shared(4), card="l4")}).pools
    assert (only.change, only.cards, only.disturbed) == (Change.REPARTITION, ("t4", "l4"), 8)


def test_unknown_card_keeps_only_instances_at_equal_placements() -> None:
    old = pool(*instances(("1g.1gb", 0), ("1g.1gb", 1)), card="own")
    new = pool(*instances(("1g.1gb", 1), ("2g.2gb", 2)), card="own")
    (only,) = compared({"a": old}, {"a": new}).pools
    assert only.gpus[0].kept == (("1g.1gb", 1),)


def test_removed_pool_loses_its_shares() -> None:
    comparison = compared(
        {"a": slicing(shared(4)), "b": slicing(shared(2), selector={"matchLabels": {"pool": "b"}})}, {"a": slicing(shared(4))}
    )
    gone = comparison.pools[1]
    assert (gone.change, gone.disturbed, gone.touched) == (Change.GONE, 4, 2)
    assert dict(comparison.capacity)["nvidia.com/gpu.shared"].after == 8


def test_removed_exclusive_pool_disturbs_no_pods() -> None:
    kept = {"a": slicing(shared(4))}
    exclusive = slicing(device("nvidia.com/gpu"), mode="exclusive", selector={"matchLabels": {"pool": "b"}})
    assert compared(kept | {"b": exclusive}, kept).pools[1].disturbed == 0


def test_removed_exclusive_pool_may_lose_its_nodes_to_a_new_pool() -> None:
    exclusive = slicing(device("nvidia.com/gpu"), mode="exclusive")
    newcomer = slicing(shared(4), selector={"matchLabels": {"kind": "gpu"}})
    gone, new = compared({"a": exclusive}, {"b": newcomer}).pools
    assert gone.disturbed == 2
    assert (new.change, new.disturbed) == (Change.NEW, 0)


def test_renamed_pool_is_recognised_by_its_selector_and_disturbs_no_pods() -> None:
    gone, new = compared({"a": slicing(shared(4))}, {"b": slicing(shared(4))}).pools
    assert (gone.successor, gone.disturbed) == ("b", 0)
    assert new.touched == 0


def test_changed_selector_may_lose_every_node_of_the_pool() -> None:
    other = slicing(shared(4), selector={"matchLabels": {"pool": "z"}})
    comparison = compared({"a": slicing(shared(4))}, {"a": other})
    (only,) = comparison.pools
    assert (only.change, only.selector_changes) == (Change.POLICY, True)
    assert (only.disturbed, only.touched) == (8, None)
    assert not comparison.is_configmap_only


def test_named_nodes_move_between_pools_by_name() -> None:
    def named(sharing: Mapping[str, Any], *names: str) -> dict[str, Any]:
        return slicing(sharing, selector={"names": list(names)}, nodes=len(names))

    old = {"a": named(shared(2), "n1", "n2"), "b": named(shared(4), "n3")}
    new = {"a": named(shared(2), "n1"), "b": named(shared(4, resource="nvidia.com/gpu"), "n2", "n3") | {"profile": "x"}}
    comparison = compared(old, new)
    (move,) = comparison.moves
    assert (move.node, move.source, move.target, move.disturbed) == ("n2", "a", "b", 2)
    by_name = {one.name: one for one in comparison.pools}
    assert (by_name["a"].disturbed, by_name["a"].touched) == (2, 0)
    assert (by_name["b"].disturbed, by_name["b"].touched) == (4, 2)
    assert comparison.touched == 2


def test_named_nodes_of_a_removed_pool_are_released_or_counted_as_moved() -> None:
    old = {
        "a": slicing(shared(2), selector={"names": ["n1", "n2"]}),
        "b": slicing(shared(2), selector={"names": ["n3"]}, nodes=1),
    }
    new = {"b": slicing(shared(2), selector={"names": ["n2", "n3"]})}
    comparison = compared(old, new)
    gone = comparison.pools[0]
    assert [(move.node, move.target, move.disturbed) for move in comparison.moves] == [("n1", None, 2), ("n2", "b", 0)]
    assert (gone.disturbed, gone.touched) == (2, 1)
    assert comparison.touched == 2


def test_a_named_node_that_a_pool_gains_may_come_from_a_pool_that_selects_by_labels() -> None:
    named = slicing(shared(2), selector={"names": ["n1"]}, nodes=1)
    more = slicing(shared(2), selector={"names": ["n1", "n2"]}, nodes=2)
    labels = slicing(shared(4))
    renamed = slicing(shared(8, resource="nvidia.com/gpu"))
    assert compared({"a": named, "b": labels}, {"a": more, "b": labels}).moves[0].disturbed == 4
    assert compared({"a": named, "b": renamed}, {"a": more, "b": renamed}).pools[0].disturbed == 8
    assert compared({"a": named, "b": renamed | {"card": "l4"}}, {"a": more, "b": renamed}).moves[0].disturbed == 0
    assert compared({"a": named}, {"a": more}).moves[0].disturbed == 0


def test_new_pool_of_higher_priority_may_take_nodes_of_another() -> None:
    stays = slicing(shared(4), priority=0)
    for priority, nodes, expected in ((0, 3, 0), (1, 3, 12), (1, None, None)):
        new = slicing(shared(2), priority=priority, nodes=nodes, selector={"matchLabels": {"kind": "gpu"}})
        assert compared({"a": stays}, {"a": stays, "b": new}).pools[1].disturbed == expected


def test_changed_node_label_is_a_relabel() -> None:
    old, new = (pool(*instances(("1g.5gb", 0)), labels=labels) for labels in ({}, {"nvidia.com/mig.config": ["mig-1"]}))
    (only,) = compared({"a": old}, {"a": new}).pools
    assert (only.change, only.disturbed, only.touched) == (Change.RELABEL, 0, 2)


def test_changed_operator_strategy_is_an_unpaced_change() -> None:
    pools = {"a": slicing(shared(4))}
    before, after = (side({"pools": pools, "operatorMigStrategy": strategy}) for strategy in ("mixed", ""))
    comparison = compare(before, after, geometry_of)
    assert comparison.changes_mig_strategy
    assert not comparison.is_empty
    assert not comparison.is_configmap_only


def test_bundle_without_an_operator_strategy_is_no_change() -> None:
    pools = {"a": slicing(shared(4))}
    for before in ({"pools": pools}, {"pools": pools, "operatorMigStrategy": None}):
        assert compare(side(before), side({"pools": pools, "operatorMigStrategy": "mixed"}), geometry_of).is_empty


def test_each_file_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = INTENT.read_text()
    made = [pipeline.compile_intent(one.encode(), "intent.yaml", EMPTY) for one in (text, text.replace("2200Mi", "2000Mi"))]
    bundles = [{file.path: file.text for file in one.artifacts} for one in made]
    read: list[bytes] = []
    whole = source.read

    def counted(data: bytes, *more: Any, **named: Any) -> source.Source:
        read.append(data)
        return whole(data, *more, **named)

    monkeypatch.setattr(source, "read", counted)
    files.parsed.cache_clear()
    plans = [one.plan for one in made]
    assert all(plans)
    before, after = [sides.of_plan(plan) for plan in plans if plan]
    compare(before, after, geometry_of, (bundles[0], bundles[1]))
    assert len(read) == len(set(read)) > 0
