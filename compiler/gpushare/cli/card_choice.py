"""The card that an option names: of the catalogue, or of those that an intent describes in `spec.cards`."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpushare.catalog import cards
from gpushare.catalog.cards import Card, Catalog
from gpushare.cli import streams
from gpushare.cli.exits import CouldNotRunError
from gpushare.core.diagnostics import Finding, is_error
from gpushare.reading import source


def chosen(card_id: str, catalog: Catalog | None = None, advice: str = "") -> Card:
    """Return the card. Raises CouldNotRunError, with what the id may mean, and the command's own advice."""
    catalog = catalog or Catalog()
    found = catalog.get(card_id)
    if found is None:
        from gpushare.catalog import card_search  # noqa: PLC0415 - needed only when something is wrong

        hint = "; ".join(filter(None, (*card_search.hints(card_id, catalog), "`gpushare cards` lists all", advice)))
        raise CouldNotRunError(f"the catalogue has no card {card_id!r}", hint)
    return found


def described(intent: str) -> Mapping[str, Any]:
    """Return `spec.cards` of an intent, of which nothing else is read. Raises CouldNotRunError for a card that is wrong."""
    text = source.read(*streams.read(intent, source.MAX_BYTES))
    _refuse(text, text.findings)
    spec = text.data.get("spec") if isinstance(text.data, dict) else None
    found = spec.get("cards") if isinstance(spec, dict) else None
    if not isinstance(found, dict) or not found:
        from gpushare.catalog import card_search  # noqa: PLC0415 - as above

        raise CouldNotRunError(f"{text.file} has no cards of its own", card_search.DESCRIBE)
    _refuse(text, cards.check(found))
    from gpushare.rules import mig  # noqa: PLC0415 - few calls name cards of their own

    _refuse(text, mig.check_own_grids({card_id: cards.build(card_id, document) for card_id, document in found.items()}))
    return found


def _refuse(text: source.Source, findings: Iterable[Finding]) -> None:
    wrong = next((finding for finding in findings if is_error(finding)), None)
    if wrong is not None:
        found = text.locate(wrong)
        where = f"{text.file}:{found.span.line}:{found.span.column}" if found.span else text.file
        raise CouldNotRunError(f"{where}: {found.message} ({found.code})", "; ".join(found.hints))
