"""What the files of a bundle say of `monitoring`: which of them there are, their labels, and the address of the runbooks.

The chart has objects for the Prometheus operator, `monitoring/` the same as plain files; without the operator only these.
"""

from typing import Any

from gpushare.importing.draft import Draft
from gpushare.importing.facts import Facts
from gpushare.importing.parts import Part

_OBJECTS = {
    ("PodMonitor", "gpushare"): "serviceMonitor",
    ("PrometheusRule", "gpushare"): "alerts",
    ("ConfigMap", "gpushare-dashboard"): "dashboard",
}
_GRAFANA = "grafana_dashboard"
"""The label of the dashboard that no intent asks for."""


def field(part: Part) -> str:
    """Return the field of `monitoring` that a document is made for; empty if it is for none."""
    if part.has("kind"):
        return _OBJECTS.get((part.at("kind").text, part.at("metadata", "name").text), "")
    if any(one.at("name").value == "gpushare" for one in part.at("groups").entries()):
        return "alerts"
    if any(one.at("job_name").value == "gpushare" for one in part.at("scrape_configs").entries()):
        return "serviceMonitor"
    return "dashboard" if part.at("uid").value == "gpushare" and part.has("panels") else ""


def add(facts: Facts, draft: Draft) -> None:
    """Add `monitoring` from the bundle's files."""
    objects = [one for one in facts.monitors if one.has("kind")]
    found: dict[str, Any] = dict.fromkeys(map(field, facts.monitors), True)
    if not found:
        return
    if not objects:
        found["operator"] = False
    for one in objects:
        labels = {key: value.text for key, value in one.at("metadata", "labels").items() if key != _GRAFANA}
        found |= {"labels": labels} if labels else {}
    if page := next(filter(None, map(_runbooks, facts.monitors)), ""):
        found["runbooks"] = page
    draft.put(("monitoring",), found, facts.monitors[0], "from the bundle's monitoring files")


def _runbooks(part: Part) -> str:
    groups = (part.at("spec") if part.has("kind") else part).at("groups").entries()
    links = (rule.at("annotations", "runbook_url").text for group in groups for rule in group.at("rules").entries())
    return next(filter(None, links), "").partition("#")[0]
