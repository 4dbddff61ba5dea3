"""Duty cycles: who is over its cap for half of the time is ended in time, who is for a quarter never, at any period.

The truth is the curve of the memory that a simulated program uses, looked at as often as the loop does, at random moments. What
the guard thinks of it is not asked: only when it signals whom.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gpushare_node.contract.struct import replace
from gpushare_node.guard.inputs import Cap, CapAction, Grant, Owner, Process, Settings
from gpushare_node.guard.verdicts import Kill, Terminate, Verdict
from tests.node.guard.guard_fixture import CAP, GIB, GPU, OTHER, Node, owner, signalled, steps, tenant
from tests.support import scale

HIGH, LOW = 30 * GIB, GIB
CLOSE, SPREAD = 0.25, (0.5, 1.5)
"""As in the loop: looks are so much closer while somebody owes, and come so early or late."""

SIGNAL_SECONDS = 5 + 2
"""From SIGTERM to SIGKILL, and the looks that both wait for."""

UNGUIDED = settings(max_examples=scale.examples(40), phases=[Phase.explicit, Phase.reuse, Phase.generate])
"""Examples are not made smaller: who chooses the moments of the looks may fool anybody, so they stay random."""

Curve = Callable[[float], bool]


@dataclass(kw_only=True)
class Program:
    """One program whose use follows a curve; `deaf` to SIGTERM. Looks go on until it is killed or the time is over."""

    curve: Curve
    rng: Random
    cap: Cap = CAP
    asked: Settings = field(default_factory=Settings)

    def ended_after(self, seconds: float) -> float | None:
        """When SIGKILL was sent, from the first moment over the cap on; None if that did not happen by then."""
        node = Node(cap=self.cap, settings=self.asked)
        node.run(tenant(500), LOW)
        start, at = node.now, 0.0
        while at < seconds:
            nominal = self.asked.interval_seconds
            pace = nominal * CLOSE if node.history.violations else nominal
            at += pace * self.rng.uniform(*SPREAD)
            node.used[GPU][500] = HIGH if self.curve(at) else LOW
            verdicts = node.cycle(seconds=start + at - node.now)
            if any(isinstance(verdict, Terminate | Kill) for verdict in verdicts):
                assert self.curve(at), "a signal while it was within its cap"
            if any(isinstance(verdict, Kill) for verdict in verdicts):
                return at
        return None


def wave(over: float, calm: float, shift: float = 0.0) -> Curve:
    """Over the cap for so long, then within it for so long, and so on."""
    return lambda at: (at + shift) % (over + calm) < over


def bound(cap: Cap, asked: Settings) -> float:
    """What is promised to neighbours of an offender."""
    return 4 * asked.patience_seconds(cap) + asked.exit_seconds


@pytest.mark.failure_case(86)
@given(
    over=st.floats(3.0, 60.0),
    share=st.floats(0.5, 1.0),
    grace=st.sampled_from([0.0, 5.0, 10.0, 45.0]),
    seed=st.integers(0, 1 << 32),
)
@UNGUIDED
def test_container_over_its_cap_half_the_time_is_killed_within_four_graces(
    *, over: float, share: float, grace: float, seed: int
) -> None:
    cap, asked = replace(CAP, grace_seconds=grace), Settings()
    calm = over * (1 - share) / share
    # SIGKILL waits for a look over the cap: at worst one calm, and a few looks.
    most = bound(cap, asked) + calm + 2 * asked.interval_seconds
    ended = Program(curve=wave(over, calm), rng=Random(seed), cap=cap, asked=asked).ended_after(most)
    assert ended is not None


@pytest.mark.failure_case(86)
@given(over=st.floats(0.02, 3.0), share=st.floats(0.5, 1.0), seed=st.integers(0, 1 << 32))
@UNGUIDED
def test_container_that_oscillates_faster_is_killed_later(*, over: float, share: float, seed: int) -> None:
    most = 30 * Settings().patience_seconds(CAP) + SIGNAL_SECONDS
    assert Program(curve=wave(over, over * (1 - share) / share), rng=Random(seed)).ended_after(most) is not None


@pytest.mark.failure_case(86)
@given(over=st.floats(0.02, 12.9), share=st.floats(0.01, 0.25), seed=st.integers(0, 1 << 32))
@UNGUIDED
def test_container_over_its_cap_a_quarter_of_the_time_is_not_killed(*, over: float, share: float, seed: int) -> None:
    program = Program(curve=wave(over, over * (1 - share) / share, over / 2), rng=Random(seed))
    assert program.ended_after(1200 if scale.is_long else 400) is None


@pytest.mark.failure_case(86)
def test_unobserved_time_pays_and_adds_debt_alike() -> None:
    """Looks are four seconds apart where the driver is slow; whoever is over for half of the time must not gain by it."""
    node = Node()
    node.run(tenant(500), LOW)
    verdicts: list[Verdict] = []
    for look in range(60):
        node.used[GPU][500] = HIGH if look % 8 < 4 else LOW
        verdicts += node.cycle(seconds=4)
    assert "Terminate" in steps(verdicts)


@pytest.mark.failure_case(86)
@pytest.mark.parametrize("pattern", ["oooooooooooo.", "ooooooooooooooooo.", "oo.", "o."])
def test_single_sample_below_the_cap_does_not_clear_the_debt(pattern: str) -> None:
    over, calm = float(pattern.count("o")), float(pattern.count("."))
    ended = Program(curve=wave(over, calm), rng=Random(1)).ended_after(4 * 13 + SIGNAL_SECONDS)
    assert ended is not None


@pytest.mark.failure_case(86)
def test_one_sample_a_second_misses_usage_over_the_cap_half_the_time() -> None:
    """Why looks are closer while somebody owes: of five seconds over the cap a look a second sees four."""
    node = Node()
    node.run(tenant(500), LOW)
    verdicts: list[Verdict] = []
    for second in range(52):
        node.used[GPU][500] = HIGH if second % 4 < 2 else LOW
        verdicts += node.cycle()
    assert signalled(verdicts) == []


@pytest.mark.failure_case(86)
def test_replaced_containers_inherit_the_debt() -> None:
    node = Node()
    told: list[str] = []
    for number in range(5):
        process = run_of_all(node, number)
        told += steps(node.cycles(12))
        remove(node, process)
        told += steps(node.cycle())
    assert "Kill" in told


def run_of_all(node: Node, number: int) -> Process:
    """The next container of an owner that has its containers started anew."""
    process = tenant(500 + number, f"run-{number}")
    assert process.container is not None
    node.grants[process.container] = Grant(owner=owner("all"), devices=frozenset({GPU}), caps={GPU: node.cap})
    return node.run(process, HIGH)


def remove(node: Node, process: Process) -> None:
    """Its container is gone with it."""
    node.end(process.pid)
    if process.container is not None:
        del node.grants[process.container]


@pytest.mark.failure_case(86)
@given(owed=st.integers(1, 12), gap=st.integers(1, 40), is_read=st.booleans())
@settings(max_examples=40)
def test_inherited_debt_is_paid_at_half_the_gap(*, owed: int, gap: int, is_read: bool) -> None:
    """Not while the device cannot be read: nobody knows then who is over."""
    node = Node()
    former = run_of_all(node, 1)
    node.cycles(owed + 1)
    remove(node, former)
    node.cycle()
    unread: dict[str, Any] = {"gpu0": replace(node.device(GPU), rows=None)}
    for _ in range(gap - 1):
        node.cycle(**({} if is_read else unread))
    run_of_all(node, 2)
    inherited = max(owed - max(gap - 1.5, 0) / 2, 0.0) if is_read else owed
    looks = math.ceil(13 - inherited)
    assert "Terminate" not in steps(node.cycles(looks))
    assert "Terminate" in steps(node.cycle())
    assert len(node.history.violations) == 1


@pytest.mark.failure_case(86)
@given(life=st.floats(7.0, 60.0), gap=st.floats(0.1, 2.0), seed=st.integers(0, 1 << 32))
@UNGUIDED
def test_controller_that_restarts_its_containers_is_killed_in_time(*, life: float, gap: float, seed: int) -> None:
    """Deaf to SIGTERM, too: what lives long enough for both signals meets both."""
    node, rng, number = Node(), Random(seed), 0
    start, process = node.now, None
    while node.now - start < bound(CAP, Settings()) + life:
        at = node.now - start + rng.uniform(*SPREAD) * CLOSE
        is_up = at % (life + gap) < life
        if process is not None and (not is_up or at // (life + gap) >= number):
            remove(node, process)
            process = None
        if is_up and process is None:
            number = int(at // (life + gap)) + 1
            process = run_of_all(node, number)
        if "Kill" in steps(node.cycle(seconds=start + at - node.now)):
            return
    raise AssertionError("never killed")


@pytest.mark.failure_case(86)
def test_container_that_replaces_another_in_the_same_cycle_inherits_its_debt() -> None:
    """Kubelet tells of both at once: the status of a container that is started again has the new run's id."""
    node = Node()
    for number in range(2):
        process = run_of_all(node, number)
        told = steps(node.cycles(13))
        remove(node, process)
    assert "Kill" in told


