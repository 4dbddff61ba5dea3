"""ConfigManager: a change of the GPUs by AMD's device-config-manager, which a node's label asks, and whose answer is a label.

It neither taints nor drains, gives no reason in its answer, and leaves the former answer in place until it has a new one. So
everything is sent away by its taint, the former answer is deleted with the request, and the hardware is compared with the plan
whatever it answers. Invariants, also after a kill at any step:

- The label is written only while no process has a GPU open and no pod holds one.
- The taint is removed only if the hardware has what the policy, or the one in force before, says, and no answer is awaited.
- Pods that read the GPUs once, when they start, are deleted after the taint is removed, before the offer is compared.

The journal has what was requested and not been carried out yet. A request of an earlier boot is none.
"""

import json
from collections.abc import Mapping
from typing import Any

from gpushare_node.adapters.kube.cluster import ClusterError, NodeView, PodView
from gpushare_node.adapters.kube.node_client import WRITER
from gpushare_node.core.policy import Partitioner, Policy
from gpushare_node.core.structs import Struct, replace
from gpushare_node.gpus.gpu_faults import is_converged
from gpushare_node.gpus.hardware import PartitionResult
from gpushare_node.gpus.view import GpuView
from gpushare_node.reconcile.drain import Drain
from gpushare_node.reconcile.publication import restart_plugin
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reporting.outcome import Blocked, Unmet
from gpushare_node.reporting.reasons import ConditionReason
from gpushare_node.reporting.results import Status
from gpushare_node.reporting.wording import join_first
from gpushare_node.vendors import is_gpu_resource, of
from gpushare_node.vendors.driver import DriverError
from gpushare_node.vendors.vendor import GpuVendor

_LEAVE_SECONDS = 900.0
"""How long pods may take to end after the taint. On one node of AMD's own tests this took ten and a half minutes."""

_NOTICE_SECONDS = 5.0
"""How long a label is absent before it is written again with the same value: the manager must see that."""

_SETTLE_SECONDS = 60.0
"""How long the GPUs may still differ after an answer."""

_MAX_NAMED = 5
_MAX_REASON = 300
_NAME = "app.kubernetes.io/name"


