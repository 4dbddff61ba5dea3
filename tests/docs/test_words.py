"""The words of texts that users read: standard terms, and the actor with its verb; for each refused word a better one."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

BETTER = {
    "anew": "again",
    "nobody": "the actor: no pod, no process, nothing",
    "somebody": "the actor: another program, another node",
    "stand": "be",
    "stands": "is",
    "stood": "was",
    "heed": "obey, follow",
    "withal": "also",
    "thereof": "of it",
}
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "compiler/gpushare/findings").glob("*.md")),
    *(ROOT / "node-runtime/gpushare_node/reporting" / name for name in ("reasons.py", "messages.py")),
]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_texts_for_users_have_the_standard_words(path: Path) -> None:
    found = re.findall(rf"\b({'|'.join(BETTER)})\b", path.read_text(encoding="utf-8"), re.IGNORECASE)
    assert not found, "; ".join(f"{word!r}: write {BETTER[word.lower()]!r}" for word in found)
