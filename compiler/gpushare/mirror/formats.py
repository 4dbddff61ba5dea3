"""Copies in the words of the tools that carry them out. Pure: copies in, text out.

Every command copies all platforms of an image, so that its digest stays the same.
"""

from collections.abc import Sequence
from shlex import quote

from gpushare.mirror.copies import ChartCopy, Copy

TOOLS = ("skopeo", "crane", "oras", "containerd")


def script(copies: Sequence[Copy], tool: str, chart: ChartCopy | None = None) -> str:
    """Return a shell script for one of TOOLS, without what has its source as target. It stops at the first failure.

    A chart is copied by Helm: its source is a repository of Helm's, which the tools for images do not read.
    """
    lines = ["#!/bin/sh", "set -eu"]
    if chart and chart.source != chart.target:
        lines += _of_chart(chart)
    for copy in copies:
        if copy.source != copy.target:
            lines += _lines(tool, copy)
    return "\n".join(lines) + "\n"


def plain(copies: Sequence[Copy], chart: ChartCopy | None = None) -> str:
    """Return one line per image: its source, and its target if that is another reference. The chart is a comment."""
    lines = [one.source if one.source == one.target else f"{one.source} {one.target}" for one in copies]
    if chart:
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


def _lines(tool: str, copy: Copy) -> list[str]:
    source, target = quote(copy.source), quote(copy.target)
    match tool:
        case "skopeo":
            return [f"skopeo copy --all --preserve-digests docker://{source} docker://{target}"]
        case "crane":
            return [f"crane copy {source} {target}"]
        case "oras":  # a target by digest is written without it: the digest of what is copied is the same
            return [f"oras copy --recursive {source} {quote(copy.target.partition('@')[0])}"]
        case _:
            ctr = "ctr --namespace k8s.io images"
            return [f"{ctr} pull --all-platforms {source}", f"{ctr} push {target} {source}"]