class ConfigManager(Struct):
    """One change of the node's GPUs; `digest` names the policy that it is for."""

    drain: Drain
    digest: str

    @property
    def _context(self) -> RunContext:
        return self.drain.context

    @property
    def _policy(self) -> Policy:
        return self.drain.request.policy

    @property
    def _vendor(self) -> GpuVendor:
        return of(self._policy.vendor)

    def must_act(self, view: GpuView) -> bool:
        """Whether the manager must be asked, or its answer be awaited.

        A node whose GPUs are right is asked too if it has another label, because the manager applies that when its pod starts;
        without any label it changes nothing, so that a node in use keeps its tenants.
        """
        policy = self._policy
        if policy.partitioner is not Partitioner.CONFIG_MANAGER:
            return False
        if view.plan.operations or self._outstanding():
            return True
        if not self._context.cluster.has_server or policy.manager_config is None:
            return False
        here = self._context.cluster.node().labels.get(self._vendor.layout_label)
        if here is None:
            return not self._pods()
        return here != policy.manager_config

    def run(self, view: GpuView) -> PartitionResult:
        """Have the manager change the GPUs, seen as `view` before, and compare them with the plan.

        Blocked with CLIENTS_RUNNING or GPU_BUSY if something keeps using the GPUs, with LABEL_CONFLICT if another program
        changes the label meanwhile.
        """
        context, value = self._context, self._policy.manager_config
        if not context.cluster.has_server:
            text = "AMD's config manager divides this pool's GPUs, which requires an API server"
            raise Blocked(ConditionReason.CONFIG_MANAGER_FAILED, text, is_unchanged=True)
        self._send_away()
        if value is not None and not self._is_asked(value):
            unmet = context.wait(self._find_users, _LEAVE_SECONDS)
            if unmet is not None and self._may_do_without(view):
                self._admit_again(f"no label: {unmet.message}", Status.SKIPPED)
                return PartitionResult(results=(), reason=None, message="")
            if unmet is not None:
                raise Blocked(unmet.reason, unmet.message, is_unchanged=True)
            self._ask(value)
        answer = self._await_answer()
        if answer is None and value is not None:
            answer = self._compare()
        if answer is None:
            self._admit_again("by the config manager", Status.CHANGED)
            return PartitionResult(results=(), reason=None, message="")
        self._keep(requested="")
        if value is None:
            return PartitionResult(results=(), reason=None, message="")
        context.record_step("layout", "node", Status.FAILED, answer)
        return PartitionResult(results=(), reason=ConditionReason.CONFIG_MANAGER_FAILED, message=answer)

    def admit_again(self, view: GpuView) -> None:
        """Remove the taint of a run that was killed before it asked for anything: the GPUs are right without that."""
        taint = self._vendor.layout_taint
        is_tainted = taint is not None and any(one.key == taint.key for one in self._context.cluster.node().taints)
        if is_tainted and is_converged(view):
            self._admit_again("the taint was left behind", Status.OK)

    # The request.

    def _send_away(self) -> None:
        """Have every program leave, but no tenant: those were drained, and one that came since is waited for again."""
        pods = self._pods()
        if pods:
            text = f"in use by {join_first(pods, _MAX_NAMED)}"
            raise Blocked(ConditionReason.GPU_BUSY, text, is_unchanged=True)
        if self._vendor.layout_taint is not None:
            self._context.evict_by_taint(self._vendor.layout_taint)

    def _outstanding(self) -> str:
        """Return what the manager was asked for and has not been carried out; empty if that is nothing."""
        journal = self._context.deps.folder.journal()
        return journal.requested if journal is not None and journal.boot_id == self._context.deps.boot_id else ""

    def _is_asked(self, value: str) -> bool:
        here = self._context.cluster.node().labels.get(self._vendor.layout_label)
        return here == value == self._outstanding()

    def _may_do_without(self, view: GpuView) -> bool:
        """Return whether the GPUs are right, and nothing else names other modes."""
        here = self._context.cluster.node().labels.get(self._vendor.layout_label)
        return not view.plan.operations and not self._outstanding() and here is None

    def _find_users(self) -> Unmet | None:
        """Return what uses a GPU, or may do so: nothing unknown is taken for nothing."""
        pods = self._pods()
        view = self.drain.hardware.look(self._policy, frozenset())
        unread = [f"GPU {survey.index}: {survey.fault.detail}" for survey in view.surveys if survey.fault is not None]
        if unread or not view.surveys:
            text = "; ".join(unread) or "the driver lists no GPU"
            return Unmet(reason=ConditionReason.GPU_UNREADABLE, message=text)
        if pods:
            return Unmet(reason=ConditionReason.GPU_BUSY, message=f"in use by {join_first(pods, _MAX_NAMED)}")
        pids = sorted({pid for survey in view.surveys for _, pid in survey.pids})
        if not pids:
            return None
        names = self.drain.hardware.names(pids[:_MAX_NAMED])
        text = f"/dev/kfd is open in {join_first([names.get(pid, f'process {pid}') for pid in pids], _MAX_NAMED)}"
        return Unmet(reason=ConditionReason.CLIENTS_RUNNING, message=text)

    def _pods(self) -> list[str]:
        """Return the pods that hold GPUs by kubelet's files, or that were promised some and may get them at any moment."""
        held = {holder.name for holder in self._context.holders()}
        return sorted(held | {f"pod {pod.namespace}/{pod.name}" for pod in self._context.cluster.pods() if _asks(pod)})

    def _ask(self, value: str) -> None:
        """Write the label, and delete the former answer with it. The manager notices only a value that changes."""
        context, vendor = self._context, self._vendor
        context.is_touched = True
        self._keep(requested="")
        if context.cluster.node().labels.get(vendor.layout_label) == value:
            context.cluster.write_labels({vendor.layout_label: None, vendor.layout_state_label: None})
            context.sleep(_NOTICE_SECONDS)
        self._keep(requested=value)
        context.cluster.write_labels({vendor.layout_label: value, vendor.layout_state_label: None})
        context.record_step("request the layout from the config manager", "node", Status.CHANGED, value)

    def _keep(self, *, requested: str) -> None:
        """Write the journal: a change is in progress, and this is requested."""
        context = self._context
        before = context.deps.folder.journal()
        journal = replace(context.journal(self.digest), boot_id=context.deps.boot_id, is_changing=True, requested=requested)
        if not self.drain.request.is_repair:
            journal = replace(journal, is_new_layout=True)
        if journal != before:
            context.deps.folder.write_journal(journal)

    # The answer.

    def _await_answer(self) -> str | None:
        """Return why the manager has not done what was requested; None if it says that it has."""
        context, vendor, asked = self._context, self._vendor, self._outstanding()
        answers = []

        def find() -> Unmet | None:
            node = context.cluster.node()
            self._refuse_change(node, asked)
            state = node.labels.get(vendor.layout_state_label, "")
            if state in (vendor.layout_done, vendor.layout_failed):
                answers.append(state)
                return None
            text = f"the config manager applies {asked}: {vendor.layout_state_label} is {state or 'absent'}"
            return Unmet(reason=ConditionReason.PARTITIONING, message=text)

        context.set_condition(ConditionReason.PARTITIONING, f"the config manager applies {asked}")
        unmet = context.wait(find, vendor.layout_seconds)
        if unmet is not None:
            return f"the config manager has not answered for {vendor.layout_seconds:.0f} s to {asked}{self._explain()}"
        return (
            None if answers[-1] == vendor.layout_done else f"the config manager reports a failure of {asked}{self._explain()}"
        )

    def _refuse_change(self, node: NodeView, asked: str) -> None:
        label = self._vendor.layout_label
        if node.labels.get(label) != asked:
            self._keep(requested="")
            raise Blocked(ConditionReason.LABEL_CONFLICT, ", ".join(node.describe_drift({label: asked})))

    def _explain(self) -> str:
        """Return a clause with what the manager's newest Event says, and what the GPUs have; empty if neither is known."""
        try:
            pods = [pod for pod in self._context.cluster.pods() if pod.labels.get(_NAME) == self._vendor.partitioner_app]
            events = [text for pod in pods for text in self._context.cluster.events_of(pod)]
        except ClusterError as error:
            return f"; its Events cannot be read: {error}"
        if not pods:
            return f"; no pod {self._vendor.partitioner_app} is on the node"
        return f": {_reason_of(events[0])}" if events else ""

    def _compare(self) -> str | None:
        """Return how the hardware differs from the plan; None if it does not.

        It may for a while: a run of the manager that the request has cancelled can answer last.
        """
        self._context.await_driver(self.drain.hardware)
        unmet = self._context.wait(self._find_difference, _SETTLE_SECONDS)
        return None if unmet is None else f"the config manager reports success, but {unmet.message}"

    def _find_difference(self) -> Unmet | None:
        try:
            view = self.drain.view = self.drain.hardware.look(self._policy, self.drain.allocated)
        except DriverError as error:
            return Unmet(reason=ConditionReason.WAITING_FOR_DRIVER, message=str(error))
        wrong = {gpu.index for gpu in view.plan.gpus if gpu.operations}
        found = [(gpu.index, gpu.modes) for gpu in view.state.gpus if gpu.index in wrong]
        texts = [f"GPU {index} has {modes.word}" for index, modes in found if modes is not None]
        texts += [f"GPU {unfit.index}: {unfit.detail}" for unfit in view.plan.unfit]
        return Unmet(reason=ConditionReason.PARTITIONING, message="; ".join(texts)) if texts else None

    def _admit_again(self, how: str, status: Status) -> None:
        """Admit the vendor's own pods again; those that have read the former GPUs are deleted."""
        context = self._context
        stale = context.deps.backend.restartable(context.cluster.pods(), self._policy)
        if self._vendor.layout_taint is not None:
            context.remove_taints(self._vendor.layout_taint.key)
        restart_plugin(context, stale)
        self._keep(requested="")
        context.record_step("layout", "node", status, how)


