"""A cap for several containers together: the one that uses most answers for the excess, and none gains by taking turns."""

import random

import pytest

from gpushare_node.contract.struct import replace
from gpushare_node.guard.inputs import ContainerId, Grant, Owner
from gpushare_node.guard.verdicts import CapState, ContainerStatus, Terminate, Warn
from tests.node.guard.guard_fixture import CAP, GIB, GPU, Node, container, tenant
from tests.support import scale


def join(node: Node, *names: str) -> None:
    """These containers, of one pod, have one cap on the GPU."""
    together = frozenset(container(name) for name in names)
    for name in names:
        own = Grant(owner=Owner("ns", f"uid/{name}"), devices=frozenset({GPU}), caps={GPU: CAP}, partners={GPU: together})
        node.grants[container(name)] = own


def statuses(node: Node) -> dict[ContainerId, ContainerStatus]:
    return {one.unit.container: one for one in node.cycle() if isinstance(one, ContainerStatus)}


def test_partners_within_their_cap_are_shown_with_what_each_uses() -> None:
    node = Node()
    join(node, "a", "b")
    node.run(tenant(11, "a"), 2 * GIB)
    node.run(tenant(12, "b"), 1 * GIB)
    found = statuses(node)
    assert {one.used_bytes // GIB for one in found.values() if one.used_bytes} == {1, 2}
    assert {one.state for one in found.values()} == {CapState.OK}


def test_of_partners_over_their_cap_the_one_that_uses_most_is_sent_the_signal() -> None:
    node = Node()
    join(node, "a", "b")
    node.run(tenant(11, "a"), 2 * GIB)
    node.run(tenant(12, "b"), 3 * GIB)
    warned, ended = node.until(Warn), node.until(Terminate)
    assert isinstance(warned, Warn)
    assert isinstance(ended, Terminate)
    assert (warned.facts.unit.container, warned.facts.used_bytes) == (container("b"), 5 * GIB)
    assert [process.pid for process in ended.processes] == [12]


def test_no_more_processes_are_sent_it_than_bring_all_of_them_within_their_cap() -> None:
    node = Node()
    join(node, "a", "b")
    node.run(tenant(11, "a"), 1 * GIB)
    for pid in (12, 13, 14):
        node.run(tenant(pid, "b"), (pid - 11) * GIB)
    ended = node.until(Terminate)
    assert isinstance(ended, Terminate)
    assert sorted(process.pid for process in ended.processes) == [14]


def test_a_partner_of_unknown_usage_leaves_it_unknown_whether_they_are_within() -> None:
    node = Node()
    join(node, "a", "b")
    node.run(tenant(11, "a"), 3 * GIB)
    node.run(tenant(12, "b"), None)
    found = statuses(node)
    assert found[container("a")].state is CapState.UNKNOWN
    assert not any(isinstance(verdict, Warn) for verdict in node.cycles(30))


def test_partners_that_take_turns_in_using_most_are_ended_as_one_would_be() -> None:
    node = Node()
    join(node, "a", "b")
    for turn in range(60):
        node.run(tenant(11, "a"), (3 + turn % 2) * GIB)
        node.run(tenant(12, "b"), (4 - turn % 2) * GIB)
        if any(isinstance(verdict, Terminate) for verdict in node.cycle()):
            return
    pytest.fail("no signal")


def test_who_has_a_cap_of_its_own_never_answers_for_partners() -> None:
    """Whatever they use: over is who uses most in a group that is over its cap, and who alone uses more than a cap."""
    dice = random.Random(3)
    for _ in range(scale.examples(3000)):
        node = Node()
        join(node, "a", "b", "c")
        used = {name: dice.choice((0.5, 1, 2, 3, 5)) for name in "abcde" if dice.random() < 0.8}
        for pid, (name, size) in enumerate(used.items(), start=11):
            node.run(tenant(pid, name), int(size * GIB))
        node.cycle()
        over = {one.container for one in node.history.violations}
        group = {name: size for name, size in used.items() if name in "abc"}
        alone = {container(name) for name, size in used.items() if size > 4}
        most = {container(name) for name, size in group.items() if size == max(group.values())}
        if sum(group.values()) > 4:
            assert over <= alone | most
            assert over >= alone
            assert over & most
        else:
            assert over == alone


def test_partners_on_another_device_are_none_here() -> None:
    node = Node(gpus=(GPU, "GPU-1"))
    join(node, "a", "b")
    for name in "ab":
        grant = node.grants[container(name)]
        both = frozenset({GPU, "GPU-1"})
        node.grants[container(name)] = replace(grant, devices=both, caps=dict.fromkeys(both, CAP))
    node.run(tenant(11, "a"), 3 * GIB, "GPU-1")
    node.run(tenant(12, "b"), 3 * GIB, "GPU-1")
    node.cycle()
    assert not node.history.violations
