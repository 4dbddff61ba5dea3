"""Intents as text, and what the rules find in them: the way from text to findings, without rendering."""

from gpushare import rules
from gpushare.core.diagnostics import Finding, is_error, pointer
from gpushare.facts.catalog import cards
from gpushare.intent import reader
from gpushare.reading import schema, source

HEAD = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: physics-batch}\nspec:\n"


def pool(
    name: str = "notebooks",
    card: str = "t4",
    nodes: str = "{matchLabels: {node.example.org/flavour: gpu-t4}}",
    sharing: str = "{mode: time-slicing, replicas: 4}",
    **more: str,
) -> str:
    """One pool of nodes with four GPUs; `more` are further fields as YAML."""
    fields = {"card": card, "nodes": nodes, "gpusPerNode": "4", "sharing": sharing} | more
    return f"    {name}:\n" + "".join(f"      {key}: {value}\n" for key, value in fields.items())


def written(*pools: str, **spec: str) -> str:
    """A whole intent."""
    return HEAD + "".join(f"  {key}: {value}\n" for key, value in spec.items()) + "  pools:\n" + "".join(pools)


UNPUBLISHED = "GS725"
"""What every intent gets that leaves the image out, as nearly all of these do: only `found` reports it."""


def check(text: str) -> list[Finding]:
    """Every finding but UNPUBLISHED, up to and including the rules."""
    return [finding for finding in _check(text) if finding.code != UNPUBLISHED]


def _check(text: str) -> list[Finding]:
    """Every finding; the rules run only on documents that passed the schema, as in a compile."""
    return check_source(source.read(text.encode(), "intent.yaml"))


def check_source(read: source.Source) -> list[Finding]:
    """Every finding of a document that was read, and maybe merged."""
    findings = [*read.findings, *(schema.check(read) if read.data is not None else ())]
    if not any(is_error(finding) for finding in findings):
        findings += cards.check(read.data["spec"].get("cards", {}))
    if not any(is_error(finding) for finding in findings):
        built = reader.build(read.data)
        own = {key: cards.build(key, card) for key, card in built.cards.items()}
        catalog = cards.Catalog(own=own)
        built = reader.of_vendors(built, catalog.vendors(pool.card for pool in built.pools))
        findings += rules.run_rules(built, catalog, read.data)
    return [read.locate(finding) for finding in findings]


def found(text: str, code: str) -> list[tuple[str, bool, str]]:
    """(pointer, whether the key is meant, message) of every finding of one code."""
    return [(pointer(f.path), f.on_key, f.message) for f in _check(text) if f.code == code]


def one(code: str, *pools: str, **spec: str) -> tuple[str, bool, str]:
    """Where the only finding of this code stands, whether it is on the key, and what it says."""
    (only,) = found(written(*(pools or (pool(),)), **spec), code)
    return only


def codes(*pools: str, **spec: str) -> list[str]:
    """The codes of all findings."""
    return [finding.code for finding in check(written(*(pools or (pool(),)), **spec))]
