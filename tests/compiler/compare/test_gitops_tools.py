"""The tools of `gitops.TOOLS`: an entry there is all that a comparison needs to know of one."""

from typing import Any

import pytest

from gpushare.compare.affected import of_gitops
from gpushare.compare.effects import Effect, EffectKind
from gpushare.intent.gitops import TOOLS
from gpushare.report import effect_words
from gpushare_node.contract.struct import replace


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    tools: Any = TOOLS
    monkeypatch.setitem(tools, "fleet", replace(TOOLS["flux"], title="Fleet", applied=("fleet/root.yaml",)))


def app(tool: str, name: str) -> dict[str, str]:
    return {f"{tool}/apps/gpushare.yaml": f"kind: HelmRelease\nmetadata: {{name: {name}}}\n"}


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("new", "kind", "words"),
    [
        (app("fleet", "b"), EffectKind.RELEASED, "Fleet deletes these HelmReleases"),
        (app("flux", "a"), EffectKind.HANDED_OVER, "fleet → flux: Fleet's Kustomization and HelmReleases stay"),
        ({}, EffectKind.HANDED_OVER, "fleet → no tool"),
    ],
)
def test_another_tool_has_its_effects_in_words(new: dict[str, str], kind: EffectKind, words: str) -> None:
    found: list[Effect] = list(of_gitops(app("fleet", "a"), new, ()))
    assert [one.kind for one in found] == [kind]
    assert words in effect_words.format_effect(found[0])
