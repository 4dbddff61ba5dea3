"""The reconcile loop of a node: bring it to its pool's policy, or make it leave if no pool selects it.

An attempt finds out whether the node is the pool's, another pool's, or to be released, and runs the steps for that. In every
way out GPU clients are resumed and the journal shows how far the change came; the next attempt starts from what it finds.
"""

from gpushare_node.adapters.kube.cluster import CHANGE_TAINTS, Cluster, ClusterError, NodeView, PodView, pools_of
from gpushare_node.backends.backend import CheckpointError
from gpushare_node.contract.names import POOL_LABEL, RELEASED_ANNOTATION, RETRY_ANNOTATION, WOULD_ANNOTATION
from gpushare_node.contract.policy import Partitioner
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.membership import Standing, find_owner
from gpushare_node.reconcile.client_pause import mig_managers, resume
from gpushare_node.reconcile.convergence import converge
from gpushare_node.reconcile.release import Release
from gpushare_node.reconcile.retry import Retry
from gpushare_node.reconcile.run_context import Dependencies, DrainEvictions, RolloutSlot, RunContext
from gpushare_node.reporting.outcome import Blocked, Outcome, Status


def reconcile(deps: Dependencies, desired: DesiredPolicy, *, hold: bool = False) -> Outcome:
    """Bring the node to the policy, or return why it is not there.

    With `hold`, a reason that may pass is waited for while the policy in force is enforced; without it, it is returned.
    StateDirError if another runtime is at work. Stopped if a signal stops the program: on the way out what must not stay is put
    right, and the journal has the rest.
    """
    # Without `hold` no later attempt follows: the first one waits for tenants.
    drains_at = None if hold else deps.clock.now()
    context = RunContext(deps=deps, slot=RolloutSlot(deps.cluster, deps.clock), digest=desired.digest, drains_at=drains_at)
    return Retry(context=context, attempt=_Reconciler(context=context, desired=desired).attempt, hold=hold).run()


def release_orphan(deps: Dependencies, *, hold: bool = False) -> Outcome:
    """Release a node whose pool is deleted, or that a person releases by hand.

    No policy is given but the one that the folder has; if that is lost, the GPUs themselves show what they are. If a pool's pod
    is still on the node, its own runtime releases it. With `hold`, tenants are waited for, and the run stays when all is done.
    Errors as `reconcile`.
    """
    context = RunContext(deps=deps, slot=RolloutSlot(deps.cluster, deps.clock))
    return Retry(context=context, attempt=lambda: _release_orphan(context), hold=hold).run()


