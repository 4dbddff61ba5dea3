"""`make site`: builds the documentation site from the repository's own pages, into build/site/site.

Every Markdown page that git tracks outside tests and bundles lies in the site under its own path, so that the pages' links to
each other are right in both places. A link to anything else, such as a source file, becomes the text of the link.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "site"
_LISTED = ("git", "ls-files", "*.md", "docs/images")
_LEFT_OUT = ("tests/", "compiler/", ".github/")
"""Texts of findings are pages of `gpushare explain`; what lies beside code is for readers of the code."""


def pages() -> list[Path]:
    """Return the paths of all pages and pictures, relative to the repository."""
    listed = subprocess.run(_LISTED, cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(name) for name in listed.stdout.splitlines() if not name.startswith(_LEFT_OUT) and "/bundle/" not in name]


def stage(folder: Path) -> None:
    """Copy the pages into an empty folder, and the configuration beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    known = frozenset(pages())
    for page in known:
        target = folder / "pages" / page
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            target.write_text(_without_foreign_links((ROOT / page).read_text(encoding="utf-8"), page, known), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / page, target)
    shutil.copyfile(ROOT / "docs" / "zensical.toml", folder / "zensical.toml")


def _without_foreign_links(text: str, page: Path, known: frozenset[Path]) -> str:
    """Return the page with the text alone of links to what is not in the site; a folder means the README in it."""

    def replaced(link: re.Match[str]) -> str:
        label, target, anchor = link[1], link[2], link[3] or ""
        if "://" in target or not target:
            return link[0]
        path = (ROOT / page.parent / target).resolve().relative_to(ROOT)
        if path in known:
            return link[0]
        return f"[{label}]({target.rstrip('/')}/README.md{anchor})" if path / "README.md" in known else label

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)", replaced, text)


def build(folder: Path) -> int:
    """Build the staged pages; the exit code of Zensical, which is not 0 where it has a warning."""
    program = Path(sys.executable).with_name("zensical")
    return subprocess.run([program, "build", "--strict", "--clean"], cwd=folder, check=False).returncode


def main() -> int:
    """Stage and build."""
    stage(FOLDER)
    return build(FOLDER)


if __name__ == "__main__":
    sys.exit(main())
