"""A change by AMD's config manager that is killed before any of its writes is finished by the next run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpushare_node.core.policy import Policy
from tests.node.reconcile.amd_node import AmdNode, amd
from tests.node.reconcile.test_config_manager import at_peace, ready
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
            at_peace(node, WHOLE, ["SPX/NPS1"])
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
