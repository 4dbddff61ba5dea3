"""The ways to share a pool's card that give each container what it needs: Candidate, and in which order they are tried."""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from gpushare.core.units import MIB
from gpushare.core.wording import layout_text
from gpushare.facts.catalog.cards import Card, usable_bytes
from gpushare.intent.types import CapWord, Layout, Pool, Sharing
from gpushare.offering import modes, shares
from gpushare.offering.modes.traits import Demand, FaultIsolation, MemoryIsolation, Need, Variant, nodes_for
from gpushare.offering.shares import ShareKind
from gpushare.resolved.plan import PoolPlan
from gpushare_node.contract.struct import Struct, replace

_TIMES = (5, 6, 8, 12, 16, 24, 32)
"""How much more than they need containers may have, in quarters, if less fails the back-test."""
_FEWER = 16
"""How many smaller numbers of replicas are tried for each need."""
_MAX_TRIED = 60
"""Each of these may be replayed."""


class Isolation(StrEnum):
    """What may keep containers apart: at least what does now, hardware alone, or anything."""

    PRESENT = "present"
    MEMORY = "memory"
    NONE = "none"


class Candidate(Struct):
    """One way to share. `cap_bytes` is what each container may use: by a cap (`is_capped`), else all that the device has."""

    pool: Pool
    variant: Variant
    layouts: tuple[Layout, ...]
    kinds: tuple[ShareKind, ...]
    cap_bytes: int
    is_capped: bool

    @property
    def per_node(self) -> int:
        """How many shares a node has."""
        return sum(kind.per_node for kind in self.kinds)


class Ways:
    """The ways to share of one pool. `present` is how it shares now, None if its shares have several sizes."""

    def __init__(self, plan: PoolPlan, present: Candidate | None, isolation: Isolation) -> None:
        self._pool, self._card, self._present, self._isolation = plan.pool, plan.card, present, isolation

    def is_allowed(self, variant: Variant) -> bool:
        """Whether the variant keeps containers apart as well as is wanted, on a card that has it."""
        if self._card.vendor not in variant.vendors:
            return False
        if self._isolation is Isolation.NONE or self._present is None:
            return True
        if self._isolation is Isolation.MEMORY:
            return variant.memory is MemoryIsolation.HARDWARE
        now = self._present.variant
        return _rank(variant) <= _rank(now)

    def of(self, variants: Sequence[Variant], needs: Sequence[int], least: int) -> list[Candidate]:
        """Return the ways to share that give each container what it needs, or more: the one with the most shares first.

        `needs` are in bytes, the most cautious first. The present way is among them if it gives at least `least`.
        """
        found: dict[tuple[object, ...], Candidate] = {}
        more = (needs[0] * times // 4 for times in _TIMES)
        for need, variant in ((need, variant) for need in (*needs, *more) for variant in variants):
            demand = Demand(card=self._card, needs=(Need(memory_bytes=need),), gpus_per_node=self._pool.gpus_per_node, nodes=1)
            divided = variant.ways(demand)
            for sharing in () if isinstance(divided, str) else divided:
                for one in self._with_fewer(sharing, need):
                    if not self._isolates_less(one):
                        found.setdefault((variant.word, one.layouts, one.pool.sharing.replicas), one)
        own = self._present
        if own is not None:
            same = (own.variant.word, own.layouts, own.pool.sharing.replicas)
            if own.variant in variants and own.cap_bytes >= min(needs[-1], least):
                found[same] = own
        return sorted(found.values(), key=self._preference)[:_MAX_TRIED]

    def _isolates_less(self, one: Candidate) -> bool:
        """Whether more containers share an instance than its kind of MIG is for: all of a GPU, or those of several now."""
        if not modes.of(one.pool).is_partitioned or not one.pool.sharing.replicas:
            return False
        if any(sum(number for _, number in layout) == 1 for layout in one.layouts):
            return True
        own = self._present
        is_replicated = own is not None and modes.of(own.pool).is_partitioned and bool(own.pool.sharing.replicas)
        return is_replicated and self._isolation is Isolation.PRESENT and one.layouts != getattr(own, "layouts", ())

    def _preference(self, one: Candidate) -> tuple[int, ...]:
        is_other = self._present is None or one.variant.word != self._present.variant.word
        return -one.per_node, one is not self._present, is_other, *_rank(one.variant), len(one.kinds)

    def _with_fewer(self, sharing: Sharing, need: int) -> Iterator[Candidate]:
        """Yield the way to share with the pool's own reserve and settings, and with each smaller number of replicas."""
        sharing = modes.of(self._pool).with_settings(sharing)
        memory = replace(self._pool.memory, cap=None if self._pool.memory.cap is None else CapWord.EVEN)
        most = sharing.replicas if isinstance(sharing.replicas, int) else 0
        several = [replace(sharing, replicas=number) for number in range(most, max(1, most - _FEWER), -1)]
        for each in several or [sharing]:
            one = _candidate(replace(self._pool, sharing=each, memory=memory), self._card)
            if one is not None and one.cap_bytes >= need:
                yield one


def present(plan: PoolPlan) -> Candidate | None:
    """Return how the pool shares now; None if its shares have several sizes."""
    one = _candidate(plan.pool, plan.card, plan.layout_of_goal)
    if one is None:
        return None
    provided = {_provides(plan.pool, plan.card, kind) for kind in one.kinds}
    return one if len(provided) == 1 else None


def _candidate(pool: Pool, card: Card, pinned: Layout | None = None) -> Candidate | None:
    traits = modes.of(pool)
    layouts = traits.layouts(card, pinned)
    kinds = shares.kinds(pool, card, layouts) if layouts else ()
    provided = [_provides(pool, card, kind) for kind in kinds]
    if layouts is None or not kinds or None in provided:
        return None
    is_capped = any(shares.cap_mib(pool, card, kind.profile, kind.replicas) is not None for kind in kinds)
    cap = min(one for one in provided if one is not None)
    return Candidate(pool=pool, variant=traits.variant, layouts=layouts, kinds=kinds, cap_bytes=cap, is_capped=is_capped)


def _provides(pool: Pool, card: Card, kind: ShareKind) -> int | None:
    """Return what a container with one share may use, in bytes: its cap, or what the device has; None if not known."""
    cap = shares.cap_mib(pool, card, kind.profile, kind.replicas)
    return usable_bytes(kind.memory_mib, pool.memory.reserve) if cap is None else cap * MIB


def _rank(variant: Variant) -> tuple[int, int, int]:
    """Return what is larger for less isolation; of those that share a device, MIG with replicas has the most."""
    is_shared = variant.memory is not MemoryIsolation.HARDWARE
    faults = list(FaultIsolation).index(variant.faults)
    return int(is_shared), faults, modes.VARIANTS.index(variant) if is_shared else 0


def gpus(one: Candidate, peak: int) -> int:
    """Return how many GPUs have so many shares, by whole nodes, as `gpushare size` counts."""
    need = (Need(memory_bytes=one.cap_bytes, users=peak),)
    return (nodes_for(((one.cap_bytes, one.per_node),), need) or 0) * one.pool.gpus_per_node


def words(one: Candidate) -> str:
    """Return a way to share in words: `time-slicing ×4`."""
    layout = layout_text(one.layouts[0]) if one.layouts[0] else ""
    replicas = one.pool.sharing.replicas
    times = f"×{replicas}" if isinstance(replicas, int) and replicas else ""
    return " ".join(filter(None, (one.pool.mode.value, layout, times)))
