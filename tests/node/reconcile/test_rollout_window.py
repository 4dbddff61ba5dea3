"""Windows and pauses of a rollout: what they hold back and what not, and that no disruptive change begins outside a window."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gpushare_node.adapters.host.state_dir import Journal
from gpushare_node.adapters.kube.cluster import MIG_LABEL, Cluster
from gpushare_node.contract.names import POOL_LABEL, PROFILE_LABEL, REPARTITIONING_TAINT
from gpushare_node.contract.policy import Mode, OnBusy, Partitioner, Policy, read
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.contract.vendors import NVIDIA
from gpushare_node.contract.windows import Window, locate
from gpushare_node.core.clock import Stopped
from gpushare_node.gpus.view import GpuView
from gpushare_node.partition import plan
from gpushare_node.partition.state import Fault, FaultKind, Gpu, Mig, NodeGpus
from gpushare_node.reconcile.drain import PolicyChange
from gpushare_node.reporting.outcome import Status, StepResult
from tests.node.gpus.gpu_node import A100, IDS
from tests.node.reconcile.loop_node import NAME, SEVEN, TWO, LoopNode, mig, rollout, whole
from tests.support import scale
from tests.support.fake_api.server import ApiServer

HOUR, DAY = 3600, 24 * 3600
CHANGE_SECONDS = NVIDIA.window_seconds
NIGHTS = Window(start="22:00", duration_seconds=2 * HOUR, timezone="UTC")
"""From 22:00 to midnight. The clock of a node starts on a Thursday at midnight."""
OPENS = 22.0 * HOUR
MARS = replace(NIGHTS, timezone="Mars/Base")


def at_night(policy: Policy, *windows: Window, **changed: object) -> Policy:
    return rollout(policy, windows=windows or (NIGHTS,), **changed)


NEXT = at_night(mig(TWO, key="mig-00000002"))


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    """A node whose layout of seven instances is in force, at noon."""
    node = LoopNode(tmp_path, api)
    node.began_at = 12.0 * HOUR
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    node.fake_nvml.forget_calls()
    return node


def test_a_change_that_is_held_back_leaves_the_node_as_it_is(node: LoopNode) -> None:
    labels, opening = node.labels(), "the next window of pool training opens Thu 1970-01-01 22:00 UTC"
    for policy, reason, text in (
        (NEXT, ConditionReason.WAITING_FOR_WINDOW, opening),
        (rollout(NEXT, is_paused=True), ConditionReason.ROLLOUT_PAUSED, "the rollout of pool training is paused"),
        (at_night(NEXT, MARS), ConditionReason.TIME_ZONE_UNKNOWN, "the time zone database has no Mars/Base"),
        (at_night(NEXT, NIGHTS, MARS), ConditionReason.WAITING_FOR_WINDOW, f"{opening}; the time zone database has no Mars"),
        (at_night(whole()), ConditionReason.WAITING_FOR_WINDOW, opening),
        (at_night(mig(SEVEN, key="mig-00000003")), ConditionReason.WAITING_FOR_WINDOW, opening),
    ):
        node.api.forget_requests()
        outcome = node.run(policy)
        assert (outcome.reason, text in outcome.message) == (reason, True)
        assert (node.taints(), node.labels(), node.fake_nvml.calls()) == (set(), labels, [])
        assert (node.condition(), node.api.writes("leases")) == (reason.word, [])


def test_the_change_begins_when_the_window_opens(node: LoopNode) -> None:
    node.began_at = OPENS - 700
    changed: list[float] = []
    node.before_step = lambda result: changed.append(node.wall()) if result.status is Status.CHANGED else None
    assert node.run(NEXT, hold=True).reason is ConditionReason.READY
    assert OPENS <= changed[0] < OPENS + 10
    assert node.gpus.stands(0) == set(TWO)
    assert "cycle mig-00000001" in node.watched, "the former caps are enforced meanwhile"


@pytest.mark.parametrize(("left", "is_changed"), [(CHANGE_SECONDS + 60, True), (CHANGE_SECONDS + 59, False)])
def test_a_change_begins_only_if_drain_and_change_fit_into_what_is_left(node: LoopNode, left: float, is_changed: bool) -> None:
    node.began_at = 24 * HOUR - left - node.clock.now()
    outcome = node.run(rollout(NEXT, drain_timeout_seconds=60))
    assert outcome.reason is (ConditionReason.READY if is_changed else ConditionReason.WAITING_FOR_WINDOW)
    assert is_changed or "the open window closes before" in outcome.message


def lose_layout(node: LoopNode) -> None:
    node.gpus.reboot()
    node.fake_nvml.set_mode(0, False)
    node.enumerate()


def clear(node: LoopNode, *left: tuple[str, int]) -> None:
    """A person destroys the first GPU's instances, but for these."""
    node.fake_nvml.set_mode(0, False)
    node.fake_nvml.set_mode(0, True)
    for name, start in left:
        node.fake_nvml.add_instance(0, IDS[name], start)
    node.enumerate()


