"""The workflow of a release: each of its commands on a tag, with a registry and a package index of the test; an install."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare import __version__
from tests.e2e.publishing import cosign
from tests.e2e.registry.registries import registry
from tests.packaging.test_release import GIT, commit, dated, git
from tests.support import cache, helm
from tests.support.certificates import certify
from tests.support.clone import copy_to
from tests.support.package_index import LOGIN, package_index
from tests.support.paths import ROOT

[JOB] = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text())["jobs"].values()
COMMANDS: list[dict[str, Any]] = [step for step in JOB["steps"] if "run" in step]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
STAND_INS = {
    "sudo": '#!/bin/sh\nexec "$@"\n',
    "gh": '#!/bin/sh\nfor word; do echo "$word"; done >gh-arguments\n',
}
"""What only a hosted runner has. The suite runs as root, and a page of GitHub is GitHub's."""


class Runner:
    """A checkout of a tag, and the environment of a hosted runner with the test's registry and index."""

    def __init__(self, folder: Path, registry_host: str, index: str, certificate: Path) -> None:
        self.tree, self.registry = copy_to(folder / "tree"), f"{registry_host}/owner/gpushare"
        commit(dated(self.tree))
        git(self.tree, "tag", f"v{__version__}")
        programs = folder / "bin"
        programs.mkdir()
        for name, script in STAND_INS.items():
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)
        (programs / "cosign").symlink_to(cosign.program())
        (programs / "helm").symlink_to(helm.helm())
        trusted = folder / "trusted.crt"
        trusted.write_bytes((CERTIFICATES.read_bytes() if CERTIFICATES.exists() else b"") + certificate.read_bytes())
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "ARGS"}},
            **GIT,
            **LOGIN,
            "HOME": str(folder),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "GPUSHARE_TEST_CACHE": str(cache.root()),
            "SSL_CERT_FILE": str(trusted),
            "VENV": str(self._venv(folder / "venv")),
            "INDEX": index,
            "GITHUB_ACTOR": "puller",
            "GITHUB_REF_NAME": f"v{__version__}",
            "GITHUB_REPOSITORY": "Owner/gpushare",
        }
        self.shell("cosign generate-key-pair", COSIGN_PASSWORD="of the tests")
        self.values = {
            "vars.IMAGE_BASE": "debian",
            "secrets.GITHUB_TOKEN": "secret",
            "secrets.COSIGN_PRIVATE_KEY": (self.tree / "cosign.key").read_text(),
            "secrets.COSIGN_PASSWORD": "of the tests",
        }
        for key in ("cosign.key", "cosign.pub"):
            (self.tree / key).rename(folder / key)

    def _venv(self, venv: Path) -> Path:
        """The packages that this test runs with, as the environment of the checkout: newer than what it is made from."""
        venv.mkdir()
        for path in Path(sys.prefix).iterdir():
            if not path.name.startswith("."):
                (venv / path.name).symlink_to(path)
        for mark in (".empty", ".program", ".ready", ".suites"):
            (venv / mark).touch()
        return venv

    def step(self, step: dict[str, Any]) -> None:
        """Run a command of the workflow as the runner does."""
        given = {
            name: re.sub(r"\$\{\{ (.*?) \}\}", lambda found: self.values[found[1]], value)
            for name, value in step.get("env", {}).items()
        }
        self.shell(step["run"], **given)

    def shell(self, command: str, **more: str) -> str:
        """Run a command in the checkout; what it prints."""
        environment = JOB["env"] | self.environment | {"REGISTRY": self.registry.partition("/")[0]} | more
        words = ["bash", "-e", "-o", "pipefail", "-c", command]
        done = subprocess.run(words, cwd=self.tree, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    pair = certify(tmp_path / "server.crt")
    for name in ("registry", "index"):
        (tmp_path / name).mkdir()
    with registry(tmp_path / "registry", login=True, certificate=pair) as host, package_index(tmp_path / "index") as index:
        yield Runner(tmp_path, host, index, pair[0])


def test_a_tag_is_built_published_and_installed_by_the_commands_of_the_workflow(runner: Runner, tmp_path: Path) -> None:
    for step in COMMANDS:
        runner.step(step)

    # The image and the chart.
    raw = runner.shell(f"skopeo inspect --raw docker://{runner.registry}/node-runtime:{__version__}")
    assert [one["platform"]["architecture"] for one in json.loads(raw)["manifests"]] == ["amd64", "arm64"]
    for name in ("node-runtime", "charts/gpushare"):
        runner.shell(f"cosign verify --key {tmp_path}/cosign.pub --insecure-ignore-tlog {runner.registry}/{name}:{__version__}")
    chart = runner.shell(f"helm show chart oci://{runner.registry}/charts/gpushare --version {__version__}")
    assert yaml.safe_load(chart)["version"] == __version__

    # The page of the release.
    arguments = (runner.tree / "gh-arguments").read_text().splitlines()
    assert arguments[:4] == ["release", "create", f"v{__version__}", "--verify-tag"]
    assert {f"dist/{path.name}" for path in (runner.tree / "dist").iterdir()} <= set(arguments)

    # The package: one name on the index, with both import packages.
    names = {f"gpushare_compiler-{__version__}{end}" for end in ("-py3-none-any.whl", ".tar.gz")}
    assert {path.name for path in (tmp_path / "index").iterdir()} == names
    venv, index = tmp_path / "empty", runner.environment["INDEX"]
    runner.shell(f"python3 -m venv {venv} && {venv}/bin/pip install --quiet --index-url {index}/simple gpushare-compiler")
    assert runner.shell(f"{venv}/bin/gpushare --version").split()[-1] == __version__
    assert runner.shell(f"{venv}/bin/python -c 'import gpushare_node; print(gpushare_node.__version__)'").strip() == __version__
    assert not (venv / "bin/gpushare-node").exists()

    # A version is published once, and a publication that was cut off is completed.
    (tmp_path / "index" / f"gpushare_compiler-{__version__}.tar.gz").unlink()
    assert f"uploaded 1 files to {index}" in runner.shell("make upload")
    assert f"uploaded 0 files to {index}" in runner.shell("make upload")
