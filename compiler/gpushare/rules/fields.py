"""Rules on labels, namespaces and tolerations (GS211, GS215) and on `monitoring` (GS741 to GS744).

They find wrong syntax, tolerations that tolerate too much, and what would never be scraped or what Prometheus would refuse.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.core.diagnostics import Path, Severity
from gpushare.core.units import is_dns_label, is_label_key, is_label_value
from gpushare.core.wording import join_words
from gpushare.intent.types import Pool
from gpushare.rules.rule import Problem, RuleContext, pool_path, rule
from gpushare_node.contract.names import OUR_TAINTS

_LABEL = "write letters, digits and inner -, _ and ., at most 63 of them"
_KEY = f"{_LABEL}, after an optional DNS name and a slash"
_NAME = "write lower-case letters, digits and inner hyphens, at most 63 of them"

_Wrong = tuple[Path, bool, str, str]
"""Path below the pool, whether the key is wrong, message, hint."""


@rule("GS211")
def check_syntax(context: RuleContext) -> Iterator[Problem]:
    """Labels, namespaces and tolerations that the API server would reject."""
    for number, namespace in enumerate(context.intent.platform.namespaces):
        if not is_dns_label(namespace):
            where: Path = ("spec", "platform", "namespaces", number)
            yield Problem(message=f"invalid namespace name {namespace!r}", hints=(_NAME,), path=where)
    for pool in context.intent.pools:
        for path, on_key, message, hint in (*_labels(pool), *_expressions(pool), *_namespaces(pool), *_tolerations(pool)):
            yield Problem(message=message, hints=(hint,), path=pool_path(pool, *path), on_key=on_key)


def _labels(pool: Pool) -> Iterator[_Wrong]:
    for key, value in pool.nodes.match_labels:
        path = ("nodes", "matchLabels", key)
        if not is_label_key(key):
            yield path, True, f"invalid label key {key!r}", _KEY
        if not is_label_value(value):
            yield path, False, f"{value!r} is not a valid label value", _LABEL


def _expressions(pool: Pool) -> Iterator[_Wrong]:
    for number, expression in enumerate(pool.nodes.match_expressions):
        path = ("nodes", "matchExpressions", number)
        if not is_label_key(expression.key):
            yield (*path, "key"), False, f"invalid label key {expression.key!r}", _KEY
        for index, value in enumerate(expression.values):
            if not is_label_value(value):
                yield (*path, "values", index), False, f"{value!r} is not a valid label value", _LABEL


def _namespaces(pool: Pool) -> Iterator[_Wrong]:
    for number, namespace in enumerate(pool.namespaces):
        if not is_dns_label(namespace):
            yield ("namespaces", number), False, f"invalid namespace name {namespace!r}", _NAME


def _tolerations(pool: Pool) -> Iterator[_Wrong]:
    for number, toleration in enumerate(pool.tolerations):
        for field, message, hint in wrong_in_toleration(toleration):
            yield ("tolerations", number, field), False, message, hint


def wrong_in_toleration(toleration: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (field, message, hint) of everything that Kubernetes' own validation would reject."""
    key, operator = str(toleration.get("key", "")), toleration.get("operator", "Equal")
    value, effect = str(toleration.get("value", "")), toleration.get("effect")
    if key and not is_label_key(key):
        yield "key", f"invalid taint key {key!r}", _KEY
    if not key and operator != "Exists":
        yield "key", "a toleration without key tolerates every taint, and needs operator: Exists", "name the taint's key"
    if operator == "Exists" and value:
        yield "value", "operator Exists takes no value", "leave value out, or write operator: Equal"
    if not is_label_value(value):
        yield "value", f"{value!r} is not a valid taint value", _LABEL
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield "tolerationSeconds", "tolerationSeconds applies to effect NoExecute only", "write effect: NoExecute"


@rule("GS215", Severity.WARNING)
def check_start_up(context: RuleContext) -> Iterator[Problem]:
    """A toleration that lets tenants onto nodes that are not ready for them."""
    for pool in context.intent.pools:
        for number, toleration in enumerate(pool.tolerations):
            tolerated = [taint for taint in OUR_TAINTS if _tolerates(toleration, taint)]
            if tolerated:
                also = join_words(tolerated)
                yield Problem(
                    message=f"this toleration also tolerates {also}, so its pods start before the GPUs are ready",
                    hints=("name the key of your own taint; gpushare's own pods tolerate gpushare's taints by default",),
                    path=pool_path(pool, "tolerations", number),
                )


def _tolerates(toleration: Mapping[str, Any], taint: str) -> bool:
    """Whether the toleration tolerates the taint, as Kubernetes matches them: our taints have an effect and no value."""
    exists = toleration.get("operator", "Equal") == "Exists"
    named = toleration.get("key", "") == taint or (exists and not toleration.get("key"))
    return named and toleration.get("effect", "NoSchedule") == "NoSchedule" and (exists or not toleration.get("value"))


HERE: Path = ("spec", "monitoring")

_PARTS = ("serviceMonitor", "alerts", "dashboard")
_OURS = ("app.kubernetes.io/", "gpushare.dev/", "helm.sh/")
_PAGE = r"https?://[^\s#{}\"\\@]+\Z"
"""Prometheus reads braces of an annotation as a template; an @ would be credentials, and a # an anchor before ours."""


@rule("GS741", Severity.WARNING)
def check_reach(context: RuleContext) -> Iterator[Problem]:
    """Scraping that the NetworkPolicy on the metrics port refuses, unless Prometheus is in one of two namespaces."""
    intent = context.intent
    reached = {"kube-system", intent.namespace, intent.plugin_namespace}
    if intent.monitoring.get("serviceMonitor") and set(intent.platform_namespaces) <= reached:
        yield Problem(
            message=f"only pods in kube-system and {intent.namespace} can reach the metrics: Prometheus is usually in neither",
            hints=("add the namespace of Prometheus to platform.namespaces",),
            path=(*HERE, "serviceMonitor"),
        )


@rule("GS742")
def check_labels(context: RuleContext) -> Iterator[Problem]:
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
            yield Problem(message=problem, hints=(hint,), path=(*HERE, "labels", key))


@rule("GS743", Severity.WARNING)
def check_parts(context: RuleContext) -> Iterator[Problem]:
    """Settings for objects of which there are none."""
    wanted = context.intent.monitoring
    if wanted and not any(wanted.get(part) for part in _PARTS):
        yield Problem(
            message="monitoring enables no object, so nothing is generated",
            hints=("write serviceMonitor, alerts or dashboard: true, or remove monitoring",),
            path=HERE,
        )


@rule("GS744")
def check_runbooks(context: RuleContext) -> Iterator[Problem]:
    """A text to which no anchor can be added."""
    address = context.intent.monitoring.get("runbooks")
    if address is not None and not re.match(_PAGE, address):
        yield Problem(
            message=f"invalid runbook address {address!r}",
            hints=("write an address without an anchor, such as https://docs.example.org/gpushare/alerts/",),
            path=(*HERE, "runbooks"),
        )
