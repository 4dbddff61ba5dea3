"""`gpushare images --verify` and the scripts for copying, against a real registry."""

import base64
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpushare.mirror import formats
from gpushare.reading import schema
from tests.compiler.cli.process import gpushare
from tests.e2e.gitops import upstream
from tests.e2e.registry import copiers
from tests.e2e.registry.registries import push, registry
from tests.support import helm
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


def targets(host: str) -> list[str]:
    listed = gpushare("images", BUNDLE, "--to", f"{host}/mirror", "--format", "json")
    return [one["target"] for one in json.loads(listed.stdout)["images"]]


def test_every_missing_image_is_named_until_it_is_there(here: Path) -> None:
    with registry(here) as host:
        call = ("images", BUNDLE, "--to", f"{host}/mirror", "--verify", "--plain-http")
        wanted = targets(host)
        before = gpushare(*call)
        assert before.returncode == 3
        assert [line.removeprefix("missing ") for line in before.stdout.splitlines()[:-1]] == wanted
        for target in wanted[1:]:
            name, _, tag = target.removeprefix(f"{host}/").rpartition(":")
            push(host, name, tag)
        assert gpushare(*call).stdout.splitlines()[0] == f"missing {wanted[0]}"
        document = json.loads(gpushare(*call, "--format", "json").stdout)
        assert schema.accepts(schema.load("images.v1"), document)
        assert [one["missing"] for one in document["images"]] == [True] + [False] * (len(wanted) - 1)
        name, _, tag = wanted[0].removeprefix(f"{host}/").rpartition(":")
        push(host, name, tag)
        after = gpushare(*call)
        assert (after.returncode, after.stdout) == (0, f"{len(wanted)} of {len(wanted)} images are there\n")


WITHOUT_TLS = {
    "skopeo": "skopeo copy --src-tls-verify=false --dest-tls-verify=false",
    "crane": "crane copy --insecure",
    "oras": "oras copy --from-plain-http --to-plain-http",
}


@pytest.mark.parametrize("tool", [tool for tool in formats.SCRIPTS if tool != "containerd"])
def test_the_script_of_a_tool_copies_a_pinned_image_and_it_is_found(here: Path, tmp_path: Path, tool: str) -> None:
    """`ctr` is the client of a running containerd, which `tests/e2e` alone has: its script is read by a shell, not run."""
    path = f"{copiers.folder()}{os.pathsep}{os.environ['PATH']}"
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


def test_the_script_copies_nvidias_chart_and_it_is_found(here: Path, tmp_path: Path) -> None:
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


def test_a_registry_with_logins(here: Path, tmp_path: Path) -> None:
    with registry(here, login=True) as host:
        call = ("images", BUNDLE, "--to", host, "--verify", "--plain-http")
        without = gpushare(*call, environment={"DOCKER_CONFIG": str(tmp_path)})
        assert without.returncode == 2
        assert f"{host} wants a login" in without.stderr
        assert f"docker login {host}" in without.stderr
        config = tmp_path / "config.json"
        for password, code in (("wrong", 2), ("secret", 3)):
            auth = base64.b64encode(f"puller:{password}".encode()).decode()
            config.write_text(json.dumps({"auths": {host: {"auth": auth}}}))
            by_variable = gpushare(*call, environment={"DOCKER_CONFIG": str(tmp_path)})
            for done in (by_variable, gpushare(*call, "--docker-config", config)):
                assert done.returncode == code
                assert "secret" not in done.stderr
                assert ("refuses the login" in done.stderr) == (code == 2)
        config.write_text(json.dumps({"credsStore": "desktop"}))
        assert "credential helper" in gpushare(*call, "--docker-config", config).stderr


def test_tls_and_its_absence(here: Path, tmp_path: Path) -> None:
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    with registry(here, certificate=files) as host:
        call = ("images", BUNDLE, "--to", host, "--verify")
        refused = gpushare(*call)
        assert refused.returncode == 2
        assert f"the certificate of {host} is not trusted" in refused.stderr
        assert "SSL_CERT_FILE" in refused.stderr
        assert gpushare(*call, environment={"SSL_CERT_FILE": str(files[0])}).returncode == 3
        assert gpushare(*call, "--plain-http").returncode == 2


def test_a_registry_without_tls_is_asked_only_when_that_is_wanted(here: Path) -> None:
    with registry(here) as host:
        done = gpushare("images", BUNDLE, "--to", host, "--verify")
    assert done.returncode == 2
    assert "--plain-http" in done.stderr
