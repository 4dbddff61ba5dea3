"""Selectors against their definition: every claim is compared with all nodes of a small universe."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.facts.nodes import selectors
from gpushare.intent.types import Exclusive, Expression, NodeSelector, Operator, Pool
from gpushare_node.contract.names import POOL_LABEL
from tests.support import scale
from tests.support.costs import grows_in_line

KEYS = ("a", "b")
USED = ("x", "y")
VALUES = (None, *USED, "never-mentioned")
NAMES = ("n1", "n2", "unnamed")

Node = tuple[str, Mapping[str, str]]


def universe(pool_labels: Sequence[str] = ()) -> Iterator[Node]:
    """Every node that selectors over KEYS, USED and the first two NAMES can tell apart."""
    for name, values in product(NAMES, product(VALUES, repeat=len(KEYS))):
        found = {key: value for key, value in zip(KEYS, values, strict=True) if value is not None}
        yield name, found
        for pool in pool_labels:
            yield name, {**found, POOL_LABEL: pool}


def holds(key: str, operator: str, values: Sequence[str], found: Mapping[str, str]) -> bool:
    match operator:
        case "In":
            return key in found and found[key] in values
        case "NotIn":
            return key not in found or found[key] not in values
        case "Exists":
            return key in found
        case "DoesNotExist":
            return key not in found
    raise AssertionError(operator)


def labels_hold(selector: NodeSelector, found: Mapping[str, str]) -> bool:
    return all(found.get(key) == value for key, value in selector.match_labels) and all(
        holds(e.key, e.operator.value, e.values, found) for e in selector.match_expressions
    )


def selected(pool: Pool, node: Node, pools: Sequence[Pool]) -> bool:
    name, found = node
    if not labels_hold(pool.nodes, found):
        return False
    return name in pool.nodes.names if pool.nodes.names else not any(name in other.nodes.names for other in pools)


def owned(pool: Pool, node: Node, pools: Sequence[Pool]) -> bool:
    stronger = [other for other in pools if other.priority > pool.priority]
    return selected(pool, node, pools) and not any(selected(other, node, pools) for other in stronger)


def served(pool: Pool, node: Node, pools: Sequence[Pool]) -> bool:
    """What the DaemonSet of a pool must reach, as the design says it."""
    name, found = node
    elsewhere = name not in pool.nodes.names and any(name in other.nodes.names for other in pools)
    return owned(pool, node, pools) or (found.get(POOL_LABEL) == pool.name and not elsewhere)


def matched(terms: Sequence[Mapping[str, Any]], node: Node) -> bool:
    """How Kubernetes reads nodeSelectorTerms: any term, all of its requirements; an empty term matches nothing."""
    name, found = node
    return any(
        bool(term)
        and all(holds(r["key"], r["operator"], r.get("values", ()), found) for r in term.get("matchExpressions", ()))
        and all(holds(r["key"], r["operator"], r["values"], {"metadata.name": name}) for r in term.get("matchFields", ()))
        for term in terms
    )


def pool_of(name: str, nodes: NodeSelector, priority: int = 0) -> Pool:
    return Pool(name=name, card="t4", nodes=nodes, gpus_per_node=1, sharing=Exclusive(), priority=priority)


expressions = st.builds(
    lambda key, operator, values: Expression(key=key, operator=operator, values=values if "In" in operator.value else ()),
    st.sampled_from(KEYS),
    st.sampled_from(list(Operator)),
    st.lists(st.sampled_from(USED), max_size=2, unique=True).map(tuple),
)
node_selectors = st.builds(
    lambda exact, loose, names: NodeSelector(match_labels=tuple(exact.items()), match_expressions=tuple(loose), names=names),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(USED), max_size=2),
    st.lists(expressions, max_size=3),
    st.one_of(st.just(()), st.lists(st.sampled_from(NAMES[:2]), unique=True).map(tuple)),
)
asking = node_selectors.filter(lambda s: s.names or (own := selectors.region_of(s)) is None or selectors.requirements(own))
"""Selectors that ask for something: one that takes the whole cluster is refused by the rules."""

pool_lists = st.lists(st.tuples(asking, st.integers(0, 2)), min_size=1, max_size=4).map(
    lambda made: [pool_of(f"p{number}", nodes, priority) for number, (nodes, priority) in enumerate(made)]
)


@settings(max_examples=scale.examples(900))
@given(node_selectors)
def test_a_selector_is_satisfiable_when_some_node_satisfies_it(selector: NodeSelector) -> None:
    assert (selectors.region_of(selector) is not None) == any(labels_hold(selector, found) for _, found in universe())


def test_expression_pairs_on_one_label_match_exhaustive_enumeration() -> None:
    choices = [
        Expression(key="a", operator=operator, values=values if "In" in operator.value else ())
        for operator in Operator
        for values in ((), ("x",), ("y",), ("x", "y"))
    ]
    for pair in combinations(choices, 2):
        selector = NodeSelector(match_expressions=pair)
        assert (selectors.region_of(selector) is not None) == any(labels_hold(selector, found) for _, found in universe()), pair


@settings(max_examples=scale.examples(900))
@given(node_selectors, node_selectors)
def test_two_selectors_overlap_when_a_node_belongs_to_both(one: NodeSelector, other: NodeSelector) -> None:
    pools = [pool_of("one", one), pool_of("other", other)]
    common = any(all(selected(pool, node, pools) for pool in pools) for node in universe())
    assert bool(list(selectors.clashes(pools))) == common


@settings(max_examples=scale.examples(300))
@given(pool_lists)
def test_overlaps_are_all_intersecting_pairs_of_equal_priority(pools: list[Pool]) -> None:
    found = [(one.name, other.name) for one, other in selectors.clashes(pools)]
    expected = [
        (one.name, other.name)
        for later, other in enumerate(pools)
        for one in pools[:later]
        if one.priority == other.priority
        and any(selected(one, node, pools) and selected(other, node, pools) for node in universe())
    ]
    assert sorted(found) == sorted(expected)
    assert len(found) == len(set(found))


@settings(max_examples=scale.examples(400))
@given(pool_lists)
def test_terms_match_exactly_the_nodes_that_the_pool_serves(pools: list[Pool]) -> None:
    assignment = selectors.NodeAssignment(pools)
    for pool in pools:
        terms = assignment.terms(pool)
        for node in universe(["p0", "p1"]):
            assert matched(terms, node) == served(pool, node, pools), (pool.name, node, terms)


@settings(max_examples=scale.examples(200))
@given(pool_lists)
def test_terms_are_valid_for_the_api_server(pools: list[Pool]) -> None:
    assignment = selectors.NodeAssignment(pools)
    for pool in pools:
        for term in assignment.terms(pool):
            assert term
            for requirement in term.get("matchExpressions", ()):
                assert ("values" in requirement) == (requirement["operator"] in ("In", "NotIn"))
                assert requirement.get("values", ["x"])
            for requirement in term.get("matchFields", ()):
                assert requirement["key"] == "metadata.name"
                assert len(requirement["values"]) == 1


regions = st.dictionaries(
    st.sampled_from(KEYS), expressions.map(selectors.values_of).filter(lambda values: not values.empty), max_size=2
)


@settings(max_examples=scale.examples(900))
@given(regions, regions)
def test_subtracting_leaves_exactly_what_lies_outside(one: selectors.Region, other: selectors.Region) -> None:
    def inside(region: selectors.Region, found: Mapping[str, str]) -> bool:
        return matched([{"matchExpressions": selectors.requirements(region)}], ("n", found))

    left = selectors.without_covered(selectors.subtract(one, other))
    for _, found in universe():
        assert any(inside(piece, found) for piece in left) == (inside(one, found) and not inside(other, found))


def test_a_pool_of_lower_priority_excludes_the_stronger_ones_in_one_term() -> None:
    everything = pool_of("rest", NodeSelector(match_labels=(("gpu", "yes"),)))
    selectors_of_special = [NodeSelector(match_labels=(("gpu", "yes"), ("flavour", f"f{n}"))) for n in range(3)]
    special = [pool_of(f"s{n}", nodes, priority=1) for n, nodes in enumerate(selectors_of_special)]
    first, _ = selectors.NodeAssignment([everything, *special]).terms(everything)
    assert first["matchExpressions"] == [
        {"key": "flavour", "operator": "NotIn", "values": ["f0", "f1", "f2"]},
        {"key": "gpu", "operator": "In", "values": ["yes"]},
    ]


def test_more_than_64_alternatives_are_not_expanded() -> None:
    nine_labels = [NodeSelector(match_labels=tuple((f"k{n}-{m}", "v") for m in range(9))) for n in range(2)]
    strong = [pool_of(f"s{n}", nodes, priority=1 + n) for n, nodes in enumerate(nine_labels)]
    weak = pool_of("weak", NodeSelector(match_labels=(("gpu", "yes"),)))
    assert selectors.NodeAssignment([weak, *strong]).owned(weak) is None
    assert len(selectors.NodeAssignment([weak, strong[0]]).owned(weak) or ()) == 9


def test_pool_covered_by_higher_priority_pools_owns_no_nodes() -> None:
    weak = pool_of("weak", NodeSelector(match_labels=(("gpu", "yes"), ("site", "a"))))
    strong = pool_of("strong", NodeSelector(match_labels=(("gpu", "yes"),)), priority=1)
    assert selectors.NodeAssignment([weak, strong]).owned(weak) == ()


@pytest.mark.parametrize(("count", "kept"), [(selectors.MAX_LEAVING_NAMES, True), (selectors.MAX_LEAVING_NAMES + 1, False)])
def test_a_node_that_moved_loses_its_old_pool_at_once_only_while_names_are_few(count: int, kept: bool) -> None:
    named = pool_of("named", NodeSelector(names=tuple(f"n{number}" for number in range(count))))
    labelled = pool_of("labelled", NodeSelector(match_labels=(("a", "x"),)))
    own, leaving = selectors.NodeAssignment([named, labelled]).terms(labelled)
    assert len(own["matchFields"]) == count, "a named node is never of a pool that selects by labels alone"
    assert len(leaving.get("matchFields", ())) == (count if kept else 0)
    assert leaving["matchExpressions"] == [{"key": POOL_LABEL, "operator": "In", "values": ["labelled"]}]


def test_thousands_of_excluded_values_of_one_label_are_gathered_at_once() -> None:
    without = tuple(Expression(key="a", operator=Operator.NOT_IN, values=(f"v{number}",)) for number in range(20_000))
    assert selectors.region_of(NodeSelector(match_expressions=without)) is not None
    assert selectors.region_of(NodeSelector(match_labels=(("a", "v7"),), match_expressions=without)) is None

    def judged(count: int) -> Callable[[], object]:
        selector = NodeSelector(match_expressions=without[:count])
        return lambda: selectors.region_of(selector)

    assert grows_in_line(judged, len(without))


def flavours(count: int, *, names: int = 0) -> list[Pool]:
    return [
        pool_of(
            f"pool-{n}",
            NodeSelector(names=tuple(f"node-{n}-{m}" for m in range(names)))
            if names
            else NodeSelector(match_labels=(("gpu", "yes"), ("example.org/flavour", f"f{n}"))),
        )
        for n in range(count)
    ]


def mixed(count: int) -> list[Pool]:
    return flavours(count // 2) + flavours(count // 2, names=40)


@pytest.mark.parametrize("pools", [flavours, partial(flavours, names=20), mixed], ids=["labels", "names", "both"])
def test_thousands_of_pools_are_not_compared_each_with_each(pools: Callable[[int], list[Pool]]) -> None:
    assert list(selectors.clashes(pools(2000))) == []

    def compared(count: int) -> Callable[[], object]:
        some = pools(count)
        return lambda: list(selectors.clashes(some))

    assert grows_in_line(compared, 2000)


def test_terms_of_thousands_of_pools_take_linear_time() -> None:
    def termed(count: int) -> Callable[[], object]:
        pools = flavours(count)

        def terms() -> None:
            assignment = selectors.NodeAssignment(pools)
            assert all(len(assignment.terms(pool)) == 2 for pool in pools)

        return terms

    assert grows_in_line(termed, 2000)


def test_exclusions_of_one_label_are_merged_with_its_requirements() -> None:
    excluded = [("a", selectors.LabelSet(absent=True, others=True, listed=frozenset({f"x{n}"}))) for n in range(5000)]
    asked = ("a", selectors.LabelSet(absent=False, others=False, listed=frozenset({"x7", "y"})))
    left = selectors.LabelSet(absent=False, others=False, listed=frozenset({"y"}))
    assert selectors.conjunction([*excluded[:9], asked]) == {"a": left}
    assert selectors.conjunction([asked, *excluded]) == selectors.conjunction([*excluded, asked])
    only = ("a", selectors.LabelSet(absent=False, others=False, listed=frozenset({"x7"})))
    assert selectors.conjunction([only, *excluded]) is None
