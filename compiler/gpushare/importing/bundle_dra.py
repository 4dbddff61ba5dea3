"""A bundle's pools of NVIDIA's DRA driver, back to the intent: how pods ask, the sizes of claims, the driver's settings."""

from typing import Any

from gpushare.catalog import upstream
from gpushare.core.diagnostics import Path
from gpushare.importing import dra_platform
from gpushare.importing.draft import Draft
from gpushare.importing.facts import Facts
from gpushare.importing.parts import Part
from gpushare.intent.types import Backend, DraShares, DraVia
from gpushare.intent.words import ON_DEMAND


def is_of_dra(pool: Part) -> bool:
    """Whether the driver serves a pool of the bundle."""
    return pool.at("backend").text == Backend.DRA


def name_in_limits(pool: Part, resource: str) -> str:
    """Return how the device plugin would call what a pool offers; empty where claims alone ask for it."""
    if not is_of_dra(pool):
        return resource
    return next((name for name, one in pool.at("limits").items() if one.text == resource), "")


def fields(pool: Part) -> dict[str, Any]:
    """Return the fields of a pool that only DRA has."""
    if not is_of_dra(pool):
        return {}
    found: dict[str, Any] = {"backend": Backend.DRA.value, "requests": pool.at("requests").text}
    sizes = {name: f"{size.count}Mi" for name, size in pool.at("sizes").items()}
    return found | ({"sizes": sizes} if sizes else {})


def on_demand(pool: Part) -> dict[str, Any]:
    """Return the layout of a pool whose instances are made for claims, and their profiles; empty for other pools."""
    if not pool.at("onDemand").truth:
        return {}
    profiles = dict.fromkeys(device.at("profile").text for device in pool.at("devices").entries())
    return {"layout": ON_DEMAND, "profiles": list(profiles)}


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
    mutates = any(one.at("admission", "mutate").truth for one in charts)
    oldest = max(dra_platform.DIVIDING if mutates else dra_platform.CLAIMING, *map(dra_platform.needed, pools))
    draft.put(("kubernetes",), dra_platform.dotted(oldest), None, "the oldest that has what the bundle needs")
    path: Path = ("platform", "dra")
    chart = upstream.chart(upstream.DRA)
    said = [one.at("dra", "driverNamespace") for one in charts if one.has("dra")]
    is_observed = draft.spec.get("adoption") == "observe"
    is_installed = chart.name in facts.charts or any(one.text for one in said)
    via = DraVia.EXISTING if said and not is_installed and not is_observed else DraVia.CHART
    draft.put((*path, "via"), via.value, said[0] if said else None, "" if said else "assumed: chart/values.yaml says it")
    if facts.charts.get(chart.name, chart.version) != chart.version:
        draft.put((*path, "version"), facts.charts[chart.name], None, "from the bundle's images.txt")
    shares = next((word for one in facts.policies if (word := one.at("spec", "dra", "shares")).text), None)
    if shares is not None:
        draft.put((*path, "shares"), shares.text, shares, "from the bundle's policies")
    for one in facts.dra_values:
        root = one.part.at("nvidiaDriverRoot")
        if root.text.rstrip("/"):
            draft.put((*path, "driverRoot"), root.text, root, f"from {one.origin}")
        divided = one.part.at("consumableShares")
        if shares is None and divided.value is not None:
            by = DraShares.MEMORY if divided.text == DraShares.MEMORY else DraShares.COUNT
            draft.put((*path, "shares"), by.value, divided)
        _ = one.part.whole  # the rest is what the bundle's compile writes


def namespaces(chart: Part) -> set[str]:
    """Return where the bundle's own driver runs."""
    return {chart.at("dra", "driverNamespace").text}
