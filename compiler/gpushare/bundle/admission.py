"""The bundle's admission, from the chart's values: `chart/files/admission.yaml`, and the Tenancy, which tells nodes the same.

All that the intent decides of it is decided here, once. The CEL is in files of the chart, `admission/<name>.yaml`; the one
template of the chart puts an entry of the document and its CEL together, as `policies` does. What the intent decides reaches
the CEL as variables that are constant maps: checking a pod costs as much with two thousand pools as with two.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gpushare.core import resources
from gpushare.reading import source
from gpushare.vendors import DEFAULT, GPU_NAMES, VENDORS
from gpushare_node.contract import names
from gpushare_node.contract import tenancy as contract
from gpushare_node.contract.names import OUR_TAINTS

Object = dict[str, Any]

FILE = "chart/files/admission.yaml"
TENANCY = "chart/files/tenancy.json"
"""Where the document and the Tenancy are in a bundle."""

CEL = (
    "claim-users",
    "claiming-pods",
    "claims",
    "default-pool",
    "devices",
    "exemptions",
    "fence",
    "pods",
    "pool-of-claims",
    "slices",
)
"""The files of the chart's folder `admission`."""

MUTATING_KUBERNETES = (1, 36)
"""Mutating admission policies are stable from this version on."""

_PART_CHARACTERS = 90_000

_DRIVER = "dra-driver-nvidia-gpu-service-account-kubeletplugin"
"""The ServiceAccount of the DRA driver's pods, as its chart makes it."""

EXPRESSION_CHARACTERS = 100_000
"""The longest expression that the API server accepts."""


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
        if pool["default"] or resource.startswith(names.IMPLICIT):  # a class belongs to one pool
            yield f"default.{resource}", name
    yield from pool.get("claims", {}).items()


def observes(values: Mapping[str, Any]) -> bool:
    """Whether the bundle refuses nothing, whatever `admission.enforce` is."""
    return values.get("adoption") == "observe"


def tenant_namespaces(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the namespaces of tenants: one list for admission and enforcement."""
    named = {namespace for pool in values["pools"].values() for namespace in pool["namespaces"]}
    return tuple(sorted(named.union(values["admission"]["tenants"])))


def tenancy(values: Mapping[str, Any]) -> Object:
    """Return the Tenancy document for the node runtime, with the same lists of namespaces as the policies."""
    found = contract.Tenancy(
        scope=contract.AdmissionScope(values["admission"]["scope"]),
        admission=contract.AdmissionMode(values["admission"]["enforce"]),
        platform_namespaces=frozenset(platform_namespaces(values)),
        tenant_namespaces=frozenset(tenant_namespaces(values)),
    )
    return contract.document(found)


def platform_namespaces(values: Mapping[str, Any]) -> list[str]:
    """Return the namespaces of the platform's own pods."""
    return sorted({"kube-system", values["namespace"], *values["admission"]["platformNamespaces"]})


def _variables(name: str, entries: Mapping[str, str]) -> Iterator[Object]:
    """Yield the entries as a list of constant maps, because an expression has at most 100,000 characters."""
    parts: list[dict[str, str]] = [{}]
    room = _PART_CHARACTERS
    for key, text in sorted(entries.items()):
        needed = len(key) + len(text) + 6
        if needed > room:
            parts.append({})
            room = _PART_CHARACTERS
        parts[-1][key] = text
        room -= needed
    for number, part in enumerate(parts):
        yield _variable(f"{name}{number}", part)
    every = ", ".join(f"variables.{name}{number}" for number in range(len(parts)))
    yield {"name": name, "expression": f"[{every}]"}


def _variable(name: str, value: Any) -> Object:
    """Return a variable whose value is JSON, as Helm writes it: CEL reads lists and maps of strings in JSON the same way."""
    return {"name": name, "expression": json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)}


