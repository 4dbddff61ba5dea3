"""`nodes/`: what clouds and autoscalers must be told about the nodes that they add.

`cloud.md`: how a cloud's node pools get the start-up taint, if pools select by the cloud's own label. Without the taint a pod
may be scheduled to a new node before its layout is verified. Only the cloud can set it in time.

`autoscaling.md` and `karpenter/<pool>.yaml`: an autoscaler simulates a node before it exists. It does not know the resources
and the label that sharing gives the node, so a group without nodes stays empty unless the administrator states them, as
`nodes.clouds` says for each cloud. For Karpenter: https://karpenter.sh/docs/concepts/nodeoverlays/ and
https://karpenter.sh/docs/concepts/nodepools/.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from gpushare.core.wording import join_words, pluralize
from gpushare.facts.nodes import taints
from gpushare.facts.nodes.clouds import CLOUDS, Cloud, GroupAnnotations, GroupTags
from gpushare.facts.nodes.selectors import region_of
from gpushare.intent.types import Autoscaler, Operator
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare_node.contract.names import POOL_LABEL

_INTRODUCTION = """# Autoscaling

What the autoscaler of each pool must be told. [cloud.md](cloud.md) has the commands for the start-up taint, if a pool selects
its nodes by a known cloud's label.
"""

_CLUSTER_AUTOSCALER = """## {pool}: Cluster Autoscaler

New nodes start with the taint `{not_ready}`. For eksctl, in the node group:

    taints: [{{key: {not_ready}, value: "true", effect: NoSchedule}}]

Cluster Autoscaler before 1.29 does not know the prefixes of our taints. Start it with

    --ignore-taint={not_ready}
    --ignore-taint={repartitioning}

A group without nodes grows only if the autoscaler knows what a node of it will have.
"""

_CLUSTER_AUTOSCALER_OF_DRA = """## {pool}: Cluster Autoscaler

New nodes start with the taint `{not_ready}`. For eksctl, in the node group:

    taints: [{{key: {not_ready}, value: "true", effect: NoSchedule}}]

Pods of the pool claim devices, and no label or tag tells Cluster Autoscaler which ones a new node will have: it learns that
from the slices of a node that is there. Let the group keep one, and start Cluster Autoscaler with

    --enable-dynamic-resource-allocation
"""

_KARPENTER = """## {pool}: Karpenter

In the NodePool, beside the labels by which the pool selects its nodes. Karpenter adds no node for a pod that selects
`{label}` if the NodePool does not have this label.

    spec:
      template:
        metadata:
          labels: {{{label}: {pool}}}
        spec:
          startupTaints:
          - {{key: {not_ready}, value: "true", effect: NoSchedule}}

Allow only instance types with {gpus}.
"""

_OVERLAY = """
Karpenter learns from a NodeOverlay, an alpha feature with the feature gate NodeOverlay, that a node will offer {resources}:

    kubectl apply -f karpenter/{pool}.yaml
"""

_TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"


def notes(plan: Plan) -> str | None:
    """Return the text of `nodes/autoscaling.md`; None if no pool has an autoscaler."""
    sections = []
    for pool in plan.pools:
        match pool.pool.autoscaler:
            case Autoscaler.CLUSTER_AUTOSCALER:
                sections.append(_cluster_autoscaler(pool))
            case Autoscaler.KARPENTER:
                sections.append(_karpenter(pool))
            case None:
                pass
    return "\n".join([_INTRODUCTION, *sections]) if sections else None


def overlays(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return Karpenter's NodeOverlay of each pool that needs one, by pool."""
    found = {}
    for pool in plan.pools:
        capacity = _unknown(pool)
        if pool.pool.autoscaler is Autoscaler.KARPENTER and capacity:
            requirement = {"key": POOL_LABEL, "operator": "In", "values": [pool.name]}
            found[pool.name] = {
                "apiVersion": "karpenter.sh/v1alpha1",
                "kind": "NodeOverlay",
                "metadata": {"name": f"gpushare-{pool.name}"},
                "spec": {"requirements": [requirement], "capacity": {name: str(count) for name, count in capacity.items()}},
            }
    return found


def _unknown(pool: PoolPlan) -> dict[str, int]:
    """Return the resources of a node that no cloud reports: all but as many whole GPUs as there are."""
    of_cards = (pool.vendor.whole_gpu, pool.pool.gpus_per_node)
    return {one.name: one.per_node for one in pool.resources if (one.name, one.per_node) != of_cards}


