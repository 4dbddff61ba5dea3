"""Copies in the words of the tools that carry them out. Pure: copies in, text out.

Every command of a script copies all platforms of an image, so that its digest stays the same.
"""

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any

from gpushare.mirror.copies import ChartCopy, Copy


def script(copies: Sequence[Copy], tool: str, chart: ChartCopy | None = None) -> str:
    """Return a shell script for one of SCRIPTS, without what has its source as target or none. It stops at the first failure.

    A chart is copied by Helm: its source is a repository of Helm's, which the tools for images do not read.
    """
    lines = ["#!/bin/sh", "set -eu"]
    if chart and chart.source != chart.target:
        lines += _of_chart(chart)
    for copy in copies:
        if copy.source is not None and copy.source != copy.target:
            lines += _COMMANDS[tool](copy.source, copy.target)
    return "\n".join(lines) + "\n"


def zarf_package(copies: Sequence[Copy], chart: ChartCopy | None, namespace: str, values: str) -> dict[str, Any]:
    """Return a ZarfPackageConfig with the images and the chart at their sources: Zarf has a registry of its own.

    `namespace` and `values`, a path relative to the file, are those that the bundle installs the chart with.
    Fields: https://docs.zarf.dev/schema/v1alpha1-package.
    """
    charts = [] if chart is None else [{
        "name": chart.name, "version": chart.version, "url": chart.source, "namespace": namespace,
        "valuesFiles": [values],
    }]
    images = list(dict.fromkeys(one.source for one in copies if one.source is not None))
    component = {"name": "gpushare", "required": True} | ({"charts": charts} if charts else {}) | {"images": images}
    return {
        "apiVersion": "zarf.dev/v1alpha1",
        "kind": "ZarfPackageConfig",
        "metadata": {"name": "gpushare"},
        "components": [component],
    }


def plain(copies: Sequence[Copy], chart: ChartCopy | None = None) -> str:
    """Return one line per image: its source, and its target if that is another reference.

    The chart is a comment, and so is an image whose source is unknown.
    """
    lines = [
        f"# source unknown: {one.target}" if one.source is None else " ".join(dict.fromkeys((one.source, one.target)))
        for one in copies
    ]
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


def _skopeo(source: str, target: str) -> Iterator[str]:
    yield f"skopeo copy --all --preserve-digests docker://{quote(source)} docker://{quote(target)}"


def _crane(source: str, target: str) -> Iterator[str]:
    yield f"crane copy {quote(source)} {quote(target)}"


def _oras(source: str, target: str) -> Iterator[str]:
    # A target by digest is written without it: the digest of what is copied is the same.
    yield f"oras copy --recursive {quote(source)} {quote(target.partition('@')[0])}"


def _containerd(source: str, target: str) -> Iterator[str]:
    ctr = "ctr --namespace k8s.io images"
    yield f"{ctr} pull --all-platforms {quote(source)}"
    yield f"{ctr} push {quote(target)} {quote(source)}"


_COMMANDS = {"skopeo": _skopeo, "crane": _crane, "oras": _oras, "containerd": _containerd}
SCRIPTS = tuple(_COMMANDS)
ZARF = "zarf"
TOOLS = (*SCRIPTS, ZARF)
"""Every tool that a list can be written for."""
