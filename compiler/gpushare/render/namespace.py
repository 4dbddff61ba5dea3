"""The namespaces of our chart and, if it has another, of the upstream chart: beside the charts and never in them.

A chart that owns its namespace fails on an existing one and deletes it on uninstall. GPU pods need host paths, so Pod Security
must be `privileged` there.
"""

from typing import Any

from gpushare.intent import gitops
from gpushare.resolved.plan import Plan


def namespaces(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the Namespace objects by the names of their files."""
    return {file: _namespace(name) for file, name in gitops.namespaces(plan.intent).items()}


def _namespace(name: str) -> dict[str, Any]:
    levels = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("audit", "enforce", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": levels}}
