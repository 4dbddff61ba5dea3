"""Names that the bundle, the chart and the node runtime share: labels, annotations and taints of nodes, a RuntimeClass.

Our taints are on nodes whose GPUs are not what their pool promises, with effect NoSchedule; the chart has the same keys. An
autoscaler simulates the nodes that it would add. Cluster Autoscaler copies the taints of a node of the group into that
simulation, except those with its own prefixes: `startup-taint`, for a node that is not ready before the taint goes, and
`status-taint`, for a state that passes. It knows both since 1.29
(https://github.com/kubernetes/autoscaler/releases/tag/cluster-autoscaler-1.29.0). Karpenter reads the key of the start-up taint
in its NodePool (https://karpenter.sh/docs/concepts/nodepools/#cilium-startup-taint).
"""

PREFIX = "gpushare.dev/"
"""Of all labels, annotations and taints that are ours."""

POOL_LABEL = "gpushare.dev/pool"
"""The pool that the node belongs to, or belonged to until it is released."""
PROFILE_LABEL = "gpushare.dev/profile"
"""What the node runtime sets beside the plugin's own label."""
BACKEND_LABEL = "gpushare.dev/backend"
"""Which back end may run on the node: `dra`, or `none` while that changes. Absent, or with another value: the device plugin."""
NO_BACKEND = "none"
VENDOR_LABEL = "gpushare.dev/vendor"
"""Whose the GPUs are, where they are not NVIDIA's: another pod releases such a node. It comes and goes with the pool's."""
RUNTIME_LABEL, AWAY = "gpushare.dev/runtime", "away"
"""Set by an administrator, who needs the runtime off the node for a while: it has the GPUs open (docs/troubleshooting.md)."""

RELEASE_ANNOTATION = "gpushare.dev/release"
"""The uninstall Job sets it on every node, and removes it at the end: see `kube.pod_identity`.

The node answers with `RELEASED_ANNOTATION`.
"""
RELEASED_ANNOTATION = "gpushare.dev/released"
RETRY_ANNOTATION = "gpushare.dev/retry"
"""Set by an administrator, to any value: a run that waits for its next attempt starts immediately. The node removes it."""
WOULD_ANNOTATION = "gpushare.dev/would"
"""Set under `adoption: observe`: JSON with what `enforce` would do to the node."""
POLICY_ANNOTATION = "gpushare.dev/policy"
"""Of the DaemonSet's pods: the digest of the policy."""

NOT_READY_TAINT = "gpushare.dev/not-ready"
NOT_READY_TAINTS = (NOT_READY_TAINT, "startup-taint.cluster-autoscaler.kubernetes.io/gpushare-not-ready")
"""From a node's start until its layout is verified: the key by default, and the key for nodes of Cluster Autoscaler."""
REPARTITIONING_TAINT = "gpushare.dev/repartitioning"
REPARTITIONING_TAINTS = (REPARTITIONING_TAINT, "status-taint.cluster-autoscaler.kubernetes.io/gpushare-repartitioning")

OUR_TAINTS = tuple(key for keys in zip(NOT_READY_TAINTS, REPARTITIONING_TAINTS, strict=True) for key in keys)
"""The keys of all pools. Whatever runs on a node before it is ready tolerates all of them: a pool may change its autoscaler."""
"""While the GPUs are changed, by default and for Cluster Autoscaler.

Only the policy's key is added, but all are removed: a node may still have the one that its pool had before.
"""

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""With which the name begins that Kubernetes gives every DeviceClass in `limits`."""

MEMORY, SHARES = "memory", "shares"
"""Names of capacities of a device."""

OPERATOR_RUNTIME_CLASS = "nvidia"
"""The RuntimeClass of gpu-operator, where its values do not name another."""


def workload(pool: str) -> str:
    """Return the name of the pool's DaemonSet; without a pool that of the one for nodes whose pools no longer exist."""
    return f"gpushare-{pool or 'release'}"
