"""The rules on `spec.accept`, the warnings that the user accepts: GS801 and GS802.

They check the findings of all other rules, and are therefore not in the registry.
"""

from collections.abc import Iterable, Iterator, Mapping

from gpushare.core import finding_texts
from gpushare.core.diagnostics import Finding, Severity, is_error

HERE = ("spec", "accept")

_NEVER = {
    "GS791": "is about the bundle, not the intent,",
    "GS801": "is about spec.accept itself",
    "GS802": "is about spec.accept itself",
}
"""Codes that no intent can accept: those of acceptance, and that of a bundle without its lock."""


_RETIRED = frozenset({"GS715"})
"""Codes that no version gives any more. Intents may still accept them."""


def check_acceptance(accepted: Mapping[str, str], findings: Iterable[Finding], *, whole: bool) -> list[Finding]:
    """Return what is wrong with `spec.accept`. `whole`: every stage ran, so a warning that was not found does not occur."""
    occurring = {finding.code for finding in findings if not is_error(finding)}
    return [finding for code in accepted for finding in _check(code, occurs=code in occurring or not whole)]


def _check(code: str, *, occurs: bool) -> Iterator[Finding]:
    known = finding_texts.codes()
    if code in _RETIRED:
        yield _finding("GS802", f"{code} is accepted, but no version reports it any more", "remove it", code, Severity.WARNING)
    elif code not in known:
        hint = "write the code of a warning that `gpushare check` shows, such as GS210"
        yield _finding("GS801", f"invalid finding code {code!r}", hint, code)
    elif code in _NEVER:
        yield _finding("GS801", f"{code} {_NEVER[code]} and cannot be accepted", "remove it", code)
    elif finding_texts.load(code).severity == Severity.ERROR.value:
        hint = f"correct what is wrong; `gpushare explain {code}` explains it"
        yield _finding("GS801", f"{code} is an error, and only warnings can be accepted", hint, code)
    elif not occurs:
        hint = "remove it: it would hide the warning when it comes back for another reason"
        yield _finding("GS802", f"{code} is accepted, but nothing in this intent causes it", hint, code, Severity.WARNING)


def _finding(code: str, message: str, hint: str, accepted: str, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(code=code, severity=severity, message=message, hints=(hint,), path=(*HERE, accepted), on_key=True)
