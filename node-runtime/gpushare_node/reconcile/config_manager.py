"""ConfigManager: a change of the GPUs by AMD's device-config-manager, which a node's label asks, and whose answer is awaited.

It neither taints nor drains: everything is sent away by its taint first. Whatever it answers, the GPUs are compared with the
plan: `ManagerAnswer`. Invariants, also after a kill at any step:

- The label is written only while no process has a GPU open and no pod holds one, and under the taint unless the GPUs have what
  it names: then the manager changes nothing.
- The taint is removed only if the GPUs have what the policy, or the one in force before, says, and no answer is awaited.
- A node that offers what it should is tainted for another's label alone only as for a new layout: with a slot, in a window.
- Pods that read the GPUs once, when they start, are deleted after the taint is removed, before the offer is compared.

The journal has what was requested and not been carried out yet, whatever the policy is at that time. A request of an earlier
boot is none. A request is over when the manager says its last word, or its pod has gone: the removal of the label
cancels nothing.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from gpushare_node.adapters.kube.cluster import ClusterError, NodeView, PodEvent, PodView
from gpushare_node.adapters.kube.node_client import WRITER
from gpushare_node.contract.policy import Partitioner, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.contract.vendors import VendorNames
from gpushare_node.gpus.hardware import PartitionResult
from gpushare_node.gpus.view import GpuView, is_converged
from gpushare_node.reconcile.drain import Drain
from gpushare_node.reconcile.publication import restart_plugin
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reconcile.usage import asks_for_gpus
from gpushare_node.reporting.outcome import Blocked, Status, Unmet, join_first
from gpushare_node.vendors import of
from gpushare_node.vendors.driver import DriverError

_LAST_WORDS = frozenset(
    {
        "PartitionFailure",
        "InvalidProfileInfo",
        "NonExistentProfile",
        "ConfigMapNotPresent",
        "InvalidJSONInConfigMap",
        "DuplicateProfileExists",
        "AMDSMIAPIFailure",
    }
)
"""The reasons of Events after which it does not try again."""

_UNKNOWN_PROFILE = "NonExistentProfile"
_FILE_SECONDS = 180.0
"""How long its file may lack the profile after the request."""

_SETTLE_SECONDS = 60.0
"""How long the GPUs may differ after its success."""

_AGAIN_SECONDS = 5.0
"""How long the GPUs must have been right, with the label `success` of whichever profile."""

_QUIET_SECONDS = 300.0
"""The same without any answer."""

_MAX_REASON = 300


class Verdict(Enum):
    """`OPEN`: it may still be at work."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"


class ManagerEvent(Struct):
    """What an Event of the manager says of a request for `profile`."""

    profile: str
    reason: str
    is_success: bool
    text: str


class AnswerFacts(Struct):
    """What is known at `now`, in seconds of the clock; the request was made `age` seconds before.

    `event` is the newest one of the request, `is_labelled` whether the label says success. `difference` is how the GPUs differ
    from what was requested, empty if they do not; None where nothing says what they should be.
    """

    now: float
    age: float
    event: ManagerEvent | None
    is_labelled: bool
    difference: str | None


