"""The closed loop on a node: from the policy to a node that offers what the plan promises, or a reason why not.

lock, refuse, leave or wait for another pool, driver, look, turn, taint, busy, pause, change, labels, plugin, untaint. Every
way out leaves GPU clients running and the journal telling how far it came; a new run begins with what stands then.
"""


from gpushare_node.adapters.host.kubelet import CheckpointError
from gpushare_node.adapters.kube.cluster import RELEASED_ANNOTATION, REPARTITIONING_TAINT, ClusterError, NodeView
from gpushare_node.core.policy import Partitioner
from gpushare_node.core.structs import replace
from gpushare_node.gpus.advertised import expected, find_mismatch
from gpushare_node.reconcile.active_pool import find_owner, is_leaving
from gpushare_node.reconcile.client_pause import restore
from gpushare_node.reconcile.converge import converge
from gpushare_node.reconcile.desired_policy import DesiredPolicy
from gpushare_node.reconcile.gpu_clients import mig_managers
from gpushare_node.reconcile.release_node import release_node
from gpushare_node.reconcile.retry import retry
from gpushare_node.reconcile.retry_request import handle_retry_request
from gpushare_node.reconcile.rollout_slot import RolloutSlot
from gpushare_node.reconcile.run_context import Dependencies, RunContext
from gpushare_node.reporting.outcome import Blocked, Outcome
from gpushare_node.reporting.reasons import ConditionReason


def run(deps: Dependencies, desired: DesiredPolicy, *, hold: bool = False) -> Outcome:
    """Bring the node to the goal, or say why it is not there.

    With `hold`, a reason that may pass is waited for, with the policy in force enforced meanwhile; without, it is returned.
    FolderError where another runtime is at work; Stopped when the program is asked to end: what must not stay is put right
    on the way out, and the journal has the rest.
    """
    # A run that does not stay cannot come back later: it waits for tenants at once.
    drains_at = None if hold else deps.clock.now()
    context = RunContext(deps=deps, slot=RolloutSlot(deps.cluster, deps.clock), digest=desired.digest, drains_at=drains_at)
    return retry(context, lambda: _attempt(context, desired), hold=hold)


def _attempt(context: RunContext, desired: DesiredPolicy) -> Outcome:
    if context.deps.cluster is None:
        return converge(context, desired, None)
    context.enforced = context.former()
    try:
        node = context.deps.cluster.node()
    except ClusterError as error:
        return _converge_offline(context, desired, error)
    return _visit_node(context, desired, node)


def _visit_node(context: RunContext, desired: DesiredPolicy, node: NodeView) -> Outcome:
    """What the node is to us comes first: ours, somebody else's, or to be left."""
    handle_retry_request(context, node)
    pods = context.cluster.pods()
    policy = desired.policy
    managers = mig_managers(pods)
    if policy.partitioner is Partitioner.GPUSHARE and not managers:
        restore(context)
    if _may_have_turn(context, node) and context.slot.find():
        # A run before this one was stopped, or failed: what it waited for is waited for, and its turn given back at the end.
        context.drains_at = context.deps.clock.now()
    if is_leaving(node, is_selected=context.cluster.selects(node)):
        # What stands is the former policy's; how tenants are treated is the pool's word of today.
        former = context.former() or policy
        kept_pool = former.pool if former.pool != policy.pool else None
        return release_node(context, replace(former, rollout=policy.rollout), policy.pool, kept_pool=kept_pool, may_stay=True)
    if policy.partitioner is Partitioner.GPUSHARE and managers:
        raise Blocked(ConditionReason.MIG_MANAGER_PRESENT, f"on the node: {', '.join(managers)}")
    owner = find_owner(node.labels, pods, policy.pool)
    if owner is not None:
        raise Blocked(ConditionReason.WAITING_FOR_POOL, f"pool {owner} owns the node: its label is set and its pod is running")
    if RELEASED_ANNOTATION in node.annotations:
        context.cluster.annotate({RELEASED_ANNOTATION: None})
    return converge(context, desired, node)


def _may_have_turn(context: RunContext, node: NodeView) -> bool:
    """Whether a run before this one can have left a turn. One that failed keeps it, though the former layout is offered."""
    journal = context.deps.folder.journal()
    has_failed = journal is not None and journal.attempts > 0
    return has_failed or any(taint.key == REPARTITIONING_TAINT for taint in node.taints)


def _converge_offline(context: RunContext, desired: DesiredPolicy, error: ClusterError) -> Outcome:
    """Without an answer of the API server: hardware goes on to what was begun or was in force; the rest follows later.

    A new policy needs a turn and the taint first, so it waits. Whoever holds devices in kubelet's checkpoint counts as there.
    """
    folder = context.deps.folder
    journal = folder.journal()
    is_in_force = folder.policy() == desired.text
    is_begun = journal is not None and journal.is_changing and journal.policy_digest == desired.digest
    if not is_in_force and not is_begun:
        raise Blocked(
            ConditionReason.PARTITIONING, f"the new policy is not applied, because a request to the API server failed: {error}"
        )
    context.close_driver()
    deps = replace(context.deps, cluster=None)
    alone = RunContext(
        deps=deps, slot=RolloutSlot(None, deps.clock), enforced=context.enforced, results=context.results, is_offline=True
    )
    alone.may_wait_for_tenants = False
    try:
        outcome = converge(alone, desired, None)
    finally:
        alone.close_driver()
    if not outcome.is_usable:
        return outcome
    if not is_in_force or not _is_registered(alone, desired):
        text = f"the layout is in place; the labels are not set, because a request to the API server failed: {error}"
        return Outcome(reason=ConditionReason.WAITING_FOR_PLUGIN, message=text)
    return replace(outcome, message=f"{outcome.message} Labels were not checked: {error}")


def _is_registered(context: RunContext, desired: DesiredPolicy) -> bool:
    """Whether kubelet knows the devices that stand, as far as can be told without the API server."""
    hardware = context.deps.open_hardware(desired.digest)
    try:
        devices = hardware.devices(hardware.look(desired.policy, frozenset()))
        registered = context.deps.read_checkpoint().registered
    except CheckpointError:
        return False
    finally:
        hardware.close()
    wanted = expected(desired.policy)
    return find_mismatch(wanted, devices, registered, wanted) is None
