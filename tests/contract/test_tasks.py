"""The Makefile is the one list of commands: whatever else runs checks calls its targets."""

import re
from typing import Any

import pytest
import yaml

from tests.runner import suites
from tests.support.paths import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = dict(re.findall(r"^([a-z-]+):([^#\n]*)", MAKEFILE, re.MULTILINE))
"""Each target with what it needs."""
HOOKS = [hook for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"] for hook in repo["hooks"]]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yaml")}
JOBS = WORKFLOWS["ci"]["jobs"]
STEPS = [step for workflow in WORKFLOWS.values() for job in workflow["jobs"].values() for step in job["steps"]]


def test_every_make_target_is_phony() -> None:
    declared = re.search(r"^\.PHONY:(.*)", MAKEFILE, re.MULTILINE)
    assert declared is not None
    assert set(declared[1].split()) == set(TARGETS)


def test_the_hooks_before_a_commit_are_the_parts_of_lint() -> None:
    assert [hook["entry"] for hook in HOOKS] == [f"make {part}" for part in TARGETS["lint"].split()]


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_uses_the_installed_programs_on_the_whole_tree(hook: dict[str, object]) -> None:
    assert hook["language"] == "system"
    assert hook["pass_filenames"] is False


def matrices(job: dict[str, Any]) -> list[dict[str, str]]:
    """What each run of a job puts in the places of `matrix`."""
    rows: list[dict[str, str]] = job.get("strategy", {}).get("matrix", {}).get("include", [{}])
    return rows


def filled(run: str, row: dict[str, str]) -> str:
    """A command with the matrix' values in it."""
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found: row.get(found[1], ""), run)


RUNS = [
    filled(step["run"], row)
    for job in JOBS.values()
    for row in matrices(job)
    for step in job["steps"]
    if "make" in step.get("run", "")
]


@pytest.mark.parametrize("run", RUNS)
def test_hosted_ci_runs_only_make_targets(run: str) -> None:
    called = re.fullmatch(r'(?:sudo env (?:"[^"]*" )+)?make ([a-z-]+)((?: [A-Z]+=[\w,/]*)*)', run)
    assert called is not None
    assert called[1] in TARGETS


def test_hosted_ci_runs_every_suite_and_every_shard() -> None:
    asked = [dict(re.findall(r"(SUITE|SHARD)=(\S*)", run)) for run in RUNS if "test-all" in run]
    parts = {name: {one.get("SHARD", "") for one in asked if name in one["SUITE"].split(",")} for name in suites.NAMES}
    assert {name for name, shards in parts.items() if not shards} == set(suites.OPTIONAL)
    assert all(shards in ({""}, {"1/3", "2/3", "3/3"}) for shards in parts.values() if shards)


def test_hosted_ci_tests_the_oldest_python_that_is_supported() -> None:
    versions = [row["python"] for row in matrices(JOBS["unit"])]
    oldest = re.search(r'^requires-python = ">=(3\.\d+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert oldest is not None
    assert oldest[1] in versions


@pytest.mark.parametrize("action", [step["uses"] for step in STEPS if "uses" in step])
def test_action_is_pinned_to_a_commit(action: str) -> None:
    assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)


def test_hosted_ci_is_read_only_and_has_timeouts() -> None:
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in WORKFLOWS.values())
    assert all("permissions" not in job for job in JOBS.values())
    assert all(job["timeout-minutes"] <= 120 for workflow in WORKFLOWS.values() for job in workflow["jobs"].values())


def test_the_workflow_of_a_release_builds_and_publishes_by_targets() -> None:
    runs = [step.get("run", "") for step in WORKFLOWS["release"]["jobs"]["release"]["steps"]]
    called = [found[1] for run in runs if (found := re.search(r"\bmake ([a-z-]+)", run))]
    assert called == ["packages", "release", "publish", "upload"]
    assert set(called) <= set(TARGETS)
    assert not [run for run in runs if "${{" in run], "a value in a script is read from the environment"


def test_tests_run_every_command_of_a_release_and_its_actions_publish_nothing() -> None:
    [job] = WORKFLOWS["release"]["jobs"].values()
    used = {step["uses"].partition("@")[0] for step in job["steps"] if "run" not in step}
    assert used == {"actions/checkout", "actions/setup-python", "sigstore/cosign-installer"}
    test = (ROOT / "tests/e2e/publishing/test_workflow.py").read_text()
    assert 'COMMANDS: list[dict[str, Any]] = [step for step in JOB["steps"] if "run" in step]' in test
    assert "    for step in COMMANDS:\n        runner.step(step)\n" in test
