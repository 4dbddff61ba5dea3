"""`--overlay` of check, compile, plan, show and images."""

import json
from pathlib import Path

import pytest
import yaml

from tests.compiler.cli.conftest import GOOD
from tests.compiler.cli.process import gpushare

OVER = "# prod\nspec:\n  pools:\n    notebooks: {sharing: {replicas: 2}, memory: {cap: 6Gi}}\n"


@pytest.fixture
def folder(intents: Path) -> Path:
    (intents / "over.yaml").write_text(OVER)
    return intents


def test_the_bundle_is_that_of_the_merged_intent(folder: Path) -> None:
    assert gpushare("compile", "good.yaml", "--overlay", "over.yaml", "-o", "a", cwd=folder).returncode == 0
    merged = yaml.safe_load(GOOD)
    merged["spec"]["pools"]["notebooks"]["sharing"]["replicas"] = 2
    merged["spec"]["pools"]["notebooks"]["memory"]["cap"] = "6Gi"
    (folder / "merged.yaml").write_text(yaml.safe_dump(merged))
    assert gpushare("compile", "merged.yaml", "-o", "b", cwd=folder).returncode == 0
    files = sorted(path.relative_to(folder / "a") for path in (folder / "a").rglob("*") if path.is_file())
    assert files
    for path in files:
        assert (folder / "a" / path).read_bytes() == (folder / "b" / path).read_bytes()
    assert gpushare("compile", "--check", "good.yaml", "--overlay", "over.yaml", "-o", "a", cwd=folder).returncode == 0
    assert gpushare("compile", "--check", "good.yaml", "-o", "a", cwd=folder).returncode == 3


def test_a_finding_quotes_the_line_of_the_overlay(folder: Path) -> None:
    (folder / "bad.yaml").write_text(OVER.replace("replicas: 2", "replicas: 1"))
    (folder / "worse.yaml").write_text("spec: {pools: {training: {card: null}}}\n")
    done = gpushare("check", "good.yaml", "--overlay", "bad.yaml", "--overlay", "worse.yaml", cwd=folder)
    assert done.returncode == 1
    assert "bad.yaml:4:37: error" in done.stdout
    assert "    4 |     notebooks: {sharing: {replicas: 1}" in done.stdout
    assert "worse.yaml:1:27: error" in done.stdout
    document = json.loads(gpushare("check", "good.yaml", "--overlay", "bad.yaml", "--format", "json", cwd=folder).stdout)
    assert {one["file"] for one in document["findings"]} == {"bad.yaml"}


ALONE = GOOD[: GOOD.index("    training:")]


@pytest.mark.parametrize(
    ("base", "overlay", "code"),
    [
        (ALONE, "spec: {pools: {notebooks: null}}", "GS107"),
        (GOOD, "spec: {pools: {notebooks: {nodes: {matchLabels: {gpu: null}}}}}", "GS107"),
        (GOOD, "spec: {pools: {notebooks: null}}", "GS601"),
        (GOOD, "spec: {pools: {training: {card: t4}}}", "GS401"),
        (GOOD, "spec: {pools: {training: {nodes: {matchLabels: {gpu: t4}}}}}", "GS203"),
        (GOOD, "spec: {pools: {notebooks: {nodes: {matchLabels: {gpu: a100}}}}}", "GS203"),
    ],
)
def test_finding_points_to_the_overlay_that_caused_it(tmp_path: Path, base: str, overlay: str, code: str) -> None:
    (tmp_path / "base.yaml").write_text(base)
    (tmp_path / "over.yaml").write_text(overlay + "\n")
    done = gpushare("check", "base.yaml", "--overlay", "over.yaml", "--format", "json", cwd=tmp_path)
    found = {one["code"]: one["file"] for one in json.loads(done.stdout)["findings"]}
    assert found[code] == "over.yaml", found
    assert gpushare("check", "base.yaml", cwd=tmp_path).returncode == 0


def test_show_plan_and_images_see_the_overlay(folder: Path) -> None:
    offer = json.loads(gpushare("show", "good.yaml", "--overlay", "over.yaml", "--format", "json", cwd=folder).stdout)
    without = json.loads(gpushare("show", "good.yaml", "--format", "json", cwd=folder).stdout)
    assert list(offer["pools"]) == list(without["pools"])
    assert offer != without
    same = gpushare("plan", "--exit-code", "good.yaml", "good.yaml", cwd=folder)
    other = gpushare("plan", "--exit-code", "good.yaml", "good.yaml", "--overlay", "over.yaml", cwd=folder)
    assert (same.returncode, other.returncode) == (0, 3)
    (folder / "image.yaml").write_text("spec: {platform: {image: {repository: r.example.org/own}}}\n")
    assert "r.example.org/own:" in gpushare("images", "good.yaml", "--overlay", "image.yaml", cwd=folder).stdout


def test_missing_overlay_gets_no_starter_intent(folder: Path) -> None:
    done = gpushare("check", "good.yaml", "--overlay", "absent.yaml", cwd=folder)
    assert done.returncode == 2
    assert "an overlay has the fields" in done.stderr
    assert "gpushare init" not in done.stderr


def test_an_overlay_from_standard_input(folder: Path) -> None:
    done = gpushare("check", "good.yaml", "--overlay", "-", stdin=b"spec: {pools: {x: 3}}\n", cwd=folder)
    assert done.returncode == 1
    assert "<stdin>:1:19" in done.stdout
    assert gpushare("check", "-", "--overlay", "-", cwd=folder).returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "good.yaml", "--overlay", "absent.yaml"),
        ("check", "good.yaml", "--overlay", ""),
        ("plan", "good.yaml", "bundle", "--overlay", "over.yaml"),
        ("images", "bundle", "--overlay", "over.yaml"),
    ],
)
def test_unmergeable_overlay_is_an_error(folder: Path, arguments: tuple[str, ...]) -> None:
    assert gpushare("compile", "good.yaml", cwd=folder).returncode == 0
    assert gpushare(*arguments, cwd=folder).returncode == 2
