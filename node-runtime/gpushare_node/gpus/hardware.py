"""Hardware: the node's GPUs as the partitioner uses them: waits for them, surveys them, changes them to the policy's layout.

Owns what concerns all GPUs together: which are left alone, that a failing one stops no other, how a run ends. `partition`
decides what to change, `transaction` how one GPU is changed. It calls no API server and knows no pods.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from gpushare_node.adapters.host.programs import Machine, this_machine
from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.contract.names import RETRY_ANNOTATION
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct
from gpushare_node.core.clock import Clock
from gpushare_node.gpus.driver_handle import DriverHandle
from gpushare_node.gpus.journal import JournalWriter
from gpushare_node.gpus.programs import openers_text
from gpushare_node.gpus.steps import Steps, layout_text, names_of, postponed_result, step_result
from gpushare_node.gpus.transaction import GpuOutcome, GpuTransaction
from gpushare_node.gpus.view import GpuView, build_view, registrable
from gpushare_node.partition import GpuPlan
from gpushare_node.reporting.outcome import Status, StepResult
from gpushare_node.vendors.driver import Driver, DriverError

__all__ = ["GpuView", "Hardware", "PartitionResult"]

_REASONS_WORST_FIRST = (
    ConditionReason.PARTITION_FAILED,
    ConditionReason.ROLLED_BACK,
    ConditionReason.DRIVER_HUNG,
    ConditionReason.NO_PERMISSION,
    ConditionReason.DRIVER_MISMATCH,
    ConditionReason.WAITING_FOR_DRIVER,
    ConditionReason.RESET_REQUIRED,
    ConditionReason.GPU_LOST,
    ConditionReason.GPU_UNREADABLE,
    ConditionReason.CARD_MISMATCH,
    ConditionReason.GPU_COUNT_MISMATCH,
    ConditionReason.INVALID_LAYOUT,
    ConditionReason.PARTITION_MISMATCH,
    ConditionReason.PENDING_FOREIGN_CHANGE,
    ConditionReason.CLIENTS_RUNNING,
    ConditionReason.GPU_BUSY,
)
"""Of several GPUs' reasons the node's condition has the one that needs attention most. The message has all of them."""

Allocated = Callable[[], frozenset[str]]
"""Returns the UUIDs that kubelet has now allocated to pods that have not ended."""

_FAILURES = frozenset({ConditionReason.PARTITION_FAILED, ConditionReason.ROLLED_BACK})
"""What counts as a failed attempt. Waiting for tenants, permission or a reset does no harm, however often it is tried."""


class PartitionResult(Struct):
    """How a run ended. `reason` None: every GPU matches the policy."""

    results: tuple[StepResult, ...]
    reason: ConditionReason | None
    message: str


class Hardware:
    """The GPUs of this node. DriverError if the driver as a whole does not answer; one GPU's failure is never raised."""

    def __init__(
        self,
        *,
        open_driver: Callable[[], Driver],
        folder: StateDir,
        clock: Clock,
        policy_digest: str,
        machine: Machine | None = None,
    ) -> None:
        """`policy_digest` identifies the policy's text: failed attempts are counted for it. `machine` None: this one."""
        self._machine = machine or this_machine()
        self._connection = DriverHandle(open_driver, clock)
        self._record = JournalWriter(folder, clock, policy_digest=policy_digest, boot_id=self._machine.boot_id)
        self._clock = clock

    def wait(
        self,
        timeout_seconds: float,
        on_wait: Callable[[str], None],
        sleep: Callable[[float], None] | None = None,
        *,
        had_access: bool = False,
    ) -> ConditionReason | None:
        """Wait until the driver answers; after the timeout, return why it does not. `on_wait` is called before each pause.

        `had_access`: the driver has answered in this container before.
        """
        return self._connection.wait(timeout_seconds, on_wait, sleep or self._clock.sleep, had_access=had_access)

    def look(self, policy: Policy, allocated: frozenset[str] = frozenset()) -> GpuView:
        """Return the GPUs now. `allocated` are UUIDs that kubelet allocated to pods that have not ended."""
        surveys = self._connection.driver.survey()
        if not self._record.driver:
            with suppress(DriverError):
                self._record.driver = self._connection.driver.versions().driver
        servers = self._machine.find_servers({pid for survey in surveys for _, pid in survey.pids})
        return build_view(surveys, policy, allocated=allocated, pending_modes=self._record.pending_modes, servers=servers)

    def devices(self, view: GpuView) -> frozenset[str]:
        """Return the UUIDs that the device plugin must register for this view: whole GPUs without MIG, and MIG devices."""
        return registrable(view.surveys)

    def is_backing_off(self, view: GpuView) -> bool:
        """Whether a change is needed, but has failed so often that it is not tried again yet."""
        return bool(view.plan.operations or view.compute_modes) and self._record.backoff is not None

    def change(
        self,
        policy: Policy,
        view: GpuView,
        allocated: Allocated | frozenset[str],
        on_result: Callable[[StepResult], None],
        *,
        check: bool = False,
    ) -> PartitionResult:
        """Change every GPU that is fit and not in use to the policy's layout. With `check` only report what would be done.

        Each GPU is surveyed again before it is touched, and `allocated` is called again if it is a function. StateDirError if
        the journal cannot be written, before that GPU is touched; Stopped between two steps if a signal stops the program.
        After either, the next run continues from hardware.
        """
        ask = allocated if callable(allocated) else lambda: allocated
        results: list[StepResult] = []

        def report(result: StepResult) -> None:
            results.append(result)
            on_result(result)

        outcomes = []
        for unfit in view.plan.unfit:
            report(StepResult(step="layout", target=f"GPU {unfit.index}", status=Status.FAILED, detail=unfit.detail))
            outcomes.append(GpuOutcome(index=unfit.index, reason=unfit.reason, message=unfit.detail))
        must_change = self._separate_unfit(view, outcomes, report)
        if check:
            for gpu in must_change:
                _predict(gpu, view, policy, report)
        elif must_change and (backoff := self._record.backoff) is not None:
            outcomes += [_leave(gpu, backoff, report) for gpu in must_change]
        else:
            changed = [
                GpuTransaction(
                    gpu,
                    look=lambda: self.look(policy, ask()),
                    steps=Steps(gpu.uuid, connection=self._connection, clock=self._clock, machine=self._machine),
                    record=self._record,
                    on_result=report,
                ).run()
                for gpu in must_change
            ]
            outcomes += changed
            self._record.close(
                has_failed=any(one.reason in _FAILURES for one in outcomes),
                has_changed=any(one.reason is None for one in changed),
                is_as_desired=all(outcome.reason is None for outcome in outcomes),
            )
            if any(result.status is Status.CHANGED for result in results):
                self._make_nodes(report)
        return _sum_up(outcomes, results)

    def mark_new_layout(self) -> None:
        """Have the journal say that the next change is no repair: a later run finishes it whatever the hour."""
        self._record.is_new_layout = True

    def names(self, pids: Collection[int]) -> Mapping[int, str]:
        """Return these processes as messages name them: name, state, and unit or pod."""
        known = self._machine.name_processes(pids)
        return {pid: known.get(pid, f"process {pid}") for pid in pids}

    def find_units(self, pids: Collection[int]) -> Mapping[int, str]:
        """Return the host's units that these processes belong to, by pid: a process of a pod has none."""
        return self._machine.find_units(pids)

    def close(self) -> None:
        """Close the driver."""
        self._connection.close()

    def _separate_unfit(self, view: GpuView, outcomes: list[GpuOutcome], report: Callable[[StepResult], None]) -> list[GpuPlan]:
        """Return the GPUs that must and may change; report the others."""
        found = []
        for gpu in view.plan.gpus:
            survey = view.survey(gpu.uuid)
            if gpu.uuid in view.blocked:
                pids = sorted({pid for _, pid in survey.pids}) if survey else []
                who = openers_text(tuple(self.names(pids).values())) if pids else "a pod to which kubelet allocated it"
                report(StepResult(step="layout", target=f"GPU {gpu.index}", status=Status.SKIPPED, detail=f"in use by {who}"))
                outcomes.append(GpuOutcome(index=gpu.index, reason=ConditionReason.GPU_BUSY, message=f"in use by {who}"))
            elif gpu.operations or gpu.uuid in view.compute_modes or self._record.unfinished(gpu.uuid):
                found.append(gpu)
            else:
                detail = "" if survey is None else layout_text(survey)
                report(StepResult(step="layout", target=f"GPU {gpu.index}", status=Status.OK, detail=detail))
                outcomes.append(GpuOutcome(index=gpu.index, reason=None))
        return found

    def _make_nodes(self, report: Callable[[StepResult], None]) -> None:
        """Create the device nodes. A failure is not an error: other parts of the stack create them too, at their first need."""
        problem = self._machine.make_nodes()
        status = Status.CHANGED if problem is None else Status.SKIPPED
        report(StepResult(step="device nodes", target="node", status=status, detail=problem or ""))


