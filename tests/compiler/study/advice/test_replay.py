"""The replay ends exactly whom the real enforcement ends, and skips only time in which nothing can change."""

import random
from pathlib import Path
from typing import Any

import pytest

from gpushare.study.advice import replay
from gpushare.study.advice.advised import BackTest
from gpushare.study.advice.history import ContainerUse
from gpushare.study.advice.replay import ABSENT, Measured, Terms
from gpushare_node.contract.policy import Action
from tests.compiler.study.advice.enforced_node import endings, enforced_node
from tests.support import scale

MIB = 1 << 20
STEP = 15
START = 1_700_000_000
WEEK = 7 * 86400


def use(name: str, *points: tuple[int, float], namespace: str = "team", device: str = "0") -> ContainerUse:
    """The use of a pod's one container: (seconds after the start, MiB)."""
    placed = tuple((START + at, int(mib * MIB)) for at, mib in points)
    return ContainerUse(namespace=namespace, pod=name, container="main", pool="pool", device=device, points=placed)


def steady(mib: float, seconds: int = 600) -> list[tuple[int, float]]:
    return [(at, mib) for at in range(0, seconds, STEP)]


def tried(*uses: ContainerUse, seconds: int = 600, is_whole: bool = False, **changes: Any) -> BackTest:
    """Replayed under a cap of 4096 MiB with a grace of two seconds."""
    fields: dict[str, Any] = {
        "cap_bytes": 4096 * MIB,
        "tolerance_bytes": 0,
        "action": Action.KILL,
        "grace_seconds": 2,
    } | changes
    return replay.replay(Measured(uses, (START, START + seconds), STEP, 3 * STEP), Terms(**fields), is_whole=is_whole)


def ended(test: BackTest) -> list[tuple[str, int]]:
    return [(one.pod, one.at - START) for one in test.endings]


def random_uses(seed: int, seconds: int) -> list[ContainerUse]:
    """Bursts, trends and gaps, in three namespaces on two devices: several are over at once, one uses both devices."""
    chance = random.Random(seed)
    made = []
    for number in range(14):
        base, trend = chance.uniform(500, 2500), chance.choice([0, 0, 0, 4])
        points: list[tuple[int, float]] = []
        burst = at = 0
        while at < seconds:
            burst = burst - 1 if burst > 0 else chance.choice([1, 1, 2, 5]) if chance.random() < 0.03 else 0
            size = chance.uniform(4097, 4300) if burst else min(base + trend * at, 4200) * chance.uniform(0.95, 1)
            points.append((at, round(size)))
            at += chance.choice([STEP] * 18 + [2 * STEP, 5 * STEP])
        made.append(use(f"pod-{number}", *points, namespace=f"team-{number % 3}", device=str(number % 2)))
    second = use("pod-0", *steady(300, seconds), namespace=made[0].namespace, device="1")
    return [*made, second]


@pytest.mark.parametrize(("seed", "action"), scale.some([(seed, one) for seed in range(4) for one in ("kill", "evict")], 8))
def test_it_ends_whom_the_real_enforcement_ends(
    seed: int, action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 900 if scale.is_long else 200
    uses = random_uses(seed, seconds)
    with enforced_node(tmp_path, monkeypatch, action) as node:
        real = endings(node, uses, (START, START + seconds), STEP)
    test = tried(*uses, seconds=seconds, action=Action(action))
    assert sorted((one.namespace, one.pod, one.at) for one in test.endings) == real
    assert len(real) >= seconds // 150


@pytest.mark.parametrize("seed", scale.some(range(3), 3))
def test_what_it_skips_changes_nothing(seed: int) -> None:
    seconds = 900 if scale.is_long else 300
    uses = random_uses(seed, seconds)
    for action in Action:
        found = tried(*uses, seconds=seconds, action=action)
        assert found == tried(*uses, seconds=seconds, is_whole=True, action=action)
        assert found.endings


def test_a_container_is_ended_after_the_samples_and_the_grace() -> None:
    over = use("greedy", *steady(1000, 300), *((at, 5000) for at in range(300, 600, STEP)))
    test = tried(over, use("modest", *steady(4096)))
    assert ended(test) == [("greedy", 305)]
    assert (test.containers, test.endings[0].used_bytes) == (2, 5000 * MIB)
    assert ended(tried(over, grace_seconds=30)) == [("greedy", 333)]
    assert ended(tried(over, tolerance_bytes=904 * MIB)) == []
    assert ended(tried(over, is_mps=True)) == [("greedy", 305)]


def test_a_crowd_over_its_caps_is_ended_each_for_itself() -> None:
    crowd = [use(f"pod-{number}", *steady(4000 + 100 * number)) for number in range(2, 10)]
    alone = {name: seconds for one in crowd for name, seconds in ended(tried(one))}
    assert len(alone) == 8
    assert dict(ended(tried(*crowd))) == alone, "none waits for another, and none is ended sooner for another"


def test_what_is_not_known_ends_nobody() -> None:
    known = use("pod", (0, 1000), (15, 5000), (600, 1000))
    assert ended(tried(known)) == [("pod", 20)], "a use holds for one step"
    assert ended(tried(known, grace_seconds=30)) == []
    assert replay.changes(known, (START, START + 600), STEP, 3 * STEP) == [
        (START, 1000 * MIB),
        (START + 15, 5000 * MIB),
        (START + 30, None),
    ]
    gone = use("pod", (60, 1000), (75, 2000))
    assert replay.changes(gone, (START + 70, START + 600), STEP, 3 * STEP) == [
        (START + 70, 1000 * MIB),
        (START + 75, 2000 * MIB),
        (START + 90, ABSENT),
    ]
    assert tried(gone, seconds=50) == tried(), "before it began"
    assert tried().rate.high == float("inf")


def test_the_rate_is_of_the_time_in_which_containers_were_measured() -> None:
    test = tried(use("a", *steady(5000, 3600)), use("b", *steady(1000, 3600)), seconds=7200)
    assert test.rate.value == pytest.approx(WEEK / 7200)
    assert test.rate.low < test.rate.value < test.rate.high


def test_devices_without_a_name_are_not_one_device() -> None:
    crowd = [use(f"pod-{number}", *steady(4100 + number), device="") for number in range(9)]
    assert {seconds for _, seconds in ended(tried(*crowd))} == {5}
