"""What all pages for a browser share: templates whose text is escaped, one style, one script, and memory maps to scale.

The page's Content-Security-Policy permits the one style and the one script that it has, by their digests, so no text can add
another. It also forbids `style` attributes: what depends on the page, such as the headings of a table, is a rule of its style.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup, escape

from gpushare import __version__, modes
from gpushare.catalog.cards import Geometry
from gpushare.core import palette, resources
from gpushare.core.memory_totals import MemoryTotals
from gpushare.core.palette import Shades
from gpushare.core.printable import visible
from gpushare.core.wording import gib, join_first
from gpushare.report import memory_map, plan_view
from gpushare.report.html_table import Table
from gpushare.report.terminal import Style
from gpushare.resolved.plan import DevicePlan

MAX_UNFOLDED = 12
"""With more pools than these, all are folded at first."""
_MAX_NAMED = 2
"""Pools that the heading of several equal pools names."""
_MAX_NODES = 8
"""Nodes that a pool's card names."""
_REQUIREMENTS = {"In": "{key} in ({values})", "NotIn": "{key} notin ({values})", "Exists": "{key}", "DoesNotExist": "!{key}"}
_MAX_CELL = 32
"""Slices: the style has a rule for each length."""


def render(template: str, *, tables: Iterable[Table] = (), **values: Any) -> str:
    """Return the page of this template. `tables` are all those that it shows: the style has rules for each kind."""
    rules = "".join(dict.fromkeys(table.rules() for table in tables))
    sizes = "".join(f".w{size} {{ --w: {size}; }}\n" for size in range(2, _MAX_CELL + 1))
    # From our own files and constants, the only text that is not escaped.
    style = Markup(_colours() + _file("page.css") + sizes + rules)  # noqa: S704
    script = Markup(_file("page.js"))  # noqa: S704
    return (
        _environment()
        .get_template(template)
        .render(
            style=style, style_hash=_digest(style), script=script, script_hash=_digest(script), version=__version__, **values
        )
    )


def section(key: str, title: str, lines: Sequence[str], most: int, *, is_folded: bool = False) -> dict[str, Any]:
    """Return a section of lines, cut to so many."""
    more = len(lines) - most
    return {
        "id": key,
        "title": title,
        "lines": list(map(visible, lines[:most])),
        "folded": is_folded,
        "more": f"and {more} more; --format json has them" if more > 0 else "",
    }


@cache
def _environment() -> jinja2.Environment:
    """Return what compiles the templates, and keeps them."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates()),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["prose"] = _prose
    return environment


def _file(name: str) -> str:
    return (resources.templates() / name).read_text(encoding="utf-8")


def _prose(text: str) -> Markup:
    """Return a text of sentences with `commands` between backquotes as elements."""
    return Markup(re.sub("`([^`\n]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _colours() -> str:
    """Return the rules of the palette."""
    classes = "".join(f".{_class(kind)} {{ background: var(--{_class(kind)}); }}\n" for kind in palette.LIGHT.colours)
    classes += "".join(f".m-{mode} {{ --mode: var(--m-{mode}); }}\n" for mode in palette.LIGHT.modes)
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(palette.DARK)} }} }}\n"
    return f":root {{ {_variables(palette.LIGHT)} }}\n{dark}{classes}"


def _variables(shades: Shades) -> str:
    named = {_class(kind): colour for kind, colour in shades.colours.items()}
    named |= {f"m-{mode}": colour for mode, colour in shades.modes.items()}
    return f"--ink: {shades.ink}; " + " ".join(f"--{name}: {colour};" for name, colour in named.items())


def _class(kind: str) -> str:
    """Return the class of a kind of the palette; a class does not begin with a digit."""
    return f"g{kind[0]}" if kind[0].isdigit() else kind


def heading(names: Sequence[str], nodes: Mapping[str, str]) -> dict[str, Any]:
    """Return what a template needs of the pools of one card. `nodes` says which nodes a pool has."""
    shown = list(map(visible, names))
    several = [{"name": visible(name), "nodes": visible(nodes[name])} for name in names] if len(names) > 1 else ()
    where = "" if several else visible(nodes[names[0]])
    return {"name": join_first(shown, _MAX_NAMED), "id": shown[0], "names": several, "where": where}


def nodes_text(labels: Mapping[str, str], expressions: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return the names of nodes, or the selector as `kubectl get nodes --selector` reads it."""
    if names:
        return join_first(names, _MAX_NODES)
    parts = [f"{key}={value}" for key, value in labels.items()]
    for one in expressions:
        form = _REQUIREMENTS.get(one["operator"], "{key}")
        parts.append(form.format(key=one["key"], values=", ".join(one.get("values", ()))))
    return ",".join(parts)


def mode(word: str, *, is_divided: bool) -> Mapping[str, str]:
    """Return the kind and the words of a way of sharing; of a mode that this gpushare does not know, the word alone."""
    if is_divided and modes.named(word).is_partitioned:
        return {"kind": "mig-replicas", "words": "mig with time-slicing"}
    return {"kind": word if word in palette.LIGHT.modes else "", "words": visible(word)}


def legend(shown: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return the ways of sharing that a page has, each once, in the order of the palette."""
    by_kind = {one["kind"]: one for one in shown}
    return [by_kind[kind] for kind in palette.LIGHT.modes if kind in by_kind]


def memory_facts(parts: Sequence[MemoryTotals]) -> list[dict[str, str]]:
    """Return the sums of what is known, and whether something is not."""
    numbers = {
        "GPU memory": [one.gpus for one in parts],
        "Offered": [one.offered for one in parts],
        "Caps": [one.caps for one in parts],
        "Stranded": [one.stranded for one in parts],
    }
    return [{"name": name, "value": _sum(sizes)} for name, sizes in numbers.items()]


def _sum(sizes: Sequence[int | None]) -> str:
    known = [size for size in sizes if size is not None]
    return gib(sum(known)) + ("" if len(known) == len(sizes) else " + ?") if known or not sizes else "?"


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
