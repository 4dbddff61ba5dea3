"""What grows with the pools in a bundle's admission: the policies' specs and the Tenancy, from the chart's values.

The same as `charts/gpushare/templates` renders, so that sizes are known before Helm runs. The CEL is in files of the chart,
which the templates read too. What the intent decides is passed in as variables that are constant maps, so that checking a pod
costs as much with two thousand pools as with two.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpushare.core import resources
from gpushare.reading import source

Object = dict[str, Any]

MUTATING_KUBERNETES = (1, 36)
"""Mutating admission policies are stable from this version on."""

_PART_CHARACTERS = 90_000

_OF_CLASS = "deviceclass.resource.kubernetes.io/"
"""With which the name of a DeviceClass in limits begins: a class belongs to one pool."""

_DRIVER = "dra-driver-nvidia-gpu-service-account-kubeletplugin"
"""The ServiceAccount of the DRA driver's pods, as its chart makes it."""

EXPRESSION_CHARACTERS = 100_000
"""The longest expression that the API server accepts."""


def text(name: str) -> Object:
    """Return a policy as written in the chart's folder `admission`."""
    path = resources.chart() / "admission" / f"{name}.yaml"
    return dict(source.read(path.read_bytes(), str(path), own=True).data)


def lookups(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the entries that the policy on pods looks up; `admission/pods.yaml` explains the keys."""
    found = {"ambiguous": " ".join(values["admission"]["ambiguous"])}
    shares: set[str] = set()
    limited: dict[str, int] = {}
    assigned: dict[str, list[str]] = {}
    for name, pool in sorted(values["pools"].items()):
        found.update(_of_pool(name, pool))
        shares.update(pool["sharedResources"])
        for namespace in pool["namespaces"]:
            assigned.setdefault(namespace, []).append(name)
        for resource in pool["resources"] if pool["namespaces"] else ():
            limited[resource] = limited.get(resource, 0) + 1
    found |= {f"namespace.{namespace}": " ".join(pools) for namespace, pools in assigned.items()}
    for key, text in values.get("dra", {}).get("former", {}).items():
        known = found.get(key, "") if key.startswith("namespace.") else ""
        found[key] = f"{known} {text}".strip()
    found |= {f"count.{resource}": str(number) for resource, number in limited.items()}
    return found | {"limited": " ".join(sorted(limited)), "shares": " ".join(sorted(shares))}


def _of_pool(name: str, pool: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield f"pool.{name}", " ".join(pool["resources"])
    if pool["sharedResources"]:
        yield f"shares.{name}", " ".join(pool["sharedResources"])
    if pool["namespaces"]:
        yield f"limited.{name}", "true"
    for resource in pool["resources"]:
        if pool["default"] or resource.startswith(_OF_CLASS):
            yield f"default.{resource}", name
    yield from pool.get("claims", {}).items()


def observes(values: Mapping[str, Any]) -> bool:
    """Whether the bundle refuses nothing, whatever `admission.enforce` is."""
    return values.get("adoption") == "observe"


def tenant_namespaces(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the namespaces of tenants: one list for admission and enforcement."""
    named = {namespace for pool in values["pools"].values() for namespace in pool["namespaces"]}
    return tuple(sorted(named.union(values["admission"]["tenants"])))


def tenancy(values: Mapping[str, Any], platform: Sequence[str]) -> Object:
    """Return the Tenancy document for the node runtime, with the same lists of namespaces as the policies."""
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Tenancy",
        "spec": {
            "scope": values["admission"]["scope"],
            "admission": values["admission"]["enforce"],
            "platformNamespaces": list(platform),
            "tenantNamespaces": list(tenant_namespaces(values)),
        },
    }


def _variables(name: str, entries: Mapping[str, str]) -> Iterator[Object]:
    """Yield the entries as a list of constant maps, because an expression has at most 100,000 characters."""
    parts: list[dict[str, str]] = [{}]
    room = _PART_CHARACTERS
    for key, names in sorted(entries.items()):
        needed = len(key) + len(names) + 6
        if needed > room:
            parts.append({})
            room = _PART_CHARACTERS
        parts[-1][key] = names
        room -= needed
    for number, part in enumerate(parts):
        yield _variable(f"{name}{number}", part)
    every = ", ".join(f"variables.{name}{number}" for number in range(len(parts)))
    yield {"name": name, "expression": f"[{every}]"}


def _variable(name: str, value: Any) -> Object:
    """Return a variable whose value is JSON, as Helm writes it: CEL reads lists and maps of strings in JSON the same way."""
    return {"name": name, "expression": json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)}


def _given(policy: Object, *variables: Object) -> Object:
    return policy | {"variables": [*variables, *policy["variables"]]}


def policies(values: Mapping[str, Any]) -> dict[str, Object]:
    """Return the specs of the policies on requests, other access to devices, exemptions, the default pool, by kind and name."""
    specs = dict(_policies(values))
    # The API server denies what it cannot match against a policy that fails, whatever the binding's actions are.
    return {name: spec | {"failurePolicy": "Ignore"} for name, spec in specs.items()} if observes(values) else specs


def _policies(values: Mapping[str, Any]) -> Iterator[tuple[str, Object]]:
    wanted, looked_up = values["admission"], tuple(_variables("lookups", lookups(values)))
    everywhere = wanted["scope"] == "cluster"
    yield "ValidatingAdmissionPolicy gpushare-pods", _given(text("pods"), *looked_up)
    yield "ValidatingAdmissionPolicy gpushare-devices", _devices(values, tenants=True, others=everywhere)
    if everywhere:
        yield "ValidatingAdmissionPolicy gpushare-exemptions", text("exemptions")
    else:
        yield "ValidatingAdmissionPolicy gpushare-devices-elsewhere", _devices(values, tenants=False, others=True)
    if wanted["mutate"]:
        yield "MutatingAdmissionPolicy gpushare-default-pool", _given(text("default-pool"), *looked_up)
    if "dra" in values:
        yield from _of_dra(values, looked_up)


def _of_dra(values: Mapping[str, Any], looked_up: tuple[Object, ...]) -> Iterator[tuple[str, Object]]:
    namespace = values["dra"]["driverNamespace"]
    driver = f"system:serviceaccount:{namespace}:{_DRIVER}" if namespace else ""
    for name in ("claims", "claiming-pods", "claim-users"):
        yield f"ValidatingAdmissionPolicy gpushare-{name}", _given(text(name), *looked_up)
    yield "ValidatingAdmissionPolicy gpushare-slices", _given(text("slices"), _variable("driver", driver))
    if values["admission"]["mutate"]:
        yield "MutatingAdmissionPolicy gpushare-pool-of-claims", text("pool-of-claims")


def _devices(values: Mapping[str, Any], *, tenants: bool, others: bool) -> Object:
    return _given(
        text("devices"),
        _variable("judgesTenants", tenants),
        _variable("judgesOthers", others),
        *_variables("tenants", dict.fromkeys(tenant_namespaces(values), "")),
        _variable("localhostProfiles", values["admission"]["localhostProfiles"]),
        _variable("runtimeClassNames", [values["runtimeClassName"]] if values["runtimeClassName"] else []),
    )
