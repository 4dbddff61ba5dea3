"""Copies in the words of the tools that carry them out. Pure: copies in, text out.

Every command copies all platforms of an image, so that its digest stays the same.
"""

from collections.abc import Sequence
from shlex import quote

from gpushare.mirror.copies import Copy

TOOLS = ("skopeo", "crane", "oras", "containerd")


def script(copies: Sequence[Copy], tool: str) -> str:
    """Return a shell script for one of TOOLS, without images whose target is their source. It stops at the first failure."""
    lines = ["#!/bin/sh", "set -eu"]
    for copy in copies:
        if copy.source != copy.target:
            lines += _lines(tool, copy)
    return "\n".join(lines) + "\n"


def plain(copies: Sequence[Copy]) -> str:
    """Return one line per image: its source, and its target if that is another reference."""
    return "".join(f"{one.source}\n" if one.source == one.target else f"{one.source} {one.target}\n" for one in copies)


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