def _sum_up(outcomes: list[GpuOutcome], results: list[StepResult]) -> PartitionResult:
    reasons = {one.reason for one in outcomes if one.reason is not None}
    bad = sorted((outcome for outcome in outcomes if outcome.reason is not None), key=lambda one: one.index)
    return PartitionResult(
        results=tuple(results),
        reason=min(reasons, key=_rank, default=None),
        message="; ".join(f"GPU {one.index}: {one.message}" for one in bad),
    )


def _rank(reason: ConditionReason) -> tuple[int, str]:
    """Return the reason's place in the order; one that is not in it comes last, but counts as a failure too."""
    return _REASONS_WORST_FIRST.index(reason) if reason in _REASONS_WORST_FIRST else len(_REASONS_WORST_FIRST), reason.name


def _predict(gpu: GpuPlan, view: GpuView, policy: Policy, report: Callable[[StepResult], None]) -> None:
    survey = view.survey(gpu.uuid)
    if not gpu.operations and gpu.uuid not in view.compute_modes:
        report(
            StepResult(step="layout", target=f"GPU {gpu.index}", status=Status.OK, detail=layout_text(survey) if survey else "")
        )
    if gpu.uuid in view.compute_modes:
        report(StepResult(step="reset the compute mode", target=f"GPU {gpu.index}", status=Status.CHANGED))
    for operation in gpu.operations:
        report(step_result(operation, gpu.index, Status.CHANGED, {} if survey is None else names_of(survey)))
    if not gpu.is_final:
        report(postponed_result(gpu, next(one.instances for one in policy.gpus if one.index == gpu.index)))


def _leave(gpu: GpuPlan, backoff: tuple[int, int], report: Callable[[StepResult], None]) -> GpuOutcome:
    """Skip the GPU because of the backoff. The message is equal until the next attempt, so that it is reported once."""
    attempts, seconds = backoff
    when = f"the next starts {seconds // 60} minutes after the last, or immediately with the annotation {RETRY_ANNOTATION}=now"
    detail = f"{attempts} attempts have failed under this policy and driver; {when}"
    report(StepResult(step="layout", target=f"GPU {gpu.index}", status=Status.SKIPPED, detail=detail))
    return GpuOutcome(index=gpu.index, reason=ConditionReason.PARTITION_FAILED, message=detail)