def _cluster_autoscaler(pool: PoolPlan) -> str:
    keys = taints.of(pool.pool.autoscaler)
    if pool.pool.backend.has_claims:
        return _CLUSTER_AUTOSCALER_OF_DRA.format(pool=pool.name, not_ready=keys.not_ready)
    text = _CLUSTER_AUTOSCALER.format(pool=pool.name, not_ready=keys.not_ready, repartitioning=keys.repartitioning)
    asked = region_of(pool.pool.nodes) or {}
    groups = [cloud for cloud in CLOUDS if cloud.has_groups]
    chosen = [cloud for cloud in groups if any(cloud.is_own_label(label) for label in asked)] or groups
    blocks = [_group(cloud.group, pool) for cloud in chosen if cloud.group]
    return "\n".join([text, *blocks, *([_nothing(groups, pool)] if any(cloud.group is None for cloud in chosen) else [])])


def _labels(pool: PoolPlan) -> tuple[tuple[str, str], ...]:
    """Return the labels of a node to come: the pool's, and those by which the pool selects nodes."""
    return ((POOL_LABEL, pool.name), *sorted(pool.pool.nodes.match_labels))


def _group(group: GroupTags | GroupAnnotations, pool: PoolPlan) -> str:
    match group:
        case GroupTags():
            return _tags(group, pool)
        case GroupAnnotations():
            return _annotations(group, pool)


def _tags(group: GroupTags, pool: PoolPlan) -> str:
    labels = ((f"label/{key}", value) for key, value in _labels(pool))
    names = [*labels, *((f"resources/{one.name}", str(one.per_node)) for one in pool.resources)]
    return _block(group.heading, (f"{f'{_TEMPLATE}{name}'.replace('/', group.slash)}: {value}" for name, value in names))


def _annotations(group: GroupAnnotations, pool: PoolPlan) -> str:
    first = pool.resources[0]
    lines = [
        f"{group.prefix}gpu-type: {first.name}",
        f'{group.prefix}gpu-count: "{first.per_node}"',
        f"{group.prefix}labels: {','.join(f'{key}={value}' for key, value in _labels(pool))}",
    ]
    only = ":" if len(pool.resources) == 1 else f"; they can name one resource, and the node has {len(pool.resources)}:"
    return _block(f"{group.heading}{only}", lines)


def _nothing(groups: Iterable[Cloud], pool: PoolPlan) -> str:
    names = join_words([cloud.name for cloud in groups if cloud.group is None])
    return f"{names} document no setting for other resources than {pool.vendor.whole_gpu}: let the node pool keep one node.\n"


def _block(heading: str, lines: Iterable[str]) -> str:
    return "\n".join([heading, "", *(f"    {line}" for line in lines), ""])


def _karpenter(pool: PoolPlan) -> str:
    key = taints.of(pool.pool.autoscaler).not_ready
    gpus = f"{pluralize(pool.pool.gpus_per_node, 'GPU')} of the card {pool.card.name}"
    text = _KARPENTER.format(pool=pool.name, label=POOL_LABEL, not_ready=key, gpus=gpus)
    resources = join_words([f"{count} {name}" for name, count in _unknown(pool).items()])
    return text + (_OVERLAY.format(pool=pool.name, resources=resources) if resources else "")


_OF_CLOUDS = """# The start-up taint on cloud node pools

New nodes must come up with the taint {taint}, which the node runtime removes when the layout is verified. Set it on the
node pools below, and remove it there before you uninstall gpushare. Replace what is in capitals.
"""


def cloud_notes(plan: Plan) -> str | None:
    """Return the text of `nodes/cloud.md`; None if no pool selects by a known label."""
    found = [(pool, section) for pool in plan.pools for section in _sections(pool)]
    keys = dict.fromkeys(f"`{_taint(pool)}`" for pool, _ in found)
    introduction = _OF_CLOUDS.format(taint=" or ".join(keys))
    return "\n".join([introduction, *(section for _, section in found)]) if found else None


def _taint(pool: PoolPlan) -> str:
    return taints.of(pool.pool.autoscaler).not_ready


def _sections(pool: PoolPlan) -> Iterator[str]:
    for key, value in _asked(pool):
        for cloud_notes in CLOUDS:
            if cloud_notes.startup_taint and cloud_notes.is_pool_label(key):
                how = cloud_notes.startup_taint.format(pool=value, POOL=value.upper(), taint=_taint(pool))
                yield f"## {pool.name}: node pool `{value}`\n\n{how}"


def _asked(pool: PoolPlan) -> Iterator[tuple[str, str]]:
    yield from pool.pool.nodes.match_labels
    for expression in pool.pool.nodes.match_expressions:
        if expression.operator is Operator.IN:
            yield from ((expression.key, value) for value in expression.values)
