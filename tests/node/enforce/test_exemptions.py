"""Caps that live as long as a pod, and containers older than their pool's first cap: told once, and not exempt twice."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.host.state_files import Notice
from gpushare_node.core.structs import replace
from gpushare_node.enforce.exemptions import renew
from gpushare_node.enforce.first_caps import FirstCaps
from gpushare_node.guard.inputs import Settings
from tests.node.enforce.enforcement import OLD, YOUNG, EnforcementFixture, InlineQueue, await_end, container_id, lives, policy
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool

OLDER: dict[str, Any] = {"started": {container_id(1): OLD}}
DAY = 86400
NONE: dict[str, Any] = {"share": {"capMiB": None}}


class Marks:
    """The Node object's annotations."""

    def __init__(self) -> None:
        self.known: dict[str, str] | None = {}

    def annotations(self) -> Mapping[str, str] | None:
        return self.known

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        self.known = {**(self.known or {}), **{name: text for name, text in annotations.items() if text is not None}}


def install(folder: Path, two: FakeNvml, started: ProcessPool, **changes: Any) -> tuple[EnforcementFixture, int]:
    """A node on which a container ran, over what is to be its cap, before we came."""
    stage = EnforcementFixture(folder, two, started, marks=Marks(), **changes)
    stage.admit(1, "early", **OLDER)
    return stage, stage.begin(1, 5000)


def notice(seconds: int | None) -> dict[str, Any]:
    return {"enforcement": {"noticeSeconds": seconds}}


def give(stage: EnforcementFixture, **changes: Any) -> None:
    """Another policy, as after a rollout."""
    stage.policy = policy(**changes)
    stage.start()
    stage.run(2)


def exempt_until(stage: EnforcementFixture) -> list[str]:
    return [line.rsplit(" ", 1)[1] for line in stage.metric("container_cap_exempt_until_seconds{")]


@pytest.mark.failure_case(83)
def test_whoever_ran_before_the_first_cap_is_warned_as_long_as_it_runs(
    tmp_path: Path, two: FakeNvml, started: ProcessPool
) -> None:
    stage, pid = install(tmp_path, two, started)
    late = stage.admit_and_begin(2, "late", 5000)
    stage.run(8)
    await_end(late)
    stage.run(400)
    assert lives(pid)
    assert stage.told.reasons("early")[:2] == ["GPUMemoryCapNotice", "GPUMemoryOverCap"]
    told = [event.message for event in stage.told.events if event.pod is not None and event.pod.name == "early"]
    assert all("the cap is not enforced on it" in text for text in told)
    assert exempt_until(stage) == ["+Inf"]
    assert stage.told.reasons("late")[0] == "GPUMemoryOverCap"