@pytest.mark.failure_case(86)
@pytest.mark.parametrize(("namespace", "looks"), [("ns-all", 2), ("elsewhere", 14)], ids=["of its namespace", "of another"])
@pytest.mark.parametrize("used", [HIGH, LOW], ids=["over", "within"])
def test_forged_controller_uid_does_not_harm_others(namespace: str, looks: int, used: int) -> None:
    """Anybody who may make a pod may write any controller's uid into it. Within a namespace that trust is shared."""
    node = Node()
    forger = run_of_all(node, 1)
    assert forger.container is not None
    forged = Owner(namespace=namespace, uid=owner("all").uid)
    node.grants[forger.container] = replace(node.grants[forger.container], owner=forged)
    node.cycles(13)
    remove(node, forger)
    node.cycle()
    node.used[GPU][run_of_all(node, 2).pid] = used
    assert signalled(node.cycles(looks - 1)) == []
    assert len(signalled(node.cycle())) == (used == HIGH)


def stand_in(node: Node, number: int, used: int) -> Process:
    """A container of one namespace with many pods."""
    process = tenant(500 + number, f"pod-{number}")
    assert process.container is not None
    own = Owner(namespace="team", uid=f"pod-{number}")
    node.grants[process.container] = Grant(owner=own, devices=frozenset({GPU}), caps={GPU: node.cap})
    return node.run(process, used)


