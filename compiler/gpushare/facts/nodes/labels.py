"""Exact sets of nodes by their labels: what one label may be (LabelSet), and conjunctions over several labels (Region).

The semantics are those of Kubernetes node affinity; a label is assumed to have infinitely many values. Knows neither pools nor
node names: `selectors` does.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, assert_never

from gpushare.intent.types import Expression, Operator
from gpushare_node.contract.struct import Struct


class LabelSet(Struct):
    """What a node's label may be: absent, one of `listed`, or, if `others` is true, every value that is *not* listed.

    Every set that label expressions can build has exactly one such form, so equal sets are equal values.
    """

    absent: bool
    others: bool
    listed: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether no node can satisfy this."""
        return not (self.absent or self.others or self.listed)

    @property
    def pinned(self) -> bool:
        """Whether the label must be one of finitely many values."""
        return not (self.absent or self.others)

    def meet(self, other: "LabelSet") -> "LabelSet":
        """Return the set of what satisfies both."""
        if self.others and other.others:
            listed = self.listed | other.listed
        elif self.others:
            listed = other.listed - self.listed
        elif other.others:
            listed = self.listed - other.listed
        else:
            listed = self.listed & other.listed
        return LabelSet(absent=self.absent and other.absent, others=self.others and other.others, listed=listed)

    def complement(self) -> "LabelSet":
        """Return the set of what does not satisfy this."""
        return LabelSet(absent=not self.absent, others=not self.others, listed=self.listed)


Region = Mapping[str, LabelSet]
"""A conjunction: nodes whose labels satisfy every entry. Keys that are not named may be anything. Never empty as a set."""

ANY = LabelSet(absent=True, others=True)


def values_of(expression: Expression) -> LabelSet:
    """Return what one expression allows. NotIn matches nodes without the label, as in Kubernetes."""
    match expression.operator:
        case Operator.IN:
            return LabelSet(absent=False, others=False, listed=frozenset(expression.values))
        case Operator.NOT_IN:
            return LabelSet(absent=True, others=True, listed=frozenset(expression.values))
        case Operator.EXISTS:
            return LabelSet(absent=False, others=True)
        case Operator.DOES_NOT_EXIST:
            return LabelSet(absent=True, others=False)
        case _:
            assert_never(expression.operator)


def conjunction(parts: Iterable[tuple[str, LabelSet]]) -> Region | None:
    """Return the conjunction of `parts`; None if no node can satisfy all of them."""
    region: dict[str, LabelSet] = {}
    excluded: dict[str, set[str]] = {}
    for key, values in parts:
        if values.absent and values.others:  # collected first: one by one, a thousand NotIn of one key copy a million values
            excluded.setdefault(key, set()).update(values.listed)
        else:
            region[key] = region.get(key, ANY).meet(values)
    for key, listed in excluded.items():
        region[key] = region.get(key, ANY).meet(LabelSet(absent=True, others=True, listed=frozenset(listed)))
    return None if any(values.empty for values in region.values()) else region


def meets(one: Region, other: Region) -> bool:
    """Whether a node can be in both."""
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    return not any(key in many and many[key].meet(values).empty for key, values in few.items())


def subtract(region: Region, other: Region) -> tuple[Region, ...]:
    """Return the part of `region` outside `other`, as regions that together cover it (they may overlap each other)."""
    if not meets(region, other):
        return (region,)
    return tuple(
        {**region, key: piece}
        for key, values in other.items()
        for piece in _expressible(region.get(key, ANY).meet(values.complement()))
    )


def without_covered(regions: Iterable[Region]) -> tuple[Region, ...]:
    """Return the regions without those that lie inside another one; of equal regions the first is kept."""
    kept: list[Region] = []
    for region in regions:
        if not any(_inside(region, other) for other in kept):
            kept = [other for other in kept if not _inside(other, region)]
            kept.append(region)
    return tuple(kept)


def requirements(region: Region) -> list[dict[str, Any]]:
    """Return the region as `matchExpressions` of a nodeSelectorTerm, keys and values sorted."""
    return [requirement for key in sorted(region) for requirement in _requirements(key, region[key])]


def _inside(region: Region, other: Region) -> bool:
    return all(region.get(key, ANY).meet(values) == region.get(key, ANY) for key, values in other.items())


def _expressible(values: LabelSet) -> Iterator[LabelSet]:
    """Yield two sets for `absent or one of …`, which is not a conjunction of Kubernetes expressions; else the set itself."""
    if values.absent and not values.others and values.listed:
        yield LabelSet(absent=True, others=False)
        yield LabelSet(absent=False, others=False, listed=values.listed)
    elif not values.empty:
        yield values


def _requirements(key: str, values: LabelSet) -> Iterator[dict[str, Any]]:
    if values.pinned:
        yield {"key": key, "operator": Operator.IN.value, "values": sorted(values.listed)}
        return
    if not values.others:
        yield {"key": key, "operator": Operator.DOES_NOT_EXIST.value}
        return
    if not values.absent:
        yield {"key": key, "operator": Operator.EXISTS.value}
    if values.listed:
        yield {"key": key, "operator": Operator.NOT_IN.value, "values": sorted(values.listed)}
