"""Which images `gpushare images` lists, with which sources and targets, and what it refuses. No registry is asked."""

import json
import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from gpushare import __version__
from gpushare.mirror import credentials, formats, registry
from gpushare.mirror.registry import ImageLocation
from gpushare.reading import schema
from tests.compiler.cli.process import gpushare
from tests.support.paths import ROOT
from tests.support.ports import free_port

CLOSED = ROOT / "examples/10-air-gapped-dgx"
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/intent.yaml"))


def listed(*arguments: object) -> dict[str, str]:
    """Source → target."""
    done = gpushare("images", *arguments, "--format", "json")
    document = json.loads(done.stdout)
    assert schema.accepts(schema.load("images.v1"), document)
    return {one.get("source", ""): one["target"] for one in document["images"]}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_targets_are_what_images_txt_names(example: Path) -> None:
    bundle = example / "bundle"
    lines = [line for line in (bundle / "images.txt").read_text().splitlines() if not line.startswith("#")]
    assert set(listed(bundle, "--os", "x").values()) == {f"{line}-x" if "/driver:" in line else line for line in lines}
    assert listed(bundle) == listed(example / "intent.yaml")


def test_the_drivers_of_every_system_are_listed() -> None:
    found = listed(CLOSED / "bundle", "--os", "ubuntu24.04", "--os", "rhel9.6")
    assert found["nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"] == "mirror.site.example/nvidia/driver:595.91.07-ubuntu24.04"
    assert "nvcr.io/nvidia/driver:595.91.07-rhel9.6" in found
    assert "nvcr.io/nvidia/driver:595.91.07" not in found


def test_a_list_without_its_drivers_says_so_and_fails_when_strict() -> None:
    done = gpushare("images", CLOSED / "bundle")
    assert done.returncode == 0
    assert "--os" in done.stderr
    assert gpushare("images", CLOSED / "bundle", "--strict").returncode == 1


def test_a_precompiled_driver_needs_the_kernel(tmp_path: Path) -> None:
    shutil.copytree(CLOSED / "bundle", tmp_path / "b")
    values = tmp_path / "b/gpu-operator/values.yaml"
    values.write_text(values.read_text().replace("driver:\n", "driver:\n  usePrecompiled: true\n", 1))
    assert "--kernel" in gpushare("images", tmp_path / "b", "--os", "ubuntu24.04").stderr
    found = listed(tmp_path / "b", "--os", "ubuntu24.04", "--kernel", "6.8.0-60-generic")
    assert "nvcr.io/nvidia/driver:595.91.07-6.8.0-60-generic-ubuntu24.04" in found


def test_a_chart_whose_images_are_unknown_is_no_complete_list(tmp_path: Path) -> None:
    text = (ROOT / "examples/02-t4-notebooks/intent.yaml").read_text()
    intent = tmp_path / "intent.yaml"
    intent.write_text(text.replace("  platform:\n", "  platform:\n    version: v25.10.1\n", 1))
    done = gpushare("images", intent)
    assert "the list is incomplete: gpu-operator v25.10.1" in done.stderr, done.stderr + done.stdout
    assert gpushare("images", intent, "--strict").returncode == 1


PUSHED = ("--image-from", "push.example.org/gpushare/node-runtime")


@pytest.mark.parametrize("tool", formats.SCRIPTS)
def test_every_script_is_shell_and_has_every_copy(tool: str) -> None:
    done = gpushare("images", CLOSED / "bundle", "--os", "ubuntu24.04", *PUSHED, "--format", tool)
    subprocess.run(["sh", "-n"], input=done.stdout.encode(), check=True)
    names = {"containerd": "ctr"}
    lines = [line for line in done.stdout.splitlines() if re.match(r"\w+ (.* )?(copy|pull|push) ", line) and "helm" not in line]
    assert {line.split()[0] for line in lines} == {names.get(tool, tool)}
    for source, target in listed(CLOSED / "bundle", "--os", "ubuntu24.04", *PUSHED).items():
        assert source in done.stdout
        assert target in done.stdout


