"""The texts of the codes of an import: their examples give what they say."""

import re
from pathlib import Path

import pytest

from gpushare.cluster.importing import Imported
from gpushare.core import resources
from gpushare.core.diagnostics import is_error
from tests.compiler.cluster.importing.imports import AS_IT_IS, TO_DRA, codes, imported

TEXTS = sorted(resources.findings().glob("GS8[5-7]?.md"))
TOO_LARGE_FOR_A_PAGE = {"GS866"}
OF_A_MOVE = {"GS875"}


def example(text: Path, heading: str) -> Imported:
    section = text.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    match = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert match
    return imported(match[1], wanted=TO_DRA if text.stem in OF_A_MOVE else AS_IT_IS)


@pytest.mark.parametrize("text", [one for one in TEXTS if one.stem not in TOO_LARGE_FOR_A_PAGE], ids=lambda text: text.stem)
def test_the_bad_example_gives_the_code_with_its_severity_at_a_position(text: Path) -> None:
    findings = [finding for finding in example(text, "Bad").findings if finding.code == text.stem]
    assert findings
    assert f"Severity: {findings[0].severity.value}" in text.read_text(encoding="utf-8")
    assert all(finding.span and finding.file == "cluster.yaml" and finding.hints for finding in findings)


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.stem)
def test_good_example_has_neither_the_code_nor_an_error(text: Path) -> None:
    found = example(text, "Good")
    assert text.stem not in codes(found)
    assert not [finding for finding in found.findings if is_error(finding)]
    assert found.text
