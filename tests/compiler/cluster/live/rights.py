"""Roles as an API server applies them: whether the printed rules allow a request."""

import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v1(?:alpha1)?(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>[a-z]+)"
    r"(?:/(?P<name>[^/]+))?(?P<proxy>/proxy/.*)?"
)


def allowed_by(objects: Sequence[dict[str, Any]]) -> Callable[[str, str], bool]:
    """What the roles among these objects allow."""
    roles = [one for one in objects if one["kind"] in {"ClusterRole", "Role"}]

    def allows(method: str, target: str) -> bool:
        path = urlsplit(target).path
        if any(path in rule.get("nonResourceURLs", ()) for role in roles for rule in role["rules"]):
            return method == "GET"
        found = _PATH.fullmatch(path)
        if found is None or method != "GET":
            return False
        resource = found["resource"] + ("/proxy" if found["proxy"] else "")
        verb = "get" if found["name"] else "list"
        return any(
            resource in rule.get("resources", ()) and verb in rule["verbs"] and (found["group"] or "") in rule["apiGroups"]
            for role in roles
            if role["kind"] == "ClusterRole" or role["metadata"]["namespace"] == found["namespace"]
            for rule in role["rules"]
        )

    return allows
