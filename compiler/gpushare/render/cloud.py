"""`nodes/cloud.md`: how a cloud's node pools get the start-up taint, if pools select by the cloud's own label.

Without the taint a pod may be scheduled to a new node before its layout is verified. Only the cloud can set it in time.
"""

from collections.abc import Callable, Iterator

from gpushare.intent.types import Operator
from gpushare.nodes import taints
from gpushare.plan.plan import Plan, PoolPlan

_CLUSTER_API_DOMAIN = "node.cluster.x-k8s.io/"

_INTRODUCTION = """# The start-up taint on cloud node pools

New nodes must come up with the taint {taint}, which the node runtime removes when the layout is verified. Set it on the
node pools below. Replace what is in capitals.
"""


def _gke(pool: str, taint: str) -> str:
    return (
        "GKE; the flag replaces all taints of the node pool, so name the others too:\n\n"
        f"    gcloud container node-pools update {pool} --cluster CLUSTER --node-taints {taint}=true:NoSchedule\n"
    )


def _eks(pool: str, taint: str) -> str:
    entry = f"{{key={taint},value=true,effect=NO_SCHEDULE}}"
    return (
        "EKS; the command taints running nodes as well. The node runtime removes the taint when its pod starts: restart\n"
        "the pods of verified nodes afterwards, `kubectl --namespace NAMESPACE rollout restart daemonset/gpushare-POOL`.\n\n"
        f"    aws eks update-nodegroup-config --cluster-name CLUSTER --nodegroup-name {pool} \\\n"
        f"      --taints 'addOrUpdateTaints=[{entry}]'\n"
    )


def _aks(pool: str, taint: str) -> str:
    return (
        "AKS; an initialization taint, since AKS puts an ordinary one back:\n\n"
        f"    az aks nodepool update --resource-group GROUP --cluster-name CLUSTER --name {pool} \\\n"
        f"      --node-init-taints {taint}=true:NoSchedule\n"
    )


def _scaleway(pool: str, taint: str) -> str:
    return (
        "Scaleway Kapsule; a tag of the pool, which sets the taint without a prefix:\n\n"
        f"    scw k8s pool update {pool.upper()}_ID tags.0=taint=noprefix={taint}=true:NoSchedule\n\n"
        "Kapsule may tag running nodes again: see that a verified node keeps no taint.\n"
    )


def _cluster_api(_: str, taint: str) -> str:
    return (
        "Cluster API with kubeadm, in the KubeadmConfigTemplate of the MachineDeployment:\n\n"
        "    spec:\n      template:\n        spec:\n          joinConfiguration:\n            nodeRegistration:\n"
        f"              taints: [{{key: {taint}, value: \"true\", effect: NoSchedule}}]\n"
    )


_CLOUDS: dict[str, Callable[[str, str], str]] = {
    "cloud.google.com/gke-nodepool": _gke,
    "eks.amazonaws.com/nodegroup": _eks,
    "kubernetes.azure.com/agentpool": _aks,
    "k8s.scaleway.com/pool-name": _scaleway,
}


def cloud(plan: Plan) -> str | None:
    """Return the file's text; None if no pool selects by a known label."""
    found = [(pool, section) for pool in plan.pools for section in _sections(pool)]
    keys = dict.fromkeys(f"`{_taint(pool)}`" for pool, _ in found)
    introduction = _INTRODUCTION.format(taint=" or ".join(keys))
    return "\n".join([introduction, *(section for _, section in found)]) if found else None


def _taint(pool: PoolPlan) -> str:
    return taints.of(pool.pool.autoscaler).not_ready


def _sections(pool: PoolPlan) -> Iterator[str]:
    for key, value in _asked(pool):
        how = _cluster_api if key.startswith(_CLUSTER_API_DOMAIN) else _CLOUDS.get(key)
        if how:
            yield f"## {pool.name}: node pool `{value}`\n\n{how(value, _taint(pool))}"


def _asked(pool: PoolPlan) -> Iterator[tuple[str, str]]:
    yield from pool.pool.nodes.match_labels
    for expression in pool.pool.nodes.match_expressions:
        if expression.operator is Operator.IN:
            yield from ((expression.key, value) for value in expression.values)
