"""A comparison for people: changes by pool, capacity, quotas, and a summary line."""

from collections.abc import Iterator, Sequence

from gpushare.compare.changes import Change, Comparison, Move, QuotaChange
from gpushare.compare.effects import Effect
from gpushare.core.wording import join_first, visible
from gpushare.report import comparison_words as words
from gpushare.report import folding
from gpushare.report.comparison_verdict import verdict
from gpushare.report.effect_words import format_effect
from gpushare.report.setting_words import format_file, format_setting
from gpushare.report.terminal import BOLD, CYAN, GREEN, RED, YELLOW, Style, table, wrapped

_SIGNS = {
    Change.NEW: ("+", GREEN),
    Change.GONE: ("-", RED),
    Change.REPARTITION: ("!", RED),
    Change.RELABEL: ("~", YELLOW),
    Change.POLICY: ("~", CYAN),
    Change.NONE: ("~", CYAN),
}
_MOST = 40
"""Most lines of a list, and most lines of a comparison whose summary is its end alone."""
_NAMED = 3
"""Most pools that a heading names."""


def render(comparison: Comparison, style: Style) -> str:
    """Return the whole comparison; one line if nothing changes."""
    if comparison.is_empty:
        return "no changes\n"
    groups = folding.alike((name, about, about) for name, about in _pools(comparison, style))
    shown = "".join(_heading(names, style, *about) for names, about in groups)
    shown += _strategy(comparison, style) + _moves(comparison.moves, style)
    shown += _capacity(comparison, style) + _costs(comparison, style) + _quotas(comparison.quotas, style)
    shown += _section("ORDER", [f"{number}. {step}" for number, step in enumerate(words.format_order(comparison), 1)], style)
    shown += _section("CLUSTER", [format_effect(one, _arrow(style)) for one in comparison.effects if one.pool is None], style)
    shown += _section("FILES", [line for one in comparison.files for line in format_file(one, _arrow(style))], style)
    shown += _section("INTENT", [format_setting(one, _arrow(style)) for one in comparison.intent], style)
    shown += _all_names([names for names, _ in groups if len(names) > _NAMED], style)
    summary = wrapped(words.format_summary(comparison), style)
    lead = "".join(wrapped(visible(one), style, indent=2) for one in verdict(comparison))
    return f"{lead}\n" + (f"{summary}\n" if shown.count("\n") > _MOST else "") + shown + summary


def _section(title: str, lines: Sequence[str], style: Style) -> str:
    """Return a heading and its lines, at most _MOST; empty without lines."""
    if not lines:
        return ""
    body = "".join(wrapped(f"  {visible(line)}", style, indent=4 + len(line) - len(line.lstrip())) for line in lines[:_MOST])
    return f"{style.paint(title, BOLD)}\n{body}{_rest(lines)}\n"


def _rest(lines: Sequence[object]) -> str:
    """Return how many lines of a list are left out."""
    return f"  and {len(lines) - _MOST} more; --format json has all\n" if len(lines) > _MOST else ""


def _pools(comparison: Comparison, style: Style) -> Iterator[tuple[str, tuple[Change, str, str]]]:
    """Yield of each pool its name, and its change: kind, what it becomes, and the lines about it."""
    effects: dict[str | None, list[Effect]] = {}
    for one in comparison.effects:
        effects.setdefault(one.pool, []).append(one)
    outages = {one.pool: one for one in comparison.outages}
    for pool in words.affected(comparison):
        lines = [words.format_disturbance(pool)]
        lines += [words.format_outage(outages[pool.name])] if pool.name in outages else []
        lines += words.format_consequences(pool, _arrow(style))
        lines += [format_effect(one, _arrow(style)) for one in effects.get(pool.name, ())]
        text = "".join(wrapped(f"    {line}", style, indent=6) for line in lines if line)
        yield pool.name, (pool.change, words.format_change(pool), text)


def _heading(names: list[str], style: Style, change: Change, becomes: str, text: str) -> str:
    """Return what happens to the pools, whose texts are equal."""
    sign, colour = _SIGNS[change]
    each = "each " if len(names) > 1 else ""
    return style.paint(f"{sign} {join_first(names, _NAMED)}", BOLD, colour) + f"  {each}{becomes}\n{text}\n"


def _all_names(groups: Sequence[list[str]], style: Style) -> str:
    """Return every name of the groups whose heading has not all of them."""
    lines = "".join(wrapped(f"  {visible(', '.join(names))}", style, indent=4) for names in groups)
    return style.paint("POOLS ALIKE", BOLD) + f"\n{lines}\n" if lines else ""


def _strategy(comparison: Comparison, style: Style) -> str:
    if not comparison.changes_mig_strategy:
        return ""
    shown = style.paint("! gpu-operator", BOLD, RED) + f"  {words.format_mig_strategy(comparison, _arrow(style))}\n"
    return shown + wrapped(f"    {words.OPERATOR_RESTART}", style, indent=6) + "\n"


def _arrow(style: Style) -> str:
    return "→" if style.boxes else "->"


def _moves(moves: tuple[Move, ...], style: Style) -> str:
    if not moves:
        return ""
    rows = [words.format_move(one) for one in moves[:_MOST]]
    return table(("NODE", "FROM POOL", "TO POOL", "PODS DISTURBED"), rows, style) + _rest(moves) + "\n"


def _capacity(comparison: Comparison, style: Style) -> str:
    rows = list(words.format_capacity(comparison))
    headers = ("CAPACITY", "BEFORE", "AFTER", "CHANGE")
    return table(headers, rows, style, numbers=("BEFORE", "AFTER", "CHANGE")) + "\n" if rows else ""


def _costs(comparison: Comparison, style: Style) -> str:
    rows = list(words.format_costs(comparison))
    headers = (words.cost_header(comparison), "BEFORE", "AFTER", "CHANGE")
    return table(headers, rows, style, numbers=("BEFORE", "AFTER", "CHANGE")) + "\n" if rows else ""


def _quotas(quotas: tuple[QuotaChange, ...], style: Style) -> str:
    if not quotas:
        return ""
    rows = [words.format_quota(one) for one in quotas]
    return table(("NAMESPACE", "QUOTA ON", "BEFORE", "AFTER", ""), rows, style, numbers=("BEFORE", "AFTER")) + "\n"
