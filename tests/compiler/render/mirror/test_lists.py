"""Which images `gpushare images` lists, with which sources and targets, and what it refuses."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpushare import __version__
from gpushare.reading import schema
from gpushare.render.mirror import copies
from tests.compiler.cli.process import gpushare
from tests.support.paths import ROOT

CLOSED = ROOT / "examples/10-air-gapped-dgx"
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/intent.yaml"))


def listed(*arguments: object) -> dict[str, str]:
    """Source → target."""
    done = gpushare("images", *arguments, "--format", "json")
    document = json.loads(done.stdout)
    assert schema.accepts(schema.load("images.v1"), document)
    return {one.get("source", ""): one["target"] for one in document["images"]}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_mirror_targets_equal_images_txt(example: Path) -> None:
    bundle = example / "bundle"
    lines = [line for line in (bundle / "images.txt").read_text().splitlines() if not line.startswith("#")]
    # The site builds this one and pushes it itself: nothing publishes it that could be mirrored.
    lines = [line for line in lines if "/vgpu-manager:" not in line]
    assert set(listed(bundle, "--os", "x").values()) == {f"{line}-x" if "/driver:" in line else line for line in lines}
    assert listed(bundle) == listed(example / "intent.yaml")


def test_the_drivers_of_every_system_are_listed() -> None:
    found = listed(CLOSED / "bundle", "--os", "ubuntu24.04", "--os", "rhel9.6")
    assert found["nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"] == "mirror.site.example/nvidia/driver:595.91.07-ubuntu24.04"
    assert "nvcr.io/nvidia/driver:595.91.07-rhel9.6" in found
    assert "nvcr.io/nvidia/driver:595.91.07" not in found


def test_image_list_without_drivers_warns_and_fails_with_strict() -> None:
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


def test_chart_with_unknown_images_makes_the_list_incomplete(tmp_path: Path) -> None:
    text = (ROOT / "examples/02-t4-notebooks/intent.yaml").read_text()
    intent = tmp_path / "intent.yaml"
    intent.write_text(text.replace("  platform:\n", "  platform:\n    version: v25.10.1\n", 1))
    done = gpushare("images", intent)
    assert "the list is incomplete: gpu-operator v25.10.1" in done.stderr, done.stderr + done.stdout
    assert gpushare("images", intent, "--strict").returncode == 1


PUSHED = ("--image-from", "push.example.org/gpushare/node-runtime")


@pytest.mark.parametrize("tool", copies.SCRIPTS)
def test_every_script_is_shell_and_has_every_copy(tool: str) -> None:
    done = gpushare("images", CLOSED / "bundle", "--os", "ubuntu24.04", *PUSHED, "--format", tool)
    subprocess.run(["sh", "-n"], input=done.stdout.encode(), check=True)
    lines = [line for line in done.stdout.splitlines() if " copy " in line]
    assert {line.split()[0] for line in lines} == {tool}
    for source, target in listed(CLOSED / "bundle", "--os", "ubuntu24.04", *PUSHED).items():
        assert source in done.stdout
        assert target in done.stdout


def test_every_source_image_has_a_registry_host(tmp_path: Path) -> None:
    """Without a host every tool asks Docker Hub, where anyone may take a name; ours runs as root on every node."""
    text = (ROOT / "examples/02-t4-notebooks/intent.yaml").read_text()
    written = "    image: {repository: registry.example.org/gpushare/node-runtime}\n"
    assert written in text
    for number, platform in enumerate(
        (
            "    registry: mirror.example.org\n    image: {repository: gpushare/node-runtime}\n",
            "    registry: mirror.example.org\n",
            "    stack: gpu-operator\n",
            "    image: {repository: gpushare/node-runtime}\n",
        )
    ):
        intent = tmp_path / f"{number}.yaml"
        intent.write_text(text.replace(written, platform))
        for moved in ((), ("--to", "reg.example.org/x")):
            document = json.loads(gpushare("images", intent, *moved, "--format", "json").stdout)
            [ours] = [one for one in document["images"] if one["part"] == "gpushare"]
            assert "source" not in ours
            assert document["incomplete"] == [ours["target"]]
            assert all("." in one["source"].partition("/")[0] for one in document["images"] if one is not ours)
            assert listed(intent, *moved, *PUSHED)[f"{PUSHED[1]}:{__version__}"] == ours["target"]
    for tool in copies.SCRIPTS:
        script = gpushare("images", tmp_path / "0.yaml", "--format", tool)
        assert "node-runtime" not in script.stdout
        assert "--image-from" in script.stderr
    text_form = gpushare("images", tmp_path / "0.yaml", "--strict")
    assert f"# source unknown: mirror.example.org/gpushare/node-runtime:{__version__}" in text_form.stdout
    assert text_form.returncode == 1


def test_image_digest_is_kept_for_any_source(tmp_path: Path) -> None:
    text = (ROOT / "examples/02-t4-notebooks/intent.yaml").read_text()
    digest = "sha256:" + "0" * 64
    changed = text.replace("node-runtime}", f'node-runtime, digest: "{digest}"}}')
    (tmp_path / "intent.yaml").write_text(changed)
    found = listed(tmp_path / "intent.yaml", *PUSHED)
    assert found[f"{PUSHED[1]}@{digest}"] == f"registry.example.org/gpushare/node-runtime@{digest}"


def test_bundle_without_its_chart_makes_the_list_incomplete(tmp_path: Path) -> None:
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


def test_amds_chart_is_listed_without_the_images_of_its_subcharts(tmp_path: Path) -> None:
    example = ROOT / "examples/19-amd"
    document = json.loads(gpushare("images", example / "bundle", "--format", "json").stdout)
    assert [(one["name"], one["version"]) for one in document["charts"]] == [
        ("gpu-operator", "v26.7.0"),
        ("gpu-operator-charts", "v1.5.1"),
    ]
    assert document["incomplete"] == ["gpushare does not know the images of the subcharts of gpu-operator-charts"]
    script = gpushare("images", example / "bundle", "--charts-to", "oci://r.example.org/c", "--format", "crane").stdout
    assert "helm pull gpu-operator-charts --repo https://rocm.github.io/gpu-operator --version v1.5.1" in script
    without = "amd: {stack: amd-gpu-operator, values: {kmm: {enabled: false}, remediation: {enabled: false}}}"
    text = (example / "intent.yaml").read_text().replace("amd: {stack: amd-gpu-operator}", without)
    (tmp_path / "intent.yaml").write_text(text)
    done = gpushare("images", tmp_path / "intent.yaml")
    assert "docker.io/rocm/amd-gpu-operator:v1.5.1" in done.stdout
    assert "subcharts" not in done.stderr


def test_an_image_of_amds_has_its_publisher_as_source(tmp_path: Path) -> None:
    text = (ROOT / "examples/19-amd/intent.yaml").read_text()
    moved = text.replace("image: {repository: registry.example.org/", "registry: r.example.org\n    image: {repository: ")
    (tmp_path / "moved.yaml").write_text(moved)
    found = listed(tmp_path / "moved.yaml")
    assert found["docker.io/rocm/amd-gpu-operator:v1.5.1"] == "r.example.org/rocm/amd-gpu-operator:v1.5.1"
    own = "values: {controllerManager: {manager: {image: {repository: own.example.org/operator, tag: a}}}}"
    (tmp_path / "own.yaml").write_text(text.replace("{stack: amd-gpu-operator}", f"{{stack: amd-gpu-operator, {own}}}"))
    assert listed(tmp_path / "own.yaml")["own.example.org/operator:a"] == "own.example.org/operator:a"


def test_a_chart_for_a_repository_of_helms_is_left_to_its_owner(tmp_path: Path) -> None:
    text = (CLOSED / "intent.yaml").read_text().replace("oci://mirror.site.example/charts", "https://charts.site.example")
    (tmp_path / "intent.yaml").write_text(text)
    script = gpushare("images", tmp_path / "intent.yaml", "--os", "x", "--format", "crane").stdout
    assert "# gpu-operator v26.7.0: upload it into https://charts.site.example" in script
    assert "helm" not in script


@pytest.mark.parametrize(
    "arguments",
    [
        ("--image-from", "gpushare/node-runtime"),
        ("--image-from", "reg.example.org"),
        ("--image-from", "reg.example.org/a:1"),
        ("--charts-to", "reg.example.org/charts"),
        ("--charts-to", "oci://"),
        ("--charts-to", "oci://$(id)"),
        ("--to", "https://reg.example.org"),
        ("--to", "reg.example.org/UPPER"),
        ("--to", "$(id)"),
        ("--to", ""),
        ("--os", "a b"),
        ("--os", "ubuntu;id"),
        ("--plain-http",),
        ("--verify", "--format", "crane"),
    ],
)
def test_invalid_call_is_refused(arguments: tuple[str, ...]) -> None:
    done = gpushare("images", CLOSED / "bundle", *arguments)
    assert (done.returncode, done.stdout) == (2, "")


def test_folder_that_is_not_a_bundle_is_refused(tmp_path: Path) -> None:
    assert "is not a bundle" in gpushare("images", tmp_path).stderr
    shutil.copytree(CLOSED / "bundle", tmp_path / "b")
    for text in ("image: 3\n", "image: {registry: 1, repository: 2, tag: 3, digest: 4}\n", "a: b: c\n", ""):
        (tmp_path / "b/chart/values.yaml").write_text(text)
        assert "compile the bundle again" in gpushare("images", tmp_path / "b").stderr


def test_edited_numeric_values_are_read_as_text(tmp_path: Path) -> None:
    shutil.copytree(CLOSED / "bundle", tmp_path / "b")
    values = tmp_path / "b/gpu-operator/values.yaml"
    text = values.read_text()
    edited = re.sub(r"^(driver:\n(?:  .*\n)*?  version: ).*$", r"\g<1>595", text, count=1, flags=re.MULTILINE)
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
