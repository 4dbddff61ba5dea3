"""What the tests of AMD's config manager have in common: policies, and what a node is like before and after a change."""

from collections.abc import Callable

from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.reporting.outcome import Outcome
from tests.node.reconcile.amd_node import AmdNode, amd
from tests.support.fake_amd.config_manager import LABEL

DIVIDED = amd("CPX", "NPS4")
WHOLE = amd()
CPX = ["CPX/NPS4"] * 2
SPX = ["SPX/NPS1"] * 2
FOREIGN = "dpx-nps1-2-01234567"
"""A profile of the manager's file that no policy of the node has."""


def at_peace(node: AmdNode, policy: Policy, modes: list[str]) -> None:
    """The node is as the policy says, and nothing of the change is left."""
    assert node.modes() == modes
    assert node.offered() == dict(policy.resources)
    assert (node.taints(), node.condition()) == (set(), "Ready")
    assert node.labels()[LABEL] == policy.manager_config
    assert node.journal() is None


def ready(outcome: Outcome | None) -> None:
    assert outcome is not None
    assert outcome.reason is ConditionReason.READY, outcome


def die_after_request(node: AmdNode) -> None:
    """A run ends right after it has asked the config manager."""
    node.kill_when = lambda: node.labels().get(LABEL) == DIVIDED.manager_config
    assert node.run(DIVIDED) is None
    node.clock.sleep(1.0)


def mixed(policy: Policy) -> Policy:
    """The same, with the resources named by the modes."""
    partition = policy.gpus[0].partition
    assert partition is not None
    word = f"{partition.compute}_{partition.memory}".lower()
    share = replace(policy.shares[0], resource=f"amd.com/{word}", profile=word)
    return replace(policy, resources=((share.resource, policy.resources[0][1]),), shares=(share,))


def later(node: AmdNode, seconds: float, happens: Callable[[], object]) -> None:
    """This happens once, so many seconds from now."""
    due, done = node.clock.time + seconds, list[bool]()

    def tick(now: float) -> None:
        if now >= due and not done:
            done.append(True)
            happens()

    node.on_tick = tick


def skip(node: AmdNode, seconds: float) -> None:
    """Half a minute from now so many seconds pass in which nothing happens."""
    later(node, 30.0, lambda: setattr(node.clock, "time", node.clock.time + seconds))