NOT_HELD: dict[str, tuple[Callable[[LoopNode], object], Policy]] = {
    "other rollout settings": (lambda _: None, at_night(mig(SEVEN), is_paused=True)),
    "repair after a reboot": (lose_layout, at_night(mig(SEVEN), is_paused=True)),
    "another layout, but the former is lost": (lose_layout, rollout(NEXT, is_paused=True)),
    "repair of what a person destroyed": (lambda node: clear(node, *SEVEN[:6]), at_night(mig(SEVEN), is_paused=True)),
    "new node": (lambda node: node.release(), rollout(NEXT, is_paused=True)),
}


@pytest.mark.parametrize("case", NOT_HELD)
def test_what_is_not_held_back(node: LoopNode, case: str) -> None:
    prepare, policy = NOT_HELD[case]
    prepare(node)
    assert node.run(policy).reason is ConditionReason.READY


def mixed(*layouts: object, key: str = "mig-00000001") -> Policy:
    """A policy whose last GPU is whole."""
    made = mig(*layouts, (), key=key)
    return replace(made, resources=(*made.resources, *whole().resources), shares=(*made.shares, *whole().shares))


@pytest.mark.parametrize(("lost", "is_held"), [((0, 1), False), ((0,), True), ((), True)])
def test_a_mixed_node_has_lost_its_layout_when_no_partitioned_gpu_has_instances(
    tmp_path: Path, api: ApiServer, lost: tuple[int, ...], is_held: bool
) -> None:
    """Two GPUs have instances and the third is whole. Another layout waits while one of the two still has its instances."""
    node = LoopNode(tmp_path, api, A100, A100, A100)
    assert node.run(mixed(SEVEN, SEVEN)).reason is ConditionReason.READY
    for index in lost:
        node.fake_nvml.set_mode(index, False)
    node.enumerate()
    outcome = node.run(rollout(mixed(TWO, TWO, key="mig-00000002"), is_paused=True))
    assert outcome.reason is (ConditionReason.ROLLOUT_PAUSED if is_held else ConditionReason.READY)


@pytest.mark.parametrize("fault", [None, Fault(kind=FaultKind.UNREADABLE, detail="nvmlDeviceGetMigMode: unknown error")])
def test_a_faulty_gpu_is_not_known_to_have_lost_its_layout(fault: Fault | None) -> None:
    former, policy = mixed(SEVEN), mixed(TWO, key="mig-00000002")
    off = Mig(current=False, pending=False)
    gpus = tuple(
        Gpu(index=index, uuid=f"GPU-{index}", name="A100", pci_device_id=None, memory_mib=None, mig=off, is_busy=False)
        for index in (0, 1)
    )
    state = NodeGpus(gpus=(replace(gpus[0], fault=fault, mig=None if fault else off), gpus[1]))
    view, former_view = (GpuView(surveys=(), state=state, plan=plan(state, one)) for one in (policy, former))
    node = Cluster().node()
    change = PolicyChange(policy=policy, former=former, view=view, former_view=former_view, node=node, journal=None)
    assert change.is_disruptive is (fault is not None)


def test_a_node_that_leaves_its_pool_is_not_held_back(node: LoopNode) -> None:
    node.unselect("cpu")
    assert node.run(rollout(NEXT, is_paused=True)).reason is ConditionReason.RELEASED
    assert not node.fake_nvml.mode(0)[0]


def hand_over(node: LoopNode) -> None:
    terms = [{"matchExpressions": [{"key": "role", "operator": "In", "values": ["gpu"]}]}]
    node.api.add_daemonset("gpushare-other", terms=terms)
    node.label(**{POOL_LABEL: None})


HELD: dict[str, tuple[Callable[[LoopNode], object], Policy]] = {
    "the plugin restarts": (
        lambda node: node.api.edit("nodes", NAME, lambda one: one["status"]["allocatable"].clear()),
        NEXT,
    ),
    "the folder is lost": (lambda node: node.folder.remove(), NEXT),
    "the folder is lost, and GPUs become whole": (lambda node: node.folder.remove(), at_night(whole(replicas=2))),
    "a person destroyed one instance": (lambda node: clear(node, *SEVEN[:6]), NEXT),
    "another pool takes the node over": (hand_over, replace(NEXT, pool="other")),
    "a person requests a retry": (lambda node: node.annotate("gpushare.dev/retry", "now"), NEXT),
    "a repair has begun": (
        lambda node: node.folder.write_journal(Journal(policy_digest="x", boot_id=node.gpus.boot_id, is_changing=True)),
        NEXT,
    ),
    "the pool label is taken away": (lambda node: node.label(**{POOL_LABEL: None}), NEXT),
}


