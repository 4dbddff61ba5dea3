"""Releasing a node of which the pool is gone, or by hand: exclusive again, and nothing of this project left on it.

There is no policy but the one that the folder remembers. Where that is lost, the GPUs are taken for what they say they are.
"""

from gpushare_node.adapters.kube.cluster import POOL_LABEL
from gpushare_node.core.policy import Partitioner
from gpushare_node.reconcile.active_pool import find_owner
from gpushare_node.reconcile.client_pause import restore
from gpushare_node.reconcile.gpu_clients import mig_managers
from gpushare_node.reconcile.release_node import release_node
from gpushare_node.reconcile.retry import retry
from gpushare_node.reconcile.retry_request import handle_retry_request
from gpushare_node.reconcile.rollout_slot import RolloutSlot
from gpushare_node.reconcile.run_context import Dependencies, RunContext
from gpushare_node.reporting.outcome import Blocked, Outcome
from gpushare_node.reporting.reasons import ConditionReason


def run(deps: Dependencies, *, hold: bool = False) -> Outcome:
    """Release the node. With `hold`, tenants are waited for until they have gone, and it stays when all is done.

    A pool of which the pod is still on the node has it: its own runtime releases it. Errors as `reconcile.run`.
    """
    context = RunContext(deps=deps, slot=RolloutSlot(deps.cluster, deps.clock))
    return retry(context, lambda: _attempt(context), hold=hold)


def _attempt(context: RunContext) -> Outcome:
    former = context.enforced = context.former()
    if context.deps.cluster is None:
        return release_node(context, former, "")
    node, pods = context.cluster.node(), context.cluster.pods()
    handle_retry_request(context, node)
    pool = node.labels.get(POOL_LABEL)
    if pool is None:
        context.stop_enforcing()
        return Outcome(reason=ConditionReason.RELEASED, message=ConditionReason.RELEASED.value.means)
    managers = mig_managers(pods)
    is_ours = former is None or former.partitioner is Partitioner.GPUSHARE
    if is_ours and managers:
        raise Blocked(ConditionReason.MIG_MANAGER_PRESENT, f"on the node: {', '.join(managers)}")
    owner = find_owner(node.labels, pods, "")
    if owner is not None:
        raise Blocked(ConditionReason.WAITING_FOR_POOL, f"pool {owner} owns the node: its label is set and its pod is running")
    if is_ours:
        restore(context)
    return release_node(context, former, pool or "")
