"""Rules on sharing whole GPUs: what the device plugin's MPS daemon accepts (GS301, GS302)."""

from collections.abc import Iterator

from gpushare import modes
from gpushare.catalog.cards import Card
from gpushare.core.diagnostics import Finding
from gpushare.intent.types import Pool
from gpushare.modes.mps import limits_clients
from gpushare.rules.card_names import a_card, product
from gpushare.rules.rule import Rule, RuleContext, pool_path


def _daemon_pools(context: RuleContext) -> Iterator[tuple[Pool, Card]]:
    return ((pool, card) for pool, card in context.pools_with_mode() if modes.of(pool).has_daemon)


def check_mps_replicas(context: RuleContext) -> Iterator[Finding]:
    """GS301: more MPS replicas than the daemon admits; it would fail to start and the plugin would wait for it forever."""
    for pool, card in _daemon_pools(context):
        replicas = modes.of(pool).replicas_of(None)
        capability = card.compute_capability
        if not card.mps_supported or capability is None or replicas <= card.mps_max_replicas:
            continue
        major, minor = capability
        old = capability < (7, 5)
        why = f"the device plugin allows {card.mps_max_replicas} on compute capability {major}.{minor}"
        yield Finding(
            code="GS301",
            message=f"{replicas} MPS replicas are more than {a_card(card)} allows",
            hints=(
                why + (", since that is below 7.5" if old else ""),
                f"write replicas: {card.mps_max_replicas} or less, or mode: time-slicing, which has no such limit",
            ),
            path=pool_path(pool, "sharing", "replicas"),
        )


def check_mps_support(context: RuleContext) -> Iterator[Finding]:
    """GS302: a card on which the device plugin's MPS does not run, or whose MPS holds no client to its share."""
    for pool, card in _daemon_pools(context):
        if not card.mps_supported:
            message = f"the device plugin does not run MPS on {a_card(card)}"
        elif not limits_clients(card):
            message = f"MPS needs Volta or newer to give clients of {a_card(card)} shares of their own"
        else:
            continue
        hint = f"write mode: time-slicing to share each {product(card)}"
        yield Finding(code="GS302", message=message, hints=(hint,), path=pool_path(pool, "sharing", "mode"))


RULES = (Rule(code="GS301", check=check_mps_replicas), Rule(code="GS302", check=check_mps_support))
