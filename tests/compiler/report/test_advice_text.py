"""Advice in a terminal names everyone whom it would end."""

from gpushare.report import advice as report
from gpushare.report import text
from gpushare.report.terminal import Style
from gpushare.study.advice import distribution
from gpushare.study.advice.advised import BackTest, Ending
from gpushare_node.contract.struct import replace
from tests.compiler.report import advice


def test_every_container_that_the_advice_would_end_is_named() -> None:
    history = advice.history()
    given = advice.advice(history)
    endings = tuple(
        Ending(namespace="physics", pod=f"pod-{number}", container="main", at=advice.TESTED[0] + number, used_bytes=1 << 31)
        for number in range(25)
    )
    tested = BackTest(containers=34, endings=endings, rate=distribution.rate(25, 14.5))
    changed = [replace(one, change=replace(one.change, back_test=tested)) if one.change else one for one in given.pools]
    found = report.Found(advice=replace(given, pools=tuple(changed)), history=history, plan=advice.plan())
    shown = text.render(report.report(found), Style())
    assert all(f"physics/pod-{number} (" in shown for number in range(25))