class ManagerAnswer(Struct, frozen=False):
    """The answer to one request, as looks at the facts show it. `text` says why it has failed, or is not there. Writes nothing.

    What device-config-manager v1.3.1 does (pkg/config_manager/gpu_config_manager.go):

    - The label is `failure` as soon as one GPU refuses. It goes on with the others, tries again each minute for half an hour,
      and may write `success` then. So that label ends nothing: only an Event does, of a reason that it does not try again.
    - A request ends the one before only after the running attempt, which gives its own answer. So the label `success` can be of
      another profile: an Event with ours counts, or GPUs that stay right. The manager works on one request after another; while
      it is known to be at work on the last one, no answer to an older one can follow.
    - It may have read its file before the profile arrived: kubelet updates a volume within two minutes.
    - An answer can be lost: its label when another writer is faster, its Event always. Then GPUs that have become right, and
      stay so, are the answer.
    """

    text: str = ""
    _right_since: float | None = None
    _success_since: float | None = None
    _has_differed: bool = False

    def judge(self, facts: AnswerFacts, *, is_over: bool = False) -> Verdict:
        """Return the verdict. `is_over`: all its time has passed."""
        stable = self._look(facts)
        event = facts.event
        if event is not None and event.is_success:
            if not facts.difference:
                return Verdict.DONE
            if self._success_since is None:
                self._success_since = facts.now
            self.text = f"it reports success, but {facts.difference}"
            return Verdict.FAILED if facts.now - self._success_since >= _SETTLE_SECONDS else Verdict.OPEN
        if event is not None:
            self.text = f"it reports {event.text}"
            if event.reason in _LAST_WORDS and (event.reason != _UNKNOWN_PROFILE or facts.age >= _FILE_SECONDS):
                return Verdict.FAILED
        is_confirmed = facts.is_labelled and stable >= _AGAIN_SECONDS
        is_quiet = (self._has_differed or is_over) and stable >= _QUIET_SECONDS
        if is_confirmed or is_quiet:
            return Verdict.DONE
        if event is None:
            silence = f"it has not answered for {facts.age:.0f} s" if is_over else ""
            self.text = "; ".join(filter(None, (silence, facts.difference)))
        return Verdict.FAILED if is_over else Verdict.OPEN

    def _look(self, facts: AnswerFacts) -> float:
        """Return for how long the GPUs have been right."""
        if facts.difference is None:
            return 0.0
        if facts.difference:
            self._has_differed, self._right_since = True, None
            return 0.0
        if self._right_since is None:
            self._right_since = facts.now
        return facts.now - self._right_since


def find_event(events: Iterable[PodEvent], profile: str, since: float) -> ManagerEvent | None:
    """Return what the newest Event of a request for this profile says. `since`, in seconds since 1970, is when it was made."""
    known = (_read(event) for event in events if event.at >= int(since))
    return next((one for one in known if one is not None and one.profile == profile), None)


def _read(event: PodEvent) -> ManagerEvent | None:
    """Return what the Event says: its message is a JSON document. None if it is another's."""
    try:
        document: Mapping[str, Any] = json.loads(event.message)
        gpus = [one for one in document.get("GPUStatus") or () if "succ" not in str(one.get("Status")).lower()]
        texts = [f"GPU {one.get('GpuID')}: {one.get('Message') or one.get('Status')}" for one in gpus]
        texts = texts or [str(document.get("Reason") or document.get("FinalStatus") or "")]
        profile, is_success = str(document.get("SelectedProfile") or ""), document.get("FinalStatus") == "Success"
    except (ValueError, AttributeError, TypeError):
        return None
    text = " ".join("; ".join((event.reason, *filter(None, texts))).split())[:_MAX_REASON]
    return ManagerEvent(profile=profile, reason=event.reason, is_success=is_success, text=text)


_NOTICE_SECONDS = 5.0
"""How long the label is absent before it is written: the manager must see that it changes."""

_LEAST_SECONDS = 60.0
"""How long an answer is awaited that is overdue, after the runtime was away."""

_READ_SECONDS = 30.0
"""How often Events are read while the label does not change: an answer changes it, unless it is lost."""

