"""Release: a node leaves its pool: which taints, labels, annotations and condition are removed, and how its GPUs are left.

They become exclusive, or another pool takes them as they are. The pool label is removed last: without it the DaemonSet's pod
ends, so nothing may remain to be done.
"""

import hashlib
from collections.abc import Sequence

from gpushare_node import membership
from gpushare_node.adapters.kube.cluster import CHANGE_TAINTS, MIG_LABEL, PLUGIN_LABEL, NodeView, pools_of
from gpushare_node.backends.backend import CheckpointError
from gpushare_node.contract.names import NOT_READY_TAINTS, POOL_LABEL, PROFILE_LABEL, RELEASED_ANNOTATION
from gpushare_node.contract.policy import (
    Action,
    Backend,
    DesiredGpu,
    Enforcement,
    ExpectedCard,
    Mechanism,
    Mode,
    OnBusy,
    Partitioner,
    Policy,
    Rollout,
    Share,
    Stack,
    Vendor,
)
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.membership import find_successor, is_requested
from gpushare_node.reconcile.backend_gate import BackendGate
from gpushare_node.reconcile.config_manager import withdraw_request
from gpushare_node.reconcile.drain import Drain, DrainRequest
from gpushare_node.reconcile.partitioning import HardwareChange
from gpushare_node.reconcile.publication import remove_labels
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reconcile.usage import find_affected
from gpushare_node.reporting.outcome import Blocked, Outcome, Status, Unmet
from gpushare_node.vendors import of
from gpushare_node.vendors.driver import GpuInfo

_FORGET_SECONDS = 60.0
"""How long the plugin may take to withdraw devices that no longer exist, before pods are admitted again."""

_RELEASED = "exclusive"


class Release(Struct):
    """How one node leaves the pool `pool`. `node` must have been read just now: another pool's label stays.

    `former` is the policy in force, None if it is unknown. `kept_pool` is the pool of that policy, where that is not the one
    that leaves. With `may_stay` the pool still exists: if it selects the node again while tenants are waited for, the release
    is cancelled.
    """

    context: RunContext
    former: Policy | None
    pool: str
    node: NodeView
    kept_pool: str | None = None
    may_stay: bool = False

    def run(self) -> Outcome:
        """Make the node leave the pool. Blocked if tenants or the hardware prevent that."""
        context, node = self.context, self.node
        if node.labels.get(POOL_LABEL, self.pool) != self.pool:
            return self._stop(f"the node already belongs to pool {node.labels[POOL_LABEL]}")
        if not is_requested(node):
            successor = find_successor(pools_of(context.cluster.pods(), context.cluster.namespace), self.pool)
            if successor is not None:
                return self._hand_over(successor)
            if self.kept_pool is not None:
                return self._hand_back(self.kept_pool)
        devices = self._make_exclusive()
        if context.cluster.has_server:
            self._clean_node(devices)
        context.stop_enforcing()
        context.deps.folder.remove()
        context.slot.give_back()
        remove_labels(context, keeps=frozenset())
        return Outcome(reason=ConditionReason.RELEASED, message=ConditionReason.RELEASED.value.means)

    def _stop(self, message: str) -> Outcome:
        self.context.stop_enforcing()
        return Outcome(reason=ConditionReason.RELEASED, message=message)

    def _hand_over(self, successor: str) -> Outcome:
        """Remove only the pool's own labels, in one write. Hardware, folder and the plugin's config stay.

        The next pool overwrites the plugin's label. Without that label the plugin would offer its default, whole GPUs, while
        tenants still run on their shares; and if the next pool waits for those, the node would offer nothing of theirs.
        """
        remove_labels(self.context, keeps=frozenset({PLUGIN_LABEL}))
        return self._stop(f"pool {successor} takes over the GPUs without changes")

    def _hand_back(self, kept_pool: str) -> Outcome:
        """Give the node back to the pool whose layout it has: this pool got its label, but never changed the GPUs.

        The label brings the pod of that pool, which may just have had none here; if the pool is deleted, the label brings the
        pod that releases its nodes.
        """
        self.context.cluster.write_labels({POOL_LABEL: kept_pool})
        self.context.record_step("labels", Status.CHANGED, f"{POOL_LABEL} is {kept_pool} again")
        return self._stop(f"the layout is that of pool {kept_pool}")

    def _make_exclusive(self) -> frozenset[str]:
        """Make the GPUs exclusive, and return the UUIDs of what is there then."""
        vendor = self.context.deps.vendor
        policy = exclusive_of((), self.pool, vendor) if self.former is None else exclusive(self.former)
        hardware = self.context.deps.open_hardware(release_digest(policy))
        try:
            self.context.await_driver(hardware)
            if self.former is None:
                policy = exclusive_of(hardware.look(policy, frozenset()).surveys, self.pool, vendor)
            self._change(hardware, policy)
            return hardware.devices(hardware.look(policy, frozenset()))
        finally:
            hardware.close()

    def _change(self, hardware: Hardware, policy: Policy) -> None:
        view = hardware.look(policy, frozenset())
        request = DrainRequest(
            policy=policy,
            affected=self._affected(policy),
            is_partly=not self.context.cluster.has_server,
            is_leaving=True,
            is_requested=is_requested(self.node),
            may_stay=self.may_stay,
        )
        drain = Drain(context=self.context, hardware=hardware, request=request, node=self.node)
        drain.remember(self.former, view)
        gate = BackendGate(drain=drain, former=self.former)
        gate.prepare(view)
        if view.plan.operations or view.compute_modes:
            drain.taint_if_wrong()
        if hardware.is_backing_off(view):
            raise Blocked(ConditionReason.PARTITION_FAILED, "leaving the pool failed; the next attempt is not due yet")
        if gate.must_close(view) or view.plan.operations or view.compute_modes or drain.request.affected:
            view = drain.run(view)
        change = HardwareChange(
            drain=drain,
            digest=release_digest(policy),
            announce=self._remove_profile_label,
            publish=lambda: gate.open(policy),
            gate=gate,
        ).run(view)
        if change.reason is not None:
            raise Blocked(change.reason, f"the node cannot leave the pool: {change.message}")

    def _remove_profile_label(self) -> None:
        """Without its label the device plugin returns to its default, and so does the MPS daemon."""
        remove_labels(self.context, keeps=membership.CLAIM | {PROFILE_LABEL, MIG_LABEL})

    def _affected(self, policy: Policy) -> frozenset[str]:
        """Return whom the plugin's return to its default disturbs: no pod if our label is not set, for that has happened."""
        if PLUGIN_LABEL not in membership.own_labels(self.node.labels, self.node.owners):
            return frozenset()
        return find_affected(self.former, policy, {}, self.context.deps.backend.advertised(self.node.allocatable))

    def _clean_node(self, devices: frozenset[str]) -> None:
        """Remove all marks but the pool label. The uninstall Job gets its answer first: without the label this pod may end."""
        context = self.context
        remove_labels(context, keeps=membership.CLAIM)
        withdraw_request(context)
        context.wait(lambda: self._find_stale(devices), _FORGET_SECONDS)
        context.remove_taints(*NOT_READY_TAINTS, *CHANGE_TAINTS, is_lost=self.former is None)
        context.cluster.clear_condition()
        annotations = context.cluster.node().annotations
        changed: dict[str, str | None] = {}
        if is_requested(self.node) and annotations.get(RELEASED_ANNOTATION) != _RELEASED:
            changed[RELEASED_ANNOTATION] = _RELEASED
        if changed:
            context.cluster.annotate(changed)

    def _find_stale(self, devices: frozenset[str]) -> Unmet | None:
        """Return a device that the plugin still offers although it no longer exists."""
        backend = self.context.backend_of(exclusive_of((), self.pool, self.context.deps.vendor))
        try:
            dead = backend.find_stale(backend.read_checkpoint().registered, devices)
        except CheckpointError:
            return None
        return Unmet(reason=ConditionReason.RELEASING, message=f"the device plugin still offers {dead[0]}") if dead else None


