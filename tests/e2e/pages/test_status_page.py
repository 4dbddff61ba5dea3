"""The page of `status` in a browser."""

from pathlib import Path

import pytest

from tests.compiler.cluster.live.clusters import LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.support.browser import browser


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_status_page_renders_in_a_browser(live: LiveCluster, ask: Ask, tmp_path: Path, width: int, theme: str) -> None:
    file = tmp_path / "status.html"
    file.write_text(ask("status", "--html", "--kills").stdout, encoding="utf-8")
    with browser() as tab:
        tab.open(file, width=width, theme=theme)
        assert tab.console == []
        assert tab.run("[innerWidth, document.documentElement.scrollWidth]") == [width, width]
        assert [(one["id"], one["nodes"][0]["html"]) for one in tab.violations()] == []
        (tmp_path / "status.webp").write_bytes(tab.picture(1500))
        tab.click("#search")
        tab.type("gpubusy")
        assert tab.run("[...document.querySelectorAll('.pool')].filter((one) => !one.hidden).length") == 1
