"""`make site`: builds the documentation site from the repository's own pages, into build/site/site.

Every Markdown page that git tracks outside tests and bundles lies in the site under its own path; the front page is
docs/index.md. A link to anything else, such as a source file, becomes the text of the link.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "site"
_LISTED = ("git", "ls-files", "*.md", "docs/images", "docs/iframe-worker.js", "docs/site.css")
_LEFT_OUT = ("tests/", "compiler/", ".github/")
"""Texts of findings are pages of `gpushare explain`; what lies beside code is for readers of the code."""
_README = Path("README.md")
"""Of the repository. The site has the front page and the navigation in its place."""
_FRONT = Path("docs/index.md")


def pages() -> list[Path]:
    """Return the paths of all pages and of what they load, relative to the repository."""
    listed = subprocess.run(_LISTED, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.splitlines() if not name.startswith(_LEFT_OUT) and "/bundle/" not in name]
    return [path for path in map(Path, names) if path != _README]


def place(page: Path) -> Path:
    """Return where a page lies in the site."""
    return Path(_FRONT.name) if page == _FRONT else page


def stage(folder: Path) -> None:
    """Copy the pages into an empty folder, and the configuration beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    known = frozenset(pages())
    for page in known:
        target = folder / "pages" / place(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            target.write_text(_relinked((ROOT / page).read_text(encoding="utf-8"), page, known), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / page, target)
    shutil.copyfile(ROOT / "docs" / "zensical.toml", folder / "zensical.toml")


def _relinked(text: str, page: Path, known: frozenset[Path]) -> str:
    """Return the page with its links as in the site: the text alone of a link to what is not there; a folder is its README."""

    def replaced(link: re.Match[str]) -> str:
        sign, label, target, anchor = link[1], link[2], link[3], link[4] or ""
        if "://" in target or not target:
            return link[0]
        path = (ROOT / page.parent / target).resolve().relative_to(ROOT)
        path = path / "README.md" if path / "README.md" in known else path
        if path not in known:
            return label
        return f"{sign}[{label}]({os.path.relpath(place(path), place(page).parent)}{anchor})"

    return re.sub(r"(!?)\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)", replaced, text)


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
