"""Whether Prometheus' series have the labels that our queries need, and are those of one cluster. PrometheusError if not."""

from collections.abc import Set as AbstractSet

from gpushare.core.wording import join_first
from gpushare.study.measured.prometheus import Prometheus, PrometheusError, Series

DIFFERENT = "docs/monitoring.md describes what is needed: labels `node` and `pool`, and honorLabels: true"


def clusters(prometheus: Prometheus, time: int, *, named: str, renamed: str) -> set[str]:
    """Return the labels `cluster` that the query `named` finds; refuse the metrics whose labels a scrape `renamed`."""
    others = sorted(one.labels.get("__name__", "?") for one in prometheus.at(renamed, time))
    if others:
        names = join_first(others)
        raise PrometheusError(f"{names}: the tenant's namespace is in the label exported_namespace", DIFFERENT)
    return {one.labels.get("cluster", "") for one in prometheus.at(named, time)}


def refuse_several(found: AbstractSet[str], cluster: str) -> None:
    """Refuse series of several clusters of which none is chosen."""
    if not cluster and len(found) > 1:
        several = join_first([name or "without the label" for name in sorted(found)])
        raise PrometheusError(f"Prometheus has series of several clusters: {several}", "--cluster NAME selects one")


def refuse_unknown(found: AbstractSet[str], cluster: str) -> None:
    """Refuse a chosen cluster that has no series."""
    if cluster and found and cluster not in found:
        named = sorted(filter(None, found))
        hint = f"it has {join_first(named)}" if named else "its series have no label `cluster`: leave --cluster out"
        raise PrometheusError(f"Prometheus has no series of cluster {cluster!r}", hint)


def value(one: Series, label: str, what: str) -> str:
    """Return a label of a series; `what` names the query."""
    if not one.labels.get(label):
        raise PrometheusError(f"{what}: Prometheus has series without the label {label}", DIFFERENT)
    return one.labels[label]
