"""The stacks of vendors other than NVIDIA in an intent: a module for each vendor. Beside NVIDIA's they are below `platform`."""

from collections.abc import Mapping

from gpushare.intent.stacks.amd import Amd
from gpushare.intent.stacks.vendor_stack import VendorStack

__all__ = ["STACKS", "VendorStack", "of_chart"]

STACKS: Mapping[str, type[VendorStack]] = {kind.vendor: kind for kind in (Amd,)}
"""By the vendor's word, which is the field of `platform`, too."""


def of_chart(stack: str) -> type[VendorStack] | None:
    """Return whose chart the word of a stack names; None for NVIDIA's, and for what is installed already."""
    return next((kind for kind in STACKS.values() if stack in kind.charts()), None)
