"""What each part must know of a GitOps tool: an entry of `gitops.TOOLS` alone would leave a bundle's README wrong."""

import json

import pytest

from gpushare.intent.gitops import TOOLS
from gpushare.render import gitops
from tests.compiler.bundle.test_renamed import EXAMPLES
from tests.support.paths import ROOT


def test_every_tool_can_be_written_and_left() -> None:
    schema = json.loads((ROOT / "compiler/gpushare/schemas/intent.v1.json").read_text(encoding="utf-8"))
    assert set(schema["definitions"]["gitops"]["properties"]) == set(TOOLS)
    assert sorted(tool.key for tool in gitops.TOOLS) == sorted(TOOLS)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_has_an_example_with_its_objects(tool: str) -> None:
    bundle = ROOT / "examples" / EXAMPLES[tool] / "bundle"
    assert (bundle / TOOLS[tool].root).is_file()
    assert list((bundle / tool / "apps").iterdir())
    assert f"\n## {TOOLS[tool].title}\n" in (bundle / "README.md").read_text(encoding="utf-8")
