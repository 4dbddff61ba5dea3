"""Tenants that want more than their share, or their neighbours ended, and a cluster that does not answer: none gets its way."""

import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.enforce import inventory
from gpushare_node.enforce.errands import Errands
from gpushare_node.enforce.figures import Figures
from gpushare_node.enforce.identities import Roster
from gpushare_node.enforce.loop import Loop
from gpushare_node.guard.identity import ContainerId, Process
from gpushare_node.guard.reading import Settings
from gpushare_node.guard.rows import Mps
from gpushare_node.kube.cluster import Eviction, PodView
from gpushare_node.kube.views import view_pod
from gpushare_node.procs import linux
from gpushare_node.procs.processes import Sent
from gpushare_node.voice.metrics import Registry
from tests.node.enforcement import SHARED, Stage, Told, await_end, container_id, lives, pod, pod_uid
from tests.node.silicon import Silicon
from tests.node.test_enforce_upkeep import Rig
from tests.node.victims import DEAF, Ward, systemd_path
from tests.tools.waiting import PATIENCE, wait_for

UNMAPPED = "7f0000000000-7f0000001000 rw-s 00000000 00:06 1 /dev/innocent0\n"


# Getting away with it.


def test_a_container_whose_gpu_processes_end_just_in_time_is_ended_with_those_that_wait(stage: Stage) -> None:
    stage.admit(1, "storm")
    waiting = stage.begin(1, 0)
    stage.silicon.take(0, waiting)
    for _ in range(3):
        pid = stage.begin(1, 5000)
        stage.run(5)
        await_end(pid)
        stage.run(2)
    pid = stage.begin(1, 5000)
    stage.run(4)
    send = stage.processes.send

    def too_late(seen: Any, signal: Any) -> Sent:
        return Sent.GONE if seen.pid == pid else send(seen, signal)

    stage.processes.send = too_late
    stage.run(1)
    await_end(waiting)


def test_whoever_renames_the_devices_in_its_container_is_signalled_all_the_same(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linux, "NVIDIA_MAJOR", 1)  # /dev/null's, for real devices need a driver
    stage.admit(1, "renamer")
    pid = stage.begin(1, 5000)
    stage.mirror.fake(pid, "maps", UNMAPPED)
    stage.mirror.open_nothing(pid)
    (stage.mirror.root / str(pid) / "fd/7").symlink_to("/dev/null")
    stage.run(6)
    await_end(pid)


def test_55_a_pod_that_deletes_itself_is_held_to_its_cap_until_it_is_gone(stage: Stage) -> None:
    """A tenant may delete its own pod, with as much grace as the pod's spec asks for."""
    stage.admit(1, "undead")
    pid = stage.begin(1, 1000)
    stage.run(2)
    stage.list.known = (replace(stage.list.known[0], is_terminating=True),)
    stage.silicon.put(0, pid, 5000)
    stage.run(6)
    await_end(pid)


@pytest.mark.parametrize("is_idle", [False, True], ids=["at once", "after a pause without a GPU"])
def test_55_a_pod_that_is_deleted_by_force_and_runs_on_is_held_to_its_cap(stage: Stage, *, is_idle: bool) -> None:
    """The API server forgets it at once; kubelet gives it the time that its spec asks for, which may be a year."""
    stage.admit(1, "ghost")
    pid = stage.begin(1, 1000)
    stage.run(2)
    stage.list.known, stage.entries = (), []
    stage.admit(2, "next")
    if is_idle:
        stage.silicon.take(0, pid)
        stage.run(600)
    stage.silicon.put(0, pid, 5000)
    stage.run(7)
    await_end(pid)
    assert stage.told.reasons("ghost")[0] == "GPUMemoryOverCap"


def test_55_what_is_remembered_of_pods_that_have_gone_is_forgotten(stage: Stage) -> None:
    for number in range(1, 9):
        stage.admit(number, f"ghost-{number}")
    stage.run(2)
    stage.list.known = ()
    stage.run(2)
    assert len(stage.watch.inventory.grants) == 8
    stage.run(1, seconds=3600)
    stage.run(1)
    assert stage.watch.inventory.grants == {}


def test_64_a_system_pods_priority_class_exempts_no_tenant(stage: Stage) -> None:
    """Anybody may write it into a pod."""
    stage.admit(1, "important")
    (known,) = stage.list.known
    stage.list.known = (view_pod({
        "metadata": {"uid": pod_uid(1), "namespace": "team", "name": "important"},
        "spec": {"priorityClassName": "system-node-critical"},
        "status": {"phase": "Running", "containerStatuses": [{
            "name": "main", "containerID": f"containerd://{container_id(1)}",
            "state": {"running": {"startedAt": "2100-01-01T00:00:00Z"}}}]},
    }),)  # fmt: skip
    assert stage.list.known[0].containers == known.containers
    pid = stage.begin(1, 5000)
    stage.run(6)
    await_end(pid)


