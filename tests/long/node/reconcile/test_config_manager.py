"""A change by AMD's config manager that is killed before any of its writes is finished by the next run."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpushare_node.contract.policy import Policy
from tests.node.reconcile import amd_change
from tests.node.reconcile import test_config_manager as fast
from tests.node.reconcile.amd_change import at_peace, ready
from tests.node.reconcile.amd_node import PLUGIN, AmdNode, amd
from tests.node.reconcile.loop_node import rollout
from tests.support.fake_amd.config_manager import LABEL, STATE
from tests.support.fake_api.server import ApiServer

WHOLE, DIVIDED = amd(gpus=1), amd("CPX", "NPS4", gpus=1)

BETWEEN: dict[str, Callable[[AmdNode], object]] = {
    "nothing": lambda node: node.clock.sleep(1.0),
    "the manager's answer": lambda node: node.clock.sleep(60.0),
    "a reboot": AmdNode.reboot,
    "an answer that is lost": lambda node: node.label(**{STATE: None}),
}


@contextmanager
def new_node(folder: Path) -> Iterator[AmdNode]:
    folder.mkdir()
    with ApiServer() as api:
        node = AmdNode(folder, api, gpus=1)
        node.manager.work_seconds, node.start_seconds = 2.0, 1.0
        yield node


def run(node: AmdNode, policy: Policy) -> None:
    """A start of the program, or two: what the manager has answered and nobody has heard is asked for again."""
    outcome = node.run(policy)
    if outcome is not None and "has not answered" in outcome.message:
        outcome = node.run(policy)
    ready(outcome)


def at_rest(node: AmdNode, policy: Policy, modes: list[str]) -> None:
    """As `at_peace`, but a node in service is not emptied for a label that it lacks."""
    node.label(**{LABEL: node.labels().get(LABEL, policy.manager_config)})
    at_peace(node, policy, modes)


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("is_new", [True, False], ids=["new", "changed"])
def test_a_run_that_is_killed_before_any_write_is_finished_by_the_next(tmp_path: Path, between: str, is_new: bool) -> None:
    for at in range(200):
        with new_node(tmp_path / str(at)) as node:
            if not is_new:
                ready(node.run(WHOLE))
            if node.run(DIVIDED, kill_at=at) is not None:
                break
            BETWEEN[between](node)
            run(node, DIVIDED)
            at_peace(node, DIVIDED, ["CPX/NPS4"])
    assert at > 10


@pytest.mark.parametrize("between", BETWEEN)
def test_a_policy_that_returns_after_a_kill_is_reached_again(tmp_path: Path, between: str) -> None:
    for at in range(200):
        with new_node(tmp_path / str(at)) as node:
            ready(node.run(WHOLE))
            if node.run(DIVIDED, kill_at=at) is not None:
                break
            BETWEEN[between](node)
            run(node, WHOLE)
            at_rest(node, WHOLE, ["SPX/NPS1"])
    assert at > 10


def test_a_release_that_is_killed_before_any_write_is_finished_by_the_next(tmp_path: Path) -> None:
    for at in range(200):
        with new_node(tmp_path / str(at)) as node:
            ready(node.run(DIVIDED))
            node.label(role="cpu")
            is_done = node.release(kill_at=at) is not None
            node.release()
            assert (node.modes(), node.taints()) == (["CPX/NPS4"], set())
            left = {name for name in node.labels() if name.startswith("gpushare.dev/") or name in {LABEL, STATE}}
            assert not left
            if is_done:
                break
    assert at > 3


@pytest.mark.parametrize(
    ("foreign", "policy"), [(None, amd_change.DIVIDED), (amd_change.FOREIGN, amd_change.WHOLE)], ids=["removed", "other"]
)
def test_after_a_conflict_the_manager_is_still_awaited(tmp_path: Path, foreign: str | None, policy: Policy) -> None:
    with ApiServer() as api:
        fast.test_after_a_conflict_the_manager_is_still_awaited(AmdNode(tmp_path, api), foreign, policy)


def test_a_change_that_is_killed_before_any_write_can_be_left(tmp_path: Path) -> None:
    """The node is released: whatever the manager was asked for is done, or was never begun."""
    for at in range(200):
        with new_node(tmp_path / str(at)) as node:
            ready(node.run(WHOLE))
            node.manager.work_seconds = 40.0
            if node.run(DIVIDED, kill_at=at) is not None:
                break
            node.clock.sleep(1.0)
            node.allowed = []
            node.release()
            modes = node.modes()
            node.clock.sleep(300.0)
            assert (node.modes(), node.taints()) == (modes, set())
    assert at > 10


class Life:
    """What may happen to a node between two starts of the program, by chance."""

    def __init__(self, node: AmdNode, seed: int) -> None:
        self.node, self.chance = node, random.Random(seed)
        self.policies = (WHOLE, DIVIDED, amd("CPX", gpus=1), amd("DPX", gpus=1))
        self.count = 0

    def happen(self) -> None:
        """One thing."""
        node, chance = self.node, self.chance
        thing = chance.choice(
            (self.arrive, self.arrive, self.leave, node.reboot, self.refuse, self.heal, self.meddle, self.tolerate, self.wait)
        )
        thing()

    def arrive(self) -> None:
        """A tenant comes where the scheduler may put it: on a node that offers GPUs and has no taint."""
        if self.node.offered() and not self.node.taints():
            self.count += 1
            self.node.tenant(f"tenant-{self.count}", pid=1000 + self.count if self.chance.random() < 0.7 else 0)

    def leave(self) -> None:
        for name in self.node.tenants()[:1]:
            self.node.end_tenant(name, pid=1000 + int(name.rpartition("-")[2]))

    def refuse(self) -> None:
        if self.chance.random() < 0.5:
            self.node.sysfs.gpus[0].refuses = "AMDSMI_STATUS_BUSY"
        else:
            self.node.manager.skips = frozenset({0})

    def heal(self) -> None:
        self.node.sysfs.gpus[0].refuses, self.node.manager.skips = "", frozenset()

    def meddle(self) -> None:
        """Somebody writes the manager's labels."""
        name, values = self.chance.choice(
            ((LABEL, (None, "foreign", "dpx-nps1-1-01234567")), (STATE, (None, "success", "failure")))
        )
        self.node.label(**{name: self.chance.choice(values)})

    def tolerate(self) -> None:
        self.node.tolerant ^= {PLUGIN}

    def wait(self) -> None:
        self.node.clock.sleep(self.chance.choice((1.0, 30.0, 600.0)))

    def start(self) -> None:
        """The program starts, with some policy, and may be killed."""
        policy = self.chance.choice(self.policies)
        kill_at = self.chance.randrange(30) if self.chance.random() < 0.6 else -1
        self.node.run(rollout(policy, drain_timeout_seconds=30), kill_at=kill_at)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_the_invariants_hold_and_the_node_recovers(tmp_path: Path, seed: int) -> None:
    with new_node(tmp_path / "node") as node:
        life = Life(node, seed)
        for _ in range(12):
            life.happen()
            life.start()
        life.heal()
        while node.tenants():
            life.leave()
        outcomes = [node.run(DIVIDED) for _ in range(3)]
        ready(outcomes[-1])
        at_rest(node, DIVIDED, ["CPX/NPS4"])
