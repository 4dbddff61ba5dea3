"""A comparison for people: changes by pool, capacity, quotas, and a summary line."""

from gpushare.cli import comparison_words as words
from gpushare.cli.terminal import BOLD, CYAN, GREEN, RED, YELLOW, Style, table, wrapped
from gpushare.compare.changes import Change, Comparison, Move, PoolChange, QuotaChange
from gpushare.core.printable import visible

_SIGNS = {
    Change.NEW: ("+", GREEN),
    Change.GONE: ("-", RED),
    Change.REPARTITION: ("!", RED),
    Change.RELABEL: ("~", YELLOW),
    Change.POLICY: ("~", CYAN),
    Change.NONE: ("~", CYAN),
}


def sheet(comparison: Comparison, look: Style) -> str:
    """Return the whole comparison; one line if nothing changes."""
    if comparison.is_empty:
        return "no changes\n"
    shown = "".join(_pool(pool, comparison, look) for pool in words.affected(comparison))
    shown += _strategy(comparison, look) + _moves(comparison.moves, look)
    shown += _capacity(comparison, look) + _quotas(comparison.quotas, look)
    shown += _section("ORDER", [f"{number}. {step}" for number, step in enumerate(words.order(comparison), 1)], look)
    shown += _section("CLUSTER", [words.effect(one, _arrow(look)) for one in comparison.effects if one.pool is None], look)
    shown += _section("FILES", [line for one in comparison.files for line in words.file(one, _arrow(look))], look)
    shown += _section("INTENT", [words.setting(one, _arrow(look)) for one in comparison.intent], look)
    return shown + wrapped(words.summary(comparison), look)


def _section(title: str, lines: list[str], look: Style) -> str:
    """Return a heading and its lines; empty without lines."""
    if not lines:
        return ""
    body = "".join(wrapped(f"  {visible(line)}", look, indent=4 + len(line) - len(line.lstrip())) for line in lines)
    return f"{look.paint(title, BOLD)}\n{body}\n"


def _pool(pool: PoolChange, comparison: Comparison, look: Style) -> str:
    sign, colour = _SIGNS[pool.change]
    shown = look.paint(f"{sign} {pool.name}", BOLD, colour) + f"  {words.becomes(pool)}\n"
    lines = [words.disturbance(pool), *(words.outage(one) for one in comparison.outages if one.pool == pool.name)]
    lines += words.fate(pool, _arrow(look))
    lines += [words.effect(one, _arrow(look)) for one in comparison.effects if one.pool == pool.name]
    return shown + "".join(wrapped(f"    {line}", look, indent=6) for line in lines if line) + "\n"


def _strategy(comparison: Comparison, look: Style) -> str:
    if not comparison.changes_mig_strategy:
        return ""
    shown = look.paint("! gpu-operator", BOLD, RED) + f"  {words.strategy(comparison, _arrow(look))}\n"
    return shown + wrapped(f"    {words.STRATEGY}", look, indent=6) + "\n"


def _arrow(look: Style) -> str:
    return "→" if look.boxes else "->"


def _moves(moves: tuple[Move, ...], look: Style) -> str:
    if not moves:
        return ""
    rows = [words.move(one) for one in moves]
    return table(("NODE", "FROM POOL", "TO POOL", "PODS DISTURBED"), rows, look) + "\n"


def _capacity(comparison: Comparison, look: Style) -> str:
    rows = list(words.capacity(comparison))
    headers = ("CAPACITY", "BEFORE", "AFTER", "CHANGE")
    return table(headers, rows, look, numbers=("BEFORE", "AFTER", "CHANGE")) + "\n" if rows else ""


def _quotas(quotas: tuple[QuotaChange, ...], look: Style) -> str:
    if not quotas:
        return ""
    rows = [words.quota(one) for one in quotas]
    return table(("NAMESPACE", "QUOTA ON", "BEFORE", "AFTER", ""), rows, look, numbers=("BEFORE", "AFTER")) + "\n"
