"""The program dies by SIGKILL at any change to the driver; its next start ends in the desired layout.

What may stay, stays: the same instance with the same UUID and its process. The run after that changes nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from tests.node.gpus.gpu_node import A100, H100, SEVEN, GpuNode, policy

TENANT = 4_000_001


@dataclass(frozen=True, kw_only=True)
class Scene:
    """`prepare` returns what must stay: gpu, GPU instance, UUID."""

    cards: tuple[str, ...]
    desired: Policy
    changes: int
    prepare: Callable[[GpuNode], list[tuple[int, int, str]]] = lambda _: []


def tenants(node: GpuNode, gpu: int, *starts: int) -> Iterator[tuple[int, int, str]]:
    for start in starts:
        gi = node.gi_at(gpu, start)
        node.fake_nvml.put(gpu, TENANT + start, 500, gi=gi)
        yield gpu, gi, node.fake_nvml.mig_uuid(gpu, gi)


def relayout(node: GpuNode) -> list[tuple[int, int, str]]:
    node.stand(0, ("3g.20gb", 4), ("2g.10gb", 0), ("1g.5gb", 2), ("1g.5gb", 3))
    return list(tenants(node, 0, 4, 2))


def full(node: GpuNode) -> list[tuple[int, int, str]]:
    node.stand(0, *SEVEN)
    return []


def two(node: GpuNode) -> list[tuple[int, int, str]]:
    node.stand(0, ("4g.20gb", 0), ("3g.20gb", 4))
    return list(tenants(node, 0, 4))


SCENES = {
    "a100 from whole to seven": Scene(cards=(A100,), desired=policy(SEVEN), changes=15),
    "a100 to another layout beside tenants": Scene(
        cards=(A100,), prepare=relayout, changes=6, desired=policy((("3g.20gb", 4), *(("1g.5gb", start) for start in range(4))))
    ),
    "a100 from seven to whole": Scene(cards=(A100,), prepare=full, desired=policy(()), changes=15),
    "h100 from whole to three": Scene(
        cards=(H100,), changes=7, desired=policy((("3g.40gb", 0), ("1g.10gb", 4), ("1g.10gb+me", 5)), card=H100)
    ),
    "two a100": Scene(
        cards=(A100, A100),
        prepare=two,
        changes=9,
        desired=policy((("3g.20gb", 4), ("2g.10gb", 0), ("2g.10gb", 2)), (("7g.40gb", 0),)),
    ),
}


def die_and_start_again(folder: Path, scene: Scene, number: int, *, is_after: bool) -> None:
    node = GpuNode(folder, *scene.cards)
    stays = scene.prepare(node)
    (node.fake_nvml.kill_after if is_after else node.fake_nvml.kill_before)(number)
    assert node.run_to_death(scene.desired) == 9, "the call of this number was never made"
    change = node.run(scene.desired)
    assert change.reason is None, change.message
    for gpu, gi, uuid in stays:
        assert node.fake_nvml.mig_uuid(gpu, gi) == uuid
    for gpu, desired in enumerate(scene.desired.gpus):
        own = node.fake_nvml.instances(gpu)
        ids = [instance.profile_id for instance in desired.instances if instance.profile_id is not None]
        assert sorted(profile for _, profile, *_ in own) == sorted(ids)
        assert all(computes == 1 for *_, computes in own)
        assert node.fake_nvml.mode(gpu) == (bool(desired.instances),) * 2
    assert node.folder.journal() is None
    node.fake_nvml.forget_calls()
    assert node.run(scene.desired).reason is None
    assert node.fake_nvml.calls() == []


@pytest.mark.failure_case(16)
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_the_matrix_below_covers_every_change(tmp_path: Path, scene: Scene) -> None:
    node = GpuNode(tmp_path, *scene.cards)
    scene.prepare(node)
    assert node.run(scene.desired).reason is None
    assert len(node.fake_nvml.calls()) == scene.changes


@pytest.mark.failure_case(16)
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_next_run_resumes_after_a_crash(tmp_path: Path, scene: Scene, is_after: bool) -> None:
    die_and_start_again(tmp_path, scene, 2, is_after=is_after)


@pytest.mark.failure_case(16)
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(4, 8))
def test_crash_during_rollback_still_converges_to_the_desired_layout(tmp_path: Path, number: int, is_after: bool) -> None:
    """The fourth call fails; the fifth takes away what it was for; with the sixth and seventh the former instance is back."""
    scene = SCENES["a100 to another layout beside tenants"]
    node = GpuNode(tmp_path, *scene.cards)
    stays = scene.prepare(node)
    node.fake_nvml.fail("nvmlGpuInstanceCreateComputeInstance", 23, times=1)
    (node.fake_nvml.kill_after if is_after else node.fake_nvml.kill_before)(number)
    assert node.run_to_death(scene.desired) == 9, "the call of this number was never made"
    node.fake_nvml.heal()
    change = node.run(scene.desired)
    assert change.reason is None, change.message
    assert len(node.fake_nvml.instances(0)) == 5
    assert [node.fake_nvml.mig_uuid(gpu, gi) for gpu, gi, _ in stays] == [uuid for *_, uuid in stays]


@pytest.mark.failure_case(16)
def test_mode_requested_before_a_crash_is_recognised_as_ours(tmp_path: Path) -> None:
    node = GpuNode(tmp_path)
    node.fake_nvml.reset_blocked(0, 16, 1)
    node.fake_nvml.kill_after(1)
    assert node.run_to_death(policy(SEVEN)) == 9
    assert node.fake_nvml.mode(0) == (False, True)
    assert node.run(policy(())).reason is None, "calls off what it asked for itself"
    assert node.fake_nvml.mode(0) == (False, False)


@pytest.mark.failure_case(16)
def test_rollback_after_a_crash_restores_the_layout_before_it(tmp_path: Path) -> None:
    node = GpuNode(tmp_path)
    scene = SCENES["a100 to another layout beside tenants"]
    stays = scene.prepare(node)
    former = node.stands(0)
    node.fake_nvml.kill_after(4)
    assert node.run_to_death(scene.desired) == 9
    assert node.stands(0) != former
    node.fake_nvml.fail("nvmlGpuInstanceCreateComputeInstance", 23, times=1)
    change = node.run(scene.desired)
    assert change.reason is ConditionReason.ROLLED_BACK, change.message
    assert node.stands(0) == former
    assert [node.fake_nvml.mig_uuid(gpu, gi) for gpu, gi, _ in stays] == [uuid for *_, uuid in stays]
