"""docs/showback.md has the queries that `gpushare usage` evaluates."""

import re

from gpushare.render.monitoring import showback
from tests.support.paths import ROOT


def test_queries_of_the_command_are_those_of_the_page() -> None:
    page = (ROOT / "docs/showback.md").read_text(encoding="utf-8")
    written = dict(re.findall(r"## ([^\n]+)\n(?:(?!## ).)*?```promql\n(.*?)```", page, re.DOTALL))
    queries = showback.queries()
    assert {title: written.get(title) for title in queries} == queries
