"""`gpushare drift`: how a running cluster differs from a bundle, and what to do."""

from collections.abc import Iterator, Sequence
from functools import partial

from gpushare.cluster.live.drift import Difference, DriftKind
from gpushare.cluster.live.objects import ReadFailure
from gpushare.core.wording import pluralize
from gpushare.report.document import FLAG, Document, Member, Shape, array, fields, record, words
from gpushare.report.model import Form, Lines, Report, ReportPart, bare
from gpushare.report.status import UNSEEN

Found = tuple[Sequence[Difference], Sequence[ReadFailure]]
"""The differences, and what was not read, hence not compared."""


def report(found: Sequence[Difference], unseen: Sequence[ReadFailure]) -> Report:
    """Return the report."""
    end = pluralize(len(found), "difference") if found else "no difference was seen" if unseen else "no difference"
    return Report(
        sections=(bare(*_parts(found)), bare(Lines(lines=[end]))),
        document=partial(DOCUMENT.write, (found, unseen)),
    )


def _parts(found: Sequence[Difference]) -> Iterator[ReportPart]:
    for one in found:
        yield Lines(lines=[f"{one.kind}: {one.subject}"], form=Form.HEADING)
        lines = [f"desired {one.wanted}", f"actual {one.actual}", f"= {one.remedy}"]
        yield Lines(lines=lines, form=Form.LIST, indent=4)


_DIFFERENCE: Shape[Difference] = record(
    "",
    Member("kind", words(DriftKind)),
    *fields(Difference, "subject", "wanted", "actual", "remedy"),
)
DOCUMENT: Document[Found] = Document(
    name="drift",
    kind="Drift",
    text="How a running cluster differs from a bundle: `gpushare drift BUNDLE --format json`.",
    members=(
        Member("differs", FLAG, lambda found: bool(found[0]), "Whether any difference was seen; `unseen` was not compared."),
        Member("differences", array(_DIFFERENCE), lambda found: found[0]),
        Member("unseen", array(UNSEEN), lambda found: dict.fromkeys(found[1]), "What could not be read, and was not compared."),
    ),
)
