"""The texts of the finding codes, in `findings/<CODE>.md`. Reads the files; checks nothing."""

from functools import cache

from gpushare.core import resources
from gpushare_node.contract.struct import Struct


class FindingText(Struct):
    """One code's text: its title, its severity (`error` or `warning`), its meaning in one paragraph, and the whole text."""

    code: str
    title: str
    severity: str
    meaning: str
    markdown: str


@cache
def codes() -> tuple[str, ...]:
    """Return every code that has a text, sorted."""
    return tuple(sorted(path.stem for path in resources.findings().glob("GS[0-9][0-9][0-9].md")))


@cache
def load(code: str) -> FindingText:
    """Return the text of a code. Raises FileNotFoundError if the code has none."""
    markdown = (resources.findings() / f"{code}.md").read_text(encoding="utf-8")
    lines = markdown.splitlines()
    title = lines[0].removeprefix("#").strip().removeprefix(code).strip()
    severity = next((line.partition(":")[2].strip() for line in lines if line.startswith("Severity:")), "error")
    meaning = _section(lines, "## What it means")
    return FindingText(code=code, title=title, severity=severity, meaning=meaning, markdown=markdown)


def _section(lines: list[str], heading: str) -> str:
    """Return the first paragraph under the heading, on one line."""
    if heading not in lines:
        return ""
    paragraph: list[str] = []
    for line in lines[lines.index(heading) + 1 :]:
        if line.strip():
            paragraph.append(line.strip())
        elif paragraph:
            break
    return " ".join(paragraph)