@pytest.mark.failure_case(83)
def test_the_exemption_ends_with_the_container(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    stage, pid = install(tmp_path, two, started)
    stage.run(10)
    (known,) = stage.list.known
    stage.fake_nvml.take(0, pid)
    stage.list.known = (replace(known, containers={container_id(7): "main"}, started={container_id(7): YOUNG}),)
    again = stage.begin(1, 5000, container=7)
    stage.run(8)
    await_end(again)


@pytest.mark.failure_case(83)
def test_after_the_notice_that_the_intent_sets_the_cap_holds(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    stage, pid = install(tmp_path, two, started, **notice(DAY))
    stage.run(30)
    assert "the cap is enforced from 2017-07-15 02:56:41 UTC" in stage.told.events[0].message
    assert exempt_until(stage) == [str(1500000000 + 1001 + DAY)]
    stage.clock.time += DAY - 60
    stage.run(25)
    assert lives(pid)
    stage.run(40)
    await_end(pid)
    assert exempt_until(stage) == []


@pytest.mark.failure_case(83)
def test_the_end_of_a_notice_is_a_new_warning_and_a_new_grace(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    """However shortly before it was said that nothing follows."""
    stage, pid = install(tmp_path, two, started, enforcement={"noticeSeconds": DAY, "graceSeconds": 10})
    stage.fake_nvml.put(0, pid, 1000)
    stage.run(5)
    stage.clock.time += DAY - 25
    stage.fake_nvml.put(0, pid, 5000)
    stage.run(15)
    assert stage.told.reasons("early") == ["GPUMemoryCapNotice", "GPUMemoryOverCap"]
    stage.run(6)
    assert stage.told.reasons("early") == ["GPUMemoryCapNotice", "GPUMemoryOverCap", "GPUMemoryOverCap"]
    before, after = (event.message for event in stage.told.events if event.reason == "GPUMemoryOverCap")
    assert ("SIGTERM" in before, "SIGTERM" in after) == (False, True)
    stage.run(8)
    assert lives(pid)
    stage.run(2)
    await_end(pid)


@pytest.mark.failure_case(84)
def test_no_exemption_is_granted_twice_by_a_restart_or_by_lost_files(
    tmp_path: Path, two: FakeNvml, started: ProcessPool
) -> None:
    stage, pid = install(tmp_path, two, started, **notice(DAY))
    stage.run(10)
    stage.clock.time += DAY / 2
    for name in ("caps.json", "first-caps.json"):
        (tmp_path / "state" / name).unlink()
    stage.start()
    stage.run(10)
    assert lives(pid)
    assert exempt_until(stage) == [str(1500000000 + 1001 + DAY)]
    stage.clock.time += DAY / 2
    stage.run(10)
    await_end(pid)


@pytest.mark.failure_case(84)
def test_lost_annotations_begin_nothing_anew_either(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    stage, pid = install(tmp_path, two, started, **notice(DAY))
    stage.run(10)
    assert json.loads(stage.marks.known["gpushare.dev/first-caps"]) == {"nvidia.com/gpu.shared": 1500001001}
    stage.marks.known = {"gpushare.dev/first-caps": "none"}
    (tmp_path / "state/caps.json").unlink()
    stage.start()
    stage.clock.time += DAY
    stage.run(80)
    await_end(pid)
    assert json.loads(stage.marks.known["gpushare.dev/first-caps"]) == {"nvidia.com/gpu.shared": 1500001001}


@pytest.mark.failure_case(83)
def test_until_the_node_has_been_read_nobody_is_taken_for_new_or_old(
    tmp_path: Path, two: FakeNvml, started: ProcessPool
) -> None:
    stage, pid = install(tmp_path, two, started)
    stage.marks.known = None
    stage.run(30)
    assert lives(pid)
    assert stage.told.events == []
    stage.marks.known = {"gpushare.dev/first-caps": json.dumps({"nvidia.com/gpu.shared": int(OLD) - 5})}
    stage.run(8)
    await_end(pid)


@pytest.mark.failure_case(84)
def test_a_policy_rolled_forth_and_back_grants_no_second_exemption(
    tmp_path: Path, two: FakeNvml, started: ProcessPool
) -> None:
    stage, pid = install(tmp_path, two, started, **notice(DAY))
    stage.fake_nvml.put(0, pid, 1000)
    stage.run(5)
    stage.clock.time += DAY
    stage.run(5)
    give(stage, **NONE)
    give(stage, **notice(DAY))
    assert exempt_until(stage) == []
    stage.fake_nvml.put(0, pid, 5000)
    stage.run(8)
    await_end(pid)


@pytest.mark.failure_case(83)
def test_a_pools_first_cap_exempts_who_was_started_without_one(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    stage = EnforcementFixture(tmp_path, two, started, marks=Marks(), **NONE)
    pid = stage.admit_and_begin(1, "early", 5000)
    stage.run(3)
    give(stage)
    stage.run(30)
    assert lives(pid)
    assert stage.told.reasons("early")[0] == "GPUMemoryCapNotice"


@pytest.mark.parametrize(("former", "seconds", "until", "is_over"), [
    (None, None, None, False), (None, 100, 1100, False),
    (Notice(since=1000, seconds=None, until=None), 100, 1150, False),
    (Notice(since=1000, seconds=100, until=1100), 200, 1200, False),
    (Notice(since=1000, seconds=200, until=1200), 20, 1070, False),
    (Notice(since=1000, seconds=20, until=1070), 200, 1200, False),
    (Notice(since=1000, seconds=None, until=1200), 200, 1200, False),
    (Notice(since=1000, seconds=None, until=1040), 40, 1040, True),
    (Notice(since=1000, seconds=40, until=1040), 200, 1040, True),
    (Notice(since=9000, seconds=40, until=9040), 40, 1090, False),
    (Notice(since=1000, seconds=40, until=1040, is_over=True), None, 1040, True),
], ids=["for life", "a date", "a first date", "a longer one", "a shorter one", "longer again", "a date again",
        "the date has gone by", "too late for a longer one", "begun by a clock that was ahead", "over for good"])
def test_the_date_of_a_notice(former: Notice | None, seconds: int | None, until: int | None, *, is_over: bool) -> None:
    found = renew(former, since=1000.0, seconds=seconds, now=1050.0)
    assert (found.until, found.is_over) == (until, is_over)
    assert renew(found, since=0.0, seconds=seconds, now=1050.0) == found


@pytest.mark.failure_case(85)
@pytest.mark.parametrize("lost", ["the checkpoint", "its entries", "the pod", "the container"])
def test_a_cap_lives_as_long_as_its_pod(tmp_path: Path, two: FakeNvml, started: ProcessPool, lost: str) -> None:
    stage = EnforcementFixture(tmp_path, two, started, share={"capMiB": 8192})
    stage.admit(1, "early")
    stage.run(2)
    known, text = stage.list.known, stage.checkpoint.read_text()
    stage.policy = policy()
    stage.start()
    number = 1
    if lost == "the checkpoint":
        stage.checkpoint.unlink()
        stage.run(15)
    elif lost == "its entries":
        stage.checkpoint.write_text(json.dumps({"Data": {"PodDeviceEntries": [], "RegisteredDevices": {}}}))
        stage.run(15)
    elif lost == "the pod":
        stage.list.known = ()
        stage.run(15)
    else:
        number = 7
        known = (replace(known[0], containers={container_id(7): "main"}, started={container_id(7): YOUNG}),)
    stage.list.known = known
    stage.checkpoint.write_text(text)
    pid = stage.begin(1, 8000, container=number)
    stage.run(30)
    assert lives(pid)
    stage.fake_nvml.put(0, pid, 9000)
    stage.run(8)
    await_end(pid)


def test_a_dry_run_begins_no_cap(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    """Whoever tries caps out, and installs them a week later, finds everybody older than they are."""
    stage, pid = install(tmp_path, two, started, settings=Settings(dry_run=True))
    stage.run(10)
    later = stage.admit_and_begin(2, "later", 5000, started={container_id(2): 1.5e9 + 2000})
    stage.run(10)
    assert list((tmp_path / "state").iterdir()) == []
    assert stage.marks.known == {}
    stage.settings = Settings()
    stage.clock.time += DAY
    stage.start()
    stage.run(30)
    assert lives(pid)
    assert lives(later)


def test_a_clock_that_was_a_year_ahead_when_the_cap_began_exempts_nobody_after_it_is_put_right(tmp_path: Path) -> None:
    marks, wall = Marks(), [1.5e9 + 365 * DAY]
    first_caps = FirstCaps(StateDir(tmp_path), marks, InlineQueue(), wall=lambda: wall[0], dry_run=False)
    assert first_caps.find({"nvidia.com/gpu.shared"}, 0) == {"nvidia.com/gpu.shared": 1_500_000_000 + 365 * DAY}
    wall[0] = 1.5e9
    assert first_caps.find({"nvidia.com/gpu.shared"}, 100) == {"nvidia.com/gpu.shared": 0}
    wall[0] = 1.5e9 + DAY
    assert first_caps.find({"nvidia.com/gpu.shared"}, 200) == {"nvidia.com/gpu.shared": 0}
    assert json.loads((marks.known or {})["gpushare.dev/first-caps"]) == {"nvidia.com/gpu.shared": 0}


@pytest.mark.failure_case(108)
@pytest.mark.parametrize("text", ["", "x", "[]", "3", '{"a": "b"}', '{"a": null}', '{"a": NaN}', '{"a": 1e999}', "[" * 100_000],
                         ids=range(9))
def test_what_somebody_wrote_where_first_caps_are_remembered_stops_no_cap(tmp_path: Path, text: str) -> None:
    marks = Marks()
    marks.known = {"gpushare.dev/first-caps": text}
    first_caps = FirstCaps(StateDir(tmp_path), marks, InlineQueue(), wall=lambda: 1.5e9, dry_run=False)
    assert first_caps.find({"nvidia.com/gpu.shared"}, 0) == {"nvidia.com/gpu.shared": 1_500_000_000}
