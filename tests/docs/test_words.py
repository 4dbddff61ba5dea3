"""A few words that texts for users and docstrings do not have, because a standard one says it better."""

import re

from tests.support.paths import ROOT

BANNED = re.compile(
    r"\b(anew|nobody(?!:)|somebody|whoever|stood|heed|withal|thereof|amid|borne|in vain|by heart|for ever|forevery"
    r"|is no (?:name|label|address|version|registry))\b",
    re.IGNORECASE,
)
FOLDERS = ("compiler/gpushare", "node-runtime", "docs", "charts/gpushare", "profiles", ".ci", ".github")
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".json", ".tpl", ".txt", ".jsonl"}


def test_texts_have_standard_words() -> None:
    paths = [
        *ROOT.glob("*.md"),
        ROOT / "Makefile",
        *ROOT.glob("examples/*/README.md"),
        *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES),
    ]
    texts = {path: " ".join(path.read_text(encoding="utf-8").split()) for path in paths}
    found = {str(path.relative_to(ROOT)): BANNED.findall(text) for path, text in texts.items() if BANNED.search(text)}
    assert not found
