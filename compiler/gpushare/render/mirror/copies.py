"""From the images and the chart of a bundle to copies: one source and one target each, with the nodes' systems filled in.

Pure. Nothing here knows whether an image exists. Every command of a script copies all platforms of an image, so that its digest
stays the same.
"""

import re
from collections.abc import Iterable, Sequence
from shlex import quote

from gpushare.facts.catalog.image_registry import has_host, mirrored
from gpushare.facts.catalog.upstream import OCI
from gpushare.render.images import ChartSource, Pulled
from gpushare_node.contract.struct import Struct

_REGISTRY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
_TAG_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}")


class Copy(Struct):
    """One image to copy. `part`: who names it; `source`: where it is published; `target`: where the nodes pull it.

    Without a source it cannot be copied: nothing says where it is published.
    """

    part: str
    source: str | None
    target: str


class Omission(Struct):
    """Something that a list or its scripts lack. `text` names it; `message` is the warning, `hint` how to add it."""

    text: str
    message: str
    hint: str


class ChartCopy(Struct):
    """One chart to copy: its name and version, the repository that has it, and the repository or registry of the copy."""

    name: str
    version: str
    source: str
    target: str

    @property
    def reference(self) -> str:
        """The copy in a registry as a reference, without `oci://`; empty if the target is not a registry. A tag has no `+`."""
        if not self.target.startswith(OCI):
            return ""
        return f"{self.target.removeprefix(OCI)}/{self.name}:{self.version.replace('+', '_')}"


def chart_copy(chart: ChartSource, to: str | None) -> ChartCopy:
    """Return the copy of a bundle's chart; `to`, the address of a registry, replaces the target that the bundle names."""
    return ChartCopy(name=chart.name, version=chart.version, source=chart.source, target=to or chart.used)


def is_registry(text: str) -> bool:
    """Whether the text can be a target: a host, perhaps with a port and a path in lower case, without a scheme."""
    return _REGISTRY.fullmatch(text) is not None and len(text) <= 200


def is_repository(text: str) -> bool:
    """Whether the text can be the source of an image: a host and a path, without a tag. Without a host it is Docker Hub's."""
    return is_registry(text) and has_host(text)


def is_tag_part(text: str) -> bool:
    """Whether the text can be part of a tag, as the name of a system or a kernel is."""
    return _TAG_PART.fullmatch(text) is not None


def copies(
    images: Iterable[Pulled], to: str | None, systems: tuple[str, ...], kernels: tuple[str, ...], own: str | None = None
) -> tuple[tuple[Copy, ...], tuple[Omission, ...]]:
    """Return the copies, each target once, and what is left out or has no known source.

    `to` replaces the registry of every target; None: the target is what the bundle names. `systems` are the suffixes that
    the operator appends, such as `ubuntu24.04`, and `kernels` the nodes' kernels, for precompiled drivers. `own` is the
    repository that the node runtime's image was pushed to.
    """
    found: dict[str, Copy] = {}
    lacking: dict[str, Omission] = {}
    for image in images:
        suffixes = _suffixes(image, systems, kernels)
        if not suffixes:
            lacking[image.source] = Omission(
                text=image.source,
                message=f"{image.source} is left out: the operator appends the node's system to its tag",
                hint="name the systems with --os, and for precompiled drivers the kernels with --kernel",
            )
        published = _published(image, own)
        for suffix in suffixes:
            source = published + suffix if published else None
            target = (mirrored(image.source, to) if to else image.used) + suffix
            found.setdefault(target, Copy(part=image.part, source=source, target=target))
            if source is None:
                lacking[target] = _without_source(image.part, target)
    return tuple(found.values()), tuple(lacking.values())


def _published(image: Pulled, own: str | None) -> str | None:
    """Return where the image is published; None for a reference without a host, which every tool asks Docker Hub for."""
    if own and image.part == "gpushare":
        separator = "@" if "@" in image.source else ":"
        return own + separator + image.source.rpartition(separator)[2]
    return image.source if has_host(image.source) else None


def _without_source(part: str, target: str) -> Omission:
    own = "name its repository with --image-from, such as reg.example.org/gpushare/node-runtime"
    return Omission(
        text=target,
        message=f"{target} is not copied: nothing says where that image was pushed",
        hint=own if part == "gpushare" else "write its repository with the host of its registry into the intent",
    )


def _suffixes(image: Pulled, systems: tuple[str, ...], kernels: tuple[str, ...]) -> tuple[str, ...]:
    if not image.per_system:
        return ("",)
    if image.precompiled:
        return tuple(f"-{kernel}-{system}" for system in systems for kernel in kernels)
    return tuple(f"-{system}" for system in systems)


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
