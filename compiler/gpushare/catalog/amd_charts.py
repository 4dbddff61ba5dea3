"""Facts about AMD's charts, read from `profiles/upstream`: releases, images, and the first release that serves a card."""

from collections.abc import Mapping
from functools import cache

from gpushare.catalog.upstream import version_order
from gpushare.core import resources
from gpushare.core.record import NOTHING, Record
from gpushare.reading import source

CONFIG_MANAGER = "configManager"


class AmdChart(Record):
    """One chart. `releases`: oldest first. `images` are those of the last release, by the part that runs them.

    `firsts`: the first release with the config manager, and with a card, by its id.
    """

    name: str
    repository: str
    releases: tuple[str, ...]
    images: Mapping[str, str]
    firsts: Mapping[str, str] = NOTHING

    @property
    def version(self) -> str:
        """The newest release that is known."""
        return self.releases[-1]

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
    )
