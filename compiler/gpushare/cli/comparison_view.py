"""A comparison for people: changes by pool, capacity, quotas, and a summary line."""

from collections import Counter

from gpushare.cli import comparison_words as words
from gpushare.cli.plan_view import known
from gpushare.cli.terminal import BOLD, CYAN, GREEN, RED, YELLOW, Style, table, wrapped
from gpushare.compare.changes import Change, Comparison, Move, PoolChange, Problem, QuotaChange
from gpushare.core.printable import visible
from gpushare.core.wording import counted

_SIGNS = {
    Change.NEW: ("+", GREEN),
    Change.GONE: ("-", RED),
    Change.REPARTITION: ("!", RED),
    Change.RELABEL: ("~", YELLOW),
    Change.POLICY: ("~", CYAN),
    Change.NONE: ("~", CYAN),
}
_WORDS = {
    Change.NEW: "new",
    Change.GONE: "gone",
    Change.REPARTITION: "repartitioned",
    Change.RELABEL: "relabelled",
    Change.POLICY: "policy only",
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
    return shown + wrapped(summary(comparison), look)


def _section(title: str, lines: list[str], look: Style) -> str:
    """Return a heading and its lines; empty without lines."""
    if not lines:
        return ""
    body = "".join(wrapped(f"  {visible(line)}", look, indent=4 + len(line) - len(line.lstrip())) for line in lines)
    return f"{look.paint(title, BOLD)}\n{body}\n"


def _pool(pool: PoolChange, comparison: Comparison, look: Style) -> str:
    sign, colour = _SIGNS[pool.change]
    shown = look.paint(f"{sign} {pool.name}", BOLD, colour) + f"  {_WORDS.get(pool.change, 'the same')}{_card(pool)}\n"
    lines = [_disturbance(pool), *(words.outage(one) for one in comparison.outages if one.pool == pool.name)]
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


def _card(pool: PoolChange) -> str:
    before, after = pool.cards
    if before is not None and after is not None and before != after:
        return f", {before} becomes {after}"
    return f", {after or before}"


def _disturbance(pool: PoolChange) -> str:
    if pool.change in {Change.POLICY, Change.NONE} and not pool.selector_changes and not pool.touched:
        return "no GPU and no label of a node changes"
    nodes = "an unknown number of nodes" if pool.touched is None else counted(pool.touched, "node")
    if pool.change is Change.NEW:
        pods = f", {_pods(None)}" if pool.disturbed is None else ""
        return "" if pool.touched == 0 else f"{nodes} set up{pods}"
    return f"{nodes} touched, {_pods(pool.disturbed)}" + _per_node(pool)


def _per_node(pool: PoolChange) -> str:
    return f", {pool.disturbed_per_node} on each" if pool.disturbed_per_node else ""


def _pods(number: int | None) -> str:
    if number is None:
        return "an unknown number of pods disturbed"
    return f"at most {counted(number, 'pod')} disturbed" if number else "no pod disturbed"


def _moves(moves: tuple[Move, ...], look: Style) -> str:
    if not moves:
        return ""
    rows = [
        (move.node, move.source or "none", move.target or "none", f"at most {move.disturbed}" if move.disturbed else "none")
        for move in moves
    ]
    return table(("NODE", "FROM POOL", "TO POOL", "PODS DISTURBED"), rows, look) + "\n"


def _capacity(comparison: Comparison, look: Style) -> str:
    rows = []
    for name, amount in comparison.capacity:
        both = amount.before is not None and amount.after is not None
        difference = f"{(amount.after or 0) - (amount.before or 0):+d}" if both else "?"
        if difference != "+0":
            rows.append((name, known(amount.before), known(amount.after), difference))
    headers = ("CAPACITY", "BEFORE", "AFTER", "CHANGE")
    return table(headers, rows, look, numbers=("BEFORE", "AFTER", "CHANGE")) + "\n" if rows else ""


def _quotas(quotas: tuple[QuotaChange, ...], look: Style) -> str:
    if not quotas:
        return ""
    rows = [
        (quota.namespace, quota.resource, _limit(quota.before), _limit(quota.after), _trouble(quota)) for quota in quotas
    ]
    return table(("NAMESPACE", "QUOTA ON", "BEFORE", "AFTER", ""), rows, look, numbers=("BEFORE", "AFTER")) + "\n"


def _limit(number: int | None) -> str:
    return "-" if number is None else str(number)


def _trouble(quota: QuotaChange) -> str:
    match quota.problem:
        case Problem.EXCEEDS:
            return f"only {quota.capacity} in the cluster"
        case Problem.VANISHED:
            return "nothing offers it any more"
        case None:
            return ""


def summary(comparison: Comparison) -> str:
    """Return a summary in one line."""
    counts = Counter(pool.change for pool in comparison.pools)
    parts = [f"{counts[change]} {word}" for change, word in _WORDS.items() if counts[change]]
    shown = "Pools: " + (", ".join(parts) or "none changed")
    if comparison.is_configmap_only:
        return shown + ". ConfigMaps only: no node is touched, no pod disturbed."
    touched = "an unknown number of nodes" if comparison.touched is None else counted(comparison.touched, "node")
    broken = sum(quota.problem is not None for quota in comparison.quotas)
    quotas = f"; {counted(broken, 'quota')} no longer fit{'s' if broken == 1 else ''}" if broken else ""
    costs = f"{touched} touched, {_pods(comparison.disturbed)}"
    if comparison.touched == 0 and comparison.disturbed == 0:
        costs = "No GPU and no label of a node changes"
    return f"{shown}. {costs}{quotas}.".replace(". an", ". An") + words.also(comparison)