def document(values: Mapping[str, Any]) -> Object:
    """Return the document: the variables `lookups`, and of each policy its kind, the name of its CEL, and what is added.

    `gpuNames` is the condition that the CEL has as `<name of a GPU>`.

    `variables` come before those of the CEL, and those of `lookups` before them where it says so; `spec` replaces fields of
    the CEL, `binding` is all of the binding's specification but the policy's name.
    """
    judges = values["pools"] and values["admission"]["enforce"] != "none"
    return {
        "gpuNames": GPU_NAMES,
        "lookups": list(_variables("lookups", lookups(values))) if judges else [],
        "policies": {**dict(_policies(values) if judges else ()), "gpushare-fence": _fence(values)},
    }


def policies(document: Mapping[str, Any]) -> dict[str, Object]:
    """Return the policies' specs by kind and name, as the chart renders them of a document."""
    found = {}
    for name, entry in document["policies"].items():
        text = _cel(entry["cel"], document["gpuNames"])
        before = [*(document["lookups"] if entry.get("lookups") else ()), *entry.get("variables", ())]
        variables = {"variables": [*before, *text["variables"]]} if before else {}
        found[f"{entry['kind']}AdmissionPolicy {name}"] = {**text, **variables, **entry.get("spec", {})}
    return found


def _cel(name: str, gpu_names: str) -> Object:
    """Return a policy as written in the chart's folder `admission`."""
    path = resources.chart() / "admission" / f"{name}.yaml"
    text = path.read_text(encoding="utf-8").replace("<name of a GPU>", gpu_names)
    return dict(source.read(text.encode(), str(path), own=True).data)


def _policies(values: Mapping[str, Any]) -> Iterator[tuple[str, Object]]:
    wanted, observing = values["admission"], observes(values)
    told = ["Audit"] if wanted["enforce"] == "audit" else ["Warn", "Audit"]
    actions = told if observing else [wanted["enforce"].capitalize()]
    # The API server denies what it cannot match against a policy that fails, whatever the binding's actions are.
    spec = {"spec": {"failurePolicy": "Ignore"}} if observing else {}
    validating: Object = {"kind": "Validating", **spec, "binding": {"validationActions": actions, **_bound(values)}}
    mutating: Object = {"kind": "Mutating", "binding": _bound(values)}
    yield "gpushare-pods", validating | {"cel": "pods", "lookups": True}
    everywhere = wanted["scope"] == "cluster"
    yield "gpushare-devices", validating | _devices(values, tenants=True, others=everywhere)
    if everywhere:
        binding = {"validationActions": told if observing else ["Deny"]}
        yield "gpushare-exemptions", validating | {"cel": "exemptions", "binding": binding}
    else:
        # Others have reached devices before us, and go on: network and storage agents, exporters, operators.
        binding = {"validationActions": told, **_bound(values)}
        yield "gpushare-devices-elsewhere", validating | _devices(values, tenants=False, others=True) | {"binding": binding}
    if wanted["mutate"]:
        yield "gpushare-default-pool", mutating | {"cel": "default-pool", "lookups": True}
    if "dra" in values:  # other clusters do not serve the kinds of these
        for name in ("claims", "claiming-pods", "claim-users"):
            yield f"gpushare-{name}", validating | {"cel": name, "lookups": True}
        namespace = values["dra"]["driverNamespace"]
        driver = f"system:serviceaccount:{namespace}:{_DRIVER}" if namespace else ""
        yield "gpushare-slices", validating | {"cel": "slices", "variables": [_variable("driver", driver)]}
        if wanted["mutate"]:
            yield "gpushare-pool-of-claims", mutating | {"cel": "pool-of-claims"}


def _bound(values: Mapping[str, Any]) -> Object:
    """Return every namespace but the platform's and those that administrators exempted: tenants cannot label a namespace."""
    apart = [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": platform_namespaces(values)},
        {"key": "gpushare.dev/admission", "operator": "NotIn", "values": ["exempt"]},
    ]
    return {"matchResources": {"namespaceSelector": {"matchExpressions": apart}}}


def _devices(values: Mapping[str, Any], *, tenants: bool, others: bool) -> Object:
    variables = [
        _variable("judgesTenants", tenants),
        _variable("judgesOthers", others),
        *_variables("tenants", dict.fromkeys(tenant_namespaces(values), "")),
        _variable("localhostProfiles", values["admission"]["localhostProfiles"]),
        _variable("runtimeClassNames", [values["runtimeClassName"]] if values["runtimeClassName"] else []),
    ]
    return {"cel": "devices", "variables": variables}


