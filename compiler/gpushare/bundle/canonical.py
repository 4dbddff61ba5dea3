"""The canonical form of an intent: equal intents give equal bundles and digests, whatever the order of fields and names.

The pipeline applies it after the rules, because their findings refer to the intent in the user's order.
"""

from collections.abc import Mapping
from typing import Any

from gpushare.bundle.artifact import digest
from gpushare.core import emit
from gpushare.intent.types import Backend, Intent, NodeSelector, Pool, Requests
from gpushare.intent.windows import DAYS
from gpushare_node.contract.struct import Struct, content_of, replace

_POOL_DEFAULTS: Mapping[str, Any] = {"backend": Backend.DEVICE_PLUGIN, "requests": Requests.CLAIMS, "sizes": []}
"""Fields of a pool that an intent had before they existed."""


def canonical(intent: Intent) -> Intent:
    """Return the intent with every list sorted whose order has no meaning. Lists in values for other charts keep theirs."""
    platform = replace(
        intent.platform,
        image_pull_secrets=tuple(sorted(intent.platform.image_pull_secrets)),
        namespaces=tuple(sorted(intent.platform.namespaces)),
    )
    return replace(
        intent,
        pools=tuple(map(_pool, sorted(intent.pools, key=lambda pool: pool.name))),
        quotas=tuple(sorted(intent.quotas, key=lambda quota: (quota.namespace, quota.pool))),
        platform=platform,
        admission=replace(intent.admission, localhost_profiles=tuple(sorted(intent.admission.localhost_profiles))),
        accepted=tuple(sorted(intent.accepted)),
        monitoring=_sorted(intent.monitoring),
        gitops=_sorted(intent.gitops),
        cards=_sorted(intent.cards),
        prices=_sorted(intent.prices),
    )


def _pool(pool: Pool) -> Pool:
    tolerations = tuple(sorted(pool.tolerations, key=emit.canonical_json))
    windows = {replace(one, days=tuple(day for day in DAYS if day in one.days)) for one in pool.rollout.windows}
    ordered = sorted(windows, key=lambda one: (one.start, one.timezone, one.duration_seconds, one.days))
    return replace(
        pool,
        nodes=_nodes(pool.nodes),
        namespaces=tuple(sorted(pool.namespaces)),
        tolerations=tolerations,
        sizes=tuple(sorted(pool.sizes)),
        rollout=replace(pool.rollout, windows=tuple(ordered)),
    )


def _nodes(nodes: NodeSelector) -> NodeSelector:
    expressions = [replace(one, values=tuple(sorted(one.values))) for one in nodes.match_expressions]
    return replace(
        nodes,
        match_labels=tuple(sorted(nodes.match_labels)),
        match_expressions=tuple(sorted(expressions, key=lambda one: (one.key, one.operator, one.values))),
        names=tuple(sorted(nodes.names)),
    )


def _sorted(value: Any) -> Any:
    """Return the data with the keys of every mapping sorted."""
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def intent_digest(intent: Intent) -> str:
    """Return `sha256:` and 64 hex digits of a canonical intent's content; fields that are ignored are not part of it.

    Tuples are sets, or maps as pairs (such as layouts), whose order has no meaning either.
    """
    plain = _plain(intent)
    # An intent without a field keeps the digest that it had before the field existed.
    if not intent.observes:
        del plain["adoption"]
    if not intent.prices:
        del plain["prices"]
    for field in ("own_runtime_class", "namespace", "vgpu_manager", "amd", "dra"):
        if plain["platform"][field] is None:
            del plain["platform"][field]
    for pool in plain["pools"]:
        for field in ("is_paused", "windows"):
            if not pool["rollout"][field]:
                del pool["rollout"][field]
        if not pool["sharing"].get("interval"):
            pool["sharing"].pop("interval", None)
        for field, default in _POOL_DEFAULTS.items():
            if pool[field] == default:
                del pool[field]
    return digest(emit.canonical_json(plain))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Struct):
        return {"kind": type(value).__name__} | {name: _plain(one) for name, one in content_of(value).items()}
    if isinstance(value, tuple):
        return sorted((list(one) if isinstance(one, tuple) else _plain(one) for one in value), key=emit.canonical_json)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value]
