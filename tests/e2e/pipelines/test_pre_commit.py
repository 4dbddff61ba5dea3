"""The hooks for users, installed and run by pre-commit itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.pipelines.repositories import commit, git, gpushare_repository, user_repository


def test_hooks_fail_on_an_invalid_intent_and_on_a_stale_bundle(tmp_path: Path) -> None:
    rev = gpushare_repository(tmp_path / "gpushare")
    user = tmp_path / "user"
    user_repository(user)
    hooks = [{"id": "gpushare-check", "args": ["intent.yaml"]}, {"id": "gpushare-compile-check", "args": ["intent.yaml"]}]
    configuration = {"repos": [{"repo": str(tmp_path / "gpushare"), "rev": rev, "hooks": hooks}]}
    (user / ".pre-commit-config.yaml").write_text(json.dumps(configuration))
    commit(user)
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "GITHUB_ACTIONS"}}
    environment |= {"PRE_COMMIT_HOME": str(tmp_path / "home")}

    def run() -> subprocess.CompletedProcess[str]:
        git(user, "add", "--all")
        command = [sys.executable, "-m", "pre_commit", "run", "--color", "never"]
        return subprocess.run(command, cwd=user, env=environment, check=False, capture_output=True, text=True)

    intent = user / "intent.yaml"
    good = intent.read_text()
    intent.write_text(good + "# a comment changes no bundle\n")
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Passed") == 2
    intent.write_text(good.replace("replicas: 4", "replicas: 3"))
    done = run()
    assert done.returncode == 1
    assert "gpushare check...........................................................Passed" in done.stdout
    assert "bundle is stale" in done.stdout
    intent.write_text(good.replace("replicas: 4", "replicas: 1"))
    assert "intent.yaml:11:" in run().stdout