RUNTIME, UNINSTALL = "gpushare-node", "gpushare-uninstall"
"""The ServiceAccounts of the chart, and so the names of their roles."""

_LABELS = (names.POOL_LABEL, names.PROFILE_LABEL, names.BACKEND_LABEL, names.VENDOR_LABEL)
"""Of ours on a node those that the node runtime writes."""

_MOST_NODES = 5000
"""Of a cluster: where a pool's rollout slots are a percentage, and for nodes whose pool is gone, with its policy."""


def _fence(values: Mapping[str, Any]) -> Object:
    """Return the policy on what our own tokens may write; it denies whatever the intent says of tenants."""
    asks = f"request.userInfo.username.endsWith(':{UNINSTALL}')"
    return _fence_of(values, (RUNTIME, UNINSTALL), asks)


def releasing_fence(values: Mapping[str, Any]) -> Object:
    """Return the specification of the same policy for pods that release nodes after the chart is gone, with its own policy."""
    given = _fence_of(values, (UNINSTALL,), json.dumps(observes(values)))
    [spec] = policies({"gpuNames": GPU_NAMES, "policies": {"": given}}).values()
    return spec


def _fence_of(values: Mapping[str, Any], accounts: Collection[str], asks: str) -> Object:
    """`asks` is the expression of whether a token is the uninstall Job's."""
    prefix = f"system:serviceaccount:{values['namespace']}:"
    users = ", ".join(f"'{prefix}{account}'" for account in accounts)
    would, asked = [names.WOULD_ANNOTATION], [names.RELEASE_ANNOTATION, names.RELEASED_ANNOTATION]
    own = [names.RELEASED_ANNOTATION]
    # Of each the Job's and the node runtime's.
    annotations: dict[str, tuple[list[str], list[str]]] = (
        {"written": ([], would), "removed": (would, would)}
        if observes(values)
        else {
            "written": ([names.RELEASE_ANNOTATION], own),
            "removed": (asked, [*own, *would, names.RELEASE_ANNOTATION, names.RETRY_ANNOTATION]),
        }
    )
    others = values.get("vendors", {})
    served = [vendor for word, vendor in VENDORS.items() if word in others or vendor is DEFAULT]
    labels = [*_LABELS, *(label for one in served for label in one.written_labels)]
    # One is the default of the CEL: an expression has no room for all pools of a large cluster.
    slots = {names.workload(pool): one["slots"] for pool, one in values["pools"].items() if one.get("slots", 1) != 1}
    variables = [
        {"name": "asks", "expression": asks},
        _variable("evicts", any(pool["evict"] for pool in values["pools"].values())),
        _variable("observes", observes(values)),
        _variable("platform", platform_namespaces(values)),
        _variable("ourLabels", [] if observes(values) else labels),
        *(
            {"name": name, "expression": f"variables.asks ? {json.dumps(job)} : {json.dumps(runtime)}"}
            for name, (job, runtime) in annotations.items()
        ),
        _variable(
            "ourTaints",
            dict.fromkeys(OUR_TAINTS, "NoSchedule") | {taint.key: "NoExecute" for one in served if (taint := one.layout_taint)},
        ),
        _variable("slots", slots | {names.workload(""): _MOST_NODES}),
        _variable("restarted", {others[one.word]["namespace"]: one.restarted for one in served if one.restarted}),
    ]
    return {
        "kind": "Validating",
        "cel": "fence",
        "variables": variables,
        "spec": {"matchConditions": [{"name": "node-runtime", "expression": f"request.userInfo.username in [{users}]"}]},
        "binding": {"validationActions": ["Deny"]},
    }


def rollout_slots(limit: int | str) -> int:
    """Return how many rollout slots a pool has at most. `limit` is its `maxUnavailable`, a number or a percentage."""
    return limit if isinstance(limit, int) else max(1, _MOST_NODES * int(limit.removesuffix("%")) // 100)
