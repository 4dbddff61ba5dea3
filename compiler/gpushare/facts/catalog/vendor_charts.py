"""Facts about the charts of vendors other than NVIDIA: releases, images, and the first release that serves a card.

They are read from `profiles/upstream`. Owns the form of the part of `images.txt` on such a chart.
"""

from collections.abc import Mapping
from functools import cache

from gpushare.core import resources
from gpushare.facts.catalog.upstream import Known, OpenMap, Unknown, ValueFact, version_order
from gpushare.reading import source
from gpushare.vendors import OTHERS
from gpushare_node.contract.struct import NOTHING, Struct

HEADINGS = {word: f"# {vendor.name}'s chart" for word, vendor in OTHERS.items()}
"""With which the part of `images.txt` on a vendor's chart begins."""

OF_SUBCHARTS = "# Those of its subcharts"
"""With which the line of `images.txt` begins that says how to list them."""

_OPEN = ("object", "parent")


class VendorChart(Struct):
    """One chart. `releases`: oldest first. `images` are those of the last release, by the part that runs them.

    `firsts`: the first release with a part, and with a card, by its id. `values` are the types of those that an
    intent may set, by dotted path: what is below an `object` or a `parent` is not judged, and templates read values below a
    `parent`, so that it is never null. `owned` are values that an intent may not set, with what to do instead.
    """

    name: str
    repository: str
    releases: tuple[str, ...]
    images: Mapping[str, str]
    firsts: Mapping[str, str] = NOTHING
    values: Mapping[str, str] = NOTHING
    owned: Mapping[str, str] = NOTHING

    @property
    def version(self) -> str:
        """The newest release that is known."""
        return self.releases[-1]

    def check_path(self, path: tuple[str, ...]) -> Known | OpenMap | Unknown:
        """Return how the chart reads a value at `path` (keys from the root down, at least one). It reads one that is owned."""
        dotted = ".".join(path)
        kind = self.values.get(dotted)
        if kind == "parent" or any(one.startswith(f"{dotted}.") for one in (*self.values, *self.owned)):
            return Known(fact=None)
        if kind is not None or dotted in self.owned:
            return Known(fact=ValueFact(path=dotted, schema={"type": kind} if kind else {}))
        parents = (".".join(path[:length]) for length in range(1, len(path)))
        above = next((one for one in parents if one in self.owned or self.values.get(one) in _OPEN), None)
        return Unknown(path=dotted, known=self.values) if above is None else OpenMap(above=above)

    def lacks(self, part: str, release: str) -> bool:
        """Whether a release is older than the first one with the part."""
        return part in self.firsts and version_order(release) < version_order(self.firsts[part])


@cache
def chart(stack: str) -> VendorChart:
    """Return the chart of a vendor's stack. `existing` has none."""
    path = resources.upstream() / f"{stack}.yaml"
    facts = source.read(path.read_bytes(), str(path)).data
    return VendorChart(
        name=facts["chart"],
        repository=facts["repository"],
        releases=tuple(facts["releases"]),
        images=facts["images"],
        firsts=facts.get("firsts", {}),
        values=facts["values"],
        owned=facts["owned"],
    )


def listed(text: str, vendor: str) -> str:
    """Return what the text of `images.txt` says of a vendor's chart, after the heading; empty without one."""
    _, _, rest = text.partition(HEADINGS[vendor])
    return _before_any(rest)


def listed_before(text: str) -> str:
    """Return what it says before the first of these charts."""
    return _before_any(text)


def _before_any(text: str) -> str:
    return text[: min((at for heading in HEADINGS.values() if (at := text.find(heading)) >= 0), default=len(text))]
