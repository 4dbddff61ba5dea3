"""The date jumps by a year, forward or back, while something is waited for or exempt: nothing ends early or late."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare_node.adapters.kube import rollout_slots
from gpushare_node.contract.policy import OnBusy
from gpushare_node.contract.reasons import ConditionReason
from tests.node.enforce.enforcement import NOON, OLD, EnforcementFixture, await_end, container_id, lives
from tests.node.reconcile.loop_node import SEVEN, TWO, LoopNode, mig, rollout, take_slot
from tests.support.fake_api.server import ApiServer
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool

DAY = 86400
YEAR = 365.0 * DAY
DESIRED = rollout(mig(TWO, key="mig-00000002"), on_busy=OnBusy.WAIT, drain_timeout_seconds=900)
Jump = Callable[[float], None]


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    made = LoopNode(tmp_path, api)
    assert made.run(mig(SEVEN)).reason is ConditionReason.READY
    return made


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Jump:
    """Puts the date forward or back."""

    def put(seconds: float) -> None:
        date = time.gmtime(1_800_000_000 + seconds)
        monkeypatch.setattr(time, "time", lambda: 1_800_000_000 + seconds)
        monkeypatch.setattr(rollout_slots, "now_text", lambda: time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", date))

    return put


def waiting_for_a_slot(node: LoopNode) -> tuple[float, float]:
    """The node that holds it died; its Lease expires after fifteen minutes."""
    take_slot(node, "n2")
    return 880, 960


def draining(node: LoopNode) -> tuple[float, float]:
    """A tenant that ends after twenty minutes, while the node gives way and then drains."""
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    return 1200, 1260


def backing_off(node: LoopNode) -> tuple[float, float]:
    """Three attempts have failed: the next comes five minutes later, when the run looks again."""
    for _ in range(3):
        node.fake_nvml.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999, times=1)
        assert node.run(DESIRED).reason is ConditionReason.ROLLED_BACK
    return 300, 600


@pytest.mark.failure_case(106)
@pytest.mark.parametrize("seconds", [YEAR, -YEAR], ids=["forward", "back"])
@pytest.mark.parametrize("enforcement", [waiting_for_a_slot, draining, backing_off], ids=lambda one: one.__name__)
def test_waits_do_not_use_the_wall_clock(
    node: LoopNode, jump: Jump, enforcement: Callable[[LoopNode], tuple[float, float]], seconds: float
) -> None:
    jump(0)
    earliest, latest = enforcement(node)
    start = node.clock.now()

    def pass_by(now: float) -> None:
        if now - start > 100:
            jump(seconds)
        if now - start > 1200 and node.entries:
            node.entries.clear()
            node.publish()

    node.on_tick = pass_by
    assert node.run(DESIRED, hold=True).reason is ConditionReason.READY
    assert earliest <= node.clock.now() - start <= latest
    assert (node.gpus.stands(0), node.taints(), node.holds_slot()) == (set(TWO), set(), False)


@pytest.mark.failure_case(107)
@pytest.mark.parametrize("notice", [None, DAY], ids=["for its life", "for a day"])
@pytest.mark.parametrize("seconds", [YEAR, -YEAR], ids=["forward", "back"])
def test_clock_jump_corrected_within_minutes_ends_no_exemption(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, seconds: float, notice: int | None
) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, enforcement={"noticeSeconds": notice})
    pid = enforcement.admit_and_begin(1, "early", 5000, started={container_id(1): OLD})
    enforcement.run(10)
    enforcement.ahead = seconds
    enforcement.run(60)
    enforcement.ahead = 0.0
    enforcement.run(60)
    assert lives(pid)


@pytest.mark.failure_case(107)
def test_lasting_clock_jump_is_accepted(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, enforcement={"noticeSeconds": DAY})
    pid = enforcement.admit_and_begin(1, "early", 5000, started={container_id(1): OLD})
    enforcement.run(10)
    enforcement.ahead = YEAR
    enforcement.run(700)
    await_end(pid)


@pytest.mark.failure_case(113)
def test_clock_behind_at_the_first_cap_exempts_only_earlier_containers(
    enforcement: EnforcementFixture,
) -> None:
    enforcement.ahead = -YEAR
    enforcement.start()
    enforcement.admit(1, "early", started={container_id(1): NOON})
    enforcement.admit(2, "late", started={container_id(2): NOON + 1001 - YEAR})
    early, late = enforcement.begin(1, 5000), enforcement.begin(2, 5000)
    enforcement.run(10)
    await_end(late)
    enforcement.ahead = 0.0
    later = enforcement.admit_and_begin(3, "later", 5000)
    enforcement.run(700)
    await_end(later)
    assert lives(early)


@pytest.mark.failure_case(113)
@pytest.mark.parametrize("is_rebooted", [True, False], ids=["at a boot", "while it runs"])
def test_clock_set_back_before_the_first_cap_exempts_no_container(
    enforcement: EnforcementFixture, *, is_rebooted: bool
) -> None:
    """Dead batteries: the date is that of long ago until the network has told it."""
    enforcement.run(5)
    enforcement.ahead = -YEAR
    if is_rebooted:
        enforcement.start()
    new = enforcement.admit_and_begin(1, "new", 5000, started={container_id(1): NOON + enforcement.clock.now() - YEAR})
    enforcement.run(10)
    await_end(new)


@pytest.mark.failure_case(113)
def test_notice_started_with_a_fast_clock_is_not_longer(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, enforcement={"noticeSeconds": DAY})
    enforcement.ahead = YEAR
    enforcement.start()
    pid = enforcement.admit_and_begin(1, "early", 5000, started={container_id(1): OLD})
    enforcement.run(10)
    enforcement.ahead = 0.0
    enforcement.start()
    enforcement.run(10)
    assert lives(pid)
    enforcement.clock.time += DAY
    enforcement.run(20)
    await_end(pid)
