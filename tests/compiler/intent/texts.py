"""Intents in short: one pool of four T4s unless a case says otherwise."""

from gpushare import pipeline
from gpushare.core.diagnostics import Finding

HEAD = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: c}\nspec:\n"

OF_THE_CATALOGUE_AND_THE_RELEASE = ("GS209", "GS725")
"""Warnings that come and go with what is confirmed of a card, and with what this version publishes."""


def pool(
    sharing: str = "{mode: time-slicing, replicas: 4}",
    card: str = "t4",
    nodes: str = "{matchLabels: {a: b}}",
    gpus: str = "4",
    name: str = "p",
    **more: str,
) -> str:
    """One pool; its name is on the first line, then card, nodes, gpusPerNode, sharing and `more`, a line each."""
    fields = {"card": card, "nodes": nodes, "gpusPerNode": gpus, "sharing": sharing} | more
    return f"    {name}:\n" + "".join(f"      {key}: {value}\n" for key, value in fields.items())


def mig(sharing: str, card: str = "a100-sxm4-40gb", **more: str) -> str:
    """A pool in mode mig."""
    return pool("{mode: mig, " + sharing + "}", card, **more)


def intent(*pools: str, **spec: str) -> str:
    """A whole intent: four lines of head, a line for each of `spec`, `pools:`, and the pools."""
    return HEAD + "".join(f"  {key}: {value}\n" for key, value in spec.items()) + "  pools:\n" + "".join(pools)


def places(findings: tuple[Finding, ...]) -> str:
    """`CODE line:column-endColumn` of each finding, in order."""
    told = [finding for finding in findings if finding.code not in OF_THE_CATALOGUE_AND_THE_RELEASE]
    return "; ".join(f"{f.code} {f.span.line}:{f.span.column}-{f.span.end_column}" for f in told if f.span)


def found(text: str) -> str:
    """The places of everything that a check finds."""
    return places(pipeline.check(text.encode(), "intent.yaml").findings)