def test_64_a_platform_pod_that_holds_a_share_is_held_to_its_cap_and_the_others_are_let_be(stage: Stage) -> None:
    stage.admit(1, "holder", namespace="kube-system")
    stage.arrive(2, "agent", namespace="kube-system")
    holder, agent = stage.begin(1, 5000), stage.begin(2, 30000)
    stage.run(6)
    await_end(holder)
    stage.run(30)
    assert lives(agent)
    assert stage.told.reasons("agent") == []


def test_64_whether_a_platform_pod_holds_a_share_is_learned_when_kubelet_says_so(stage: Stage) -> None:
    stage.arrive(1, "late", namespace="kube-system")
    pid = stage.begin(1, 5000)
    stage.run(20)
    assert lives(pid)
    stage.allocate(1, SHARED, [f"{stage.silicon.uuid(0)}::1"])
    stage.run(20)
    await_end(pid)


def test_64_the_name_of_a_namespace_alone_exempts_nobody(tmp_path: Path, two: Silicon, started: Ward) -> None:
    """Who may make a namespace may call it after somebody's operator: the intent says which are the platform's."""
    stage = Stage(tmp_path, two, started, tenancy={"platformNamespaces": []})
    stage.admit(1, "poser", namespace="gpu-operator")
    pid = stage.begin(1, 5000)
    stage.run(6)
    await_end(pid)


def test_64_a_bundle_that_does_not_say_who_the_platform_is_spares_kube_system_and_us(
    tmp_path: Path, two: Silicon, started: Ward
) -> None:
    stage = Stage(tmp_path, two, started, tenancy={"platformNamespaces": []})
    for number, namespace in ((1, "kube-system"), (2, "gpushare")):
        stage.arrive(number, f"agent-{number}", namespace=namespace)
        stage.begin(number, 30000)
    stage.run(30)
    assert stage.told.events == []


def test_54_a_static_pods_annotations_in_a_tenants_pod_hide_no_pod() -> None:
    forged = view_pod({
        "metadata": {"uid": "f", "namespace": "team", "name": "forger", "annotations": {
            "kubernetes.io/config.hash": "victim", "kubernetes.io/config.mirror": "x"}},
    })  # fmt: skip
    victim = pod("victim", 2, uids=("victim",))
    container = ContainerId(pod_uid="victim", container=container_id(2))
    for pods in ((victim, forged), (forged, victim)):
        assert Roster.of(pods).find(container) is victim


def test_a_pod_without_the_mirrors_annotation_has_one_uid_only() -> None:
    annotations = {"kubernetes.io/config.hash": "victim"}
    assert view_pod({"metadata": {"uid": "f", "namespace": "t", "name": "f", "annotations": annotations}}).uids == ("f",)


@pytest.mark.parametrize("answer", ["refused", "no-gpu"])
def test_43_an_offender_that_cannot_be_signalled_shields_no_other_and_nothing_false_is_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    stage.admit(1, "untouchable")
    stage.admit(2, "next")
    first = stage.begin(1, 8000)
    if answer == "no-gpu":
        stage.mirror.fake(first, "maps", UNMAPPED)
    else:
        send = stage.processes.send
        monkeypatch.setattr(
            stage.processes, "send", lambda seen, signal: Sent.REFUSED if seen.pid == first else send(seen, signal))
    second = stage.begin(2, 5000)
    stage.run(6)
    await_end(second)
    stage.run(54)
    assert lives(first)
    assert stage.metric("stuck_processes ") == ["stuck_processes 0"]
    assert stage.told.reasons("untouchable") == ["GPUMemoryOverCap", "GPUProcessKillFailed"]
    assert not any("SIGKILL" in event.message for event in stage.told.events if event.reason == "GPUProcessKillFailed")
    stage.run(300)
    assert stage.told.reasons("untouchable").count("GPUProcessKillFailed") == 2


# Getting somebody else ended.


def test_whoever_moves_to_another_container_takes_its_use_along_and_leaves_nobody_to_pay(stage: Stage) -> None:
    stage.admit(1, "left-behind")
    stage.admit(2, "new-home", replicas=3)
    innocent, mover = stage.begin(1, 1000), stage.begin(1, 5000)
    stage.run(2)
    stage.mirror.show(mover, systemd_path(pod_uid(2), container_id(2)))
    stage.run(60)
    assert lives(innocent)
    assert lives(mover)
    assert stage.told.reasons() == []
    assert stage.metric("stuck_processes ") == ["stuck_processes 0"]


