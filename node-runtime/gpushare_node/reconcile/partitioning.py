"""HardwareChange: changing the GPUs once they are free: by this runtime, by mig-manager, or by AMD's config manager.

An MPS server outlives its clients. It ends when its control daemon sees that the node's label has changed, so the label is
published first, and what needs the GPU without the server comes after that.
"""

from collections.abc import Callable

from gpushare_node import membership
from gpushare_node.contract.policy import Partitioner, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.gpus.hardware import PartitionResult
from gpushare_node.gpus.view import GpuView
from gpushare_node.reconcile.backend_gate import BackendGate
from gpushare_node.reconcile.client_pause import ClientPause
from gpushare_node.reconcile.config_manager import ConfigManager
from gpushare_node.reconcile.drain import Drain
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reporting.outcome import Blocked, Status, Unmet
from gpushare_node.vendors import of

_SERVER_SECONDS = 300.0
"""As long as other GPU clients may take. The control daemon's pod ends only after the feature labels have been rewritten."""

_STALE_SECONDS = 30.0
"""How long the state label may still have the value for the previous config."""


class HardwareChange(Struct, frozen=False):
    """One change of the node's GPUs, behind the closed `gate` of its back end if DRA concerns the node.

    `announce` publishes the goal before the change, so that MPS control daemons end their servers. `publish` publishes the
    result after it and before GPU clients are resumed: a device plugin that starts again then finds its label.
    """

    drain: Drain
    digest: str
    announce: Callable[[], None]
    publish: Callable[[], None]
    gate: BackendGate

    @property
    def _context(self) -> RunContext:
        return self.drain.context

    @property
    def _policy(self) -> Policy:
        return self.drain.request.policy

    def run(self, view: GpuView) -> PartitionResult:
        """Carry the plan out on every GPU that is free. With an empty plan, nothing that changes anything is called.

        Blocked with CLIENTS_RUNNING if an MPS server or another GPU client does not end.
        """
        # The drain may have taken longer than it should, or the clock been set.
        self.drain.await_window(of(self._policy.vendor).change_seconds)
        try:
            return self._run(self.gate.close(view))
        except Blocked as blocked:
            if blocked.is_unchanged:
                self.gate.reopen()
            raise

    def _run(self, view: GpuView) -> PartitionResult:
        view = self._await_mps_servers(view)
        if self._policy.partitioner is Partitioner.MIG_MANAGER and (view.plan.operations or not view.compute_modes):
            change = self._supervise(view)
            if change.reason is None:
                self.publish()
            return change
        if of(self._policy.vendor).layout_taint is not None:
            return self._configure(view)
        if not self.drain.must_pause(view):
            return self._partition(view)
        with ClientPause(context=self._context, digest=self.digest).paused():
            return self._partition(view)

    def _configure(self, view: GpuView) -> PartitionResult:
        manager = ConfigManager(drain=self.drain, digest=self.digest)
        if not manager.must_act(view):
            manager.tidy(view)
            return self._partition(view)
        change = manager.run()
        if change.reason is None:
            self.publish()
        return change

    def _partition(self, view: GpuView) -> PartitionResult:
        if view.plan.operations or view.compute_modes:
            view = self.drain.settle()
        if not self._context.is_touched:
            self.drain.await_window(of(self._policy.vendor).change_seconds / 2)
        self._context.close_driver()
        self._context.is_touched = True
        if not self.drain.request.is_repair:
            self.drain.hardware.mark_new_layout()
        change = self.drain.hardware.change(self._policy, view, self.drain.find_allocated, self._context.record_result)
        self.publish()
        return change

    # MPS servers.

    def _await_mps_servers(self, view: GpuView) -> GpuView:
        """Return the view in which no MPS server runs any more."""
        if not view.servers:
            return view
        # The node no longer offers its former layout, though its hardware has it: the next run must not remove the taint.
        self._context.is_touched = True
        journal, is_new = self._context.journal(self.digest), not self.drain.request.is_repair
        is_new = is_new or (journal.is_changing and journal.is_new_layout)
        self._context.deps.folder.write_journal(replace(journal, is_changing=True, is_new_layout=is_new))
        self.announce()
        unmet = self._context.wait(self._find_servers, _SERVER_SECONDS)
        if unmet is not None or self.drain.view is None:
            raise Blocked(ConditionReason.CLIENTS_RUNNING, unmet.message if unmet is not None else _list_servers(view))
        return self.drain.view

    def _find_servers(self) -> Unmet | None:
        view = self.drain.view = self.drain.hardware.look(self._policy, self.drain.allocated)
        return Unmet(reason=ConditionReason.CLIENTS_RUNNING, message=_list_servers(view)) if view.servers else None

    # mig-manager.

    def _supervise(self, view: GpuView) -> PartitionResult:
        """Have mig-manager partition the GPUs, and check the hardware afterwards: its report alone is not enough."""
        context = self._context
        if not view.plan.operations:
            context.record_step("layout", Status.OK, "partitioned by mig-manager")
            return PartitionResult(results=(), reason=None, message="")
        if not context.cluster.has_server:
            raise Blocked(
                ConditionReason.PARTITION_FAILED,
                "mig-manager partitions this pool's nodes, which requires an API server",
                is_unchanged=True,
            )
        context.close_driver()
        context.is_touched = True
        # Our own open handles would block mig-manager, those of the enforcer too; the tenants' pods have ended.
        self.drain.hardware.close()
        context.enforced = None
        node = self._context.cluster.node()
        here, desired = membership.own_labels(node.labels, node.owners), membership.mig_label(self._policy)
        if here | desired != here:
            self._context.cluster.apply_labels(here | desired)
            self._context.record_step("request the layout from mig-manager", Status.CHANGED, ", ".join(desired.values()))
        vendor = of(self._policy.vendor)
        label = vendor.layout_state_label
        began_at, is_fresh = context.deps.clock.now(), False

        def find() -> Unmet | None:
            """mig-manager can stay in `pending` forever, and does not say why it failed."""
            nonlocal is_fresh
            state = context.cluster.node().labels.get(label, "")
            is_old = context.deps.clock.now() - began_at < _STALE_SECONDS
            is_fresh = is_fresh or state not in (vendor.layout_done, vendor.layout_failed) or not is_old
            if state == vendor.layout_done and is_fresh:
                return None
            has_failed = state == vendor.layout_failed and is_fresh
            reason = ConditionReason.PARTITION_FAILED if has_failed else ConditionReason.PARTITIONING
            return Unmet(reason=reason, message=f"{label} is {state or 'absent'}")

        unmet = context.wait(find, vendor.layout_seconds)
        if unmet is not None:
            return PartitionResult(results=(), reason=unmet.reason, message=unmet.message)
        context.await_driver(self.drain.hardware)
        if self.drain.hardware.look(self._policy, self.drain.allocated).plan.operations:
            message = "mig-manager reports success, but the GPUs do not have the layout"
            return PartitionResult(results=(), reason=ConditionReason.PARTITION_FAILED, message=message)
        context.record_step("layout", Status.CHANGED, "by mig-manager")
        return PartitionResult(results=(), reason=None, message="")


def _list_servers(view: GpuView) -> str:
    pids = sorted({pid for some in view.servers.values() for pid in some})
    return f"the MPS server has not exited: {', '.join(f'process {pid}' for pid in pids)}; its control daemon must stop it"
