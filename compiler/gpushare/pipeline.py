"""The order of the stages, and where they stop: source → schema → intent → rules → plan → bundle → sizes.

This module owns nothing else. Each stage yields all its findings; the next stage runs only if none of them is an error. Any
input bytes give a Compilation; an exception is a bug.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpushare import rules
from gpushare.bundle.artifact import Artifact
from gpushare.bundle.lock import EMPTY, Lock
from gpushare.core import emit
from gpushare.core.diagnostics import Accepted, Finding, in_order, is_error, shortened
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Catalog
from gpushare.intent import reader, writer
from gpushare.intent.types import Intent
from gpushare.reading import schema, source
from gpushare.reading.source import Source
from gpushare.resolved import plan
from gpushare.resolved.plan import Plan
from gpushare.rules import mig, sizes
from gpushare_node.contract.struct import Struct


class Compilation(Struct):
    """How far the pipeline got with an intent: a field that is None or empty was not reached.

    `findings` have a location and are in order; `accepted` are the warnings that the intent accepts.
    """

    source: Source
    intent: Intent | None = None
    plan: Plan | None = None
    artifacts: tuple[Artifact, ...] = ()
    findings: tuple[Finding, ...] = ()
    accepted: tuple[Accepted, ...] = ()


Overlay = tuple[bytes, str]
"""The bytes of an overlay, and its name in findings."""


def check(data: bytes, file: str, overlays: Sequence[Overlay] = ()) -> Compilation:
    """Return the intent's findings, including those on bundle sizes. The lock of an earlier bundle does not affect them."""
    return compile_intent(data, file, EMPTY, overlays)


def findings_of(document: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return the findings of an intent that is no file."""
    return compile_intent(emit.json_text(document).encode(), "intent", EMPTY).findings


def compile_intent(data: bytes, file: str, lock: Lock, overlays: Sequence[Overlay] = ()) -> Compilation:
    """Run every stage. `file` is the intent's name in findings, `lock` the lock of the previous bundle.

    `overlays` are merged into the intent in their order, and the stages see the result alone.
    """
    text = source.read(data, file)
    if overlays:
        from gpushare.reading import overlay  # noqa: PLC0415 - most intents have none

        text = overlay.merge([text, *(source.read(*one) for one in overlays)])
    findings = list(text.findings)
    if _stops(findings):
        return _done(text, findings)
    findings += schema.check(text)
    if _stops(findings):
        return _done(text, findings)
    built = reader.build(text.data)
    findings += cards.check(built.cards)
    if _stops(findings):
        return _done(text, findings, built=built)
    catalog = Catalog(own={name: cards.build(name, document) for name, document in built.cards.items()})
    if catalog.own:
        findings += mig.check_own_grids(catalog.own)
        if _stops(findings):
            return _done(text, findings, built=built)
    written, vendors = built, catalog.vendors(pool.card for pool in built.pools)
    built = reader.of_vendors(written, vendors)
    findings += rules.run_rules(built, catalog, text.data, plan.pinned_layouts(built, catalog, lock))
    if _stops(findings):
        findings += _acceptance(built, findings, whole=False)
        return _done(text, findings, built=built)
    ordered = writer.canonical(written)
    resolved = plan.resolve(reader.of_vendors(ordered, vendors), catalog, lock, writer.write(ordered))
    artifacts, too_large = _bundle(resolved, lock)
    findings += too_large
    findings += _acceptance(built, findings, whole=True)
    return _done(text, findings, built=built, resolved=resolved, artifacts=() if _stops(findings) else artifacts)


def _bundle(resolved: Plan, lock: Lock) -> tuple[tuple[Artifact, ...], list[Finding]]:
    from gpushare.render import bundle_files  # noqa: PLC0415 - an intent with errors does not get here

    artifacts = bundle_files.render(resolved, lock)
    return artifacts, sizes.check_sizes(artifacts, lambda: bundle_files.chart_values(resolved, artifacts, lock))


def _acceptance(built: Intent, findings: list[Finding], *, whole: bool) -> list[Finding]:
    return rules.check_acceptance(dict(built.accepted), findings, whole=whole) if built.accepted else []


def _stops(findings: Iterable[Finding]) -> bool:
    return any(map(is_error, findings))


def _done(
    text: Source,
    findings: list[Finding],
    *,
    built: Intent | None = None,
    resolved: Plan | None = None,
    artifacts: tuple[Artifact, ...] = (),
) -> Compilation:
    reasons = dict(built.accepted) if built else {}
    located = in_order([text.locate(shortened(finding)) for finding in findings])
    meant = [finding for finding in located if finding.code in reasons and not is_error(finding)]
    return Compilation(
        source=text,
        intent=built,
        plan=resolved,
        artifacts=artifacts,
        findings=tuple(finding for finding in located if finding not in meant) if meant else tuple(located),
        accepted=tuple(Accepted(finding=finding, reason=reasons[finding.code]) for finding in meant),
    )