@pytest.mark.parametrize("case", HELD)
def test_what_does_not_open_a_window(node: LoopNode, case: str) -> None:
    prepare, policy = HELD[case]
    prepare(node)
    before = node.gpus.stands(0)
    node.fake_nvml.forget_calls()
    assert node.run(policy).reason is ConditionReason.WAITING_FOR_WINDOW
    assert (node.gpus.stands(0), node.labels()[PROFILE_LABEL]) == (before, "mig-00000001")


def test_one_gpu_of_two_without_its_layout_holds_the_change_back(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, A100, A100)
    node.began_at = 12.0 * HOUR
    node.run(mig(SEVEN, SEVEN))
    clear(node)
    outcome = node.run(at_night(mig(TWO, TWO, key="mig-00000002")))
    assert (outcome.reason, node.gpus.stands(1)) == (ConditionReason.WAITING_FOR_WINDOW, set(SEVEN))
    assert node.taints() == {REPARTITIONING_TAINT}
    assert node.run(mig(SEVEN, SEVEN)).reason is ConditionReason.READY


def test_relabelling_whole_gpus_waits_too(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api)
    node.run(whole(replicas=2))
    assert node.run(at_night(whole(replicas=4))).reason is ConditionReason.WAITING_FOR_WINDOW
    assert node.run(at_night(whole(replicas=4, mode=Mode.MPS))).reason is ConditionReason.WAITING_FOR_WINDOW


def test_a_change_that_mig_manager_was_asked_for_goes_on(node: LoopNode) -> None:
    wanted = replace(NEXT, partitioner=Partitioner.MIG_MANAGER, mig_config="mig-f59e014c")
    assert node.run(wanted).reason is ConditionReason.WAITING_FOR_WINDOW
    assert MIG_LABEL not in node.labels()
    node.label(**{MIG_LABEL: "mig-f59e014c", "nvidia.com/mig.config.state": "failed"})
    assert node.run(wanted).reason is ConditionReason.PARTITION_FAILED


@pytest.mark.parametrize("number", [2, 5, 11])
def test_a_change_that_has_begun_is_finished_after_the_window(node: LoopNode, number: int) -> None:
    """The run is killed before one of its writes, at any point of the change; the window is over when the next one starts."""
    node.began_at = OPENS - node.clock.now()
    assert node.dies_at(number, NEXT)
    has_begun = node.gpus.stands(0) != set(SEVEN)
    node.began_at = DAY + 12.0 * HOUR
    outcome = node.run(rollout(NEXT, is_paused=True))
    assert outcome.reason is (ConditionReason.READY if has_begun else ConditionReason.ROLLOUT_PAUSED)
    assert (node.taints(), node.holds_slot()) == (set(), False)


@pytest.mark.parametrize(("step", "target"), [("destroy", "GPU 0"), ("device nodes", "node")])
def test_a_change_that_is_stopped_half_way_is_finished_after_the_window(
    tmp_path: Path, api: ApiServer, step: str, target: str
) -> None:
    """After the first instance of two GPUs; and when both have the layout, but no label says so yet."""
    node = LoopNode(tmp_path, api, A100, A100)
    node.run(mig(SEVEN, SEVEN))
    wanted = at_night(mig(TWO, TWO, key="mig-00000002"))
    node.began_at = OPENS - node.clock.now()

    def end(result: StepResult) -> None:
        if result.step.startswith(step) and result.target == target:
            raise Stopped

    node.before_step = end
    with pytest.raises(Stopped):
        node.run(wanted)
    assert node.taints() == {REPARTITIONING_TAINT}
    node.before_step, node.began_at = lambda _: None, DAY + 12.0 * HOUR
    assert node.run(rollout(wanted, is_paused=True)).reason is ConditionReason.READY
    assert (node.gpus.stands(0), node.gpus.stands(1)) == (set(TWO), set(TWO))


def test_a_failed_change_that_was_rolled_back_waits_for_the_next_window(node: LoopNode) -> None:
    node.began_at = OPENS - node.clock.now()
    for _ in range(3):  # after the third the next attempt backs off
        node.fake_nvml.fail("nvmlGpuInstanceCreateComputeInstance", 999, times=1)
        assert node.run(NEXT).reason is ConditionReason.ROLLED_BACK
    node.began_at = DAY + 12.0 * HOUR
    assert node.run(NEXT).reason is ConditionReason.WAITING_FOR_WINDOW
    assert node.gpus.stands(0) == set(SEVEN)
    assert node.holds_slot(), "a change that failed must not go on to other nodes"


