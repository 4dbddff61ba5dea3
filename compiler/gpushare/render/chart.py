"""`chart/`: our static chart, unchanged except for a values.yaml for this cluster.

The values are complete, because a chart's values.yaml contains its defaults: the keys are those of the chart's own file.
"""

import functools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpushare.bundle.admission import MUTATING_KUBERNETES, rollout_slots
from gpushare.bundle.artifact import Artifact, hexdigest
from gpushare.bundle.lock import FormerClasses
from gpushare.core import resources
from gpushare.facts.catalog import image_registry, upstream
from gpushare.intent.types import NvidiaStack, Platform
from gpushare.offering import backends, modes
from gpushare.offering.backends.requests import QUOTA_OF_CLASS
from gpushare.resolved.plan import Plan, PoolPlan, QuotaPlan
from gpushare.vendors import OTHERS, VENDORS
from gpushare_node.contract.policy import Action, OnBusy, Partitioner
from gpushare_node.contract.struct import NOTHING

VALUES = "values.yaml"
MONITORING = "templates/monitoring/"
VGPU = "templates/vgpu/"
OF_DRA = "templates/dra/"
OF_VENDORS = "templates/vendors/"
_KUBELET_ROOT = "/var/lib/kubelet"
_LABELS_CLIENTS = "v26.7.0"
"""The first release of gpu-operator that does."""


def static_files(*, has_monitoring: bool, has_vgpus: bool, has_dra: bool, has_vendors: bool) -> Iterator[Artifact]:
    """Yield every file of the chart except its values; some templates only where there is something to render."""
    parts = ((MONITORING, has_monitoring), (VGPU, has_vgpus), (OF_DRA, has_dra), (OF_VENDORS, has_vendors))
    left_out = tuple(folder for folder, has in parts if not has)
    for inside, text in _static_texts(resources.chart()):
        if not inside.startswith(left_out):
            yield Artifact(path=f"chart/{inside}", text=text)


@functools.cache  # a fleet compiles many intents
def _static_texts(root: Path) -> tuple[tuple[str, str], ...]:
    above = len(f"{root}/")
    inside = sorted(f"{folder}/{name}"[above:] for folder, _, files in os.walk(root) for name in files)  # half of rglob's time
    kept = (path for path in inside if path != VALUES and not path.startswith("files/"))
    return tuple((path, (root / path).read_text(encoding="utf-8")) for path in kept)


def values(  # noqa: PLR0913 - what values depend on
    plan: Plan,
    policies: Mapping[str, str],
    next_steps: Sequence[str],
    namespaces: Mapping[str, str] = NOTHING,
    claims: Mapping[str, Mapping[str, str]] = NOTHING,
    *,
    left: FormerClasses,
    has_claims: bool,
) -> dict[str, Any]:
    """Return the chart's values. `policies` are the policies' texts: a changed digest restarts the pool's pods.

    `next_steps`: what is left to do after an uninstall. `namespaces`: of the stacks of other vendors, if nodes have or
    had their GPUs.
    `claims`: what the policies on claims look up of a pool. `left`: the classes of earlier bundles. `has_claims`: NVIDIA's DRA
    driver serves nodes, or did.
    """
    platform, observes = plan.intent.platform, plan.intent.observes
    others = {word: VENDORS[word].chart_values(namespace) for word, namespace in namespaces.items()}
    return {
        "cluster": plan.intent.name,
        "namespace": plan.intent.namespace,
        **({"pluginNamespace": elsewhere} if (elsewhere := plan.intent.plugin_namespace) != plan.intent.namespace else {}),
        "stack": platform.stack.value,
        "partitioner": platform.partitioner.value,
        **({"adoption": plan.intent.adoption.value} if observes else {}),
        "image": image_registry.node_image(platform) | {"pullPolicy": "IfNotPresent"},
        "imagePullSecrets": [{"name": name} for name in platform.image_pull_secrets],
        "runtimeClassName": platform.runtime_class,
        "kubeletRoot": kubelet_root(platform),
        "releaseAfter": "5m",
        "gpuClientLabel": _has_client_label(plan),
        **({"vendors": others} if others else {}),
        "migParted": {"enabled": platform.partitioner is Partitioner.MIG_MANAGER},
        "admission": {
            "enforce": plan.intent.admission.mode.value,
            "ambiguous": sorted(plan.ambiguous),
            "tenants": list(plan.intent.tenant_namespaces),
            "platformNamespaces": sorted({*plan.intent.platform_namespaces, *filter(None, [left.driver_namespace])}),
            "scope": plan.intent.admission.scope.value,
            "localhostProfiles": list(plan.intent.admission.localhost_profiles),
            "mutate": not observes and (plan.intent.kubernetes or (0, 0)) >= MUTATING_KUBERNETES,
        },
        **({"dra": _dra(plan, left)} if plan.dra_pools or left.classes else {}),
        **({"hasClaims": True} if has_claims else {}),
        "pools": {
            pool.name: _pool(pool, policies[pool.name], observes=observes)
            | ({"claims": dict(of_pool)} if (of_pool := claims.get(pool.name)) else {})
            for pool in plan.pools
        },
        "quotas": {} if observes else {quota.namespace: _hard(plan, quota, left) for quota in plan.quotas},
        "uninstall": {"release": True, "timeout": "3m", "goOn": False, "nextSteps": list(next_steps)},
        "networkPolicy": {"enabled": True, "from": []},
        "global": {},
    }


