"""One cluster of the file of a fleet."""

from gpushare_node.contract.struct import Struct


class Cluster(Struct):
    """One cluster of the file. Paths are relative to the working directory or absolute, and never look like options."""

    name: str
    intent: str
    overlays: tuple[str, ...]
    output: str

    @property
    def over(self) -> list[str]:
        """The overlays as options."""
        return [word for overlay in self.overlays for word in ("--overlay", overlay)]
