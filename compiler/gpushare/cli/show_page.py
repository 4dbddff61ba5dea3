"""The plan as one HTML page that needs no network: pools, memory maps to scale, pods to copy, quotas.

All text of the intent goes through jinja2's escaping. The page's Content-Security-Policy permits the one style and the one
script that it has, by their digests, so no text can add another.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from gpushare import __version__
from gpushare.cli import memory_map, plan_view
from gpushare.cli.card_view import left_over
from gpushare.cli.terminal import Style
from gpushare.core import emit, resources
from gpushare.core.diagnostics import Finding
from gpushare.core.patterns import pattern
from gpushare.core.printable import visible
from gpushare.core.wording import counted, few, layout_text
from gpushare.plan.plan import GpuPlan, Plan, PoolPlan
from gpushare.render import readme

_MOST_UNFOLDED = 12
"""With more pools than these, all are folded at first."""
_SLICES = pattern(r"([1-7])g\.")
_COLOURED = frozenset("12347")
"""Compute slices with a colour of their own in the style; profiles of other sizes share one."""


def page(plan: Plan, findings: Sequence[Finding]) -> str:
    """Return the page. `findings` are the warnings of the intent."""
    # From our own files, the only text that is not escaped.
    style, script = (Markup(_file(name)) for name in ("show.css", "show.js"))  # noqa: S704
    loader = jinja2.FileSystemLoader(resources.templates())
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True, keep_trailing_newline=True)
    return environment.get_template("show.html.j2").render(
        name=visible(plan.intent.name), facts=_facts(plan), observes=plan.intent.observes, version=__version__,
        digest=plan.digest.removeprefix("sha256:")[:12],
        style=style, style_hash=_digest(style), script=script, script_hash=_digest(script),
        warnings=[{"code": one.code, "message": visible(one.message)} for one in findings],
        pools=[_pool(pool, plan) for pool in plan.pools], unfolded=len(plan.pools) <= _MOST_UNFOLDED,
        quotas=[{"namespace": quota.namespace, "resource": key.removeprefix("requests."), "number": number}
                for quota in plan.quotas for key, number in quota.hard],
    )


def _file(name: str) -> str:
    return (resources.templates() / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _facts(plan: Plan) -> list[dict[str, str]]:
    platform = plan.intent.platform
    nodes = [pool.nodes for pool in plan.pools]
    gpus = [None if pool.nodes is None else pool.nodes * len(pool.gpus) for pool in plan.pools]
    facts = {
        "Pools": str(len(plan.pools)), "Nodes": _total(nodes), "GPUs": _total(gpus), "Stack": platform.stack.value,
        "Namespace": plan.intent.namespace,
    }
    return [{"name": name, "value": visible(value)} for name, value in facts.items()]


def _total(numbers: Iterable[int | None]) -> str:
    """Return the sum of what is known, and whether something is not."""
    listed = list(numbers)
    known = sum(number for number in listed if number is not None)
    return str(known) if None not in listed else f"{known} + ?" if known else "?"


def _pool(pool: PoolPlan, plan: Plan) -> dict[str, Any]:
    rows = plan_view.resource_rows(pool)
    names = [row[0] for row in rows]
    columns = ("name", "per_node", "total", "device", "cap")
    namespaces = sorted(pool.pool.namespaces)
    return {
        "name": pool.name,
        "mode": pool.mode.value,
        "card": visible(pool.card.name),
        "nodes": "? nodes" if pool.nodes is None else counted(pool.nodes, "node"),
        "gpus": f"{counted(len(pool.gpus), 'GPU')} each",
        "goal": "" if pool.layout_of_goal is None else layout_text(pool.layout_of_goal),
        "text": visible(" ".join((pool.name, pool.card.id, pool.card.name, pool.mode.value, *names, *namespaces)).lower()),
        "resources": [dict(zip(columns, row, strict=True)) for row in rows],
        "maps": [_map(pool, gpus) for gpus in plan_view.alike(pool)],
        "pod": emit.yaml_text(readme.pod(pool, names[0], plan)),
        "others": few(names[1:], 8),
        "namespaces": few(namespaces, 8),
    }


def _map(pool: PoolPlan, gpus: Sequence[GpuPlan]) -> dict[str, Any]:
    gpu, geometry = gpus[0], pool.card.mig
    devices = plan_view.devices_of(pool, gpu)
    title = f"GPU {plan_view.ranges([one.index for one in gpus])}"
    if not gpu.mig_enabled or geometry is None:
        cells = [_cell("whole", 1, plan_view.labels(device, Style())) for device in devices]
        return {"title": title, "left": "", "cells": cells}
    placed = {device.start: _cell(_colour(device.profile or ""), device.size, plan_view.labels(device, Style()))
              for device in devices}
    free = memory_map.gaps(((device.start, device.size) for device in devices), geometry.units)
    placed |= {start: _cell("unused", size, ("unused",)) for start, size in free}
    return {"title": title, "left": left_over(gpu.instances, geometry), "cells": [placed[start] for start in sorted(placed)]}


def _cell(colour: str, size: int, lines: Sequence[str]) -> dict[str, Any]:
    return {"colour": colour, "size": size, "lines": lines}


def _colour(profile: str) -> str:
    """Return the class of a profile: the same for its size on every card."""
    found = _SLICES.match(profile)
    return f"g{found[1]}" if found and found[1] in _COLOURED else "other"
