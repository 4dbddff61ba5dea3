"""`nodes/cloud.md`: how a cloud's node pools get the start-up taint, if pools select by the cloud's own label.

Without the taint a pod may be scheduled to a new node before its layout is verified. Only the cloud can set it in time.
"""

from collections.abc import Callable, Iterator

from gpushare.intent.types import Operator
from gpushare.plan.plan import Plan, PoolPlan

TAINT = "gpushare.dev/not-ready"

_CLUSTER_API_DOMAIN = "node.cluster.x-k8s.io/"

_INTRODUCTION = f"""# The start-up taint on cloud node pools

New nodes must come up with the taint `{TAINT}`, which the node runtime removes when the layout is verified. Set it on the
node pools below. Replace what stands in capitals.
"""


def _gke(pool: str) -> str:
    return (
        "GKE; the flag replaces all taints of the node pool, so name the others too:\n\n"
        f"    gcloud container node-pools update {pool} --cluster CLUSTER --node-taints {TAINT}=true:NoSchedule\n"
    )


def _eks(pool: str) -> str:
    taint = f"{{key={TAINT},value=true,effect=NO_SCHEDULE}}"
    return (
        "EKS; the command taints the nodes that run already as well, and the node runtime clears them:\n\n"
        f"    aws eks update-nodegroup-config --cluster-name CLUSTER --nodegroup-name {pool} \\\n"
        f"      --taints 'addOrUpdateTaints=[{taint}]'\n"
    )


def _aks(pool: str) -> str:
    return (
        "AKS; an initialization taint, since AKS puts an ordinary one back:\n\n"
        f"    az aks nodepool update --resource-group GROUP --cluster-name CLUSTER --name {pool} \\\n"
        f"      --node-init-taints {TAINT}=true:NoSchedule\n"
    )


def _scaleway(pool: str) -> str:
    return (
        "Scaleway Kapsule; a tag of the pool, which sets the taint without a prefix:\n\n"
        f"    scw k8s pool update {pool.upper()}_ID tags.0=taint=noprefix={TAINT}=true:NoSchedule\n\n"
        "Kapsule may tag running nodes again: see that a verified node keeps no taint.\n"
    )


def _cluster_api(_: str) -> str:
    return (
        "Cluster API with kubeadm, in the KubeadmConfigTemplate of the MachineDeployment:\n\n"
        "    spec:\n      template:\n        spec:\n          joinConfiguration:\n            nodeRegistration:\n"
        f"              taints: [{{key: {TAINT}, value: \"true\", effect: NoSchedule}}]\n"
    )


_CLOUDS: dict[str, Callable[[str], str]] = {
    "cloud.google.com/gke-nodepool": _gke,
    "eks.amazonaws.com/nodegroup": _eks,
    "kubernetes.azure.com/agentpool": _aks,
    "k8s.scaleway.com/pool-name": _scaleway,
}


def cloud(plan: Plan) -> str | None:
    """Return the file's text; None if no pool selects by a known label."""
    sections = [section for pool in plan.pools for section in _sections(pool)]
    return "\n".join([_INTRODUCTION, *sections]) if sections else None


def _sections(pool: PoolPlan) -> Iterator[str]:
    for key, value in _asked(pool):
        how = _cluster_api if key.startswith(_CLUSTER_API_DOMAIN) else _CLOUDS.get(key)
        if how:
            yield f"## {pool.name}: node pool `{value}`\n\n{how(value)}"


def _asked(pool: PoolPlan) -> Iterator[tuple[str, str]]:
    yield from pool.pool.nodes.match_labels
    for expression in pool.pool.nodes.match_expressions:
        if expression.operator is Operator.IN:
            yield from ((expression.key, value) for value in expression.values)