class _Reconciler(Struct):
    """The attempts of one run to bring the node to a policy."""

    context: RunContext
    desired: DesiredPolicy

    def attempt(self) -> Outcome:
        """Try once. Blocked, ClusterError, DriverError, StateDirError."""
        context, policy = self.context, self.desired.policy
        if not context.cluster.has_server:
            return converge(context, self.desired, context.cluster.node())
        context.enforced = context.former()
        try:
            node = context.cluster.node()
        except ClusterError as error:
            return self._converge_offline(error)
        _handle_retry_request(context, node)
        if WOULD_ANNOTATION in node.annotations:
            # The node was only observed until now.
            context.cluster.annotate({WOULD_ANNOTATION: None})
        pods = context.cluster.pods()
        is_ours = policy.partitioner is Partitioner.GPUSHARE
        if is_ours and not mig_managers(context.platform_pods(pods)):
            resume(context)
        if self._may_have_slot(node) and context.slot.find():
            # An earlier run was stopped, or failed: what it waited for is waited for, and its slot given back at the end.
            context.drains_at = context.deps.clock.now()
        if context.standing(node, policy.pool) is Standing.LEAVES:
            return self._leave()
        if is_ours:
            _refuse_mig_manager(context, pods)
        _refuse_owned(context, node, pods, policy.pool)
        if RELEASED_ANNOTATION in node.annotations:
            context.cluster.annotate({RELEASED_ANNOTATION: None})
        return converge(context, self.desired, node)

    def _may_have_slot(self, node: NodeView) -> bool:
        """Return whether an earlier run can have left a slot. A failed one keeps it, even if the former layout is offered."""
        journal = self.context.deps.folder.journal()
        has_failed = journal is not None and journal.attempts > 0
        return has_failed or any(taint.key in CHANGE_TAINTS for taint in node.taints)

    def _leave(self) -> Outcome:
        """Release the node. Its layout is that of the former policy; how tenants are treated is what the pool says today."""
        policy = self.desired.policy
        former = self.context.former() or policy
        return Release(
            context=self.context,
            former=replace(former, rollout=policy.rollout),
            pool=policy.pool,
            node=self.context.cluster.node(),
            kept_pool=former.pool if former.pool != policy.pool else None,
            may_stay=True,
        ).run()

    def _converge_offline(self, error: ClusterError) -> Outcome:
        """Without an answer of the API server, finish a change that has begun, or repair the layout in force.

        A new policy needs a slot and the taint first, so it waits. Every pod with devices in kubelet's checkpoint counts.
        """
        context, folder = self.context, self.context.deps.folder
        journal = folder.journal()
        is_in_force = folder.policy() == self.desired.text
        is_begun = journal is not None and journal.is_changing and journal.policy_digest == self.desired.digest
        if not is_in_force and not is_begun:
            text = f"the new policy is not applied, because a request to the API server failed: {error}"
            raise Blocked(ConditionReason.PARTITIONING, text)
        context.close_driver()
        deps = replace(context.deps, cluster=Cluster())
        alone = RunContext(
            deps=deps,
            slot=RolloutSlot(deps.cluster, deps.clock),
            enforced=context.enforced,
            results=context.results,
            is_offline=True,
            had_access=context.had_access,
            may_wait_for_tenants=False,
        )
        try:
            outcome = converge(alone, self.desired, deps.cluster.node())
        finally:
            context.had_access = alone.had_access
            alone.close_driver()
        if not outcome.is_usable:
            return outcome
        if not is_in_force or not self._is_registered():
            text = f"the layout is in place; the labels are not set, because a request to the API server failed: {error}"
            has_claims = self.desired.policy.backend.has_claims
            reason = ConditionReason.WAITING_FOR_SLICES if has_claims else ConditionReason.WAITING_FOR_PLUGIN
            return Outcome(reason=reason, message=text)
        return replace(outcome, message=f"{outcome.message} Labels were not checked: {error}")

    def _is_registered(self) -> bool:
        """Return whether kubelet has the node's devices, as far as that is known without the API server."""
        deps, policy = self.context.deps, self.desired.policy
        hardware = deps.open_hardware(self.desired.digest)
        try:
            devices = hardware.devices(hardware.look(policy, frozenset()))
            registered = deps.backend.read_checkpoint().registered
            desired = deps.backend.expected(policy)
            return deps.backend.find_mismatch(desired, devices, registered, desired) is None
        except (CheckpointError, ClusterError):
            return False
        finally:
            hardware.close()


def _release_orphan(context: RunContext) -> Outcome:
    former = context.enforced = context.former()
    node = context.cluster.node()
    if not context.cluster.has_server:
        return Release(context=context, former=former, pool="", node=node).run()
    pods = context.cluster.pods()
    _handle_retry_request(context, node)
    pool = node.labels.get(POOL_LABEL)
    if pool is None:
        context.stop_enforcing()
        return Outcome(reason=ConditionReason.RELEASED, message=ConditionReason.RELEASED.value.means)
    is_ours = former is None or former.partitioner is Partitioner.GPUSHARE
    if is_ours:
        _refuse_mig_manager(context, pods)
    _refuse_owned(context, node, pods, "")
    if is_ours:
        resume(context)
    return Release(context=context, former=former, pool=pool, node=context.cluster.node()).run()


def _handle_retry_request(context: RunContext, node: NodeView) -> None:
    """Forget failed attempts, faults of GPUs and tenants that did not leave in time, if a person requests a retry.

    A run that no tenant has blocked yet keeps its patience: the request can be one for an earlier change, which succeeded
    before it was read. The annotation is removed last: if the run is killed before that, the next one handles the request.
    """
    if RETRY_ANNOTATION not in node.annotations:
        return
    folder = context.deps.folder
    journal = folder.journal()
    context.faults.forget()
    if journal is not None and journal.attempts:
        folder.write_journal(replace(journal, attempts=0))
    context.may_wait_for_tenants, context.evictions = True, DrainEvictions()
    if context.drains_at is not None:
        context.drains_at = context.deps.clock.now()
    context.cluster.annotate({RETRY_ANNOTATION: None})
    context.record_step("retry", Status.CHANGED, f"{RETRY_ANNOTATION} was set")


def _refuse_mig_manager(context: RunContext, pods: tuple[PodView, ...]) -> None:
    managers = mig_managers(context.platform_pods(pods))
    if managers:
        raise Blocked(ConditionReason.MIG_MANAGER_PRESENT, f"running on the node: {', '.join(managers)}")


def _refuse_owned(context: RunContext, node: NodeView, pods: tuple[PodView, ...], pool: str) -> None:
    owner = find_owner(node.labels, pools_of(pods, context.cluster.namespace), pool)
    if owner is not None:
        raise Blocked(ConditionReason.WAITING_FOR_POOL, f"pool {owner} owns the node: its label is set and its pod is running")
