"""A user's git repository with an intent and its bundle, and a place where gpushare is installed as a user would."""

import os
import subprocess
import sys
from pathlib import Path

from tests.compiler.cli.conftest import GOOD
from tests.support import clone


def git(folder: Path, *arguments: str) -> str:
    settings = ("user.name=tests", "user.email=tests@example.org", "init.defaultBranch=main", "commit.gpgsign=false")
    identity = [word for setting in settings for word in ("-c", setting)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", *identity, *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()


def commit(folder: Path) -> str:
    """Commit everything; the commit."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "Change")
    return git(folder, "rev-parse", "HEAD")


def user_repository(folder: Path) -> str:
    """A repository with intent.yaml and its bundle; its first commit."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "intent.yaml").write_text(GOOD)
    subprocess.run([sys.executable, "-m", "gpushare", "compile", "intent.yaml"], cwd=folder, check=True, capture_output=True)
    return commit(folder)


def gpushare_repository(folder: Path) -> str:
    """A git repository with gpushare's files as they are now; its commit."""
    clone.copy_to(folder)
    git(folder, "init", "--quiet")
    return commit(folder)
