"""`nodes/cloud.md`: how a cloud's node pools get the start-up taint, if pools select by the cloud's own label.

Without the taint a pod may be scheduled to a new node before its layout is verified. Only the cloud can set it in time.
"""

from collections.abc import Iterator

from gpushare.facts.nodes import taints
from gpushare.facts.nodes.clouds import CLOUDS
from gpushare.intent.types import Operator
from gpushare.resolved.plan import Plan, PoolPlan

_INTRODUCTION = """# The start-up taint on cloud node pools

New nodes must come up with the taint {taint}, which the node runtime removes when the layout is verified. Set it on the
node pools below, and remove it there before you uninstall gpushare. Replace what is in capitals.
"""


def cloud(plan: Plan) -> str | None:
    """Return the file's text; None if no pool selects by a known label."""
    found = [(pool, section) for pool in plan.pools for section in _sections(pool)]
    keys = dict.fromkeys(f"`{_taint(pool)}`" for pool, _ in found)
    introduction = _INTRODUCTION.format(taint=" or ".join(keys))
    return "\n".join([introduction, *(section for _, section in found)]) if found else None


def _taint(pool: PoolPlan) -> str:
    return taints.of(pool.pool.autoscaler).not_ready


def _sections(pool: PoolPlan) -> Iterator[str]:
    for key, value in _asked(pool):
        for cloud in CLOUDS:
            if cloud.startup_taint and cloud.is_pool_label(key):
                how = cloud.startup_taint.format(pool=value, POOL=value.upper(), taint=_taint(pool))
                yield f"## {pool.name}: node pool `{value}`\n\n{how}"


def _asked(pool: PoolPlan) -> Iterator[tuple[str, str]]:
    yield from pool.pool.nodes.match_labels
    for expression in pool.pool.nodes.match_expressions:
        if expression.operator is Operator.IN:
            yield from ((expression.key, value) for value in expression.values)
