"""Facts about AMD's charts, read from `profiles/upstream`: releases, images, and the first release that serves a card."""

from collections.abc import Mapping
from functools import cache

from gpushare.core import resources
from gpushare.facts.catalog.upstream import Known, OpenMap, Unknown, ValueFact, version_order
from gpushare.reading import source
from gpushare_node.contract.struct import NOTHING, Struct

CONFIG_MANAGER = "configManager"

OF_AMD = "# AMD's chart"
"""With which the part of `images.txt` on it begins."""

OF_SUBCHARTS = "# Those of its subcharts"
"""With which the line of `images.txt` begins that says how to list them."""

_OPEN = ("object", "parent")


class AmdChart(Struct):
    """One chart. `releases`: oldest first. `images` are those of the last release, by the part that runs them.

    `firsts`: the first release with the config manager, and with a card, by its id. `values` are the types of those that an
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
def chart(stack: str) -> AmdChart:
    """Return the chart of a stack of AMD's. `existing` has none."""
    path = resources.upstream() / f"{stack}.yaml"
    facts = source.read(path.read_bytes(), str(path)).data
    return AmdChart(
        name=facts["chart"],
        repository=facts["repository"],
        releases=tuple(facts["releases"]),
        images=facts["images"],
        firsts=facts.get("firsts", {}),
        values=facts["values"],
        owned=facts["owned"],
    )
