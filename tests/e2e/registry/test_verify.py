"""`gpushare images --verify` and the scripts for copying, against a real registry."""

import base64
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpushare.reading import schema
from gpushare.render.mirror import copies
from tests.compiler.cli.process import gpushare
from tests.e2e.gitops import upstream
from tests.e2e.registry import crane
from tests.e2e.registry.registries import push, registry
from tests.support import helm
from tests.support.certificates import certify
from tests.support.paths import ROOT
from tests.support.ports import free_port, is_served
from tests.support.waiting import wait_for

BUNDLE = ROOT / "examples/02-t4-notebooks/bundle"
INTENT = """\
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: lab}
spec:
  platform: {stack: existing, image: {repository: %s, digest: "%s"}}
  pools:
    notebooks: {card: t4, nodes: {matchLabels: {gpu: t4}}, gpusPerNode: 2, sharing: {mode: exclusive}}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "registry"
    folder.mkdir()
    return folder


@pytest.fixture(params=copies.SCRIPTS)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """A PATH with one of the programs that `--verify` runs, and no other; nothing of it is configured."""
    found = crane.folder() / "crane" if request.param == "crane" else shutil.which("skopeo")
    assert found
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / request.param).symlink_to(found)
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}


def targets(host: str) -> list[str]:
    listed = gpushare("images", BUNDLE, "--to", f"{host}/mirror", "--format", "json")
    return [one["target"] for one in json.loads(listed.stdout)["images"]]


def test_every_missing_image_is_listed_until_it_is_present(here: Path, program: dict[str, str]) -> None:
    with registry(here) as host:
        call = ("images", BUNDLE, "--to", f"{host}/mirror", "--verify", "--plain-http")
        wanted = targets(host)
        before = gpushare(*call, environment=program)
        assert before.returncode == 3
        assert [line.removeprefix("missing ") for line in before.stdout.splitlines()[:-1]] == wanted
        for target in wanted[1:]:
            name, _, tag = target.removeprefix(f"{host}/").rpartition(":")
            push(host, name, tag)
        assert gpushare(*call, environment=program).stdout.splitlines()[0] == f"missing {wanted[0]}"
        document = json.loads(gpushare(*call, "--format", "json", environment=program).stdout)
        assert schema.accepts(schema.load("images.v1"), document)
        assert [one["missing"] for one in document["images"]] == [True] + [False] * (len(wanted) - 1)
        name, _, tag = wanted[0].removeprefix(f"{host}/").rpartition(":")
        push(host, name, tag)
        after = gpushare(*call, environment=program)
        assert (after.returncode, after.stdout) == (0, f"{len(wanted)} of {len(wanted)} images are there\n")


WITHOUT_TLS = {
    "skopeo": "skopeo copy --src-tls-verify=false --dest-tls-verify=false",
    "crane": "crane copy --insecure",
}


@pytest.mark.parametrize("tool", copies.SCRIPTS)
def test_copy_script_of_each_tool_copies_a_pinned_image(here: Path, tmp_path: Path, tool: str) -> None:
    path = f"{crane.folder()}{os.pathsep}{os.environ['PATH']}"
    with registry(here) as host:
        digest = push(host, "source/node-runtime", "1")
        intent = tmp_path / "intent.yaml"
        intent.write_text(INTENT % (f"{host}/source/node-runtime", digest))
        call = ("images", intent, "--to", f"{host}/mirror")
        script = gpushare(*call, "--format", tool).stdout
        assert gpushare(*call, "--verify", "--plain-http").returncode == 3
        without_tls = script.replace(f"{tool} copy", WITHOUT_TLS[tool])
        # The pods of the README have an image that is on the internet.
        reachable = "\n".join(line for line in without_tls.splitlines() if "library/ubuntu" not in line)
        subprocess.run(["sh", "-c", reachable], check=True, env={**os.environ, "PATH": path})
        done = gpushare(*call, "--verify", "--plain-http")
        assert done.stdout == f"missing {host}/mirror/library/ubuntu:24.04\n1 of 2 images are there\n"


def test_copy_script_copies_nvidias_chart(here: Path, tmp_path: Path) -> None:
    """From a repository on this machine, and without TLS, which Helm wants to be told."""
    charts, programs, port = tmp_path / "charts", tmp_path / "programs", free_port()
    upstream.package(charts)
    programs.mkdir()
    (programs / "helm").write_text(
        f'#!/bin/sh\n[ "$1" = push ] && set -- "$@" --plain-http\nexec {shlex.quote(str(helm.helm()))} "$@"\n'
    )
    (programs / "helm").chmod(0o700)
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(charts)]
    with registry(here) as host, subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: is_served(port), "the repository of charts")
            call = ("images", BUNDLE, "--to", host, "--charts-to", f"oci://{host}/charts")
            [chart] = json.loads(gpushare(*call, "--verify", "--plain-http", "--format", "json").stdout)["charts"]
            assert chart["missing"] is True
            script = gpushare(*call, "--format", "crane").stdout.replace(chart["source"], f"http://127.0.0.1:{port}")
            copied = "\n".join(line for line in script.splitlines() if not line.startswith("crane"))
            environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HELM_CACHE_HOME": str(tmp_path / "cache")}
            subprocess.run(["sh", "-c", copied], check=True, env=environment)
        finally:
            server.terminate()
        document = json.loads(gpushare(*call, "--verify", "--plain-http", "--format", "json").stdout)
        assert schema.accepts(schema.load("images.v1"), document)
        assert document["charts"] == [{**chart, "missing": False}]
        number = len(document["images"])
        assert f"1 of {number + 1} images and charts are there" in gpushare(*call, "--verify", "--plain-http").stdout


def test_a_registry_with_logins(here: Path, tmp_path: Path, program: dict[str, str]) -> None:
    """Both programs read what `docker login` writes."""
    with registry(here, login=True) as host:
        call = ("images", BUNDLE, "--to", host, "--verify", "--plain-http")
        without = gpushare(*call, environment=program)
        assert without.returncode == 2
        assert "authentication required" in without.stderr
        (tmp_path / ".docker").mkdir()
        for password, code in (("wrong", 2), ("secret", 3)):
            auth = base64.b64encode(f"puller:{password}".encode()).decode()
            (tmp_path / ".docker/config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
            done = gpushare(*call, environment=program)
            assert done.returncode == code
            assert "secret" not in done.stderr


def test_registry_with_tls_is_verified(here: Path, tmp_path: Path, program: dict[str, str]) -> None:
    files = certify(tmp_path / "tls.crt")
    with registry(here, certificate=files) as host:
        call = ("images", BUNDLE, "--to", host, "--verify")
        refused = gpushare(*call, environment=program)
        assert refused.returncode == 2
        assert "x509: certificate signed by unknown authority" in refused.stderr
        assert gpushare(*call, environment={**program, "SSL_CERT_FILE": str(files[0])}).returncode == 3
        assert gpushare(*call, "--plain-http", environment=program).returncode == 3


def test_registry_without_tls_needs_plain_http(here: Path) -> None:
    """crane asks a loopback address so without being told."""
    with registry(here) as host:
        done = gpushare("images", BUNDLE, "--to", host, "--verify")
    assert done.returncode == 2
    assert "server gave HTTP response to HTTPS client" in done.stderr
    assert "--plain-http" in done.stderr


def test_an_unreachable_registry(program: dict[str, str]) -> None:
    host = f"127.0.0.1:{free_port()}"
    done = gpushare("images", BUNDLE, "--to", host, "--verify", "--plain-http", environment=program)
    assert done.returncode == 2
    assert "connection refused" in done.stderr
