"""Reports as Markdown: nothing in a text is read as markup, and pools that are alike are one entry with all their names."""

import pytest

from gpushare.report import markdown
from gpushare.report.model import Cards, Column, Form, Format, Lines, PoolCard, Report, Table, bare
from tests.compiler.report.page import HOSTILE


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("12 nodes, at most 3 pods (t4): 4 → 2 per node", "12 nodes, at most 3 pods (t4): 4 → 2 per node"),
        ("@team", "`@team`"),
        ("see #12", "`see #12`"),
        ("a_b_c", "`a_b_c`"),
        ("1. one", "`1. one`"),
        ("- one", "`- one`"),
        ("https://example.org", "`https://example.org`"),
        ("a `b` ``c``", "``` a `b` ``c`` ```"),
        (HOSTILE, '`\\"><script>alert(1)</script><img src=x onerror=alert(2)>\\u202e`'),
    ],
)
def test_texts_that_could_be_markup_are_code(text: str, shown: str) -> None:
    report = Report(sections=(bare(Lines(lines=[text], form=Form.LIST)),))
    assert markdown.render(report) == f"- {shown}\n"


def test_a_bar_ends_no_cell() -> None:
    column: Column[str] = Column(header="NAME", value=lambda row: row, is_code=True)
    report = Report(sections=(bare(Table(columns=[column], rows=["a|b", "-8"])),))
    assert markdown.render(report).splitlines()[2:] == ["| `a\\|b` |", "| -8 |"]


def test_pools_that_are_alike_are_one_entry_with_all_names() -> None:
    lines = (Lines(lines=["1 node"], form=Form.LIST),)
    pools = [PoolCard(id=f"pool-{name}", name=name, tag="new", aside="t4", parts=lines) for name in "abcde"]
    report = Report(sections=(bare(Cards(cards=pools, search="", is_folded=True, where=Format.ANY)),))
    shown = markdown.render(report)
    assert shown.startswith("**a, b, c and 2 more** each new, t4\n\n- 1 node\n")
    assert "```\na\nb\nc\nd\ne\n```" in shown