def test_an_eviction_that_waited_is_not_asked_for_when_the_container_is_calm_by_then(
    tmp_path: Path, two: Silicon, started: Ward
) -> None:
    waiting: list[Any] = []

    class Late:
        def send(self, errand: Any) -> bool:
            waiting.append(errand)
            return True

    stage = Stage(tmp_path, two, started, errands=Late(), enforcement={"action": "evict"})
    stage.admit(1, "sorry")
    pid = stage.begin(1, 5000)
    stage.run(6)
    stage.silicon.put(0, pid, 1000)
    stage.run(2)
    assert waiting
    for errand in waiting:
        errand()
    assert stage.told.evicted == []


# A cluster that does not answer, and what is said.


class Terminator:
    """MPS that ends every client at once."""

    def state(self) -> Mps:
        return Mps.REACHABLE

    def limit_mib(self, _device: int | str) -> int | None:
        return 4096

    def terminate(self, victims: Iterable[Process]) -> frozenset[Process]:
        return frozenset(victims)


def _wait(event: threading.Event) -> None:
    event.wait(PATIENCE)


def test_62_an_api_server_that_hangs_holds_up_no_mps_client_s_end(tmp_path: Path, two: Silicon, started: Ward) -> None:
    errands, is_over = Errands(), threading.Event()
    errands.send(lambda: _wait(is_over))
    stage = Stage(tmp_path, two, started, mps=Terminator(), errands=errands, mode="mps", profile="mps-01234567")
    stage.admit(1, "client")
    pid = stage.begin(1, 5000, DEAF)
    stage.run(13)
    is_over.set()
    await_end(pid)


def test_a_survey_that_takes_longer_than_any_deadline_is_taken_up_when_it_comes(
    tmp_path: Path, two: Silicon, started: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "_SURVEY_WAIT_SECONDS", 0.05)
    stage = Stage(tmp_path, two, started, deadline=0.5)
    two.delay("nvmlDeviceGetName", 1.0)
    stage.admit(1, "greedy")
    pid = stage.begin(1, 5000)

    def is_ended() -> bool:
        stage.run(1)
        return not lives(pid)

    wait_for(is_ended)


def test_66_a_dry_run_sets_no_limit_of_the_drivers(tmp_path: Path, two: Silicon, started: Ward) -> None:
    two.offer_limits()
    two.load()
    stage = Stage(tmp_path, two, started, settings=Settings(dry_run=True))
    stage.admit(1, "modest")
    stage.begin(1, 3000)
    stage.run(3)
    assert two.limits(0) == {}


def test_the_drivers_limits_are_lifted_when_the_node_leaves_and_only_then(tmp_path: Path, two: Silicon, started: Ward) -> None:
    two.offer_limits()
    two.load()
    stage = Stage(tmp_path, two, started)
    stage.admit(1, "modest")
    stage.begin(1, 3000)
    stage.run(3)
    assert set(two.limits(0).values()) == {4096 << 20}
    stage.watch.close()
    assert set(two.limits(0).values()) == {4096 << 20}
    stage.start()
    stage.run(3)
    stage.watch.close(is_leaving=True)
    assert set(two.limits(0).values()) <= {(1 << 64) - 1}


def test_a_program_that_ends_does_not_tell_of_a_breaker(stage: Stage) -> None:
    stage.admit(1, "deaf")
    stage.admit(2, "next", 1)
    stage.begin(1, 5000, DEAF)
    stage.run(2)
    stage.begin(2, 5000, gpu=1)
    stage.run(3)
    Loop(watch=stage.watch, upkeep=None, clock=stage.clock, pause=stage.clock.sleep)._finish()
    assert "GPUKillsPaused" not in stage.told.reasons()
    assert stage.metric("kill_breaker_open ") == ["kill_breaker_open 0"]


def test_33_a_container_that_goes_up_and_down_is_told_once_a_minute(stage: Stage) -> None:
    stage.admit(1, "wave")
    pid = stage.begin(1, 5000)
    for _ in range(10):
        stage.run(4)
        stage.silicon.put(0, pid, 1000)
        stage.run(9)
        stage.silicon.put(0, pid, 5000)
    assert lives(pid)
    assert stage.told.reasons("wave") == ["GPUMemoryOverCap"] * 2


