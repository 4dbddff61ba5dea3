"""Replays measured use through the node runtime's `guard`, in simulated time: which containers it would have ended.

Each container is one process on each of its devices. A use holds until the next sample, the last one before a gap and the last
of all for one step. In a gap the guard is told that the process is there and not how much it uses. A container that is ended
uses nothing afterwards, and counts once. A node looks about once a second, at random times; the replay looks at every full
second, so a container that is over its cap for very nearly as long as it may be can end either way.

Only the cycles in which a container is over its cap, owes or is being ended are replayed: any other changes nothing.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

from gpushare.study.advice import distribution
from gpushare.study.advice.advised import BackTest, Ending
from gpushare.study.advice.history import ContainerUse
from gpushare_node.contract.policy import Action
from gpushare_node.contract.struct import Struct
from gpushare_node.guard.evaluate import evaluate
from gpushare_node.guard.inputs import DEFAULTS, Cap, CapAction, ContainerId, Grant, GuardInput, Owner, Process, ProcessKind
from gpushare_node.guard.process_list import Device, Mps, ProcessEntry
from gpushare_node.guard.state import GuardState
from gpushare_node.guard.verdicts import Evict, Kill, Terminate

__all__ = ["ABSENT", "Measured", "Terms", "changes", "replay"]

ABSENT = -1
"""In place of a use: the container has not been measured yet, or no longer."""

_WEEK_SECONDS = 7 * 86400

_FIRST_PID = 1000
_ENOUGH_BYTES = 1 << 62
"""The memory of every device, as the guard is told it: whether measured uses can be true is not the question here."""


class Terms(Struct):
    """The cap of a container, and how it is enforced. `is_mps`: containers are clients of the platform's MPS daemon.

    A container has one share of a device: the device plugin refuses a request for more (`backends.device_plugin`).
    """

    cap_bytes: int
    tolerance_bytes: int
    action: Action
    grace_seconds: int
    is_mps: bool = False

    @property
    def cap(self) -> Cap:
        """The cap as the guard has it. An action that ends no container is replayed as `kill`."""
        return Cap(
            bytes=self.cap_bytes,
            tolerance_bytes=self.tolerance_bytes,
            action=CapAction.EVICT if self.action is Action.EVICT else CapAction.KILL,
            grace_seconds=self.grace_seconds,
        )


Name = tuple[str, str, str]
"""The namespace, pod and name of a container."""


class Measured:
    """What containers used from the first second of a period to before its last: read once, and replayed under many caps."""

    def __init__(self, uses: Sequence[ContainerUse], period: tuple[int, int], step_seconds: int, gap_seconds: int) -> None:
        self.period = period
        traces = (_Trace(use, changes(use, period, step_seconds, gap_seconds), period[1]) for use in uses)
        self.traces = [trace for trace in traces if trace.seconds]
        seconds: dict[Name, int] = {}
        for trace in self.traces:
            seconds[trace.name] = max(seconds.get(trace.name, 0), trace.seconds)
        self.containers = len(seconds)
        self.weeks = sum(seconds.values()) / _WEEK_SECONDS
        """How long the use of all containers is known, together."""


def replay(measured: Measured, terms: Terms, *, is_whole: bool = False) -> BackTest:
    """Return whom the guard would have ended. `is_whole`: replay every second, also those in which nothing can change."""
    groups = [measured.traces] if is_whole else _independent(measured.traces, terms)
    endings = [ending for group in groups for ending in _Replay(group, terms).run(measured.period, is_whole=is_whole)]
    return BackTest(
        containers=measured.containers,
        endings=tuple(sorted(endings, key=lambda one: (one.at, one.namespace, one.pod, one.container))),
        rate=distribution.rate(len(endings), measured.weeks),
    )


def changes(use: ContainerUse, period: tuple[int, int], step_seconds: int, gap_seconds: int) -> list[tuple[int, int | None]]:
    """Return what the container uses in the period and from when on: bytes, ABSENT, or None if it is not known."""
    start, end = period
    found: list[tuple[int, int | None]] = [(start, ABSENT)]

    def note(at: int, used: int | None) -> None:
        if at <= start:
            found[0] = (start, used)
        elif at < end and used != found[-1][1]:
            found.append((at, used))

    for (at, used), (following, _) in pairwise(use.points):
        note(at, used)
        if following - at > gap_seconds:
            note(at + step_seconds, None)
    for at, used in use.points[-1:]:
        note(at, used)
        note(at + step_seconds, ABSENT)
    return found


class _Trace:
    """One container on one device. `seconds`: how long its use is known; `most`: the largest."""

    def __init__(self, use: ContainerUse, found: list[tuple[int, int | None]], end: int) -> None:
        self.name: Name = (use.namespace, use.pod, use.container)
        self.device = use.device or "/".join(self.name)  # a device that the history does not name is the container's own
        self._times, self._uses = [at for at, _ in found], [used for _, used in found]
        self._ends = (*self._times[1:], end)
        known = (used for used in self._uses if used is not None)
        self.most = max(known, default=ABSENT)
        spans = zip(self._times, self._ends, self._uses, strict=True)
        self.seconds = sum(until - at for at, until, used in spans if used is not None and used != ABSENT)

    def use(self, now: float) -> int | None:
        """Return what it uses now, as `changes` has it."""
        return self._uses[bisect_right(self._times, now) - 1]

    def next_change(self, now: float) -> float:
        """Return when that changes; infinity if it does not."""
        number = bisect_right(self._times, now)
        return self._times[number] if number < len(self._times) else math.inf

    def over(self, limit_bytes: int) -> list[tuple[int, int]]:
        """Return when it uses more than that, as (first second, first second after)."""
        if self.most <= limit_bytes:
            return []
        spans = zip(self._times, self._ends, self._uses, strict=True)
        return [(at, until) for at, until, used in spans if used is not None and used > limit_bytes]


def _independent(traces: list[_Trace], terms: Terms) -> Iterator[list[_Trace]]:
    """Yield the traces in groups that have neither a device nor a container in common, and in which one is over its limit.

    What the guard does on a device depends on another only through a container that uses both.
    """
    leader: dict[str | Name, str | Name] = {}

    def find(key: str | Name) -> str | Name:
        while (above := leader.setdefault(key, key)) != key:
            leader[key] = key = leader[above]
        return key

    for trace in traces:
        leader[find(trace.device)] = find(trace.name)
    groups: dict[str | Name, list[_Trace]] = {}
    for trace in traces:
        groups.setdefault(find(trace.name), []).append(trace)
    limit = terms.cap.limit_bytes
    yield from (group for group in groups.values() if any(trace.most > limit for trace in group))


class _Replay:
    """Containers that share devices, and the guard's state."""

    def __init__(self, traces: Sequence[_Trace], terms: Terms) -> None:
        self._mps = Mps.REACHABLE if terms.is_mps else Mps.OFF
        self._by_device: dict[str, list[_Trace]] = {}
        self._over: dict[Name, list[list[tuple[int, int]]]] = {}
        caps: dict[Name, dict[str, Cap]] = {}
        cap = terms.cap
        for trace in traces:
            caps.setdefault(trace.name, {})[trace.device] = cap
            self._by_device.setdefault(trace.device, []).append(trace)
            if spans := trace.over(cap.limit_bytes):
                self._over.setdefault(trace.name, []).append(spans)
        self._pids = {name: _FIRST_PID + number for number, name in enumerate(caps)}
        self._identities = {pid: _process(name, pid) for name, pid in self._pids.items()}
        self._grants = {_container(name): _grant(name, own) for name, own in caps.items()}
        self._names = {_container(name): name for name in caps}
        self._ended: set[Name] = set()
        self._known: dict[str, tuple[float, Device]] = {}

    def run(self, period: tuple[int, int], *, is_whole: bool) -> Iterator[Ending]:
        """Yield whom the guard ends, in the order in which it does."""
        state, now = GuardState(), period[0]
        while now < period[1]:
            if not is_whole and not (state.violations or state.namespaces or state.targets):
                following = self._next_over(now)
                if following is None:
                    return
                now = following
            inputs = GuardInput(
                devices=self._devices(now), identities=self._identities, grants=self._grants, is_allocation_known=True
            )
            verdicts, state = evaluate(inputs, state, float(now))
            for verdict in verdicts:
                if isinstance(verdict, Terminate | Kill | Evict):
                    name = self._names[verdict.facts.unit.container]
                    if name not in self._ended:
                        self._ended.add(name)
                        self._over.pop(name, None)
                        self._known.clear()
                        yield Ending(
                            namespace=name[0], pod=name[1], container=name[2], at=now, used_bytes=verdict.facts.used_bytes
                        )
            now += int(DEFAULTS.interval_seconds)

    def _next_over(self, now: int) -> int | None:
        """Return when a container is next over its limit, now or later."""
        found = []
        for spans in (spans for of_container in self._over.values() for spans in of_container):
            number = bisect_right(spans, now, key=itemgetter(1))
            if number < len(spans):
                found.append(max(now, spans[number][0]))
        return min(found, default=None)

    def _devices(self, now: int) -> tuple[Device, ...]:
        """Return every device as it is now; one on which nothing has changed is the same object as before."""
        for uuid, traces in self._by_device.items():
            if uuid not in self._known or now >= self._known[uuid][0]:
                present = [trace for trace in traces if trace.name not in self._ended]
                uses = [(self._pids[trace.name], trace.use(now)) for trace in present]
                rows = tuple(ProcessEntry(pid=pid, used_bytes=used) for pid, used in uses if used is None or used > 0)
                until = min((trace.next_change(now) for trace in present), default=math.inf)
                self._known[uuid] = until, Device(uuid=uuid, total_bytes=_ENOUGH_BYTES, rows=rows, mps=self._mps)
        return tuple(self._known[uuid][1] for uuid in self._by_device)


def _container(name: Name) -> ContainerId:
    return ContainerId(pod_uid=f"{name[0]}/{name[1]}", container=name[2])


def _process(name: Name, pid: int) -> Process:
    return Process(pid=pid, start_time=pid, cgroup="/".join(name), container=_container(name), kind=ProcessKind.TENANT)


def _grant(name: Name, caps: Mapping[str, Cap]) -> Grant:
    return Grant(owner=Owner(namespace=name[0], uid="/".join(name)), devices=frozenset(caps), caps=caps)
