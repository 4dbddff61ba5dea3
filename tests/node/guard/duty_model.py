"""Pods that go over their cap and back, end and come again, as their tenants like; and for how long each is over, in truth.

The truth is the memory that each pod uses at every moment. The guard looks as often as the loop does, at random moments, and
what it orders is carried out at once. What the guard thinks of anybody is not asked.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random

from gpushare_node.contract.struct import replace
from gpushare_node.guard.inputs import CapAction, Grant, Owner, Process
from gpushare_node.guard.verdicts import Evict, Kill, KillScope, Terminate, Verdict
from tests.node.guard.guard_fixture import CAP, GIB, GPU, Node, tenant

HIGH, LOW = 6 * GIB, 3 * GIB
CLOSE, SPREAD = 0.25, (0.5, 1.5)
"""As in the loop: looks are so much closer while somebody owes, and come so early or late."""
WINDOW_SECONDS = 600
EVICTED_SECONDS = 5
RETURN_SECONDS = 3.0
"""The least time from the end of a pod to the memory of the next: it is scheduled, started, and makes a CUDA context."""


@dataclass(kw_only=True)
class Pod:
    """What its tenant makes it do: `over` seconds over its cap, `calm` within it, and so on, from `shift` on.

    When it has been ended it comes again after `gap` seconds, and after `life` seconds by itself: as a new pod, or, `in_place`,
    as the next run of its container. `is_deaf`: SIGTERM does not end it.
    """

    namespace: str = "team"
    over: float = 60.0
    calm: float = 0.0
    shift: float = 0.0
    gap: float = RETURN_SECONDS
    life: float = float("inf")
    in_place: bool = False
    is_deaf: bool = True
    number: int = 0
    runs: int = 0
    evictions: int = 0
    process: Process | None = None
    until: float = float("inf")
    back_at: float = 0.0
    ended: list[float] = field(default_factory=list)

    def is_over(self, at: float) -> bool:
        return self.process is not None and (at + self.shift) % (self.over + self.calm) < self.over


@dataclass(kw_only=True)
class Duty:
    """A device with these pods, and one that is within its cap in each of their namespaces."""

    pods: list[Pod]
    rng: Random
    action: CapAction = CapAction.KILL
    node: Node = field(default_factory=lambda: Node(cap=replace(CAP, bytes=4 * GIB)))
    at: float = 0.0
    over: list[list[tuple[float, float]]] = field(default_factory=list)
    together: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.node.cap = replace(self.node.cap, action=self.action)
        self.over = [[] for _ in self.pods]
        self.start = self.node.now
        self.calm = []
        for number, pod in enumerate(self.pods, start=1):
            pod.number = number
            self.calm.append(self.join(Process(pid=90 + number, start_time=1, cgroup=""), pod.namespace, f"calm-{number}", LOW))

    def join(self, process: Process, namespace: str, uid: str, used: int, name: str = "") -> Process:
        made = tenant(process.pid, name or uid, start_time=process.pid)
        if made.container is not None and name:
            made = replace(made, container=made.container._replace(pod_uid=uid))
        assert made.container is not None
        own = Owner(namespace=namespace, uid=uid)
        self.node.grants[made.container] = Grant(owner=own, devices=frozenset({GPU}), caps={GPU: self.node.cap})
        return self.node.run(made, used)

    def run(self, seconds: float) -> None:
        while self.at < seconds:
            pace = CLOSE if self.node.history.violations or self.node.history.namespaces else 1.0
            self.look(pace * self.rng.uniform(*SPREAD))

    def look(self, step: float) -> tuple[Verdict, ...]:
        """Everybody's life until the next look, and what it orders."""
        self.at += step
        spent = [step if pod.is_over(self.at) else 0.0 for pod in self.pods]
        for pod, past, own in zip(self.pods, self.over, spent, strict=True):
            past.append((self.at, own))
            self.live(pod)
        self.together.append((self.at, max(spent)))
        verdicts = self.node.cycle(step)
        for verdict in verdicts:
            if isinstance(verdict, Terminate | Kill | Evict):
                self.carry_out(verdict)
        return verdicts

    def live(self, pod: Pod) -> None:
        if pod.process is not None and self.at >= pod.until:
            self.end(pod)
        if pod.process is None and self.at >= pod.back_at:
            pod.runs += 1
            pid = 1000 * pod.number + pod.runs
            uid = f"pod-{pod.number}-{pod.evictions}" if pod.in_place else f"pod-{pod.number}-{pod.runs}"
            pod.process = self.join(Process(pid=pid, start_time=1, cgroup=""), pod.namespace, uid, LOW, f"{uid}-{pod.runs}")
            pod.until = self.at + pod.life
        if pod.process is not None:
            self.node.used[GPU][pod.process.pid] = HIGH if pod.is_over(self.at) else LOW

    def end(self, pod: Pod) -> None:
        assert pod.process is not None
        assert pod.process.container is not None
        self.node.end(pod.process.pid)
        del self.node.grants[pod.process.container]
        pod.process, pod.back_at = None, self.at + pod.gap

    def carry_out(self, order: Terminate | Kill | Evict) -> None:
        """Nobody within its cap is signalled, but a container that was asked to end as a whole. An evicted pod has a grace."""
        container = order.facts.unit.container
        assert container not in {one.container for one in self.calm}, f"{order} to one within its cap"
        pod = next((pod for pod in self.pods if pod.process is not None and pod.process.container == container), None)
        if pod is None:
            return
        if isinstance(order, Evict):
            pod.until = min(pod.until, self.at + EVICTED_SECONDS)
            pod.evictions += 1
            return
        assert pod.is_over(self.at) or order.scope is KillScope.CONTAINER
        if isinstance(order, Kill) or not pod.is_deaf:
            pod.ended.append(self.at)
            self.end(pod)

    def shares(self) -> list[float]:
        """Of each pod, through all its runs, the most of any ten minutes that it was over its cap."""
        return [worst(past) for past in self.over]

    def share(self) -> float:
        """The most of any ten minutes that one of them was, whichever."""
        return worst(self.together)


def worst(past: list[tuple[float, float]]) -> float:
    """The largest share of a window that was spent over the cap, of all windows that lie in the past."""
    most, total, window = 0.0, 0.0, deque[tuple[float, float]]()
    for at, spent in past:
        window.append((at, spent))
        total += spent
        while window[0][0] <= at - WINDOW_SECONDS:
            total -= window.popleft()[1]
        if at >= WINDOW_SECONDS:
            most = max(most, total / WINDOW_SECONDS)
    return most
