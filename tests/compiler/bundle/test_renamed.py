"""A cluster that a GitOps tool syncs gets another name: its objects keep theirs, or compile asks for a decision."""

from pathlib import Path
from shutil import copytree

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.intent import gitops
from tests.compiler.bundle.test_broken_bundles import Call, call
from tests.support.paths import ROOT

__all__ = ["call"]

_FOLDERS = sorted((ROOT / "examples").iterdir())
EXAMPLES = {key: one.name for key, tool in gitops.TOOLS.items() for one in _FOLDERS if (one / "bundle" / tool.root).is_file()}
"""An example of each tool."""


@pytest.fixture(params=EXAMPLES)
def tool(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    example = ROOT / "examples" / EXAMPLES[request.param]
    copytree(example / "bundle", tmp_path / "bundle")
    text = (example / "intent.yaml").read_text()
    (tmp_path / "intent.yaml").write_text(text.replace("name: physics", "name: chemistry", 1))
    return str(request.param)


def name_of_objects(folder: Path, tool: str, name: str) -> None:
    intent = folder / "intent.yaml"
    intent.write_text(intent.read_text().replace(f"    {tool}:\n", f"    {tool}:\n      name: {name}\n", 1))


@pytest.mark.parametrize("mode", [(), ("--check",)])
def test_a_new_name_over_a_synced_bundle_is_an_error_with_the_safe_steps(
    tool: str, mode: tuple[str, ...], call: Call, tmp_path: Path
) -> None:
    root = tmp_path / "bundle" / gitops.TOOLS[tool].root
    before = root.read_bytes()
    code, _, err = call("compile", *mode, tmp_path / "intent.yaml")
    assert code == 1
    assert "intent.yaml:5:9: error GS795: " in err or "intent.yaml:4:9: error GS795: " in err
    assert "change from physics-gpus to chemistry-gpus" in err
    assert f"write gitops.{tool}.name: physics-gpus" in err
    assert f"write gitops.{tool}.name: chemistry-gpus" in err
    assert ("--cascade=orphan" if tool == "argocd" else "spec.suspend: true") in err
    assert root.read_bytes() == before


def test_setting_the_previous_name_keeps_every_object(tool: str, call: Call, tmp_path: Path) -> None:
    name_of_objects(tmp_path, tool, "physics-gpus")
    copytree(tmp_path / "bundle", tmp_path / "old")
    assert call("compile", tmp_path / "intent.yaml")[0] == 0
    code, out, _ = call("plan", "--format", "json", tmp_path / "old", tmp_path / "bundle")
    assert code == 0
    assert "released" not in out
    assert "chemistry-gpus" not in "".join(path.read_text() for path in (tmp_path / "bundle" / tool).rglob("*.yaml"))


def test_explicit_new_name_is_accepted_and_its_effect_is_in_the_plan(tool: str, call: Call, tmp_path: Path) -> None:
    name_of_objects(tmp_path, tool, "chemistry-gpus")
    copytree(tmp_path / "bundle", tmp_path / "old")
    assert call("compile", tmp_path / "intent.yaml")[0] == 0
    code, out, _ = call("plan", tmp_path / "old", tmp_path / "bundle")
    assert code == 0
    assert "Every node is released" in out
    assert f"gitops.{tool}.name" in " ".join(out.split())


def test_name_change_is_checked_only_against_a_bundle_of_another_name(tool: str, call: Call, tmp_path: Path) -> None:
    assert call("compile", "-o", tmp_path / "new", tmp_path / "intent.yaml")[0] == 0
    assert call("compile", "-o", tmp_path / "new", tmp_path / "intent.yaml")[0] == 0
    (tmp_path / "bundle" / gitops.TOOLS[tool].root).write_text("<<<<<<< HEAD\n")
    assert call("compile", tmp_path / "intent.yaml")[0] == 0


def test_explicit_name_prefixes_every_object_name(tool: str) -> None:
    text = (ROOT / "examples" / EXAMPLES[tool] / "intent.yaml").read_text()
    named = text.replace(f"    {tool}:\n", f"    {tool}:\n      name: team-gpus\n", 1)
    made = [
        {
            file.path: file.text
            for file in pipeline.compile_intent(one.encode(), "", lock.EMPTY).artifacts
            if file.path.startswith(f"{tool}/")
        }
        for one in (text, named)
    ]
    assert made[1] == {path: one.replace("physics-gpus", "team-gpus") for path, one in made[0].items()}
