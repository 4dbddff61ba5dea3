"""The Makefile is the one list of commands: whatever else runs checks calls its targets."""

import re

import pytest
import yaml

from tests.support.paths import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = dict(re.findall(r"^([a-z-]+):([^#\n]*)", MAKEFILE, re.MULTILINE))
"""Each target with what it needs."""
HOOKS = [hook for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"] for hook in repo["hooks"]]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())
JOBS = WORKFLOW["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]


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


@pytest.mark.parametrize("run", [step["run"] for step in STEPS if "run" in step])
def test_hosted_ci_runs_nothing_but_targets(run: str) -> None:
    called = re.fullmatch(r'(?:sudo env "PATH=\$PATH" )?make ([a-z-]+)', run)
    assert called is not None
    assert called[1] in TARGETS


def test_hosted_ci_lints_measures_coverage_and_runs_the_fast_tests_and_all() -> None:
    assert [step["run"].split()[-1] for step in STEPS if "run" in step] == ["lint", "test-fast", "coverage", "test"]


def test_hosted_ci_tests_every_python_from_the_oldest_that_is_supported() -> None:
    versions = JOBS["fast"]["strategy"]["matrix"]["python"]
    oldest = re.search(r'^requires-python = ">=3\.(\d+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert oldest is not None
    assert versions == [f"3.{int(oldest[1]) + number}" for number in range(len(versions))]


@pytest.mark.parametrize("action", [step["uses"] for step in STEPS if "uses" in step])
def test_an_action_is_named_by_its_commit(action: str) -> None:
    assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)


def test_hosted_ci_may_only_read_and_ends() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert all("permissions" not in job and job["timeout-minutes"] <= 120 for job in JOBS.values())
