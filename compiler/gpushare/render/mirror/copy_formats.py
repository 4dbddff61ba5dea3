"""Copies in the words of the tools that carry them out. Pure: copies in, text out.

Every command of a script copies all platforms of an image, so that its digest stays the same.
"""

from collections.abc import Sequence
from shlex import quote

from gpushare.render.mirror.copies import ChartCopy, Copy


def script(copies: Sequence[Copy], tool: str, charts: Sequence[ChartCopy] = ()) -> str:
    """Return a shell script for one of SCRIPTS, without what has its source as target or none. It stops at the first failure.

    A chart is copied by Helm: its source is a repository of Helm's, which the tools for images do not read.
    """
    lines = ["#!/bin/sh", "set -eu"]
    for chart in charts:
        if chart.source != chart.target:
            lines += _of_chart(chart)
    for copy in copies:
        if copy.source is not None and copy.source != copy.target:
            lines.append(_COMMANDS[tool].format(quote(copy.source), quote(copy.target)))
    return "\n".join(lines) + "\n"


def plain(copies: Sequence[Copy], charts: Sequence[ChartCopy] = ()) -> str:
    """Return one line per image: its source, and its target if that is another reference.

    A chart is a comment, and so is an image whose source is unknown.
    """
    lines = [
        f"# source unknown: {one.target}" if one.source is None else " ".join(dict.fromkeys((one.source, one.target)))
        for one in copies
    ]
    for chart in charts:
        lines.append(f"# chart {chart.name} {chart.version} " + " ".join(dict.fromkeys((chart.source, chart.target))))
    return "".join(f"{line}\n" for line in lines)


def _of_chart(chart: ChartCopy) -> list[str]:
    if not chart.reference:
        return [f"# {chart.name} {chart.version}: upload it into {chart.target} as that repository is filled"]
    pull = f"helm pull {quote(chart.name)} --repo {quote(chart.source)} --version {quote(chart.version)}"
    return [
        'charts="$(mktemp -d)"',
        f'{pull} --destination "$charts"',
        f'helm push "$charts"/{quote(f"{chart.name}-{chart.version}.tgz")} {quote(chart.target)}',
        'rm -r "$charts"',
    ]


_COMMANDS = {"skopeo": "skopeo copy --all --preserve-digests docker://{} docker://{}", "crane": "crane copy {} {}"}
SCRIPTS = tuple(_COMMANDS)
"""Every tool that a script can be written for."""
