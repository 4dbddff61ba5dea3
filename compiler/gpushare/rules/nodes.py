"""Rules on which nodes a pool has, and on those that an autoscaler adds.

GS202 to GS204, GS206, GS207, GS212, GS214, GS216 and GS217.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import groupby

from gpushare import vendors
from gpushare.core.diagnostics import Path, Severity
from gpushare.core.units import MIB, is_dns_subdomain, show_bytes
from gpushare.core.wording import join_first, join_words, pluralize
from gpushare.facts.nodes import selectors
from gpushare.facts.nodes.clouds import CLOUDS, Cloud
from gpushare.facts.nodes.selectors import MAX_ALTERNATIVES, region_of
from gpushare.intent.types import Autoscaler, Expression, MigStrategy, NodeSelector, Pool
from gpushare.offering import modes
from gpushare.rules.rule import Problem, RuleContext, of_pool, pool_path, rule

_DOMAINS = tuple(domain for vendor in vendors.VENDORS.values() for domain in (vendor.domain, *vendor.other_domains))
REWRITTEN = (
    *_DOMAINS,
    "gpushare.dev",
    "feature.node.kubernetes.io",
    "profile.node.kubernetes.io",
)
"""Prefixes of labels that come and go with the sharing itself, or with the pods that write them: the last two are those of node
feature discovery (https://github.com/kubernetes-sigs/node-feature-discovery/issues/1752)."""

_BELOW_NFD = (".feature.node.kubernetes.io", ".profile.node.kubernetes.io")
"""The subdomains that node feature discovery lets rules write."""

TERM_BYTES = 66
"""A requirement on a node's name as JSON, without the name."""

MAX_NAMED = 8
"""How many pools one finding names, and how many ways to separate them."""

MAX_DAEMONSET_BYTES = MIB
"""The API server takes objects of up to 1.5 MiB; the pod template needs a part of that."""

MAX_BUNDLE_BYTES = 12 * MIB
"""Written twice in a Helm release and compressed, so many requirements on names just exceed its 1 MiB (measured)."""


@rule("GS202")
def check_satisfiable(context: RuleContext) -> Iterator[Problem]:
    """A selector that no node can satisfy."""
    for pool in context.intent.pools:
        if region_of(pool.nodes) is None:
            yield _contradiction(pool)


def _contradiction(pool: Pool) -> Problem:
    """Report the first entry that contradicts those before it."""
    entries = list(_entries(pool.nodes))
    count = (
        bisect_left(range(1, len(entries)), True, key=lambda n: selectors.conjunction(e[:2] for e in entries[:n]) is None) + 1
    )
    key, _, text, path = entries[count - 1]
    before = [entry[2] for entry in entries[: count - 1] if entry[0] == key]
    return Problem(
        message=f"no node can satisfy {text} together with {join_words(before)}",
        hints=("keep one of them: a label has one value on a node, or is absent",),
        path=pool_path(pool, "nodes", *path),
    )


def _entries(nodes: NodeSelector) -> Iterator[tuple[str, selectors.LabelSet, str, Path]]:
    for key, value in nodes.match_labels:
        exact = selectors.LabelSet(absent=False, others=False, listed=frozenset((value,)))
        yield key, exact, f"{key}={value}", ("matchLabels", key)
    for number, expression in enumerate(nodes.match_expressions):
        yield expression.key, selectors.values_of(expression), _show(expression), ("matchExpressions", number)


def _show(expression: Expression) -> str:
    values = f" [{', '.join(expression.values)}]" if expression.values else ""
    return f"{expression.key} {expression.operator.value}{values}"


@rule("GS203")
def check_clashes(context: RuleContext) -> Iterator[Problem]:
    """Two pools that can have the same node, with nothing to decide which pool gets it."""
    # By a label that GS204 refuses no nodes are selected: another will be written.
    pools = [pool for pool in context.intent.pools if not any(_is_rewritten(key) for key, *_ in _entries(pool.nodes))]
    pairs = selectors.clashes(pools)
    for _, group in groupby(pairs, key=lambda pair: pair[1].name):
        found = list(group)
        later, earlier = found[0][1], [pair[0] for pair in found]
        yield _clash(later, earlier)


def _clash(later: Pool, earlier: list[Pool]) -> Problem:
    first, names = earlier[0], join_first([pool.name for pool in earlier], MAX_NAMED)
    whose = f"pool {names}" if len(earlier) == 1 else f"pools {names}"
    priority = f"give one of them a higher priority, such as priority: {later.priority + 1}"
    others = set(first.nodes.names)
    number = next((number for number, name in enumerate(later.nodes.names) if name in others), None)
    if number is not None:
        name = later.nodes.names[number]
        return Problem(
            message=f"node {name} is in {whose} as well",
            hints=(f"name it in one pool only, or {priority}", *_on_one_node(first, later)),
            path=pool_path(later, "nodes", "names", number),
        )
    same = _on_one_node(first, later) if region_of(first.nodes) == region_of(later.nodes) else ()
    return Problem(
        message=f"pool {later.name} overlaps {whose}: their selectors can match the same node",
        hints=(f"{_separations(earlier, later)}, or {priority}", *same),
        path=pool_path(later, "nodes"),
        causes=tuple(pool_path(pool, "nodes", field) for pool in (*earlier, later) for field in ("matchLabels", "names")),
    )


def _on_one_node(earlier: Pool, later: Pool) -> tuple[str, ...]:
    """Return why two pools cannot divide a node between them."""
    if earlier.card != later.card:
        return ("a node has one card model: two models in one node cannot be described",)
    return ("the device plugin shares all GPUs of a node alike: GPUs of one node cannot be in two pools",)


def _separations(earlier: list[Pool], later: Pool) -> str:
    """Return how to separate a pool from all others that clash with it: one expression for each label and pool."""
    excluded: dict[tuple[str, str], set[str]] = {}
    for pool in earlier:
        way = _separation(pool, later)
        if way is None:
            return "select them by different values of one label"
        excluded.setdefault(way[:2], set()).update(way[2])
    (key, name), values = next(iter(excluded.items()))
    others = f", and so for {join_words(dict.fromkeys(name for _, name in list(excluded)[1:]))}" if len(excluded) > 1 else ""
    listed = ", ".join(sorted(values))
    return f"add matchExpressions [{{key: {key}, operator: NotIn, values: [{listed}]}}] to pool {name}{others}"


def _separation(earlier: Pool, later: Pool) -> tuple[str, str, frozenset[str]] | None:
    """Return a label that only one of the two selects, the other's name, and the values that it must exclude; None if none."""
    for one, other in ((earlier, later), (later, earlier)):
        theirs, ours = region_of(one.nodes) or {}, region_of(other.nodes) or {}
        for key, values in theirs.items():
            if values.pinned and key not in ours:
                return key, other.name, values.listed
    return None


@rule("GS204")
def check_label_families(context: RuleContext) -> Iterator[Problem]:
    """A selector on a label that sharing itself changes."""
    for pool in context.intent.pools:
        in_labels = ((key, ("matchLabels", key), True) for key, _ in pool.nodes.match_labels)
        expressions = enumerate(pool.nodes.match_expressions)
        in_expressions = ((e.key, ("matchExpressions", number, "key"), False) for number, e in expressions)
        for key, path, on_key in (*in_labels, *in_expressions):
            if _is_rewritten(key):
                prefix = key.partition("/")[0]
                yield Problem(
                    message=f"{key} cannot select nodes: {prefix}/ labels change with sharing, or when their writer restarts",
                    hints=("select by a label of your own, such as node.example.org/flavour, or by names",),
                    path=pool_path(pool, "nodes", *path),
                    on_key=on_key,
                )


def _is_rewritten(key: str) -> bool:
    prefix, slash, _ = key.partition("/")
    return bool(slash) and (prefix in REWRITTEN or prefix.endswith(_BELOW_NFD))


@rule("GS206")
def check_names(context: RuleContext) -> Iterator[Problem]:
    """Names that no node can have."""
    for pool in context.intent.pools:
        for number, name in enumerate(pool.nodes.names):
            if not is_dns_subdomain(name):
                hint = "write it as `kubectl get nodes` does: lower-case letters, digits, - and ."
                path = pool_path(pool, "nodes", "names", number)
                yield Problem(message=f"invalid node name {name!r}", hints=(hint,), path=path)


@rule("GS207")
def check_expected(context: RuleContext) -> Iterator[Problem]:
    """`expected` beside `names`, although the number of names is the number of nodes."""
    for pool in context.intent.pools:
        if pool.nodes.names and pool.nodes.expected is not None:
            yield Problem(
                message=f"expected cannot be combined with names, which are {pluralize(len(pool.nodes.names), 'node')}",
                hints=("leave expected out",),
                path=pool_path(pool, "nodes", "expected"),
            )


_ON_EVERY_NODE = {"kubernetes.io/hostname": None, "kubernetes.io/os": "linux", "kubernetes.io/arch": None}
"""Labels that kubelet sets on every node, and the value that nodes with GPUs have; None: any."""


@rule("GS216", Severity.WARNING)
def check_some_nodes(context: RuleContext) -> Iterator[Problem]:
    """A selector that every node of a cluster satisfies."""
    for pool in context.intent.pools:
        required = region_of(pool.nodes)
        if (
            not pool.nodes.names
            and required is not None
            and all(_holds_everywhere(key, values) for key, values in required.items())
        ):
            yield Problem(
                message=f"pool {pool.name} selects nodes without GPUs too: no part of its selector is specific to GPU nodes",
                hints=("select by a label that only these nodes have, such as node.example.org/flavour",),
                path=pool_path(pool, "nodes"),
            )


def _holds_everywhere(key: str, values: selectors.LabelSet) -> bool:
    key = key.removeprefix("beta.")
    if key in _ON_EVERY_NODE:
        value = _ON_EVERY_NODE[key]
        is_name = key == "kubernetes.io/hostname"
        return values.others or (not is_name and (value is None or value in values.listed))
    return values.absent


@rule("GS212")
def check_terms(context: RuleContext) -> Iterator[Problem]:
    """Node affinity that is too large for a DaemonSet or for a bundle."""
    pools = context.intent.pools
    sizes = [_affinity_bytes(context, pool) for pool in pools]
    written = [size for size in sizes if size is not None]
    if sum(written) > MAX_BUNDLE_BYTES and max(written) <= MAX_DAEMONSET_BYTES:
        message = "the pools name so many nodes that the bundle cannot tell them apart: each pool excludes those of all others"
        yield Problem(message=message, hints=(_BY_LABEL,), path=("spec", "pools"))
    for pool, size in zip(pools, sizes, strict=True):
        if size is None:
            message = f"excluding the pools of higher priority takes too many alternatives (at most {MAX_ALTERNATIVES})"
            hint = "give those pools one label that they share, so that one expression excludes them"
            yield Problem(message=message, hints=(hint,), path=pool_path(pool, "nodes"))
        elif size > MAX_DAEMONSET_BYTES:
            message = f"naming its own nodes and excluding other pools' takes {size // 1024} KiB of the pool's DaemonSet"
            hint = f"{_BY_LABEL}; {show_bytes(MAX_DAEMONSET_BYTES)} fit"
            yield Problem(message=message, hints=(hint,), path=pool_path(pool, "nodes"))


_BY_LABEL = "label the nodes and select them by matchLabels; names are meant for some dozens of nodes"


def _affinity_bytes(context: RuleContext, pool: Pool) -> int | None:
    """Return about how many bytes of the pool's DaemonSet name nodes; None if it would need too many alternatives."""
    owned = context.assignment.owned(pool)
    if owned is None:
        return None
    mine = sum(TERM_BYTES + len(name) for name, _ in owned if name)
    return mine + context.assignment.foreign_bytes(pool, TERM_BYTES)


@rule("GS214", Severity.WARNING)
def check_reachable(context: RuleContext) -> Iterator[Problem]:
    """A pool all of whose nodes belong to pools of higher priority."""
    for pool in context.intent.pools:
        if region_of(pool.nodes) is not None and context.assignment.owned(pool) == ():
            yield Problem(
                message=f"pool {pool.name} can never have a node: pools of higher priority have all nodes that it selects",
                hints=("raise its priority, or remove the pool",),
                path=pool_path(pool, "nodes"),
            )


def _gpu_labels(cloud: Cloud) -> dict[str, str]:
    """Return labels that a pool may select, each with the label of Cluster Autoscaler that its nodes then have."""
    label, former = cloud.autoscaler_label, cloud.former_gpu_label
    pools = {cloud.pool_label: label} if cloud.labels_every_gpu_node else {}
    return ({label: label} if label else {}) | pools | ({former: former} if former else {})


_GPU_LABELS = {selected: label for cloud in CLOUDS for selected, label in _gpu_labels(cloud).items()}


@rule("GS217", Severity.WARNING)
def check_gpu_label(context: RuleContext) -> Iterator[Problem]:
    """Nodes that Cluster Autoscaler never counts as ready.

    With the label it waits for nvidia.com/gpu (https://github.com/kubernetes/autoscaler/issues/8095,
    https://github.com/Azure/AKS/issues/5161). A node that is in none of its groups makes every scale-up fail, for any pods
    (https://github.com/kubernetes/autoscaler/issues/10301).
    """
    pools = context.intent.pools
    if not any(pool.autoscaler is Autoscaler.CLUSTER_AUTOSCALER for pool in pools):
        return
    for pool in pools:
        kinds, label = context.kinds(pool), _gpu_label(pool)
        if pool.autoscaler is Autoscaler.KARPENTER or label is None or kinds is None:
            continue
        if pool.backend.has_claims and _is_in_slices(pool):
            continue
        offered = set() if pool.backend.has_claims else {kind.resource for kind in kinds}
        whole = vendors.of_resources(offered).whole_gpu
        if whole not in offered:
            yield of_pool(pool, _never_ready(pool, label, whole), _how_to_offer_it(pool, label, whole), "nodes")


def _gpu_label(pool: Pool) -> str | None:
    """Return the label by which the autoscaler knows that the pool's nodes have GPUs; None if they need not have one."""
    required = region_of(pool.nodes) or {}
    return next((label for key, label in _GPU_LABELS.items() if key in required and not required[key].absent), None)


def _is_in_slices(pool: Pool) -> bool:
    """Whether the autoscaler knows of all nodes of the pool that a driver of DRA has their GPUs."""
    required = region_of(pool.nodes) or {}
    of_dra = [required[cloud.dra_label] for cloud in CLOUDS if cloud.dra_label in required]
    return any(not one.absent and not one.others and one.listed == {"true"} for one in of_dra)


def _never_ready(pool: Pool, label: str, whole: str) -> str:
    offers = f"nodes of pool {pool.name} have the label {label} and never offer {whole}"
    if pool.autoscaler is None:
        return f"{offers}: Cluster Autoscaler, which does not manage them, then adds no nodes to any pool"
    return f"{offers}: Cluster Autoscaler never counts them as ready"


def _how_to_offer_it(pool: Pool, label: str, whole: str) -> str:
    if pool.backend.has_claims:
        of_dra = next((cloud.dra_label for cloud in CLOUDS if label in _gpu_labels(cloud).values() and cloud.dra_label), "")
        select = f'select nodes with {of_dra}: "true" as well, or ' if of_dra else ""
        return f"{select}make sure that they lack the label {label}"
    is_partitioned = modes.of(pool).is_partitioned
    keep = f"write strategy: {MigStrategy.SINGLE.value} and no replicas" if is_partitioned else "write rename: false"
    return f"{keep}, so that they offer {whole}; or make sure that they lack the label {label}"