def _dra(plan: Plan, left: FormerClasses) -> dict[str, Any]:
    """Return whose slices count, those of the driver's own pods if it is known which they are, and what is left of classes."""
    lookups = left.lookups([pool.name for pool in plan.pools])
    return {"driverNamespace": left.driver_namespace, **({"former": lookups} if lookups else {})}


def _hard(plan: Plan, quota: QuotaPlan, left: FormerClasses) -> dict[str, int]:
    """Return the numbers of a quota by every key that limits a resource."""
    keys = {
        backend.quota_key(one.name): backend.quota_keys(one.name)
        for pool in plan.pools
        for backend in [backends.of(pool.pool, pool.card)]
        for one in pool.resources
    }
    hard = Counter[str]()
    for key, number in quota.hard:
        hard.update(dict.fromkeys(keys.get(key, (key,)), number))
    return dict(sorted((left.quotas(quota.namespace, QUOTA_OF_CLASS) | hard).items()))


def kubelet_root(platform: Platform) -> str:
    """Return the kubelet's folder on the nodes: the operator's value, because both use the same nodes."""
    chosen: str | None = None
    if platform.stack is NvidiaStack.GPU_OPERATOR:
        chosen = platform.values.get("hostPaths", {}).get("kubeletRootDir")
    return (chosen or "").rstrip("/") or _KUBELET_ROOT


def _has_client_label(plan: Plan) -> bool:
    """Return whether the operator is known to label every GPU node nvidia.com/gpu.deploy.client.

    A bundle that observes installs none, so that it knows only the release that the intent names.
    """
    platform = plan.intent.platform
    if platform.stack is not NvidiaStack.GPU_OPERATOR or (platform.version is None and plan.intent.observes):
        return False
    release = platform.version or upstream.chart(platform.stack.value).version
    return upstream.version_order(release) >= upstream.version_order(_LABELS_CLIENTS)


def _pool(pool: PoolPlan, policy: str, *, observes: bool) -> dict[str, Any]:
    mode, enforcement, rollout = modes.of(pool.pool), pool.pool.enforcement, pool.pool.rollout
    backend = backends.of(pool.pool, pool.card)
    return {
        "card": pool.card.id,
        **({"vendor": pool.card.vendor} if pool.card.vendor in OTHERS else {}),
        "mode": pool.mode.value,
        "migCapable": pool.card.mig is not None or pool.card.mig_supported is True,
        "mig": mode.is_partitioned,
        "mps": mode.has_daemon,
        # If the node runtime may not send a signal to a process, it must evict its pod: so action `kill` needs this right too.
        "evict": not observes and (enforcement.action in {Action.KILL, Action.EVICT} or rollout.on_busy is OnBusy.EVICT),
        "kills": not observes and enforcement.action is Action.KILL,
        "tolerations": [dict(toleration) for toleration in pool.pool.tolerations],
        "terms": [dict(term) for term in pool.terms],
        "resources": [name for resource in pool.resources for name in backend.limits(resource.name)],
        "sharedResources": sorted(
            {name for device in pool.samples if device.replicas > 1 for name in backend.limits(device.resource)}
        ),
        "namespaces": list(pool.pool.namespaces),
        "default": pool.pool.is_default,
        "slots": rollout_slots(rollout.max_unavailable),
        "policy": hexdigest(policy.encode())[:8],
    }
