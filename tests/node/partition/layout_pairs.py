"""Every pair of what can stand on a card and what can be desired of it, with the truth about it by plain enumeration."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpushare.facts.catalog.cards import MigProfile
from gpushare_node.contract.policy import Policy
from gpushare_node.partition.state import Gpu, NodeGpus
from tests.compiler.facts.mig import known_cards, reference_solver
from tests.node.partition import builders


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One state of one GPU and one policy. `fewest` is how many instances must go at least."""

    state: NodeGpus
    policy: Policy
    fewest: int


class Deck:
    """One card: all that can stand on it, and all that can be desired."""

    def __init__(self, card: str, is_wanted: Callable[[MigProfile], bool] = known_cards.is_plain) -> None:
        geometry = known_cards.geometry(card)
        self.profiles = builders.table(geometry)
        self.placed = reference_solver.placed_sets(geometry, is_wanted)
        self.ways = defaultdict(list)
        for placed in sorted(self.placed, key=sorted):
            self.ways[reference_solver.multiset(placed)].append(placed)
        del self.ways[frozenset()]

    def pairs(self, every: int = 1) -> Iterator[Pair]:
        """All pairs, or a regular part of them: one of `every`."""
        states = [(placed, self.state(placed)) for placed in sorted(self.placed, key=sorted)]
        number = 0
        for ways in self.ways.values():
            policy = self.policy(ways[-1])
            for placed, state in states:
                number += 1
                if number % every == 0:
                    yield Pair(state=state, policy=policy, fewest=min(len(placed - way) for way in ways))

    def state(self, placed: reference_solver.Placed) -> NodeGpus:
        existing = builders.instances(*((name, start) for name, start, _ in sorted(placed)), profiles=self.profiles)
        return builders.state(builders.gpu(builders.mig(*existing, profiles=self.profiles)))

    def policy(self, placed: reference_solver.Placed) -> Policy:
        return builders.policy(builders.desired(*((name, start) for name, start, _ in sorted(placed)), profiles=self.profiles))

    def stands(self, gpu: Gpu) -> reference_solver.Placed:
        """What stands on the GPU, in the card's own names; an instance without its compute instance is none of the card's."""
        names = {profile.id: profile.name for profile in self.profiles if profile.name is not None}
        assert gpu.mig is not None
        return frozenset(
            (names[instance.profile_id] if instance.is_whole else "orphan", instance.start, instance.size)
            for instance in gpu.mig.instances
        )


def as_wanted(state: NodeGpus, policy: Policy) -> bool:
    """Whether the first GPU is what the policy asks for: mode, profiles, nothing else, nothing broken."""
    own = builders.mig_of(state)
    has = Counter(one.profile_id for one in own.instances)
    return (
        own.current
        and own.pending
        and all(one.is_whole for one in own.instances)
        and has == Counter(instance.profile_id for instance in policy.gpus[0].instances)
    )
