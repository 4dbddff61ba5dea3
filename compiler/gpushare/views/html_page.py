"""What all pages for a browser share: templates whose text is escaped, one style, one script, and memory maps to scale.

The page's Content-Security-Policy permits the one style and the one script that it has, by their digests, so no text can add
another. It also forbids `style` attributes: what depends on the page, such as the headings of a table, is a rule of its style.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from gpushare import __version__
from gpushare.catalog.cards import Geometry
from gpushare.core import palette, resources
from gpushare.core.palette import Shades
from gpushare.core.wording import join_first
from gpushare.resolved.plan import DevicePlan
from gpushare.views import memory_map, plan_view
from gpushare.views.html_table import Table
from gpushare.views.terminal import Style

MAX_UNFOLDED = 12
"""With more pools than these, all are folded at first."""
_MAX_NAMED = 2
"""Pools that the heading of several equal pools names."""
_MAX_CELL = 32
"""Slices: the style has a rule for each length."""


def render(template: str, *, tables: Iterable[Table] = (), **values: Any) -> str:
    """Return the page of this template. `tables` are all those that it shows: the style has rules for each kind."""
    rules = "".join(dict.fromkeys(table.rules() for table in tables))
    sizes = "".join(f".w{size} {{ --w: {size}; }}\n" for size in range(2, _MAX_CELL + 1))
    # From our own files and constants, the only text that is not escaped.
    style = Markup(_colours() + _file("page.css") + sizes + rules)  # noqa: S704
    script = Markup(_file("page.js"))  # noqa: S704
    loader = jinja2.FileSystemLoader(resources.templates())
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(
        style=style, style_hash=_digest(style), script=script, script_hash=_digest(script), version=__version__, **values
    )


def _file(name: str) -> str:
    return (resources.templates() / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _colours() -> str:
    """Return the rules of the palette."""
    classes = "".join(f".{_class(kind)} {{ background: var(--{_class(kind)}); }}\n" for kind in palette.LIGHT.colours)
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(palette.DARK)} }} }}\n"
    return f":root {{ {_variables(palette.LIGHT)} }}\n{dark}{classes}"


def _variables(shades: Shades) -> str:
    return f"--ink: {shades.ink}; " + " ".join(f"--{_class(kind)}: {colour};" for kind, colour in shades.colours.items())


def _class(kind: str) -> str:
    """Return the class of a kind of the palette; a class does not begin with a digit."""
    return f"g{kind[0]}" if kind[0].isdigit() else kind


def heading(names: Sequence[str]) -> dict[str, Any]:
    """Return what a template needs of the pools of one card."""
    several = names if len(names) > 1 else ()
    return {"name": join_first(names, _MAX_NAMED), "id": names[0], "names": several}


def cells(
    devices: Iterable[DevicePlan], geometry: Geometry | None, mark: Callable[[DevicePlan], str] = lambda _device: ""
) -> list[Mapping[str, Any]]:
    """Return the map of one GPU, from its first memory slice to its last; `geometry` is None for a GPU without MIG.

    `mark` says in a word what happens to a device.
    """
    placed = {device.start: _cell(device, mark(device)) for device in devices}
    if geometry is not None:
        free = memory_map.gaps(((start, cell["size"]) for start, cell in placed.items()), geometry.units)
        placed |= {start: _unused(size) for start, size in free}
    return [placed[start] for start in sorted(placed)]


def _unused(size: int) -> Mapping[str, Any]:
    return {"colour": "unused", "size": size, "lines": ("unused",), "mark": "", "shares": 1}


def _cell(device: DevicePlan, mark: str) -> Mapping[str, Any]:
    return {
        "colour": _class(palette.kind(device.profile)),
        "size": device.size if device.profile else 1,
        "mark": mark,
        "lines": plan_view.labels(device, Style()),
        "shares": memory_map.segments(device.replicas),
    }
