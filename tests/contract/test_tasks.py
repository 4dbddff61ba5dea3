"""The Makefile is the one list of commands: whatever else runs checks calls its targets."""

import re

import pytest
import yaml

from tests.support.paths import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = dict(re.findall(r"^([a-z-]+):([^#\n]*)", MAKEFILE, re.MULTILINE))
"""Each target with what it needs."""
HOOKS = [hook for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"] for hook in repo["hooks"]]


def test_every_task_is_declared_as_one_that_makes_no_file() -> None:
    declared = re.search(r"^\.PHONY:(.*)", MAKEFILE, re.MULTILINE)
    assert declared is not None
    assert set(declared[1].split()) == set(TARGETS)


def test_the_hooks_before_a_commit_are_the_parts_of_lint() -> None:
    assert [hook["entry"] for hook in HOOKS] == [f"make {part}" for part in TARGETS["lint"].split()]


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_uses_the_installed_programs_on_the_whole_tree(hook: dict[str, object]) -> None:
    assert hook["language"] == "system"
    assert hook["pass_filenames"] is False