_MAX_NAMED = 5
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
    def _vendor(self) -> VendorNames:
        return of(self._policy.vendor)

    @property
    def _value(self) -> str | None:
        """What the policy requests; None if it requests nothing."""
        return self._policy.manager_config if self._policy.partitioner is Partitioner.CONFIG_MANAGER else None

    def must_act(self, view: GpuView) -> bool:
        """Whether the manager must be asked on a node without pods, or its answer be awaited.

        A node whose GPUs are right is asked too if it has another label, because the manager applies that when its pod starts.
        """
        if self._vendor.layout_taint is None:
            return False
        is_managed = self._policy.partitioner is Partitioner.CONFIG_MANAGER
        return bool(self._outstanding() or (is_managed and view.plan.operations) or self.is_misnamed())

    def is_misnamed(self) -> bool:
        """Whether the node has another label than the policy's."""
        if self._value is None or not self._context.cluster.has_server:
            return False
        return self._context.cluster.node().labels.get(self._vendor.layout_label) not in (None, self._value)

    def run(self) -> PartitionResult:
        """Have the manager change the GPUs, and compare them with the plan. Without a profile to request, await its last word.

        Blocked with CLIENTS_RUNNING or GPU_BUSY if something keeps using the GPUs, with LABEL_CONFLICT if another program
        changes the label meanwhile.
        """
        context, value = self._context, self._value
        if not context.cluster.has_server:
            reason = ConditionReason.PARTITIONING if context.is_offline else ConditionReason.CONFIG_MANAGER_FAILED
            text = "AMD's config manager divides this pool's GPUs, which requires an API server"
            raise Blocked(reason, text, is_unchanged=True)
        self._send_away()
        if value is not None and not self._is_asked(value):
            self._await_users(self._vendor.leave_seconds)
            self._await_first_word()
            self._ask(value)
        if value is None:
            self._withdraw()
        failure = self._await_answer(value)
        if failure is None or value is None:
            self._admit_again("by the config manager", Status.CHANGED)
            return PartitionResult(results=(), reason=None, message="")
        self._keep(requested="")
        context.record_step("layout", Status.FAILED, failure)
        return PartitionResult(results=(), reason=ConditionReason.CONFIG_MANAGER_FAILED, message=failure)

    def tidy(self, view: GpuView) -> None:
        """Put right what needs no change of the GPUs, on a node where the manager is not at work.

        The taint of a run that was killed before it asked for anything goes, and a label of ours that the policy has not. GPUs
        that are right get theirs once nothing uses them, so that the manager divides them again when the node has booted.
        """
        context, label = self._context, self._vendor.layout_label
        if self._vendor.layout_taint is None or not context.cluster.has_server:
            return
        is_right, is_managed = is_converged(view), self._policy.partitioner is Partitioner.CONFIG_MANAGER
        if (is_right or not is_managed) and context.is_evicting():
            self._admit_again("the taint was left behind", Status.OK)
        if self._value is None:
            withdraw_request(context)
        elif is_right and label not in context.cluster.node().labels and self._find_users() is None:
            context.cluster.write_labels({label: self._value, self._vendor.layout_state_label: None})
            context.record_step("labels", Status.CHANGED, f"{label} is {self._value}")

    # The request.

    def _send_away(self) -> None:
        """Have every program leave, but no tenant: those were drained, and one that came since is waited for again.

        The taint ends no program of the host, so that one that must be stopped first is reported before it.
        """
        pods = self._pods()
        if pods:
            text = f"in use by {join_first(pods, _MAX_NAMED)}"
            raise Blocked(ConditionReason.GPU_BUSY, text, is_unchanged=True)
        if not self._outstanding():
            pids = self._pids(self.drain.hardware.look(self._policy, frozenset()))
            services = sorted(self.drain.hardware.find_units(pids)) if pids else []
            if services:
                raise Blocked(ConditionReason.CLIENTS_RUNNING, self._open_in(services), is_unchanged=True)
        if self._vendor.layout_taint is not None:
            self._context.evict_by_taint(self._vendor.layout_taint)

    def _outstanding(self) -> str:
        """Return what the manager was asked for and has not been carried out; empty if that is nothing.

        A run that was killed just before it wrote the label has asked for nothing. A label that has gone since cancels nothing.
        """
        context, journal = self._context, self._context.deps.folder.journal()
        if journal is None or journal.boot_id != context.deps.boot_id:
            return ""
        if journal.is_asked or not journal.requested or not context.cluster.has_server:
            return journal.requested
        is_there = context.cluster.node().labels.get(self._vendor.layout_label) == journal.requested
        return journal.requested if is_there else ""

    def _is_asked(self, value: str) -> bool:
        here = self._context.cluster.node().labels.get(self._vendor.layout_label)
        return here == value == self._outstanding()

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
        pids = self._pids(view)
        return Unmet(reason=ConditionReason.CLIENTS_RUNNING, message=self._open_in(pids)) if pids else None

    def _pids(self, view: GpuView) -> list[int]:
        """Return the processes that keep the manager from working: it stops some of the host's services itself."""
        pids = sorted({pid for survey in view.surveys for _, pid in survey.pids})
        units = self.drain.hardware.find_units(pids) if pids else {}
        stopped = {f"{name}.service" for name in self._vendor.partitioner_stops}
        return [pid for pid in pids if units.get(pid) not in stopped]

    def _open_in(self, pids: list[int]) -> str:
        names = self.drain.hardware.names(pids[:_MAX_NAMED])
        return f"/dev/kfd is open in {join_first([names.get(pid, f'process {pid}') for pid in pids], _MAX_NAMED)}"

    def _pods(self) -> list[str]:
        """Return the pods that hold GPUs by kubelet's files, or that were promised some and may get them at any moment."""
        held = {holder.name for holder in self._context.holders()}
        return sorted(held | {f"pod {pod.namespace}/{pod.name}" for pod in self._context.cluster.pods() if asks_for_gpus(pod)})

    def _ask(self, value: str) -> None:
        """Write the label once nothing uses the GPUs, and delete the former answer with it."""
        context, label, state = self._context, self._vendor.layout_label, self._vendor.layout_state_label
        if label in context.cluster.node().labels:
            context.cluster.write_labels({label: None, state: None})
            context.sleep(_NOTICE_SECONDS)
            self._await_users(0.0)
        context.is_touched = True
        self._keep(requested=value)
        context.cluster.write_labels({label: value, state: None})
        self._keep(requested=value, is_asked=True)
        context.record_step("request the layout from the config manager", Status.CHANGED, value)

    def _withdraw(self) -> None:
        """Remove the label of a request that is awaited: a pod of the manager that starts from now on works on nothing."""
        self._keep(requested=self._outstanding(), is_asked=True)
        withdraw_request(self._context)

    def _await_users(self, seconds: float) -> None:
        unmet = self._context.wait(self._find_users, seconds)
        if unmet is not None:
            raise Blocked(unmet.reason, unmet.message, is_unchanged=True)

    def _keep(self, *, requested: str, is_asked: bool = False) -> None:
        """Write the journal: a change is in progress, and this is requested. `is_asked`: the label is written."""
        context = self._context
        before = context.deps.folder.journal()
        is_known = before is not None and before.requested == requested
        at = before.requested_at_seconds if is_asked and before is not None and is_known else int(context.deps.wall())
        journal = replace(
            context.journal(self.digest),
            boot_id=context.deps.boot_id,
            is_changing=True,
            requested=requested,
            requested_at_seconds=at if requested else 0,
            is_asked=is_asked,
        )
        if not self.drain.request.is_repair:
            journal = replace(journal, is_new_layout=True)
        if journal != before:
            context.deps.folder.write_journal(journal)

    # The answer.

    def _await_first_word(self) -> None:
        """Wait until the manager is at work on the request before this one: its answers are in the order of its requests.

        Else an answer to a still older request for the same profile could be taken for this one's.
        """
        context, asked = self._context, self._outstanding()
        if not asked or asked == self._value:
            return
        age, since = self._since_request()

        def find() -> Unmet | None:
            is_over = age() >= self._vendor.layout_seconds
            if is_over or not self._managers() or self._find_event(asked, since) is not None:
                return None
            return Unmet(reason=ConditionReason.PARTITIONING, message=f"the config manager applies {asked} first")

        context.is_touched = True
        context.wait(find, max(_LEAST_SECONDS, self._vendor.layout_seconds - age()))

    def _await_answer(self, value: str | None) -> str | None:
        """Return why the manager has not done what was requested; None if it has. Without `value` only its last word counts."""
        context, vendor, asked = self._context, self._vendor, self._outstanding()
        answer, verdicts = ManagerAnswer(), [Verdict.OPEN]
        event: ManagerEvent | None = None
        seen, read_at, managers = "", -_READ_SECONDS, self._manager_uids()
        age, since = self._since_request()

        def find() -> Unmet | None:
            nonlocal event, seen, read_at
            node, now = context.cluster.node(), context.deps.clock.now()
            if value is not None:
                self._refuse_change(node, asked)
            state = node.labels.get(vendor.layout_state_label, "")
            if state != seen or now - read_at >= _READ_SECONDS:
                if value is None and self._manager_uids().isdisjoint(managers):
                    verdicts.append(Verdict.DONE)
                    return None
                event, seen, read_at = self._find_event(asked, since), state, now
            facts = AnswerFacts(
                now=now,
                age=age(),
                event=event,
                is_labelled=state == vendor.layout_done,
                difference=None if value is None else self._find_difference(),
            )
            verdicts.append(answer.judge(facts, is_over=facts.age >= vendor.layout_seconds))
            if verdicts[-1] is not Verdict.OPEN:
                return None
            if facts.is_labelled and facts.event is None and facts.difference:
                # The answer to a request before this one.
                context.cluster.write_labels({vendor.layout_state_label: None})
            text = "; ".join(filter(None, (f"the config manager applies {asked}", answer.text)))
            return Unmet(reason=ConditionReason.PARTITIONING, message=text)

        context.set_condition(ConditionReason.PARTITIONING, f"the config manager applies {asked}")
        unmet = context.wait(find, max(_LEAST_SECONDS, vendor.layout_seconds - age()))
        if verdicts[-1] is Verdict.DONE:
            return None
        text = answer.text if unmet is None else unmet.message
        return f"the config manager has not applied {asked}: {text}{self._describe_absence()}"

    def _since_request(self) -> tuple[Callable[[], float], float]:
        """Return how many seconds ago the request was made, whenever it is called, and when, in seconds since 1970.

        The former goes on by our clock: the host's may be set meanwhile.
        """
        deps = self._context.deps
        journal, began, now = deps.folder.journal(), deps.clock.now(), deps.wall()
        at = now if journal is None else journal.requested_at_seconds
        return lambda: max(0.0, now - at) + deps.clock.now() - began, at

    def _find_event(self, asked: str, since: float) -> ManagerEvent | None:
        """Return what the manager's newest Event says of this request; None if it is not known."""
        try:
            events = [event for pod in self._managers() for event in self._context.cluster.events_of(pod)]
        except ClusterError:
            return None
        return find_event(events, asked, since)

    def _managers(self) -> list[PodView]:
        return [pod for pod in self._context.platform_pods() if pod.labels.get(_NAME) == self._vendor.partitioner_app]

    def _manager_uids(self) -> set[str]:
        return {uid for pod in self._managers() for uid in pod.uids}

    def _refuse_change(self, node: NodeView, asked: str) -> None:
        """Raise Blocked if the label has changed. The manager goes on with ours, and then applies the other one."""
        label = self._vendor.layout_label
        here = node.labels.get(label)
        if here != asked:
            self._keep(requested=here or asked, is_asked=True)
            raise Blocked(ConditionReason.LABEL_CONFLICT, ", ".join(node.describe_drift({label: asked})))

    def _describe_absence(self) -> str:
        """Return a clause if the manager has no pod on the node."""
        try:
            return "" if self._managers() else f"; no pod {self._vendor.partitioner_app} is on the node"
        except ClusterError:
            return ""

    def _find_difference(self) -> str:
        """Return how the GPUs differ from the plan; empty if they do not. While the driver is loaded again, they do."""
        try:
            view = self.drain.view = self.drain.hardware.look(self._policy, self.drain.allocated)
        except DriverError as error:
            return str(error)
        wrong = {gpu.index for gpu in view.plan.gpus if gpu.operations}
        found = [(gpu.index, gpu.modes) for gpu in view.state.gpus if gpu.index in wrong]
        texts = [f"GPU {index} has {modes.word}" for index, modes in found if modes is not None]
        texts += [f"GPU {unfit.index}: {unfit.detail}" for unfit in view.plan.unfit]
        return "; ".join(texts)

    def _admit_again(self, how: str, status: Status) -> None:
        """Admit the vendor's own pods again; those that have read the former GPUs are deleted."""
        context = self._context
        stale = context.deps.backend.restartable(context.platform_pods(), self._policy)
        if self._vendor.layout_taint is not None:
            context.remove_taints(self._vendor.layout_taint.key)
        restart_plugin(context, stale)
        if self._outstanding():
            self._keep(requested="")
        context.record_step("layout", status, how)


def withdraw_request(context: RunContext) -> None:
    """Remove the label and the answer, if the label is ours. That changes no GPU, and cancels nothing. ClusterError.

    An answer without a label is one to us if the policy in force requests anything.
    """
    vendor, node, former = of(context.deps.vendor), context.cluster.node(), context.former()
    if vendor.layout_taint is None:
        return
    label, state = vendor.layout_label, vendor.layout_state_label
    is_managed = former is not None and former.partitioner is Partitioner.CONFIG_MANAGER
    is_left = label not in node.labels and state in node.labels and is_managed
    if node.owners.get(label) == WRITER or is_left:
        context.cluster.write_labels({label: None, state: None})
        context.record_step("labels", Status.CHANGED, f"{label} removed")
