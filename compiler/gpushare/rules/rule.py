"""What a rule is, and what it may read: `rule`, RuleContext, the paths of a pool's fields, and how findings name cards.

A rule is a function from a RuleContext to the problems of one code; `@rule("GS217")` registers it, with their severity if they
are no errors. Facts about a pool that several rules need (its card, its resolved layouts and shares) are computed once, here.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, wraps
from typing import Any

from gpushare import vendors
from gpushare.core.diagnostics import Finding, Path, Severity
from gpushare.facts.catalog.cards import Card, Catalog
from gpushare.facts.nodes.selectors import NodeAssignment
from gpushare.intent.types import Intent, Layout, NvidiaStack, Pool
from gpushare.offering import backends, modes, shares
from gpushare.offering.shares import ShareKind
from gpushare.vendors import OTHERS
from gpushare_node.contract.struct import NOTHING, Struct, content_of

_READ_WITH_A_VOWEL = set("AEFHILMNORSX8")


class RuleContext:
    """One intent and the cards that it may name, with a cache of what was computed for each pool.

    `pinned` are the layouts that goals were resolved to by an earlier compilation, by pool.

    `document` is what the user wrote; only rules on what is *written* need it: the intent itself has every default filled in.

    Every method returns None if the result cannot be computed and another rule reports why; a rule then skips the pool.
    """

    def __init__(
        self,
        *,
        intent: Intent,
        catalog: Catalog,
        document: Mapping[str, Any] = NOTHING,
        pinned: Mapping[str, Layout] = NOTHING,
    ) -> None:
        self.pinned = pinned
        self.intent = intent
        self.catalog = catalog
        self.document = document
        self._layouts: dict[str, tuple[Layout, ...] | None] = {}
        self._kinds: dict[str, tuple[ShareKind, ...] | None] = {}

    @cached_property
    def assignment(self) -> NodeAssignment:
        """Which nodes belong to which pool."""
        return NodeAssignment(self.intent.pools)

    def card(self, pool: Pool) -> Card | None:
        """Return the pool's card; None if the catalogue and `spec.cards` lack it."""
        return self.catalog.get(pool.card)

    def pools_with_card(self) -> Iterator[tuple[Pool, Card]]:
        """Yield the pools whose card is known, with it."""
        for pool in self.intent.pools:
            if card := self.card(pool):
                yield pool, card

    def pools_with_mode(self) -> Iterator[tuple[Pool, Card]]:
        """Yield the pools whose card is known and of a vendor that has the mode, with it; GS320 reports the others."""
        return ((pool, card) for pool, card in self.pools_with_card() if card.vendor in modes.of(pool).vendors)

    def stack_path(self, vendor: str, *steps: str) -> Path:
        """Return where a setting of another vendor's stack is written: below its word, if beside NVIDIA's."""
        written = self.document.get("spec", {}).get("platform", {})
        is_alone = self.intent.platform.stack is NvidiaStack.NONE and (
            vendor not in written or written.get("stack") in OTHERS[vendor].charts
        )
        return ("spec", "platform", *(() if is_alone else (vendor,)), *steps)

    def writes(self, path: Path) -> bool:
        """Whether the intent has something at the path."""
        found: Any = self.document
        for step in path:
            if step not in found:
                return False
            found = found[step]
        return True

    def layouts(self, pool: Pool) -> tuple[Layout, ...] | None:
        """Return the layout of each GPU of one node of the pool, by index; None if card, profile, index or goal is wrong."""
        if pool.name not in self._layouts:
            card = self.card(pool)
            self._layouts[pool.name] = None if card is None else modes.of(pool).layouts(card, self.pinned.get(pool.name))
        return self._layouts[pool.name]

    def kinds(self, pool: Pool) -> tuple[ShareKind, ...] | None:
        """Return the distinct shares that a node of the pool offers; None if its layouts are None."""
        if pool.name not in self._kinds:
            card, layouts = self.card(pool), self.layouts(pool)
            self._kinds[pool.name] = None if card is None or layouts is None else shares.kinds(pool, card, layouts)
        return self._kinds[pool.name]

    def named(self, pool: Pool, kind: ShareKind) -> str:
        """Return the extended resource by which pods ask for such a device in `limits`; empty if only claims get it."""
        card = self.card(pool)
        is_offered = card is not None and (modes.of(pool).takes_claims or not pool.backend.has_claims)
        return backends.of(pool, card).extended_name(kind.resource) if card and is_offered else ""


class Problem(Struct):
    """What a rule finds: a Finding's fields without its code and severity, which are the rule's."""

    message: str
    hints: tuple[str, ...] = ()
    path: Path = ()
    on_key: bool = False
    causes: tuple[Path, ...] = ()


Check = Callable[[RuleContext], Iterator[Finding]]
"""Finds every violation of one code, in a fixed order."""

REGISTERED: dict[str, Check] = {}
"""The rules by code, in the order in which their modules were imported; `run_rules` takes them in the order of their codes."""


def rule(code: str, severity: Severity = Severity.ERROR) -> Callable[[Callable[[RuleContext], Iterator[Problem]]], Check]:
    """Register a function as the rule of a code, all of whose findings have this severity. ValueError if the code has one."""

    def register(check: Callable[[RuleContext], Iterator[Problem]]) -> Check:
        if code in REGISTERED:
            raise ValueError(f"{code} has a rule: {REGISTERED[code].__module__}.{REGISTERED[code].__name__}")

        @wraps(check)
        def findings(context: RuleContext) -> Iterator[Finding]:
            return (Finding(code=code, severity=severity, **content_of(one)) for one in check(context))

        REGISTERED[code] = findings
        return findings

    return register


def of_pool(pool: Pool, message: str, hint: str, *steps: str | int) -> Problem:
    """Return a problem of the field of a pool at the given steps."""
    return Problem(message=message, hints=(hint,), path=pool_path(pool, *steps))


def pool_path(pool: Pool, *steps: str | int) -> Path:
    """Return the path of a pool's field in the intent."""
    return ("spec", "pools", pool.name, *steps)


def product(card: Card) -> str:
    """Return the card's product name without its vendor: `A100-SXM4-40GB`."""
    return card.name.removeprefix(f"{vendors.of(card).name} ")


def a_card(card: Card) -> str:
    """Return the product with its article, as it is pronounced: `an L40S`, `a Tesla T4`."""
    name = product(card)
    spelled_out = not name[1:2].islower()
    vowel = name[:1].upper() in (_READ_WITH_A_VOWEL if spelled_out else set("AEIO"))
    return f"{'an' if vowel else 'a'} {name}"
