"""Rules on `monitoring` (GS741 to GS744): what would never be scraped, and what the cluster or Prometheus would refuse."""

import re
from collections.abc import Iterator

from gpushare.core.diagnostics import Finding, Path, Severity
from gpushare.core.units import is_label_key, is_label_value
from gpushare.rules.rule import RuleContext, rule

HERE: Path = ("spec", "monitoring")

_PARTS = ("serviceMonitor", "alerts", "dashboard")
_OURS = ("app.kubernetes.io/", "gpushare.dev/", "helm.sh/")
_PAGE = r"https?://[^\s#{}\"\\@]+\Z"
"""Prometheus reads braces of an annotation as a template; an @ would be credentials, and a # an anchor before ours."""


@rule("GS741")
def check_reach(context: RuleContext) -> Iterator[Finding]:
    """Scraping that the NetworkPolicy on the metrics port refuses, unless Prometheus is in one of two namespaces."""
    intent = context.intent
    reached = {"kube-system", intent.namespace, intent.plugin_namespace}
    if intent.monitoring.get("serviceMonitor") and set(intent.platform_namespaces) <= reached:
        yield Finding(
            code="GS741",
            severity=Severity.WARNING,
            message=f"only pods in kube-system and {intent.namespace} can reach the metrics: Prometheus is usually in neither",
            hints=("add the namespace of Prometheus to platform.namespaces",),
            path=(*HERE, "serviceMonitor"),
        )


@rule("GS742")
def check_labels(context: RuleContext) -> Iterator[Finding]:
    """Labels that the API server refuses, or that the chart sets itself."""
    for key, value in context.intent.monitoring.get("labels", {}).items():
        problem = ""
        if not is_label_key(key):
            problem = f"{key!r} is not a valid label key"
        elif not is_label_value(value):
            problem = f"{value!r} is not a valid label value"
        elif key.startswith(_OURS):
            problem = f"label {key} belongs to the chart, which sets it on its objects"
        if problem:
            hint = "write the label by which your Prometheus selects its objects, such as release: kube-prometheus-stack"
            yield Finding(code="GS742", message=problem, hints=(hint,), path=(*HERE, "labels", key))


@rule("GS743")
def check_parts(context: RuleContext) -> Iterator[Finding]:
    """Settings for objects of which there are none."""
    wanted = context.intent.monitoring
    if wanted and not any(wanted.get(part) for part in _PARTS):
        yield Finding(
            code="GS743",
            severity=Severity.WARNING,
            message="monitoring enables no object, so nothing is generated",
            hints=("write serviceMonitor, alerts or dashboard: true, or remove monitoring",),
            path=HERE,
        )


@rule("GS744")
def check_runbooks(context: RuleContext) -> Iterator[Finding]:
    """A text to which no anchor can be added."""
    address = context.intent.monitoring.get("runbooks")
    if address is not None and not re.match(_PAGE, address):
        yield Finding(
            code="GS744",
            message=f"invalid runbook address {address!r}",
            hints=("write an address without an anchor, such as https://docs.example.org/gpushare/alerts/",),
            path=(*HERE, "runbooks"),
        )