def withdraw_request(context: RunContext, former: Policy | None) -> None:
    """Remove the label and the answer, if the label is ours. That changes no GPU. ClusterError."""
    vendor, node = of(context.deps.vendor), context.cluster.node()
    here = node.labels.get(vendor.layout_label)
    is_managed = former is None or former.partitioner is Partitioner.CONFIG_MANAGER
    if vendor.layout_taint is None or here is None or not is_managed:
        return
    if node.owners.get(vendor.layout_label) == WRITER:
        context.cluster.write_labels({vendor.layout_label: None, vendor.layout_state_label: None})
        context.record_step("labels", "node", Status.CHANGED, f"{vendor.layout_label} removed")


def _asks(pod: PodView) -> bool:
    return not pod.has_ended and any(map(is_gpu_resource, pod.resources))


def _reason_of(message: str) -> str:
    """Return what an Event of the manager says as one sentence: its message is a JSON document."""
    try:
        document: Mapping[str, Any] = json.loads(message)
        gpus = [one for one in document.get("GPUStatus") or () if "succ" not in str(one.get("Status")).lower()]
        texts = [f"GPU {one.get('GpuID')}: {one.get('Message') or one.get('Status')}" for one in gpus]
        text = "; ".join([str(document.get("Reason") or document.get("FinalStatus") or ""), *texts])
    except (ValueError, AttributeError, TypeError):
        text = message
    return " ".join(text.split())[:_MAX_REASON]
