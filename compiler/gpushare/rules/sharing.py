"""Rules on sharing whole GPUs, and on how caps are enforced.

What the device plugin's MPS daemon accepts (GS301, GS302); mechanisms that a mode lacks, and one that cannot enforce a cap
(GS505, GS506, GS511).
"""

from collections.abc import Iterator

from gpushare.core.diagnostics import Finding, Severity
from gpushare.core.units import show_bytes
from gpushare.facts.catalog.cards import Card
from gpushare.intent.types import CapWord, Pool
from gpushare.offering import modes
from gpushare.offering.modes.mps import limits_clients
from gpushare.rules.rule import RuleContext, a_card, pool_path, product, rule
from gpushare_node.contract.policy import Mechanism


def _daemon_pools(context: RuleContext) -> Iterator[tuple[Pool, Card]]:
    return ((pool, card) for pool, card in context.pools_with_mode() if modes.of(pool).has_daemon)


@rule("GS301")
def check_mps_replicas(context: RuleContext) -> Iterator[Finding]:
    """More MPS replicas than the daemon admits; it would fail to start and the plugin would wait for it forever."""
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


@rule("GS302")
def check_mps_support(context: RuleContext) -> Iterator[Finding]:
    """A card on which the device plugin's MPS does not run, or whose MPS holds no client to its share."""
    for pool, card in _daemon_pools(context):
        if not card.mps_supported:
            message = f"the device plugin does not run MPS on {a_card(card)}"
        elif not limits_clients(card):
            message = f"MPS needs Volta or newer to give clients of {a_card(card)} shares of their own"
        else:
            continue
        hint = f"write mode: time-slicing to share each {product(card)}"
        yield Finding(code="GS302", message=message, hints=(hint,), path=pool_path(pool, "sharing", "mode"))


def _mechanism(code: str, pool: Pool, message: str, hint: str, severity: Severity = Severity.ERROR) -> Finding:
    path = pool_path(pool, "enforcement", "mechanism")
    return Finding(code=code, severity=severity, message=message, hints=(hint,), path=path)


def _lacking(context: RuleContext, mechanism: Mechanism) -> list[Pool]:
    """Return the pools that ask for a mechanism that their mode lacks."""
    asking = (pool for pool in context.intent.pools if pool.enforcement.mechanism is mechanism)
    return [pool for pool in asking if mechanism not in modes.of(pool).mechanisms]


@rule("GS505")
def check_driver_mechanism(context: RuleContext) -> Iterator[Finding]:
    """Driver limits on MIG, where the driver does not support them."""
    for pool in _lacking(context, Mechanism.DRIVER):
        message = "the driver's memory limits do not exist on MIG instances"
        yield _mechanism("GS505", pool, message, "write mechanism: auto or mechanism: watcher")


@rule("GS506")
def check_mps_mechanism(context: RuleContext) -> Iterator[Finding]:
    """MPS limits in a mode in which no MPS daemon runs."""
    for pool in _lacking(context, Mechanism.MPS):
        message = f"mechanism: mps needs mode: mps, and pool {pool.name} has {pool.mode.value}"
        yield _mechanism("GS506", pool, message, "write mechanism: auto, which takes the strongest that the node has")


@rule("GS511")
def check_blind_mps(context: RuleContext) -> Iterator[Finding]:
    """`mechanism: mps` with a cap that the MPS daemon cannot enforce, because it gives every client the even share."""
    for pool, card in context.pools_with_card():
        cap = pool.memory.cap
        if pool.enforcement.mechanism is not Mechanism.MPS or not modes.of(pool).has_daemon or cap is CapWord.NONE:
            continue
        instead = "write mechanism: auto, which watches each container as well"
        if not limits_clients(card):
            message = f"MPS on {a_card(card)} has no memory limits, so no cap is enforced"
            yield _mechanism("GS511", pool, message, instead, Severity.WARNING)
        elif isinstance(cap, int):
            message = f"mechanism: mps enforces only the even share, not the cap of {show_bytes(cap)}"
            yield _mechanism("GS511", pool, message, instead, Severity.WARNING)
