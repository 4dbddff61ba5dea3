"""A bundle's pools of NVIDIA's DRA driver, back to the intent: how pods ask, the sizes of claims, and the driver's settings.

No file says whether pods of a pool with names in `limits` may also claim, since the bundle lets them: `requests: both` says so.
"""

from typing import Any

from gpushare.catalog import upstream
from gpushare.core.diagnostics import Path
from gpushare.core.wording import shorten
from gpushare.importing import dra_nodes, dra_values
from gpushare.importing.draft import Draft
from gpushare.importing.facts import Facts
from gpushare.importing.parts import Notes, Part
from gpushare.intent.types import Backend, DraVia

_CAPACITY = ("devices", "requests", 0, "exactly", "capacity", "requests")


def is_objects(part: Part) -> bool:
    """Whether a document is a bundle's chart/files/dra/POOL.yaml."""
    return all(part.has(key) for key in ("classes", "templates", "namespaces")) and not part.has("kind")


def is_of_dra(pool: Part) -> bool:
    """Whether the driver serves a pool of the bundle."""
    return pool.at("backend").text == Backend.DRA


def name_in_limits(pool: Part, resource: str) -> str:
    """Return how the device plugin would call what a pool offers; empty where claims alone ask for it."""
    if not is_of_dra(pool):
        return resource
    return next((name for name, one in pool.at("limits").items() if one.text == resource), "")


def fields(name: str, pool: Part, facts: Facts, notes: Notes) -> dict[str, Any]:
    """Return the fields of a pool that only DRA has."""
    if not is_of_dra(pool):
        return {}
    found: dict[str, Any] = {"backend": Backend.DRA.value}
    if pool.at("limits").value:
        found["requests"] = "both"
    sizes = {}
    for template, _ in pool.at("claims").items():
        shape = template.removeprefix(f"gpushare-{name}.")
        if shape in dra_nodes.SHAPES or "." in shape:  # profiles of MIG have a dot, sizes have none
            continue
        claims = [one.at("templates", template, *_CAPACITY, "memory") for one in facts.dra_objects]
        size = next((one for one in claims if one.text), None)
        if size is not None:
            sizes[shape] = size.text
            continue
        notes.warn(
            "GS869",
            pool.at("claims", template),
            f"how much memory claims of size {shorten(shape)} ask for is not in nodes/pools.yaml",
            f"give the bundle's chart/files/dra/{name}.yaml too, or write the pool's sizes by hand",
            on_key=True,
        )
    return found | ({"sizes": sizes} if sizes else {})


def add(facts: Facts, draft: Draft) -> None:
    """Add the driver's settings and the version of Kubernetes, without which pools of DRA do not pass."""
    pools = [pool for pool in draft.pools.values() if "backend" in pool]
    if not pools:
        return
    if len(pools) == len(draft.pools):
        draft.put(("platform", "backend"), Backend.DRA.value, None, "of every pool")
        for pool in pools:
            del pool["backend"]
    charts = facts.bundle_charts
    needs_newest = any("requests" in pool or "sizes" in pool or "replicas" in pool["sharing"] for pool in pools)
    needs_newest = needs_newest or any(one.at("admission", "mutate").truth for one in charts)
    oldest = "the oldest that has what the bundle needs: no file of it says more"
    draft.put(("kubernetes",), "1.36" if needs_newest else "1.34", None, oldest)
    path: Path = ("platform", "dra")
    chart = upstream.chart(upstream.DRA)
    said = [one.at("dra", "driverNamespace") for one in charts if one.has("dra")]
    is_observed = draft.spec.get("adoption") == "observe"
    is_installed = chart.name in facts.charts or any(one.text for one in said)
    via = DraVia.EXISTING if said and not is_installed and not is_observed else DraVia.CHART
    draft.put((*path, "via"), via.value, said[0] if said else None, "" if said else "assumed: chart/values.yaml says it")
    if version := facts.charts.get(chart.name):
        draft.put((*path, "version"), version, None, "from the bundle's images.txt")
    shares = next((word for one in facts.policies if (word := one.at("spec", "dra", "shares")).text), None)
    if shares is not None:
        draft.put((*path, "shares"), shares.text, shares, "from the bundle's policies")
    for one in facts.dra_values:
        dra_values.put_root(one, draft)
        if shares is None and (divided := dra_values.shares(one)):
            draft.put((*path, "shares"), divided.value, one.part)
        _ = one.part.whole  # the rest is what the bundle's compile writes


def namespaces(chart: Part) -> set[str]:
    """Return where the bundle's own driver runs."""
    return {chart.at("dra", "driverNamespace").text}
