"""What the files of a bundle say of NVIDIA's DRA driver, and of the pools that it serves."""

from typing import Any

from gpushare.catalog import upstream
from gpushare.importing.draft import Draft
from gpushare.importing.facts import Facts
from gpushare.importing.parts import Part
from gpushare.intent.types import Backend, DraShares, DraVia

_PLATFORM = ("platform", "dra")


def is_values(part: Part) -> bool:
    """Whether a document is a bundle's values for the driver's chart."""
    return part.has("gpuResourcesEnabledOverride") and part.has("nvidiaDriverRoot")


def is_served(pool: Part) -> bool:
    """Whether a pool of nodes/pools.yaml is the driver's."""
    return pool.at("backend").text == Backend.DRA


def fields(pool: Part) -> dict[str, Any]:
    """Return the fields of a pool that only the driver's have."""
    if not is_served(pool):
        return {}
    found: dict[str, Any] = {"backend": pool.at("backend").text, "requests": pool.at("requests").text}
    sizes = {name: f"{size.count}Mi" for name, size in pool.at("sizes").items()}
    return found | ({"sizes": sizes} if sizes else {})


def add(facts: Facts, draft: Draft) -> None:
    """Add the settings of the driver, and the Kubernetes that its pools need."""
    served = [pool for document in facts.bundle for _, pool in document.at("pools").items() if is_served(pool)]
    if not served:
        return
    has_more = any(pool.at("limits").value or _is_shared(pool) for pool in served)
    needed = "1.36" if has_more else "1.34"
    draft.put(("kubernetes",), needed, None, f"assumed: the oldest that pools with backend dra need; is it {needed} or newer?")
    chart, via = upstream.chart(upstream.DRA), DraVia.CHART
    if facts.charts and chart.name not in facts.charts:
        via = DraVia.EXISTING
    draft.put((*_PLATFORM, "via"), via.value, None, "from the bundle's images.txt" if facts.charts else "")
    if facts.charts.get(chart.name, chart.version) != chart.version:
        draft.put((*_PLATFORM, "version"), facts.charts[chart.name], None, "from the bundle's images.txt")
    for values in facts.dra_values[:1]:
        draft.put((*_PLATFORM, "driverRoot"), values.at("nvidiaDriverRoot").text, values, "from the values of the DRA driver")
    shares = {one.at("spec", "dra", "shares").text for one in facts.policies} - {""}
    if len(shares) == 1 and shares <= set(DraShares):
        draft.put((*_PLATFORM, "shares"), min(shares), None, "from the bundle's policies")


def _is_shared(pool: Part) -> bool:
    return any((device.at("replicas").count or 1) > 1 for device in pool.at("devices").entries())
