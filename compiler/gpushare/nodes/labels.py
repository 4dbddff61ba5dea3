"""Sets of nodes by their labels, exactly: what one label may be (Values), and conjunctions over several labels (Region).

The semantics are those of Kubernetes node affinity; the values of a label are taken as endless. Knows neither pools nor
node names: `selectors` does.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, assert_never

from gpushare.core.record import Record
from gpushare.intent.types import Expression, Operator


class LabelSet(Record):
    """What a node's label may be: absent, one of `listed`, or, where `others` holds, everything that is *not* listed.

    Every set that label expressions can build has exactly one such form, so equal sets are equal values.
    """

    absent: bool
    others: bool
    listed: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether no node at all can satisfy this."""
        return not (self.absent or self.others or self.listed)

    @property
    def pinned(self) -> bool:
        """Whether the label must be one of finitely many values."""
        return not (self.absent or self.others)

    def meet(self, other: "LabelSet") -> "LabelSet":
        """What satisfies both."""
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
        """What does not satisfy this."""
        return LabelSet(absent=not self.absent, others=not self.others, listed=self.listed)


Region = Mapping[str, LabelSet]
"""A conjunction: nodes whose labels satisfy every entry. Keys that are not named may be anything. Never empty as a set."""

ANY = LabelSet(absent=True, others=True)


def values_of(expression: Expression) -> LabelSet:
    """What one expression allows. NotIn holds for nodes without the label, as in Kubernetes."""
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
    """All of `parts` at once; None if no node can satisfy them."""
    region: dict[str, LabelSet] = {}
    excluded: dict[str, set[str]] = {}
    for key, values in parts:
        if values.absent and values.others:  # gathered first: one by one, a thousand NotIn of one key are a million values
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
    """What of `region` lies outside `other`, as regions that together cover it (they may overlap each other)."""
    if not meets(region, other):
        return (region,)
    return tuple(
        {**region, key: piece}
        for key, values in other.items()
        for piece in _expressible(region.get(key, ANY).meet(values.complement()))
    )


def without_covered(regions: Iterable[Region]) -> tuple[Region, ...]:
    """The regions less those that lie inside another one; of equal ones the first stays."""
    kept: list[Region] = []
    for region in regions:
        if not any(_inside(region, other) for other in kept):
            kept = [other for other in kept if not _inside(other, region)]
            kept.append(region)
    return tuple(kept)


def requirements(region: Region) -> list[dict[str, Any]]:
    """The region as `matchExpressions` of a nodeSelectorTerm, keys and values sorted."""
    return [requirement for key in sorted(region) for requirement in _requirements(key, region[key])]


def _inside(region: Region, other: Region) -> bool:
    return all(region.get(key, ANY).meet(values) == region.get(key, ANY) for key, values in other.items())


def _expressible(values: LabelSet) -> Iterator[LabelSet]:
    """`absent or one of …` is no conjunction of Kubernetes expressions, so it becomes two sets; everything else is one."""
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
