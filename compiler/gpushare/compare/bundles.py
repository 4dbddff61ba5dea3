"""What a comparison reads from the files of a bundle: the chart's values and the pools' policies. Pure."""

from collections.abc import Mapping
from typing import Any

from gpushare.compare.files import Files, parsed

POLICIES = "chart/files/policies/"
VALUES = "chart/values.yaml"


OBSERVE = "observe"


def values(files: Files) -> Mapping[str, Any]:
    """Return the chart's values; empty if the bundle has none. Admission of a bundle that observes is as it acts: it warns."""
    found = parsed(VALUES, files[VALUES]) if VALUES in files else None
    if not isinstance(found, dict):
        return {}
    admission = found.get("admission") or {}
    if found.get("adoption") == OBSERVE and admission.get("enforce") == "deny":
        return found | {"admission": admission | {"enforce": "warn"}}
    return found


def terms(files: Files) -> dict[str, Any]:
    """Return, by pool, which nodes its DaemonSet selects; empty if the bundle does not contain it."""
    return {name: pool.get("terms") for name, pool in (values(files).get("pools") or {}).items()}


def policy(files: Files, pool: str) -> Mapping[str, Any]:
    """Return the spec of a pool's policy; empty if the bundle has none. A policy that observes has the action `none`."""
    path = f"{POLICIES}{pool}.yaml"
    document = parsed(path, files[path]) if path in files else None
    spec = document.get("spec") if isinstance(document, dict) else None
    if not isinstance(spec, dict):
        return {}
    if spec.get("adoption") == OBSERVE:
        return spec | {"enforcement": (spec.get("enforcement") or {}) | {"action": "none"}}
    return spec
