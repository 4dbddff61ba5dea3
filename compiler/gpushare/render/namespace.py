"""`namespace.yaml`: the namespace of our chart and of the upstream chart, beside the chart and never in it.

A chart that owns its namespace fails on an existing one and deletes it on uninstall. GPU pods need host paths, so Pod Security
must be `privileged` there.
"""

from typing import Any

from gpushare.plan.plan import Plan


def namespace(plan: Plan) -> dict[str, Any]:
    """Return the Namespace object."""
    levels = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("audit", "enforce", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plan.intent.namespace, "labels": levels}}