def test_no_source_lacks_a_host_and_the_runtimes_is_what_the_user_pushed(tmp_path: Path) -> None:
    """Without a host every tool asks Docker Hub, where anyone may take a name; ours runs as root on every node."""
    text = (ROOT / "examples/02-t4-notebooks/intent.yaml").read_text()
    written = "    image: {repository: registry.example.org/gpushare/node-runtime}\n"
    assert written in text
    for number, platform in enumerate((
        "    registry: mirror.example.org\n    image: {repository: gpushare/node-runtime}\n",
        "    registry: mirror.example.org\n", "    stack: gpu-operator\n", "    image: {repository: gpushare/node-runtime}\n",
    )):
        intent = tmp_path / f"{number}.yaml"
        intent.write_text(text.replace(written, platform))
        for moved in ((), ("--to", "reg.example.org/x")):
            document = json.loads(gpushare("images", intent, *moved, "--format", "json").stdout)
            [ours] = [one for one in document["images"] if one["part"] == "gpushare"]
            assert "source" not in ours
            assert document["incomplete"] == [ours["target"]]
            assert all("." in one["source"].partition("/")[0] for one in document["images"] if one is not ours)
            assert listed(intent, *moved, *PUSHED)[f"{PUSHED[1]}:{__version__}"] == ours["target"]
    for tool in formats.TOOLS:
        script = gpushare("images", tmp_path / "0.yaml", "--format", tool)
        assert "node-runtime" not in script.stdout
        assert "--image-from" in script.stderr
    text_form = gpushare("images", tmp_path / "0.yaml", "--strict")
    assert f"# source unknown: mirror.example.org/gpushare/node-runtime:{__version__}" in text_form.stdout
    assert text_form.returncode == 1


def test_the_image_by_digest_keeps_it_wherever_it_was_pushed(tmp_path: Path) -> None:
    text = (ROOT / "examples/02-t4-notebooks/intent.yaml").read_text()
    digest = "sha256:" + "0" * 64
    changed = text.replace("node-runtime}", f'node-runtime, digest: "{digest}"}}')
    (tmp_path / "intent.yaml").write_text(changed)
    found = listed(tmp_path / "intent.yaml", *PUSHED)
    assert found[f"{PUSHED[1]}@{digest}"] == f"registry.example.org/gpushare/node-runtime@{digest}"


