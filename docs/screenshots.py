"""Write docs/images/: the pages of `show`, `plan` and `status` as people see them, at two widths and in both themes.

`make screenshots`. Needs Chromium. The pictures depend on the fonts of the machine, so no test compares them.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.compiler.cluster.live.clusters import lively
from tests.support.browser import browser
from tests.support.fake_api.server import ApiServer
from tests.support.paths import ROOT

IMAGES = ROOT / "docs/images"
INTENT = ROOT / "examples/01-heterogeneous/intent.yaml"
CHANGES = {
    "layout: {2g.10gb: 2, 1g.5gb: 3}": "layout: {3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}",
    "replicas: 4}": "replicas: 8}",
    "memory: 28Gi": "memory: 900Gi",
}
"""What the plan's picture shows: a new layout, twice as many shares, and a quota that is too large for them."""
TIME = "1767225600"
"""The first second of 2026: no picture changes for its time alone."""
SIZES = {"desktop": (1280, 2400), "phone": (390, 3300)}


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
    pages = {
        "show": _page("show", "--html", INTENT),
        "plan": _page("plan", "--html", INTENT, changed),
        "status": _status(folder),
    }
    for name, page in pages.items():
        (folder / f"{name}.html").write_bytes(page)
    return {name: folder / f"{name}.html" for name in pages}


def _status(folder: Path) -> bytes:
    """The page of a small cluster, on the double of the API server that the tests have."""
    with ApiServer(token="secret") as server:  # noqa: S106 - of the double
        lively(server)
        return _page("status", "--html", environment=server.kubeconfig(folder / "kubeconfig"))


def _page(*arguments: object, environment: Mapping[str, str] = MappingProxyType({})) -> bytes:
    command = [sys.executable, "-m", "gpushare", *map(str, arguments)]
    done = subprocess.run(  # noqa: S603 - our own program and files
        command,
        check=True,
        capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": TIME, **environment},
    )
    return done.stdout


if __name__ == "__main__":
    main()
