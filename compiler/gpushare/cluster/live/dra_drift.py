"""How the objects of the DRA driver's pools differ from a bundle: DeviceClasses, templates of claims, admission policies. Pure.

The API server writes quantities its own way and adds defaults: neither is a difference.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.bundle import admission
from gpushare.cluster.live import devices
from gpushare.cluster.live.snapshot import Snapshot
from gpushare.compare.files import Files, parsed
from gpushare.core.wording import clean, join_first, join_words
from gpushare_node.contract import quantity

_FOLDER = "chart/files/dra/"
_FORMER = "chart/files/former-classes.yaml"
_LOCK = "gpushare.lock.yaml"
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "deviceClassName": {"allocationMode": "ExactCount", "count": 1},
    "resourceRules": {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}},
    "namespaceSelector": {"matchPolicy": "Equivalent", "objectSelector": {}},
    "apiGroups": {"scope": "*"},
}
"""What the server adds to a mapping that has a certain field."""
_NO_DEFAULT = object()
_AMOUNTS = ("capacity", "requests")
"""Where a specification has quantities."""

_PLURALS = {
    "ValidatingAdmissionPolicy": (devices.POLICIES[0], devices.BINDINGS[0]),
    "MutatingAdmissionPolicy": (devices.POLICIES[1], devices.BINDINGS[1]),
}
_POLICIES = frozenset(
    {"gpushare-claims", "gpushare-claiming-pods", "gpushare-claim-users", "gpushare-slices", "gpushare-pool-of-claims"}
)

Unlike = tuple[str, str, str]
"""The object, what the bundle wants, what the cluster has."""


def concerns(bundle: Files) -> bool:
    """Whether the driver serves pools of the bundle, or did."""
    if any(path.startswith(_FOLDER) for path in bundle):
        return True
    lock = parsed(_LOCK, bundle.get(_LOCK, ""))
    return isinstance(lock, dict) and bool(lock.get("dra"))


def objects(bundle: Files, snapshot: Snapshot) -> Iterator[Unlike]:
    """Yield the classes and templates of ours that are missing, too many, or otherwise."""
    if snapshot.dra is None or not concerns(bundle):
        return
    files = [parsed(path, text) for path, text in sorted(bundle.items()) if path.startswith(_FOLDER)]
    if snapshot.has_seen(devices.CLASSES):
        wanted = {f"DeviceClass {name}": spec for file in files for name, spec in file["classes"].items()}
        left = parsed(_FORMER, bundle[_FORMER]) if _FORMER in bundle else {}
        wanted |= {f"DeviceClass {name}": one["spec"] for name, one in left.items()}
        ours = {f"DeviceClass {one.name}": one.spec for one in snapshot.dra.classes if one.is_ours}
        every = {f"DeviceClass {one.name}": one.spec for one in snapshot.dra.classes}
        yield from _compared(wanted, ours | {name: every[name] for name in wanted.keys() & every.keys()})
    if snapshot.has_seen(devices.TEMPLATES):
        wanted = {
            f"ResourceClaimTemplate {namespace}/{name}": spec
            for file in files
            for namespace in file["namespaces"]
            for name, spec in file["templates"].items()
        }
        yield from _compared(
            wanted, {f"ResourceClaimTemplate {one.namespace}/{one.name}": one.spec for one in snapshot.dra.templates}
        )


def policies(bundle: Files, snapshot: Snapshot) -> Iterator[Unlike]:
    """Yield the policies on claims, slices and pods that use claims and their bindings that are missing or otherwise."""
    if snapshot.dra is None:
        return
    actual = {(one.plural, one.name): one.spec for one in snapshot.dra.policies}
    document = parsed(admission.FILE, bundle[admission.FILE])
    for name, spec in sorted(admission.policies(document).items()):
        kind, _, short = name.partition(" ")
        policy, binding = _PLURALS[kind]
        if short not in _POLICIES:
            continue
        if snapshot.has_seen(policy):
            found = actual.get((policy, short))
            unlike = [path for path, *_ in _unlike(_plain(spec), _plain(found), ())] if found is not None else []
            if found is None or unlike:
                yield name, "the bundle's policy", f"other {join_first(unlike)}" if unlike else "missing"
        if snapshot.has_seen(binding):
            bound = actual.get((binding, short))
            bundled = {"policyName": short, **document["policies"][short]["binding"]}
            actions = None if bound is None else [str(one) for one in bound.get("validationActions") or ()]
            wanted = bundled.get("validationActions", [])
            if actions != wanted:
                had = "missing" if actions is None else clean(join_words(actions)) or "no action"
                yield f"{kind}Binding {short}", join_words(wanted) or "a binding", had
            elif others := [path for path, *_ in _unlike(bundled, _plain(bound), ())]:
                yield f"{kind}Binding {short}", "the bundle's binding", f"other {join_first(others)}"


def _compared(wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterator[Unlike]:
    for name in sorted(wanted.keys() | actual.keys()):
        if name not in actual:
            yield name, "the bundle's", "missing"
        elif name not in wanted:
            yield name, "no such object", "present"
        elif unlike := [*_unlike(_plain(wanted[name]), _plain(actual[name]), ())]:
            wants, had = (join_first([f"{path}: {pair[at]}" for path, *pair in unlike]) for at in (0, 1))
            yield name, wants, had


def _plain(value: Any) -> Any:
    """Return the specification without the server's defaults."""
    if isinstance(value, list):
        return [*map(_plain, value)]
    if not isinstance(value, dict):
        return value
    known = next((defaults for field, defaults in _DEFAULTS.items() if field in value), {})
    return {str(key): _plain(one) for key, one in value.items() if known.get(key, _NO_DEFAULT) != one}


def _unlike(wanted: Any, actual: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    if isinstance(wanted, dict) and isinstance(actual, dict):
        for key in sorted(wanted.keys() | actual.keys()):
            yield from _unlike(wanted.get(key), actual.get(key), (*path, key))
    elif isinstance(wanted, list) and isinstance(actual, list) and len(wanted) == len(actual):
        for number, (one, other) in enumerate(zip(wanted, actual, strict=True)):
            yield from _unlike(one, other, (*path, str(number)))
    elif wanted != actual and not (path[-3:-1] == _AMOUNTS and _is_same_amount(wanted, actual)):
        yield clean(".".join(path)), _text(wanted), _text(actual)


def _is_same_amount(wanted: Any, actual: Any) -> bool:
    amount = quantity.billionths(wanted)
    return amount is not None and amount == quantity.billionths(actual)


def _text(value: Any) -> str:
    return "none" if value is None else clean(str(value), 200)
