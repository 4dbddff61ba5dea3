"""The only module with the paths of data files: cards, upstream facts, the chart, templates, schemas, finding texts.

An installed package contains them; in a clone and in an editable install they are at the top of the repository, two
folders above. All other modules call this one and never build such a path. Of the finding texts it reads the parts, too.
"""

from functools import cache
from pathlib import Path

from gpushare_node.contract.struct import Struct

_PACKAGE = Path(__file__).parents[1]
_REPOSITORY = _PACKAGE.parent.parent


def _folder(name: str) -> Path:
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _REPOSITORY / name


def cards(catalogue: str) -> Path:
    """Return the folder of a vendor's card files, one `<id>.yaml` each."""
    return _folder("profiles") / catalogue


def upstream() -> Path:
    """Return the folder of facts about upstream charts: value paths, images, releases."""
    return _folder("profiles") / "upstream"


def chart() -> Path:
    """Return the static Helm chart that every bundle copies."""
    return _folder("charts") / "gpushare"


def templates() -> Path:
    """Return the folder of jinja2 templates of text documents."""
    return _folder("templates")


def schema(name: str) -> Path:
    """Return a JSON Schema by name, such as `intent.v1`."""
    return _PACKAGE / "schemas" / f"{name}.json"


def findings() -> Path:
    """Return the folder of finding texts, one `<code>.md` each: meaning, a bad and a good example."""
    return _PACKAGE / "findings"


class FindingText(Struct):
    """One code's text: its title, its severity (`error` or `warning`), its meaning in one paragraph, and the whole text."""

    code: str
    title: str
    severity: str
    meaning: str
    markdown: str


@cache
def finding_codes() -> tuple[str, ...]:
    """Return every code that has a text, sorted."""
    return tuple(sorted(path.stem for path in findings().glob("GS[0-9][0-9][0-9].md")))


@cache
def finding_text(code: str) -> FindingText:
    """Return the text of a code. Raises FileNotFoundError if the code has none."""
    markdown = (findings() / f"{code}.md").read_text(encoding="utf-8")
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
