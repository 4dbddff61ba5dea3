"""A run that dies before and after every single change of every scene."""

from pathlib import Path

import pytest

from tests.node.gpus.test_crash_of_a_run import SCENES, Scene, die_and_start_again


@pytest.mark.failure_case(16)
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("scene", "number"),
    [
        pytest.param(scene, number, id=f"{name}, {number}")
        for name, scene in SCENES.items()
        for number in range(1, scene.changes + 1)
    ],
)
def test_crash_after_any_change_is_recovered(tmp_path: Path, scene: Scene, number: int, is_after: bool) -> None:
    die_and_start_again(tmp_path, scene, number, is_after=is_after)