def test_tenants_are_drained_again_in_each_window(node: LoopNode) -> None:
    short = replace(NIGHTS, duration_seconds=int(CHANGE_SECONDS) + 1200)
    node.began_at = OPENS - 60
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    tainted: list[float] = []

    def look(_: float) -> None:
        if REPARTITIONING_TAINT in node.taints():
            tainted.append(node.wall())
        if node.wall() % DAY > OPENS + short.duration_seconds:
            node.clock.is_stopped = node.wall() > DAY
            node.began_at += 23 * HOUR - short.duration_seconds

    node.on_tick = look
    with pytest.raises(Stopped):
        node.run(rollout(NEXT, windows=(short,), drain_timeout_seconds=300), hold=True)
    assert {int(now // DAY) for now in tainted} == {0, 1}
    assert all(OPENS <= now % DAY < OPENS + 1200 for now in tainted)
    assert node.gpus.stands(0) == set(SEVEN)


def test_other_nodes_go_first_for_half_of_what_is_to_spare(node: LoopNode) -> None:
    """The window has twenty minutes more than drain and change take: the node yields for ten of them at most."""
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    node.began_at = OPENS - 60
    patience = int(NIGHTS.duration_seconds - CHANGE_SECONDS) - 1200
    tainted: list[float] = []

    def look(_: float) -> None:
        if REPARTITIONING_TAINT in node.taints() and not tainted:
            tainted.append(node.wall())
            node.api.edit("pods", "sleeper", lambda pod: pod["status"].update(phase="Succeeded"), namespace="science")

    node.on_tick = look
    assert node.run(rollout(NEXT, drain_timeout_seconds=patience), hold=True).reason is ConditionReason.READY
    assert OPENS + 590 < tainted[0] < OPENS + 620


def test_the_window_is_checked_again_when_the_drain_has_ended(node: LoopNode) -> None:
    """The clock is set while tenants are waited for: nothing has been changed yet, and nothing is."""
    node.began_at = OPENS - node.clock.now()
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")

    def leave(time: float) -> None:
        if time > 100 and node.began_at < DAY:
            node.began_at += 14 * HOUR
            node.api.edit("pods", "sleeper", lambda pod: pod["status"].update(phase="Succeeded"), namespace="science")

    node.on_tick = leave
    assert node.run(NEXT).reason is ConditionReason.WAITING_FOR_WINDOW
    assert (node.gpus.stands(0), node.taints(), node.holds_slot()) == (set(SEVEN), set(), False)


@pytest.mark.parametrize("seed", scale.part(range(2, 42), 40))
def test_no_disruptive_change_begins_outside_a_window(node: LoopNode, seed: int) -> None:
    """Restarts, clocks that jump, tenants that come and go, a plugin that vanishes, a driver that fails: over some days."""
    chance = random.Random(seed)
    policies = [NEXT, *map(at_night, (mig(SEVEN), whole(replicas=2), whole()))]
    has_layout = [True]
    begun: list[float] = []

    def look() -> None:
        journal = node.folder.journal()
        has_layout[0] = journal is None or not journal.is_changing

    def see(result: StepResult) -> None:
        former = read(node.folder.policy() or "").profile
        is_relabelling = result.step == "labels" and result.detail[:-2] != former
        is_change = is_relabelling or (result.target.startswith("GPU") and result.step != "roll back")
        if is_change and result.status is Status.CHANGED and has_layout[0]:
            assert locate([NIGHTS], node.wall()).left_seconds > 0, result
            begun.append(node.wall())
            has_layout[0] = False

    def disturb(_: float) -> None:
        if not has_layout[0]:
            look()
        match chance.randrange(3000):
            case 0 | 10 | 11 | 12:
                node.began_at += chance.uniform(-4, 8) * HOUR
            case 1:
                node.clock.is_stopped = True
            case 2:
                node.api.edit("nodes", NAME, lambda one: one["status"]["allocatable"].clear())
            case 3:
                node.fake_nvml.fail("nvmlGpuInstanceCreateComputeInstance", 999, times=1)
            case 4:
                node.annotate("gpushare.dev/retry", "now")
            case 5:
                node.entries.clear()
                node.publish()
            case 6 if not node.entries:
                held = next(iter(node.registered.items()))
                node.tenant(f"pod-{chance.random()}", held[1][0].split("::")[0], held[0])

    node.before_step, node.on_tick = see, disturb
    policy = policies[0]
    for _ in range(12):
        if chance.random() < 0.6:
            policy = rollout(chance.choice(policies), on_busy=chance.choice(list(OnBusy)), drain_timeout_seconds=600)
        look()
        node.clock.is_stopped = False
        with suppress(Stopped):
            node.run(policy, hold=True)
        node.began_at += chance.uniform(0, 8) * HOUR
    assert begun or seed not in (2, 22), "something changes in those of `make test`"