@pytest.mark.failure_case(86)
def test_namespace_debt_removes_the_grace_only_for_pods_over_their_cap() -> None:
    node = Node()
    first = stand_in(node, 1, HIGH)
    sibling, calm = stand_in(node, 2, LOW), stand_in(node, 3, LOW)
    node.cycles(13)
    remove(node, first)
    node.used[GPU][sibling.pid] = HIGH
    verdicts = node.cycles(4)
    assert signalled(verdicts) == [sibling]
    assert calm not in signalled(node.cycles(60))


@pytest.mark.failure_case(86)
@pytest.mark.parametrize(("pods", "turn"), [(4, 12.0), (4, 6.0), (4, 2.0), (4, 1.0), (3, 6.0), (2, 6.0), (5, 0.4)])
def test_pods_that_alternate_over_their_caps_are_killed_one_after_another(pods: int, turn: float) -> None:
    """One of them is always over its cap, none for as long as its grace; looks come as often as the loop's."""
    node, rng = Node(), Random(3)
    everyone = [stand_in(node, number, LOW) for number in range(pods)]
    start, ended = node.now, 0.0
    while node.now - start < 2 * bound(CAP, Settings()) and not ended:
        at = node.now - start + CLOSE * rng.uniform(*SPREAD)
        over = int(at / turn) % pods
        for number, process in enumerate(everyone):
            node.used[GPU][process.pid] = HIGH if number == over else LOW
        chosen = signalled(node.cycle(seconds=start + at - node.now))
        assert set(chosen) <= {everyone[over]}
        ended = at if chosen else 0.0
    assert 0 < ended <= bound(CAP, Settings())


