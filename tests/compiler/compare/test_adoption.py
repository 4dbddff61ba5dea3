"""A change of `adoption`: to enforce it is the first change of every node; to observe, every node stays as it is."""

from gpushare.compare import compare, sides
from gpushare.compare.changes import Change, Comparison
from gpushare.compare.effects import EffectKind
from gpushare.resolved.plan import Plan
from tests.compiler.compare.test_pools import geometry_of
from tests.compiler.render.compiled import compiled, intent

OBSERVE = "  adoption: observe\n"
QUOTAS = "  quotas: {atlas: {hpc: 8}}\n"


def between(old: str, new: str) -> Comparison:
    return compared(*(compiled(intent("hpc", "notebooks", "serving", more=more)) for more in (old, new)))


def compared(old: tuple[Plan, dict[str, str]], new: tuple[Plan, dict[str, str]]) -> Comparison:
    return compare(sides.of_plan(old[0]), sides.of_plan(new[0]), geometry_of, (old[1], new[1]))


def kinds(comparison: Comparison) -> set[EffectKind]:
    return {one.kind for one in comparison.effects}


def test_switch_to_enforce_makes_every_pool_new_with_outages() -> None:
    comparison = between(OBSERVE + QUOTAS, QUOTAS)
    assert [(pool.name, pool.change, pool.touched, pool.disturbed) for pool in comparison.pools] == [
        ("hpc", Change.NEW, 2, None),
        ("notebooks", Change.NEW, None, None),
        ("serving", Change.NEW, 2, None),
    ]
    assert {one.pool for one in comparison.outages} == {"hpc", "notebooks", "serving"}
    assert comparison.moves == ()
    assert dict(comparison.capacity)["nvidia.com/gpu"].before == 0
    assert {EffectKind.ADOPTED, EffectKind.ENDED, EffectKind.REFUSED} <= kinds(comparison)
    assert [(one.namespace, one.before, one.after) for one in comparison.quotas] == [("atlas", None, 8)]
    refused = {one.subject for one in comparison.effects if one.kind is EffectKind.REFUSED}
    assert refused == {"admission.enforce", "quota atlas nvidia.com/gpu"}
    assert not comparison.is_configmap_only


def test_switch_to_observe_changes_no_node_and_kills_or_refuses_nothing() -> None:
    comparison = between(QUOTAS, OBSERVE + QUOTAS)
    assert {pool.change for pool in comparison.pools} == {Change.NONE}
    assert (comparison.touched, comparison.disturbed, comparison.outages) == (0, 0, ())
    assert {EffectKind.ADOPTED, EffectKind.SPARED, EffectKind.ADMITTED} <= kinds(comparison)
    assert not {EffectKind.ENDED, EffectKind.REFUSED, EffectKind.REINSTALLED, EffectKind.UPSTREAM} & kinds(comparison)


def test_pool_removed_while_switching_to_observe_is_not_released() -> None:
    comparison = compared(compiled(intent("hpc", "notebooks")), compiled(intent("hpc", more=OBSERVE)))
    assert {pool.change for pool in comparison.pools} == {Change.NONE}
    assert comparison.touched == 0


def test_while_both_observe_no_change_touches_a_node() -> None:
    comparison = compared(compiled(intent("hpc", more=OBSERVE)), compiled(intent("hpc", "notebooks", more=OBSERVE)))
    assert (comparison.pools, comparison.touched) == ((), 0)
    assert not comparison.is_empty
    assert not {EffectKind.ENDED, EffectKind.REFUSED} & kinds(comparison)
