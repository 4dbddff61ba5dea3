"""The templates for GitHub and GitLab: every shell step runs as the service would run it, without the service."""

import json
import os
import shlex
import subprocess
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compiler.cli.process import SET_BY_CI
from tests.e2e.pipelines.repositories import commit, git, user_repository
from tests.support.paths import ROOT

TEMPLATES = ROOT / "docs/pipelines"
SERVICE_ALONE = {"Install gpushare"}
"""Steps that fetch gpushare; `test_pre_commit` and `tests/packaging` install it."""


def template(name: str) -> Any:
    return yaml.safe_load((TEMPLATES / name).read_text())


@pytest.fixture
def user(tmp_path: Path) -> tuple[Path, str]:
    """A repository whose last commit changes the intent and its bundle, and the commit before."""
    folder = tmp_path / "user repository"
    base = user_repository(folder)
    intent = folder / "intent.yaml"
    intent.write_text(intent.read_text().replace("replicas: 4", "replicas: 2").replace("cap: 3Gi", "cap: 6Gi"))
    subprocess.run([sys.executable, "-m", "gpushare", "compile", "intent.yaml"], cwd=folder, check=True, capture_output=True)
    commit(folder)
    return folder, base


def environment(folder: Path, **more: str) -> dict[str, str]:
    """What a step sees: gpushare on the path, as after its installation."""
    programs = folder.parent / "bin"
    programs.mkdir(exist_ok=True)
    program = programs / "gpushare"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gpushare "$@"\n')
    program.chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if name not in SET_BY_CI}
    return inherited | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"} | more


def github(folder: Path, base: str) -> dict[str, subprocess.CompletedProcess[str]]:
    """What the steps of the workflow do, by name."""
    temporary = folder.parent / "temporary"
    temporary.mkdir()
    (job,) = template("github-workflow.yaml")["jobs"].values()
    surroundings = environment(
        folder,
        RUNNER_TEMP=str(temporary),
        GITHUB_STEP_SUMMARY=str(temporary / "summary"),
        GITHUB_ACTIONS="true",
        CI="true",
        **job["env"],
    )
    gh = folder.parent / "bin/gh"
    # Its last argument is the file with the comment.
    gh.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" > "$RUNNER_TEMP/gh"\nfor body; do :; done\ncp "$body" "$RUNNER_TEMP/comment"\n'
    )
    gh.chmod(0o755)
    values = {"BASE": base, "GH_TOKEN": "token", "NUMBER": "7"}
    done = {}
    for step in job["steps"]:
        if "run" not in step or step["name"] in SERVICE_ALONE:
            continue
        assert "${{" not in step["run"], "an expression in a script lets a branch's name run commands"
        own = {name: values[name] for name in step.get("env", {})}
        done[step["name"]] = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder,
            env=surroundings | own,
            capture_output=True,
            text=True,
            check=False,
        )
    return done


def test_the_github_workflow_checks_plans_and_comments(user: tuple[Path, str]) -> None:
    folder, base = user
    done = github(folder, base)
    assert {name: one.returncode for name, one in done.items()} == dict.fromkeys(done, 0), done
    temporary = folder.parent / "temporary"
    plan = (temporary / "plan.md").read_text()
    assert "notebooks" in plan
    assert (temporary / "summary").read_text() == plan
    assert (temporary / "gh").read_text().splitlines() == [
        "pr",
        "comment",
        "7",
        "--edit-last",
        "--create-if-none",
        "--body-file",
        str(temporary / "plan.md"),
    ]
    assert (temporary / "comment").read_text() == plan
    assert json.loads((folder / "gpushare.sarif").read_text())["runs"][0]["results"] == []


def test_the_github_workflow_fails_where_the_intent_is_wrong(user: tuple[Path, str]) -> None:
    folder, base = user
    (folder / "intent.yaml").write_text("spec: 3\n")
    done = github(folder, base)
    assert done["Check the intent"].returncode == 1
    assert done["Check the intent"].stdout.startswith("::error file=intent.yaml,line=1")
    assert done["Write the findings for code scanning"].returncode == 0
    assert json.loads((folder / "gpushare.sarif").read_text())["runs"][0]["results"]
    assert done["Check that the bundle is current"].returncode == 1


def test_github_workflow_reports_a_stale_or_new_bundle(user: tuple[Path, str]) -> None:
    folder, _ = user
    intent = folder / "intent.yaml"
    intent.write_text(intent.read_text().replace("cap: 6Gi", "cap: 5Gi"))
    empty = git(folder, "hash-object", "-w", "-t", "tree", os.devnull)
    done = github(folder, git(folder, "commit-tree", empty, "-m", "Nothing yet"))
    assert done["Check that the bundle is current"].returncode == 3
    assert (folder.parent / "temporary/plan.md").read_text() == "The bundle is new.\n"


class _Notes(BaseHTTPRequestHandler):
    """The part of GitLab that lists, takes and changes comments."""

    def do_GET(self) -> None:
        assert self.headers["PRIVATE-TOKEN"] == "token"
        answer = json.dumps([{"id": 1, "body": "added 1 commit", "system": True}, *notes]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self) -> None:
        self._take()
        notes.append({"id": 302, "body": taken[-1][3], "system": False})
        self.send_response(201)
        self.end_headers()

    def do_PUT(self) -> None:
        self._take()
        self.send_response(200)
        self.end_headers()

    def _take(self) -> None:
        body = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        taken.append((self.command, self.path, self.headers["PRIVATE-TOKEN"], body["body"][0]))

    def log_message(self, *_: object) -> None: ...


taken: list[tuple[str, str, str, str]] = []
notes: list[dict[str, Any]] = []


def test_the_gitlab_job_checks_plans_and_comments(user: tuple[Path, str]) -> None:
    folder, base = user
    job = template("gitlab-ci.yaml")["gpushare"]
    assert job["before_script"] == ['pip install --quiet "$GPUSHARE"']
    taken.clear()
    notes.clear()
    with HTTPServer(("127.0.0.1", 0), _Notes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        surroundings = environment(
            folder,
            CI_MERGE_REQUEST_DIFF_BASE_SHA=base,
            CI_MERGE_REQUEST_IID="7",
            CI_PROJECT_ID="3",
            GPUSHARE_TOKEN="token",
            CI_API_V4_URL=f"http://127.0.0.1:{server.server_address[1]}/api/v4",
            TMPDIR=str(folder.parent),
            NO_PROXY="127.0.0.1",
            **job["variables"],
        )
        for _ in range(2):  # the second push changes the note of the first
            done = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", "\n".join(job["script"])],
                cwd=folder,
                env=surroundings,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        server.shutdown()
    plan = (folder / "plan.md").read_text()
    path = "/api/v4/projects/3/merge_requests/7/notes"
    assert [one[:3] for one in taken] == [("POST", path, "token"), ("PUT", f"{path}/302", "token")]
    assert [body for *_, body in taken] == [f"<!-- gpushare plan -->\n{plan}"] * 2
    assert all((folder / path).is_file() for path in job["artifacts"]["paths"])
