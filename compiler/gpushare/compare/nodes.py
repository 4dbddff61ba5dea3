"""Nodes that change pools, and how many shares of one node a change removes, as far as known without asking the cluster."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from gpushare.compare import gpus, snapshots
from gpushare.compare.changes import Move
from gpushare.compare.snapshots import Pools, PoolSide
from gpushare.facts.catalog.cards import Geometry
from gpushare_node.contract.policy import Backend
from gpushare_node.contract.struct import Struct

GeometryOf = Callable[[str], Geometry | None]
"""The MIG geometry of a card by its id; None if the card has none or is not known."""


class NodeMoves(Struct):
    """Both sides of a comparison, by pool name."""

    before: Pools
    after: Pools
    geometry_of: GeometryOf
    same_terms: frozenset[str] = frozenset()
    """Pools whose DaemonSets are known to select the same nodes as before."""
    is_adopted: bool = False
    """The former bundle only observed these nodes: what runs there, and on which layout, is not known."""

    def disturbed(self, old: PoolSide, new: PoolSide) -> int:
        """Return how many shares of one node the change from `old` to `new` removes.

        AMD's config manager changes GPUs only when no pod uses any GPU of the node, and no node changes hands before.
        """
        if old.card != new.card or old.backend != new.backend:
            return old.shares
        if new.manager_label is not None and old.layouts != new.layouts:
            return old.shares
        restarts = (old.has_daemon or new.has_daemon) and old.profile != new.profile
        return gpus.disturbed(old.gpus, new.gpus, self.geometry_of(old.card), restarts=restarts)

    def worst(self, new: PoolSide, candidates: Iterable[PoolSide]) -> int:
        """Return how many shares a node may lose if it comes from an unknown one of the candidates. Cards do not change."""
        return max((self.disturbed(old, new) for old in candidates if old.card == new.card), default=0)

    @cached_property
    def successors(self) -> Mapping[str, str]:
        """Removed pool → the new pool that selects exactly its nodes: the same pool under another name."""
        new = {pool.selector: name for name, pool in reversed(list(self.after.items())) if name not in self.before}
        gone = ((name, pool.selector) for name, pool in self.before.items() if name not in self.after)
        return {name: new[selector] for name, selector in gone if selector in new}

    @cached_property
    def claimed_cards(self) -> frozenset[str]:
        """Cards of pools that are new or have another selector: nodes that pools of such a card lose may go to them."""
        before = self.before
        return frozenset(
            pool.card for name, pool in self.after.items() if name not in before or before[name].selector != pool.selector
        )

    def outranked(self, name: str) -> list[PoolSide]:
        """Return the pools from which a new pool may take nodes by labels: equal priorities are proved not to overlap."""
        new = self.after[name]
        if new.names:
            return []
        staying = (old for other, old in self.before.items() if other in self.after)
        return [old for old in staying if not old.names and old.priority < new.priority]

    def reordered(self, name: str) -> bool:
        """Whether a remaining pool may lose nodes to another remaining pool, or gain them, by priorities or its selector."""
        if name in self.same_terms or self.before[name].names or self.after[name].names:
            return False
        return self._preferred(name, self.before) != self._preferred(name, self.after)

    def _preferred(self, name: str, pools: Pools) -> set[tuple[str, str]]:
        staying = ((other, pools[other]) for other in self.before.keys() & self.after.keys())
        return {(other, one.selector) for other, one in staying if not one.names and one.priority > pools[name].priority}

    def moves(self) -> tuple[Move, ...]:
        """Return the named nodes that change pools, sorted. Nodes that were only observed had none."""
        if self.is_adopted:
            return ()
        was = {node: name for name, pool in self.before.items() for node in pool.names}
        will = {node: name for name, pool in self.after.items() for node in pool.names}
        nodes = sorted(node for node in was.keys() | will.keys() if was.get(node) != will.get(node))
        return tuple(self._move(node, was.get(node), will.get(node)) for node in nodes)

    def _move(self, node: str, source: str | None, target: str | None) -> Move:
        old, new = self.before.get(source or ""), self.after.get(target or "")
        if old is not None:
            disturbed = released(old) if new is None else self.disturbed(old, new)
        elif new is not None:  # it may come from a pool that selects by labels
            disturbed = self.worst(new, (pool for pool in self.before.values() if not pool.names))
        else:
            disturbed = 0
        return Move(node=node, source=source, target=target, disturbed=disturbed)


def released(old: PoolSide) -> int:
    """Return how many shares of one node are removed when gpushare releases it, which changes not every vendor's GPUs."""
    if not old.vendor.is_made_whole:
        return 0
    if Backend(old.backend).has_claims:
        return old.shares
    return gpus.disturbed(old.gpus, snapshots.released(old), None, restarts=old.has_daemon)
