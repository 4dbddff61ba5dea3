"""A comparison as Markdown, for a comment on a merge request: a summary, the disruption, and every setting in a fold."""

from collections.abc import Iterable

from gpushare.compare.changes import Comparison, PoolChange
from gpushare.compare.effects import Effect
from gpushare.core.wording import visible
from gpushare.report import comparison_words as words
from gpushare.report.comparison_verdict import verdict
from gpushare.report.effect_words import format_effect
from gpushare.report.plan_view import known
from gpushare.report.setting_words import format_file, format_setting

_ARROW = "→"


def page(comparison: Comparison) -> str:
    """Return the whole page; names and values are formatted as code, so that nothing in them is read as markup."""
    if comparison.is_empty:
        return "**No changes.** Both bundles are equal.\n"
    lines = [f"**{words.format_summary(comparison)}**", "", *(f"- {one}" for one in verdict(comparison)), ""]
    lines += [*_pools(comparison), *_strategy(comparison)]
    lines += [*_moves(comparison), *_capacity(comparison), *_costs(comparison), *_quotas(comparison)]
    lines += _listed("What the pools become", [line for pool in words.affected(comparison) for line in _fate(pool)])
    lines += _listed("Who is affected", [_effect(one) for one in comparison.effects])
    lines += _listed("Out of service", [f"{code(one.pool)}: {words.format_outage(one)}" for one in comparison.outages])
    lines += _listed("In this order", list(words.format_order(comparison)))
    settings = [line for one in comparison.files for line in format_file(one, _ARROW)]
    settings += [f"intent  {format_setting(one, _ARROW)}" for one in comparison.intent]
    fence = "`" * max(3, 1 + max((_run(line) for line in settings), default=0))
    lines += ["<details><summary>Files and settings</summary>", "", fence, *settings, fence, "", "</details>"]
    return "\n".join(lines) + "\n"


def page_of_fleet(clusters: Iterable[tuple[str, str, str, Comparison | None]]) -> str:
    """Return a table with a row for every cluster, and below it the page of each that changes, folded.

    `clusters` are names, outcomes, lines that say why there is no comparison, and comparisons.
    """
    rows, folds = [], []
    for name, outcome, problem, comparison in clusters:
        text = problem and code(visible(problem))
        if comparison is not None and not comparison.is_empty:
            text = words.format_summary(comparison).replace("|", "\\|")
            folds += ["", f"<details><summary>{name}</summary>", "", page(comparison).rstrip(), "", "</details>"]
        rows.append(f"| {code(name)} | {outcome} | {text} |")
    return "\n".join(["| cluster | outcome | |", "|---|---|---|", *rows, *folds]) + "\n"


def _pools(comparison: Comparison) -> list[str]:
    rows = [
        f"| {code(one.name)} | {one.change.value} | {known(one.touched)} | {known(one.disturbed)} |"
        for one in words.affected(comparison)
    ]
    return ["| pool | change | nodes touched | pods disturbed, at most |", "|---|---|---|---|", *rows, ""] if rows else []


def _fate(pool: PoolChange) -> list[str]:
    return [f"{code(pool.name)}: {code(line)}" for line in words.format_consequences(pool, _ARROW)]


def _strategy(comparison: Comparison) -> list[str]:
    if not comparison.changes_mig_strategy:
        return []
    return [f"**gpu-operator** {code(words.format_mig_strategy(comparison, _ARROW))}: {words.OPERATOR_RESTART}", ""]


def _moves(comparison: Comparison) -> list[str]:
    rows = [f"| {code(one.node)} | {_named(one.source)} | {_named(one.target)} | {one.disturbed} |" for one in comparison.moves]
    return ["| node | from pool | to pool | pods disturbed, at most |", "|---|---|---|---|", *rows, ""] if rows else []


def _named(pool: str | None) -> str:
    return "none" if pool is None else code(pool)


def _capacity(comparison: Comparison) -> list[str]:
    rows = [
        f"| {code(name)} | {known(one.before)} | {known(one.after)} |"
        for name, one in comparison.capacity
        if one.before != one.after
    ]
    return ["| capacity | before | after |", "|---|---|---|", *rows, ""] if rows else []


def _costs(comparison: Comparison) -> list[str]:
    rows = [f"| {code(name)} | {before} | {after} |" for name, before, after, _ in words.format_costs(comparison)]
    return [f"| {words.cost_header(comparison)} | before | after |", "|---|---|---|", *rows, ""] if rows else []


def _quotas(comparison: Comparison) -> list[str]:
    rows = [
        f"| {code(one.namespace)} | {code(one.resource)} | {known(one.before)} | {known(one.after)} | "
        f"{one.problem.value if one.problem else ''} |"
        for one in comparison.quotas
    ]
    return ["| namespace | quota on | before | after | |", "|---|---|---|---|---|", *rows, ""] if rows else []


def _effect(one: Effect) -> str:
    where = "" if one.pool is None else f"{code(one.pool)}: "
    return where + code(format_effect(one, _ARROW))


def _listed(title: str, lines: list[str]) -> list[str]:
    return [f"### {title}", "", *(f"- {line}" for line in lines), ""] if lines else []


def code(text: str) -> str:
    """Return the text in as many backticks as needed; its bars are escaped, because a bar would end a table cell."""
    fence = "`" * (1 + _run(text))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def _run(text: str) -> int:
    """Return the length of the longest run of backticks."""
    longest = current = 0
    for letter in text:
        current = current + 1 if letter == "`" else 0
        longest = max(longest, current)
    return longest
