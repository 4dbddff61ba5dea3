"""One colour for each size of a MIG profile, the same on a page, in a terminal and on a dashboard; on a page one for each mode.

The colours differ in lightness as well as hue, so that people with any of the three colour vision deficiencies can distinguish
them; a test simulates these. Text in `ink` on any of them has a contrast of more than 4.5.
"""

import re
from collections.abc import Mapping

from gpushare_node.contract.struct import Struct

WHOLE, OTHER = "whole", "other"
"""The kinds of a GPU without MIG, and of profiles whose size has no colour of its own."""
_SLICES = r"([1-7]g)\."


class Shades(Struct):
    """Colours as `#rrggbb`: of text, and by kind of its background. `modes` are by the word of a way of sharing."""

    ink: str
    colours: Mapping[str, str]
    modes: Mapping[str, str]

    def of(self, profile: str | None) -> str:
        """Return the colour of a profile; None is a GPU without MIG."""
        return self.colours[kind(profile)]


LIGHT = Shades(
    ink="#16202b",
    colours={
        WHOLE: "#bec5c9",
        "1g": "#edb837",
        "2g": "#b8f7bd",
        "3g": "#7aa9fb",
        "4g": "#be8ec4",
        "7g": "#e5d47c",
        OTHER: "#ee807a",
    },
    modes={
        "exclusive": "#bec5c9",
        "time-slicing": "#6c86cc",
        "mps": "#bf6e9a",
        "mig": "#89d49d",
        "mig-replicas": "#c8aa51",
        "partition": "#8a8e55",
    },
)
DARK = Shades(
    ink="#f2f5f8",
    colours={
        WHOLE: "#626c81",
        "1g": "#916301",
        "2g": "#1c4f41",
        "3g": "#0370b0",
        "4g": "#54265a",
        "7g": "#6f6335",
        OTHER: "#521800",
    },
    modes={
        "exclusive": "#626c81",
        "time-slicing": "#152377",
        "mps": "#6e122d",
        "mig": "#137e55",
        "mig-replicas": "#715011",
        "partition": "#220232",
    },
)


def css_class(kind: str) -> str:
    """Return the class of a kind on a page; a class does not begin with a digit."""
    return f"g{kind[0]}" if kind[0].isdigit() else kind


def kind(profile: str | None) -> str:
    """Return the kind of a profile: its compute slices, such as `2g`, the same on every card."""
    if profile is None:
        return WHOLE
    found = re.match(_SLICES, profile)
    return found[1] if found and found[1] in LIGHT.colours else OTHER