_MIG_CONFIG = "all-disabled"
"""The config that every mig-manager has."""

_ORPHAN_DRAIN_SECONDS = 1800


def exclusive(policy: Policy) -> Policy:
    """Return the policy of a node that leaves this pool: whole GPUs, no MIG, no sharing.

    The pool's rollout settings on tenants still apply. AMD's GPUs keep their modes: only a profile of the config manager
    changes them, and a policy names no other than its own.
    """
    whole = _whole(policy.vendor)
    return replace(
        policy,
        mode=Mode.EXCLUSIVE,
        backend=Backend.DEVICE_PLUGIN,
        dra=None,
        profile="",
        mig_config=_MIG_CONFIG if policy.partitioner is Partitioner.MIG_MANAGER else None,
        manager_config=None,
        gpus=tuple(DesiredGpu(index=gpu.index, instances=()) for gpu in policy.gpus),
        resources=((whole.resource, len(policy.gpus)),),
        shares=(whole,),
    )


def exclusive_of(surveys: Sequence[GpuInfo], pool: str, vendor: Vendor = Vendor.NVIDIA) -> Policy:
    """Return the exclusive policy if no former one is known: the card is the first working GPU's, and it waits for tenants."""
    whole = _whole(vendor)
    name = next((one.name for one in surveys if one.fault is None), "unknown")
    indexes = sorted({survey.index for survey in surveys}) or [0]
    return Policy(
        pool=pool,
        cluster="unknown",
        card=ExpectedCard(id="unknown", name=name, pci_device_ids=(), memory_mib=None),
        mode=Mode.EXCLUSIVE,
        stack=Stack.GPU_OPERATOR,
        partitioner=Partitioner.GPUSHARE if of(vendor).is_made_whole else Partitioner.NONE,
        profile="",
        mig_config=None,
        gpus=tuple(DesiredGpu(index=index, instances=()) for index in indexes),
        resources=((whole.resource, len(indexes)),),
        shares=(whole,),
        namespaces=(),
        enforcement=Enforcement(action=Action.NONE, grace_seconds=0, mechanism=Mechanism.AUTO),
        vendor=vendor,
        rollout=Rollout(max_unavailable=1, on_busy=OnBusy.WAIT, drain_timeout_seconds=_ORPHAN_DRAIN_SECONDS),
    )


def _whole(vendor: Vendor) -> Share:
    return Share(resource=of(vendor).whole_gpu, profile=None, replicas=1, memory_mib=None, cap_mib=None, tolerance_mib=0)


def release_digest(policy: Policy) -> str:
    """Return the policy digest that the journal uses for leaving: attempts to leave are not attempts to join."""
    return f"release-{hashlib.sha256(repr(policy).encode()).hexdigest()[:16]}"
