"""Write docs/images/: the pages of `show` and `plan` as people see them, at two widths and in both themes.

`make screenshots`. Needs Chromium. The pictures depend on the fonts of the machine, so no test compares them.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.browser import browser
from tests.support.paths import ROOT

IMAGES = ROOT / "docs/images"
INTENT = ROOT / "examples/01-heterogeneous/intent.yaml"
CHANGES = {
    "layout: {2g.10gb: 2, 1g.5gb: 3}": "layout: {3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}",
    "replicas: 4}": "replicas: 8}",
    "memory: 28Gi": "memory: 900Gi",
}
"""What the plan's picture shows: a new layout, twice as many shares, and a quota that is too large for them."""
SIZES = {"desktop": (1280, 1500), "phone": (390, 1700)}


def main() -> None:
    """Write every picture again."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, browser() as tab:
        for name, file in _pages(Path(scratch)).items():
            for size, (width, height) in SIZES.items():
                for theme in ("light", "dark"):
                    tab.open(file, width=width, theme=theme)
                    (IMAGES / f"{name}-{size}-{theme}.webp").write_bytes(tab.picture(height))


def _pages(folder: Path) -> dict[str, Path]:
    text = INTENT.read_text(encoding="utf-8")
    for old, new in CHANGES.items():
        text = text.replace(old, new)
    changed = folder / "intent.yaml"
    changed.write_text(text, encoding="utf-8")
    pages = {"show": ("show", "--html", INTENT), "plan": ("plan", "--html", INTENT, changed)}
    for name, arguments in pages.items():
        command = [sys.executable, "-m", "gpushare", *map(str, arguments)]
        done = subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own program and files
        (folder / f"{name}.html").write_bytes(done.stdout)
    return {name: folder / f"{name}.html" for name in pages}


if __name__ == "__main__":
    main()