class Cluster(Told):
    """One whose budgets permit nothing, and which deletes what it is told to."""

    def evict(self, pod: PodView, *, is_forced: bool = False) -> Eviction:
        super().evict(pod, is_forced=is_forced)
        return Eviction.EVICTED if is_forced else self.answer


@pytest.mark.parametrize("answer", [Eviction.REFUSED, Eviction.THROTTLED])
def test_62_a_budget_is_asked_three_times_and_then_heeded_no_more(
    tmp_path: Path, two: Silicon, started: Ward, answer: Eviction
) -> None:
    """A tenant may write a budget for its own pods that permits nothing for ever."""
    stage = Stage(tmp_path, two, started, enforcement={"action": "evict"}, told=Cluster(answer=answer))
    stage.admit(1, "protected")
    pid = stage.begin(1, 5000)
    stage.run(6)
    assert stage.told.reasons("protected") == ["GPUMemoryOverCap", "GPUPodEvictionFailed"]
    stage.run(60)
    assert (len(stage.told.evicted), stage.told.forced) == (3, 0)
    assert "GPUPodEvicted" not in stage.told.reasons("protected")
    stage.run(30)
    assert stage.told.forced == 1
    assert stage.told.events[-1].reason == "GPUPodEvicted"
    assert "its pod has been deleted" in stage.told.events[-1].message
    assert lives(pid)


@pytest.mark.parametrize("answer", [Eviction.FORBIDDEN, Eviction.REFUSED, Eviction.EVICTED])
@pytest.mark.parametrize("mode", ["time-slicing", "mps"])
def test_62_a_pod_that_no_request_ends_is_ended_by_signals(
    tmp_path: Path, two: Silicon, started: Ward, answer: Eviction, mode: str
) -> None:
    """A right that somebody took away, a deletion that is refused, a year of grace: none makes immune."""
    told = Told(answer=answer)
    stage = Stage(tmp_path, two, started, enforcement={"action": "evict"}, mode=mode, profile=f"{mode}-01234567", told=told)
    stage.admit(1, "stays")
    pid = stage.begin(1, 5000, DEAF)
    stage.run(60)
    assert lives(pid)
    assert ("GPUPodEvicted" in told.reasons("stays")) == (answer is Eviction.EVICTED)
    stage.run(30 if answer is Eviction.FORBIDDEN else 120)
    await_end(pid)
    assert stage.told.reasons("stays").count("GPUPodEvictionFailed") <= 1


def test_62_a_server_that_does_not_answer_has_refused_nothing(tmp_path: Path, two: Silicon, started: Ward) -> None:
    rig = Rig(tmp_path, two, started, mode="mps", profile="mps-01234567", mps=None)
    rig.api.is_down = True
    rig.stage.admit(1, "client")
    pid = rig.stage.begin(1, 5000)
    rig.run(300)
    assert lives(pid)
    assert "GPUPodEvicted" not in rig.api.reasons()


def test_the_page_of_metrics_is_made_once_a_second_however_often_it_is_asked_for() -> None:
    made: list[int] = []
    figures = Figures(Registry())
    figures.registry.gathered("test", "Counts.", gather=lambda: made.append(1) or ())
    pages = {figures.page() for _ in range(200)}
    assert len(pages) == 1
    assert len(made) <= 2


def test_an_errand_that_finds_no_room_is_sent_again() -> None:
    errands, is_over, done = Errands(), threading.Event(), threading.Event()
    errands.send(lambda: _wait(is_over))
    while errands.send(done.set):
        done.clear()
    is_over.set()
    wait_for(lambda: errands.send(done.set))
    assert done.wait(PATIENCE)


def test_50_a_lost_gpu_is_an_event_and_no_reason_to_start_anew_and_leave_the_others_alone(
    tmp_path: Path, two: Silicon, started: Ward
) -> None:
    rig = Rig(tmp_path, two, started)
    rig.stage.admit(1, "greedy")
    rig.stage.begin(1, 5000)
    rig.run(2)
    two.lose(0)
    rig.run(100)
    assert rig.api.reasons() == ["GpuLost"]
    assert rig.api.deleted == 0


def test_the_versions_at_work_and_the_instances_that_stand_are_metrics(stage: Stage, two: Silicon) -> None:
    two.set_mode(0, current=True)
    for start in (0, 2):
        two.add_instance(0, 14, start)
    stage.run(1)
    assert stage.metric("build_info{")[0].endswith('driver="580.95.05"} 1')
    assert stage.metric("mig_instances{") == [f'mig_instances{{gpu="{two.uuid(0)}",profile="2g.10gb"}} 2']