@pytest.mark.failure_case(86)
def test_bare_pods_recreated_before_their_grace_ends_lose_it() -> None:
    """Twelve seconds over the cap in a new pod, three without any; from the second on each is ended within eight."""
    node, over, last = Node(), 0, 0
    for number in range(40):
        process = stand_in(node, number, HIGH)
        for second in range(12):
            over += 1
            if any(isinstance(one, Kill) for one in node.cycle()):
                last = second
                break
        remove(node, process)
        node.cycles(3)
        assert number < 2 or last <= 8
    assert over < 40 * 9


@pytest.mark.failure_case(86)
def test_recreated_bare_pods_are_killed_and_evicted_without_delay() -> None:
    """An evicted pod may take as long to end as it likes: once its namespace owes the most, it gets SIGKILL as well."""
    node = Node(cap=replace(CAP, action=CapAction.EVICT, grace_seconds=0))
    told: list[str] = []
    for number in range(100):
        process = stand_in(node, number, HIGH)
        told += steps(node.cycles(8))
        remove(node, process)
        node.cycles(2)
    assert told.count("Kill") >= 99
    assert told.count("Evict") >= 99


@pytest.mark.failure_case(86)
def test_debt_of_removed_containers_is_dropped_when_it_would_be_paid() -> None:
    node = Node()
    for number in range(200):
        node.run(tenant(500 + number, f"c{number}"), HIGH)
        node.cycles(5)
        node.end(500 + number)
        node.grants.clear()
        node.cycle()
    assert len(node.history.violations) <= 3
    node.cycles(60)
    assert (node.history.violations, node.history.namespaces, node.history.targets) == ({}, {}, {})


@pytest.mark.failure_case(86)
@pytest.mark.parametrize(("hidden", "is_paid"), [(9 * GIB, False), (None, False), (GIB, True)])
@pytest.mark.parametrize("rest", [0, 2 * GIB], ids=["absent", "present"])
def test_unknown_memory_that_would_exceed_the_cap_pays_no_debt(hidden: int | None, is_paid: bool, rest: int) -> None:
    """A container whose memory is always that of a process too young to have been identified would otherwise pay its debt."""
    node = Node()
    node.run(tenant(500), HIGH)
    if rest:
        node.run(tenant(501), rest)
    node.cycles(12)
    node.end(500)
    for pid in range(600, 660):
        node.used[GPU][pid] = hidden
        node.cycle()
        del node.used[GPU][pid]
    assert (node.history.violations == {}) == (node.history.namespaces == {}) == is_paid


@pytest.mark.failure_case(86)
@pytest.mark.parametrize(("place", "is_paid"), [(GPU, False), (OTHER, True)])
def test_memory_on_a_device_of_others_alone_does_not_stop_debt_repayment(place: str, is_paid: bool) -> None:
    node = Node(gpus=(GPU, OTHER))
    node.run(tenant(500), HIGH)
    node.cycles(12)
    node.used[GPU] = {500: LOW}
    node.used.setdefault(place, {})[77] = HIGH
    node.unseen = frozenset({77})
    node.cycles(60)
    assert (node.history.violations == {}) == is_paid


@pytest.mark.failure_case(86)
def test_namespace_debt_is_dropped_when_its_device_is_removed() -> None:
    node = Node(gpus=(GPU, OTHER))
    node.run(tenant(500), HIGH)
    node.until(Terminate)
    node.used.clear()
    node.gpus = ()
    node.cycles(100)
    assert node.history.namespaces != {}, "no device was read, so none is known to be gone"
    node.gpus = (OTHER,)
    node.cycles(100)
    assert (node.history.violations, node.history.namespaces) == ({}, {})
