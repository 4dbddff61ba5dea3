"""The pods that wait, by what they wait for: a pod that ends wakes only those that may run now.

Pods that request the same are tried in the order of their arrival until one fails: the others would fail too, because nothing
becomes free in between.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from gpushare.study.simulation.choice import Target


class Budget(NamedTuple):
    """What a quota limits."""

    namespace: str
    resource: str


class QuotaWish(NamedTuple):
    """So much of a budget."""

    budget: Budget
    amount: int


Wish = Target | QuotaWish
"""What a pod waits for: room on a node, or quota."""

Source = Budget | tuple[int, str]
"""What becomes free: quota, or a resource of a pool."""


class Waiting:
    """Pods by their number; lower numbers came first."""

    def __init__(self) -> None:
        self._pods: dict[Wish, list[int]] = {}
        self._wishes: dict[Source, dict[Wish, None]] = {}

    def add(self, pod: int, wish: Wish) -> None:
        """Let a pod wait."""
        if wish not in self._pods:
            self._pods[wish] = []
            for one in _sources(wish):
                self._wishes.setdefault(one, {})[wish] = None
        heappush(self._pods[wish], pod)

    def wake(self, freed: Iterable[Source], serve: Callable[[int], bool]) -> None:
        """Let `serve` try the pods that wait for something of what was freed, in the order of their arrival.

        It returns whether the pod has what it waited for; it may let the pod wait for something else.
        """
        wishes = dict.fromkeys(wish for one in freed for wish in self._wishes.get(one, ()))
        first = [(self._pods[wish][0], number, wish) for number, wish in enumerate(wishes)]
        heapify(first)
        while first:
            pod, number, wish = heappop(first)
            if not serve(pod):
                continue
            heappop(self._pods[wish])
            if self._pods[wish]:
                heappush(first, (self._pods[wish][0], number, wish))
            else:
                self._forget(wish)

    def _forget(self, wish: Wish) -> None:
        del self._pods[wish]
        for one in _sources(wish):
            del self._wishes[one][wish]
            if not self._wishes[one]:
                del self._wishes[one]

    def left(self) -> Iterator[tuple[int, Wish]]:
        """Yield the pods that still wait, and for what."""
        return ((pod, wish) for wish, pods in self._pods.items() for pod in pods)


def _sources(wish: Wish) -> Iterable[Source]:
    return [wish.budget] if isinstance(wish, QuotaWish) else [(pool, wish.resource) for pool in wish.pools]
