"""Rules on `enforcement.mechanism`: those that a mode lacks, and one that cannot enforce a cap (GS505, GS506, GS511)."""

from collections.abc import Iterator

from gpushare import modes
from gpushare.core.diagnostics import Finding, Severity
from gpushare.core.units import show_bytes
from gpushare.intent.types import CapWord, Mechanism, Pool
from gpushare.modes.mps import limits_clients
from gpushare.rules.card_names import a_card
from gpushare.rules.rule import Rule, RuleContext, pool_path


def _mechanism(code: str, pool: Pool, message: str, hint: str, severity: Severity = Severity.ERROR) -> Finding:
    path = pool_path(pool, "enforcement", "mechanism")
    return Finding(code=code, severity=severity, message=message, hints=(hint,), path=path)


def _lacking(context: RuleContext, mechanism: Mechanism) -> list[Pool]:
    """Return the pools that ask for a mechanism that their mode lacks."""
    asking = (pool for pool in context.intent.pools if pool.enforcement.mechanism is mechanism)
    return [pool for pool in asking if mechanism not in modes.of(pool).mechanisms]


def check_driver(context: RuleContext) -> Iterator[Finding]:
    """GS505: driver limits on MIG, where the driver does not support them."""
    for pool in _lacking(context, Mechanism.DRIVER):
        message = "the driver's memory limits do not exist on MIG instances"
        yield _mechanism("GS505", pool, message, "write mechanism: auto or mechanism: watcher")


def check_mps(context: RuleContext) -> Iterator[Finding]:
    """GS506: MPS limits in a mode in which no MPS daemon runs."""
    for pool in _lacking(context, Mechanism.MPS):
        message = f"mechanism: mps needs mode: mps, and pool {pool.name} has {pool.mode.value}"
        yield _mechanism("GS506", pool, message, "write mechanism: auto, which takes the strongest that the node has")


def check_blind_mps(context: RuleContext) -> Iterator[Finding]:
    """GS511: `mechanism: mps` with a cap that the MPS daemon cannot enforce, because it gives every client the even share."""
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


RULES = (
    Rule(code="GS505", check=check_driver),
    Rule(code="GS506", check=check_mps),
    Rule(code="GS511", check=check_blind_mps),
)
