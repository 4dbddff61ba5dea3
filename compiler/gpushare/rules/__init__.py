"""The stages that find what is wrong with an intent that passed the schema: all rules, then the warnings that it accepts.

A rule is registered by `@rule(CODE)` in a module of this package. Every module is imported here, so that a new one is listed
nowhere; rules run in the order of their codes, whatever the order of the modules. Not registered are `sizes`, which checks the
output, `mig.check_own_grids`, without which no rule knows the cards, and `gitops.renamed`, which knows the former bundle.
`check_acceptance` makes GS801 and GS802 from the findings of all others.
"""

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pkgutil import iter_modules
from typing import Any

from gpushare.core import resources
from gpushare.core.diagnostics import Finding, Severity, is_error
from gpushare.facts.catalog.cards import Catalog
from gpushare.intent.types import Intent, Layout
from gpushare.rules.rule import REGISTERED, RuleContext
from gpushare_node.contract.struct import NOTHING, replace

MAX_PER_CODE = 100
"""Findings of one code that are shown; an intent with more of them has one cause, not a hundred."""

_NEVER_ACCEPTED = {
    "GS791": "is about the bundle, not the intent,",
    "GS801": "is about spec.accept itself",
    "GS802": "is about spec.accept itself",
}
"""Codes that no intent can accept: those of acceptance, and that of a bundle without its lock."""

_RETIRED = frozenset({"GS715"})
"""Codes that no version gives any more. Intents may still accept them."""

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

RULES = dict(sorted(REGISTERED.items()))
"""The rules by code, in the order in which they run."""


def run_rules(
    intent: Intent, catalog: Catalog, document: Mapping[str, Any] | None = None, pinned: Mapping[str, Layout] = NOTHING
) -> list[Finding]:
    """Return everything that the rules find, sorted by code and then in the intent's order.

    `document` is the mapping as the user wrote it, for the rules on settings that are written although they equal a default.
    `pinned` are the layouts that the lock pins for goals: the rules check them like layouts that are resolved now.
    """
    context = RuleContext(intent=intent, catalog=catalog, document=document or {}, pinned=pinned)
    return [finding for check in RULES.values() for finding in _limited(check(context))]


def _limited(found: Iterator[Finding]) -> Iterator[Finding]:
    yield from islice(found, MAX_PER_CODE)
    for further in islice(found, 1):
        message = f"further findings of {further.code} are not shown"
        hints = (f"gpushare shows the first {MAX_PER_CODE} of a kind: correct those, then check again",)
        yield replace(further, message=message, hints=hints)


def check_acceptance(accepted: Mapping[str, str], findings: Iterable[Finding], *, whole: bool) -> list[Finding]:
    """Return what is wrong with `spec.accept`. `whole`: every stage ran, so a warning that was not found does not occur."""
    occurring = {finding.code for finding in findings if not is_error(finding)}
    return [finding for code in accepted for finding in _accepts(code, occurs=code in occurring or not whole)]


def _accepts(code: str, *, occurs: bool) -> Iterator[Finding]:
    known = resources.finding_codes()
    if code in _RETIRED:
        yield _of_acceptance(
            "GS802", f"{code} is accepted, but no version reports it any more", "remove it", code, Severity.WARNING
        )
    elif code not in known:
        hint = "write the code of a warning that `gpushare check` shows, such as GS210"
        yield _of_acceptance("GS801", f"invalid finding code {code!r}", hint, code)
    elif code in _NEVER_ACCEPTED:
        yield _of_acceptance("GS801", f"{code} {_NEVER_ACCEPTED[code]} and cannot be accepted", "remove it", code)
    elif resources.finding_text(code).severity == Severity.ERROR.value:
        hint = f"correct what is wrong; `gpushare explain {code}` explains it"
        yield _of_acceptance("GS801", f"{code} is an error, and only warnings can be accepted", hint, code)
    elif not occurs:
        hint = "remove it: it would hide the warning when it comes back for another reason"
        yield _of_acceptance("GS802", f"{code} is accepted, but nothing in this intent causes it", hint, code, Severity.WARNING)


def _of_acceptance(code: str, message: str, hint: str, accepted: str, severity: Severity = Severity.ERROR) -> Finding:
    path = ("spec", "accept", accepted)
    return Finding(code=code, severity=severity, message=message, hints=(hint,), path=path, on_key=True)
