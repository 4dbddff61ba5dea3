"""`gpushare images --format json`: the images and charts of a bundle, and which of them a registry lacks."""

from collections.abc import Sequence

from gpushare.render.mirror.copies import ChartCopy, Copy, Omission
from gpushare.report.document import FLAG, TEXT, Document, Member, Shape, array, record
from gpushare_node.contract.struct import Struct


class Listing(Struct):
    """What is to be copied. `missing` are the targets that the registry lacks, None without `--verify`."""

    listed: Sequence[Copy]
    charts: Sequence[ChartCopy]
    omissions: Sequence[Omission]
    missing: Sequence[str] | None

    def lacks(self, target: str) -> bool | None:
        """Whether the registry lacks this target; None if that is not known, or it is none of a registry."""
        return None if self.missing is None or not target else target in self.missing


_IMAGE: Shape[tuple[Listing, Copy]] = record(
    "",
    Member(
        "part",
        TEXT,
        lambda one: one[1].part,
        "Who names it: gpushare, example (the pods in the bundle's README), amd (AMD's chart), or the section of the values of "
        "NVIDIA's chart.",
    ),
    Member(
        "source",
        TEXT,
        lambda one: one[1].source,
        "The reference at its publisher; absent where nothing says where the image is published.",
        is_rare=True,
    ),
    Member("target", TEXT, lambda one: one[1].target, "The reference that the nodes pull."),
    Member(
        "missing",
        FLAG,
        lambda one: one[0].lacks(one[1].target),
        "With --verify: whether the target registry lacks it.",
        is_rare=True,
    ),
)
_CHART: Shape[tuple[Listing, ChartCopy]] = record(
    "",
    Member("name", TEXT, lambda one: one[1].name),
    Member("version", TEXT, lambda one: one[1].version),
    Member("source", TEXT, lambda one: one[1].source, "The Helm repository that publishes it."),
    Member(
        "target",
        TEXT,
        lambda one: one[1].target,
        "The Helm repository, or with oci:// the registry, that the bundle's commands name.",
    ),
    Member(
        "missing",
        FLAG,
        lambda one: one[0].lacks(one[1].reference),
        "With --verify: whether the target registry lacks it. Not of a Helm repository.",
        is_rare=True,
    ),
)
DOCUMENT: Document[Listing] = Document(
    name="images",
    kind="Images",
    text="The images of a bundle, and which of them a registry lacks: `gpushare images --format json`.",
    members=(
        Member("images", array(_IMAGE), lambda found: [(found, one) for one in found.listed]),
        Member(
            "charts",
            array(_CHART),
            lambda found: [(found, one) for one in found.charts],
            "The charts of NVIDIA and of AMD that the bundle installs.",
        ),
        Member(
            "incomplete",
            array(TEXT),
            lambda found: [one.text for one in found.omissions],
            "What the list lacks: references without the node's system or without a known source, or why the chart or "
            "its images are unknown.",
        ),
    ),
)
