"""Caps that live as long as a pod, and containers older than their pool's first cap: told once, and not exempt twice."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.host.state_files import Notice
from gpushare_node.contract.struct import replace
from gpushare_node.enforce.exemptions import renew
from gpushare_node.guard.inputs import Settings
from tests.node.enforce.enforcement import OLD, YOUNG, EnforcementFixture, await_end, container_id, lives, policy
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool

OLDER: dict[str, Any] = {"started": {container_id(1): OLD}}
DAY = 86400
NONE: dict[str, Any] = {"share": {"capMiB": None}}


def install(folder: Path, two_gpus: FakeNvml, process_pool: ProcessPool, **changes: Any) -> tuple[EnforcementFixture, int]:
    """A node on which a container ran, over what is to be its cap, before we came."""
    enforcement = EnforcementFixture(folder, two_gpus, process_pool, **changes)
    enforcement.admit(1, "early", **OLDER)
    return enforcement, enforcement.begin(1, 5000)


def notice(seconds: int | None) -> dict[str, Any]:
    return {"enforcement": {"noticeSeconds": seconds}}


def give(fixture: EnforcementFixture, **changes: Any) -> None:
    """Another policy, as after a rollout; one of its fields is called enforcement."""
    fixture.policy = policy(**changes)
    fixture.start()
    fixture.run(2)


def exempt_until(enforcement: EnforcementFixture) -> list[str]:
    return [line.rsplit(" ", 1)[1] for line in enforcement.metric("container_cap_exempt_until_seconds{")]


@pytest.mark.failure_case(83)
def test_container_older_than_the_first_cap_is_only_warned(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    enforcement, pid = install(tmp_path, two_gpus, process_pool)
    late = enforcement.admit_and_begin(2, "late", 5000)
    enforcement.run(8)
    await_end(late)
    enforcement.run(400)
    assert lives(pid)
    assert enforcement.told.reasons("early")[:2] == ["GPUMemoryCapNotice", "GPUMemoryOverCap"]
    told = [event.message for event in enforcement.told.events if event.pod is not None and event.pod.name == "early"]
    assert all("the cap is not enforced on it" in text for text in told)
    assert exempt_until(enforcement) == ["+Inf"]
    assert enforcement.told.reasons("late")[0] == "GPUMemoryOverCap"


@pytest.mark.failure_case(83)
def test_the_exemption_ends_with_the_container(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> None:
    enforcement, pid = install(tmp_path, two_gpus, process_pool)
    enforcement.run(10)
    (known,) = enforcement.list.known
    enforcement.fake_nvml.take(0, pid)
    enforcement.list.known = (replace(known, containers={container_id(7): "main"}, started={container_id(7): YOUNG}),)
    again = enforcement.begin(1, 5000, container=7)
    enforcement.run(8)
    await_end(again)


@pytest.mark.failure_case(83)
def test_cap_is_enforced_after_the_notice_period(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> None:
    enforcement, pid = install(tmp_path, two_gpus, process_pool, **notice(DAY))
    enforcement.run(30)
    assert "the cap is enforced from 2017-07-15 02:56:41 UTC" in enforcement.told.events[0].message
    assert exempt_until(enforcement) == [str(1500000000 + 1001 + DAY)]
    enforcement.clock.time += DAY - 60
    enforcement.run(25)
    assert lives(pid)
    enforcement.run(40)
    await_end(pid)
    assert exempt_until(enforcement) == []


@pytest.mark.failure_case(83)
def test_the_end_of_a_notice_is_a_new_warning_and_a_new_grace(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    """However shortly before it was said that nothing follows."""
    enforcement, pid = install(tmp_path, two_gpus, process_pool, enforcement={"noticeSeconds": DAY, "graceSeconds": 10})
    enforcement.fake_nvml.put(0, pid, 1000)
    enforcement.run(5)
    enforcement.clock.time += DAY - 25
    enforcement.fake_nvml.put(0, pid, 5000)
    enforcement.run(15)
    assert enforcement.told.reasons("early") == ["GPUMemoryCapNotice", "GPUMemoryOverCap"]
    enforcement.run(6)
    assert enforcement.told.reasons("early") == ["GPUMemoryCapNotice", "GPUMemoryOverCap", "GPUMemoryOverCap"]
    before, after = (event.message for event in enforcement.told.events if event.reason == "GPUMemoryOverCap")
    assert ("SIGTERM" in before, "SIGTERM" in after) == (False, True)
    enforcement.run(8)
    assert lives(pid)
    enforcement.run(2)
    await_end(pid)


@pytest.mark.failure_case(84)
def test_no_exemption_is_granted_twice_by_a_restart_or_by_lost_caps(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    enforcement, pid = install(tmp_path, two_gpus, process_pool, **notice(DAY))
    enforcement.run(10)
    enforcement.clock.time += DAY / 2
    (tmp_path / "state" / "caps.json").unlink()
    enforcement.start()
    enforcement.run(10)
    assert lives(pid)
    assert exempt_until(enforcement) == [str(1500000000 + 1001 + DAY)]
    enforcement.clock.time += DAY / 2
    enforcement.run(10)
    await_end(pid)


@pytest.mark.failure_case(84)
def test_a_policy_rolled_forth_and_back_grants_no_second_exemption(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    enforcement, pid = install(tmp_path, two_gpus, process_pool, **notice(DAY))
    enforcement.fake_nvml.put(0, pid, 1000)
    enforcement.run(5)
    enforcement.clock.time += DAY
    enforcement.run(5)
    give(enforcement, **NONE)
    give(enforcement, **notice(DAY))
    assert exempt_until(enforcement) == []
    enforcement.fake_nvml.put(0, pid, 5000)
    enforcement.run(8)
    await_end(pid)


@pytest.mark.failure_case(83)
def test_first_cap_of_a_pool_exempts_containers_started_without_one(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, **NONE)
    pid = enforcement.admit_and_begin(1, "early", 5000)
    enforcement.run(3)
    give(enforcement)
    enforcement.run(30)
    assert lives(pid)
    assert enforcement.told.reasons("early")[0] == "GPUMemoryCapNotice"


@pytest.mark.parametrize(
    ("former", "seconds", "until", "is_over"),
    [
        (None, None, None, False),
        (None, 100, 1100, False),
        (Notice(since=1000, seconds=None, until=None), 100, 1150, False),
        (Notice(since=1000, seconds=100, until=1100), 200, 1200, False),
        (Notice(since=1000, seconds=200, until=1200), 20, 1070, False),
        (Notice(since=1000, seconds=20, until=1070), 200, 1200, False),
        (Notice(since=1000, seconds=None, until=1200), 200, 1200, False),
        (Notice(since=1000, seconds=None, until=1040), 40, 1040, True),
        (Notice(since=1000, seconds=40, until=1040), 200, 1040, True),
        (Notice(since=9000, seconds=40, until=9040), 40, 1090, False),
        (Notice(since=1000, seconds=40, until=1040, is_over=True), None, 1040, True),
    ],
    ids=[
        "for life",
        "a date",
        "a first date",
        "a longer one",
        "a shorter one",
        "longer again",
        "a date again",
        "the date has gone by",
        "too late for a longer one",
        "begun by a clock that was ahead",
        "over for good",
    ],
)
def test_notice_end_follows_the_configured_length(
    former: Notice | None, seconds: int | None, until: int | None, *, is_over: bool
) -> None:
    found = renew(former, since=1000.0, seconds=seconds, now=1050.0)
    assert (found.until, found.is_over) == (until, is_over)
    assert renew(found, since=0.0, seconds=seconds, now=1050.0) == found


@pytest.mark.failure_case(85)
@pytest.mark.parametrize("lost", ["the checkpoint", "its entries", "the pod", "the container"])
def test_cap_is_kept_as_long_as_its_pod_exists(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, lost: str
) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, share={"capMiB": 8192})
    enforcement.admit(1, "early")
    enforcement.run(2)
    known, text = enforcement.list.known, enforcement.checkpoint.read_text()
    enforcement.policy = policy()
    enforcement.start()
    number = 1
    if lost == "the checkpoint":
        enforcement.checkpoint.unlink()
        enforcement.run(15)
    elif lost == "its entries":
        enforcement.checkpoint.write_text(json.dumps({"Data": {"PodDeviceEntries": [], "RegisteredDevices": {}}}))
        enforcement.run(15)
    elif lost == "the pod":
        enforcement.list.known = ()
        enforcement.run(15)
    else:
        number = 7
        known = (replace(known[0], containers={container_id(7): "main"}, started={container_id(7): YOUNG}),)
    enforcement.list.known = known
    enforcement.checkpoint.write_text(text)
    pid = enforcement.begin(1, 8000, container=number)
    enforcement.run(30)
    assert lives(pid)
    enforcement.fake_nvml.put(0, pid, 9000)
    enforcement.run(8)
    await_end(pid)


def test_dry_run_does_not_start_caps(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> None:
    """Whoever tries caps out, and installs them a week later, finds everybody older than they are."""
    enforcement, pid = install(tmp_path, two_gpus, process_pool, settings=Settings(dry_run=True))
    enforcement.run(10)
    later = enforcement.admit_and_begin(2, "later", 5000, started={container_id(2): 1.5e9 + 2000})
    enforcement.run(10)
    assert list((tmp_path / "state").iterdir()) == []
    enforcement.settings = Settings()
    enforcement.clock.time += DAY
    enforcement.start()
    enforcement.run(30)
    assert lives(pid)
    assert lives(later)


@pytest.mark.failure_case(84)
@pytest.mark.parametrize("lost", ["first-caps.json", "caps.json"])
def test_who_began_later_is_never_older(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, lost: str) -> None:
    """The ids of what ran at the first cap are stored once; a list made again would have everybody in it."""
    enforcement, early = install(tmp_path, two_gpus, process_pool)
    enforcement.run(3)
    late = enforcement.admit_and_begin(2, "late", 1000, started={container_id(2): YOUNG})
    enforcement.run(3)
    (tmp_path / "state" / lost).unlink()
    enforcement.clock.time += DAY
    enforcement.start()
    enforcement.run(3)
    enforcement.fake_nvml.put(0, late, 5000)
    enforcement.run(8)
    await_end(late)
    assert lives(early)


@pytest.mark.failure_case(108)
@pytest.mark.parametrize("text", ["", "x", "[]", '{"version": 1, "content": 3}', '{"version": 1, "content": {"since": -1}}'])
def test_an_unreadable_beginning_prevents_no_cap(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, text: str
) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool)
    (tmp_path / "state" / "first-caps.json").write_text(text)
    pid = enforcement.admit_and_begin(1, "young", 5000)
    enforcement.run(8)
    await_end(pid)
