"""What all pages for a browser share: templates whose text is escaped, one style, one script, and memory maps to scale.

The page's Content-Security-Policy permits the one style and the one script that it has, by their digests, so no text can add
another.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jinja2
from markupsafe import Markup

from gpushare import __version__
from gpushare.catalog.cards import Geometry
from gpushare.cli import memory_map, plan_view
from gpushare.cli.terminal import Style
from gpushare.core import resources
from gpushare.core.patterns import pattern
from gpushare.plan.plan import DevicePlan

MOST_UNFOLDED = 12
"""With more pools than these, all are folded at first."""
_SLICES = pattern(r"([1-7])g\.")
_COLOURED = frozenset("12347")
"""Compute slices with a colour of their own in the style; profiles of other sizes share one."""


def render(template: str, **values: Any) -> str:
    """Return the page of this template."""
    # From our own files, the only text that is not escaped.
    style, script = (Markup(_file(name)) for name in ("page.css", "page.js"))  # noqa: S704
    loader = jinja2.FileSystemLoader(resources.templates())
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True, keep_trailing_newline=True)
    return environment.get_template(template).render(
        style=style, style_hash=_digest(style), script=script, script_hash=_digest(script), version=__version__, **values
    )


def _file(name: str) -> str:
    return (resources.templates() / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def cells(
    devices: Iterable[DevicePlan], geometry: Geometry | None, mark: Callable[[DevicePlan], str] = lambda _device: ""
) -> list[Mapping[str, Any]]:
    """Return the map of one GPU, from its first memory slice to its last; `geometry` is None for a GPU without MIG.

    `mark` says in a word what happens to a device.
    """
    placed = {device.start: _cell(device, mark(device)) for device in devices}
    if geometry is not None:
        free = memory_map.gaps(((start, cell["size"]) for start, cell in placed.items()), geometry.units)
        placed |= {start: {"colour": "unused", "size": size, "lines": ("unused",), "mark": ""} for start, size in free}
    return [placed[start] for start in sorted(placed)]


def _cell(device: DevicePlan, mark: str) -> Mapping[str, Any]:
    size = device.size if device.profile else 1
    return {"colour": _colour(device.profile), "size": size, "lines": plan_view.labels(device, Style()), "mark": mark}


def _colour(profile: str | None) -> str:
    """Return the class of a profile: the same for its size on every card."""
    if profile is None:
        return "whole"
    found = _SLICES.match(profile)
    return f"g{found[1]}" if found and found[1] in _COLOURED else "other"
