"""The navigation of the documentation site has every page."""

import re
import tomllib

from tests.support.paths import ROOT
from tests.support.scripts import loaded


def test_every_page_is_in_the_navigation() -> None:
    builder = loaded("docs/build_site.py")
    config = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text())
    listed = set(re.findall(r"'([^']+\.md)'", str(config["project"]["nav"])))
    examples = {page for page in map(str, builder.pages()) if page.startswith("examples/") and page.count("/") > 1}
    assert listed == {str(builder.place(page)) for page in builder.pages() if page.suffix == ".md"} - examples