def test_a_bundle_that_does_not_name_its_chart_is_no_complete_list(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/02-t4-notebooks/bundle", tmp_path / "b")
    images = tmp_path / "b/images.txt"
    images.write_text("".join(line for line in images.read_text().splitlines(keepends=True) if "The chart:" not in line))
    done = gpushare("images", tmp_path / "b", "--charts-to", "oci://reg.example.org/c", "--format", "json")
    document = json.loads(done.stdout)
    assert document["charts"] == []
    [lacking] = document["incomplete"]
    assert "no line `# The chart:`" in lacking
    assert lacking in done.stderr
    assert gpushare("images", tmp_path / "b", "--strict").returncode == 1


ZARF_FIELDS = {
    "package": {"apiVersion", "kind", "metadata", "components"},
    "component": {"name", "required", "charts", "images"},
    "chart": {"name", "version", "url", "namespace", "valuesFiles"},
}
"""Those used, of https://docs.zarf.dev/schema/v1alpha1-package."""


def test_the_package_of_zarf_has_its_fields_and_what_the_pods_name(tmp_path: Path) -> None:
    bundle = ROOT / "examples/02-t4-notebooks/bundle"
    done = gpushare("images", bundle, "--format", "zarf")
    assert (done.returncode, done.stderr) == (0, "")
    package = yaml.safe_load(done.stdout)
    [component] = package["components"]
    [chart] = component["charts"]
    assert set(package) == ZARF_FIELDS["package"]
    assert set(component) == ZARF_FIELDS["component"]
    assert set(chart) == ZARF_FIELDS["chart"]
    assert (package["kind"], package["apiVersion"]) == ("ZarfPackageConfig", "zarf.dev/v1alpha1")
    assert component["required"] is True
    assert component["images"] == [line for line in (bundle / "images.txt").read_text().splitlines() if line[0] != "#"]
    assert (chart["url"], chart["version"]) == ("https://helm.ngc.nvidia.com/nvidia", "v26.7.0")
    assert chart["namespace"] == yaml.safe_load((bundle / "namespace.yaml").read_text())["metadata"]["name"]
    assert (bundle / chart["valuesFiles"][0]).is_file()
    elsewhere = yaml.safe_load(gpushare("images", ROOT / "examples/11-rtx-pro-6000/bundle", "--format", "zarf").stdout)
    assert elsewhere["components"][0]["charts"][0]["namespace"] == "gpu-operator"
    mirrored = gpushare("images", CLOSED / "bundle", "--os", "x", *PUSHED, "--format", "zarf", "--strict")
    assert mirrored.returncode == 1
    assert "Zarf would not find it" in mirrored.stderr
    without = yaml.safe_load(gpushare("images", ROOT / "examples/13-existing-plugin/bundle", "--format", "zarf").stdout)
    assert "charts" not in without["components"][0]


def test_nvidias_chart_is_listed_with_the_registry_that_the_commands_name() -> None:
    def chart(*arguments: object) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(gpushare("images", *arguments, "--format", "json").stdout)["charts"]
        return found

    source = "https://helm.ngc.nvidia.com/nvidia"
    mirrored = {"name": "gpu-operator", "version": "v26.7.0", "source": source, "target": "oci://mirror.site.example/charts"}
    assert chart(CLOSED / "bundle") == chart(CLOSED / "intent.yaml") == [mirrored]
    elsewhere = {**mirrored, "target": "oci://r.example.org:5000/c"}
    assert chart(CLOSED / "bundle", "--charts-to", "oci://r.example.org:5000/c") == [elsewhere]
    plain = gpushare("images", CLOSED / "bundle", "--os", "x").stdout.splitlines()[-1]
    assert plain == f"# chart gpu-operator v26.7.0 {source} oci://mirror.site.example/charts"
    [published] = chart(ROOT / "examples/02-t4-notebooks/bundle")
    assert published["source"] == published["target"] == source
    assert chart(ROOT / "examples/13-existing-plugin/bundle") == []


def test_a_chart_for_a_repository_of_helms_is_left_to_its_owner(tmp_path: Path) -> None:
    text = (CLOSED / "intent.yaml").read_text().replace("oci://mirror.site.example/charts", "https://charts.site.example")
    (tmp_path / "intent.yaml").write_text(text)
    script = gpushare("images", tmp_path / "intent.yaml", "--os", "x", "--format", "crane").stdout
    assert "# gpu-operator v26.7.0: upload it into https://charts.site.example" in script
    assert "helm" not in script


@pytest.mark.parametrize("arguments", [
    ("--image-from", "gpushare/node-runtime"), ("--image-from", "reg.example.org"), ("--image-from", "reg.example.org/a:1"),
    ("--to", "reg.example.org", "--format", "zarf"), ("--verify", "--format", "zarf"),
    ("--charts-to", "reg.example.org/charts"), ("--charts-to", "oci://"), ("--charts-to", "oci://$(id)"),
    ("--to", "https://reg.example.org"), ("--to", "reg.example.org/UPPER"), ("--to", "$(id)"), ("--to", ""), ("--os", "a b"),
    ("--os", "ubuntu;id"), ("--plain-http",), ("--verify", "--format", "crane"),
])
def test_a_wrong_call_is_refused(arguments: tuple[str, ...]) -> None:
    done = gpushare("images", CLOSED / "bundle", *arguments)
    assert (done.returncode, done.stdout) == (2, "")


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    assert "is not a bundle" in gpushare("images", tmp_path).stderr
    shutil.copytree(CLOSED / "bundle", tmp_path / "b")
    (tmp_path / "b/namespace.yaml").write_text("metadata: {name: 3}\n")
    assert "namespace.yaml" in gpushare("images", tmp_path / "b").stderr
    for text in ("image: 3\n", "image: {registry: 1, repository: 2, tag: 3, digest: 4}\n", "a: b: c\n", ""):
        (tmp_path / "b/chart/values.yaml").write_text(text)
        assert "compile the bundle again" in gpushare("images", tmp_path / "b").stderr


def test_numbers_in_values_that_were_edited_are_texts(tmp_path: Path) -> None:
    shutil.copytree(CLOSED / "bundle", tmp_path / "b")
    values = tmp_path / "b/gpu-operator/values.yaml"
    text = values.read_text()
    edited = re.sub(r'^(driver:\n(?:  .*\n)*?  version: ).*$', r"\g<1>595", text, count=1, flags=re.MULTILINE)
    assert edited != text
    values.write_text(edited)
    assert "nvcr.io/nvidia/driver:595-x" in listed(tmp_path / "b", "--os", "x")


def test_a_bundle_that_observes_needs_one_image(tmp_path: Path) -> None:
    text = (ROOT / "examples/02-t4-notebooks/intent.yaml").read_text()
    (tmp_path / "intent.yaml").write_text(text.replace("spec:\n", "spec:\n  adoption: observe\n", 1))
    assert len(listed(tmp_path / "intent.yaml")) == 1


def test_an_intent_with_errors_has_no_list(tmp_path: Path) -> None:
    (tmp_path / "intent.yaml").write_text("spec: 3\n")
    done = gpushare("images", tmp_path / "intent.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert "GS1" in done.stderr


def test_an_unreachable_registry() -> None:
    host = f"127.0.0.1:{free_port()}"
    call = ("images", CLOSED / "bundle", "--verify", "--plain-http", "--to")
    assert "cannot reach 127.0.0.1:99999" in gpushare(*call, "127.0.0.1:99999").stderr
    done = gpushare(*call, host)
    assert done.returncode == 2
    assert f"cannot reach {host}: connection refused" in done.stderr


@pytest.mark.parametrize(("reference", "place"), [
    ("ubuntu:24.04", ImageLocation(host="docker.io", name="library/ubuntu", version="24.04")),
    ("team/x", ImageLocation(host="docker.io", name="team/x", version="latest")),
    ("localhost:5000/a/b:1", ImageLocation(host="localhost:5000", name="a/b", version="1")),
    ("r.example.org/a:1@sha256:00", ImageLocation(host="r.example.org", name="a", version="sha256:00")),
])
def test_a_reference_is_taken_apart_as_containerd_does(reference: str, place: ImageLocation) -> None:
    assert registry.place(reference) == place


@pytest.mark.parametrize("text", [
    "", "[]", '{"auths": 3}', '{"auths": {"a": 3}}', '{"auths": {"a": {"auth": "%"}}}', "[" * 100_000,
])
def test_a_broken_config_json_is_refused_without_its_content(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    done = gpushare("images", CLOSED / "bundle", "--verify", "--docker-config", tmp_path / "config.json")
    assert done.returncode == 2
    assert "is not a config.json of Docker" in done.stderr


def test_the_longest_path_has_the_login() -> None:
    logins = {name: credentials.Login(user=name, password="p") for name in ("r.example.org", "r.example.org/a/b", "docker.io")}
    known = credentials.Credentials(logins=logins)
    assert known.of("r.example.org", "a/b/c") is logins["r.example.org/a/b"]
    assert known.of("r.example.org", "a") is logins["r.example.org"]
    assert "p" not in repr(logins["docker.io"]).removeprefix("Login")


class _Tokens(BaseHTTPRequestHandler):
    """A registry that wants a token, as public ones do even of strangers, and its token service."""

    def do_GET(self) -> None:
        asked.append((self.path, self.headers.get("Authorization", "")))
        self._answer(200, b'{"token": "abc"}')

    def do_HEAD(self) -> None:
        asked.append((self.path, self.headers.get("Authorization", "")))
        if self.headers.get("Authorization") == "Bearer abc":
            if "moved" in self.path:
                self.send_response(307)
                self.send_header(
                    "Location", f"http://localhost:{self.headers['Host'].partition(':')[2]}/v2/elsewhere/manifests/1"
                )
                self.end_headers()
                return
            self._answer(200, b"")
            return
        if "elsewhere" in self.path:
            self._answer(200, b"")
            return
        host = f"http://{self.headers['Host']}"
        self.send_response(401)
        self.send_header("WWW-Authenticate", f'Bearer realm="{host}/token",service="tests",scope="x"')
        self.end_headers()

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


asked: list[tuple[str, str]] = []


def test_a_token_is_fetched_anonymously_and_no_redirect_carries_it_to_another_host() -> None:
    asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Tokens) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        registries = registry.Registries(credentials.NONE, plain_http=True)
        host = f"127.0.0.1:{server.server_address[1]}"
        assert registries.has(f"{host}/a/b:1")
        assert asked[1] == ("/token?scope=repository%3Aa%2Fb%3Apull&service=tests", "")
        asked.clear()
        assert registries.has(f"{host}/moved:1")
        assert asked[-1] == ("/v2/elsewhere/manifests/1", "")
        server.shutdown()
