"""GpuTransaction: changes one GPU from its present layout to the policy's, or rolls it back to its former layout.

Owns the order of the steps on one GPU and the rollback. Every round is planned again from hardware; it handles no other GPU.
It returns a GpuOutcome, and raises no exception except StateDirError and Stopped.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import assert_never

from gpushare_node.adapters.host.state_dir import FormerGpu, InstanceSpec
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct
from gpushare_node.gpus.journal import JournalWriter
from gpushare_node.gpus.steps import StepError, Steps, explain, layout_text, names_of, step_result
from gpushare_node.gpus.view import GpuView
from gpushare_node.partition import GpuPlan
from gpushare_node.partition.operations import ChangeModes, CreateInstance, DestroyInstance, DisableMig, EnableMig, Operation
from gpushare_node.partition.state import Gpu
from gpushare_node.reporting.outcome import Status, StepResult
from gpushare_node.vendors.driver import DriverError, GpuInfo, GpuInstance

_MAX_ROUNDS = 3
"""If the driver lists no placements before MIG is on, a GPU needs two plans; a third round checks the result."""


class GpuOutcome(Struct):
    """The state in which a GPU was left. `reason` None: as the policy requires. `message` is for people."""

    index: int
    reason: ConditionReason | None
    message: str = ""


class GpuTransaction:
    """The change of one GPU. `look` returns the present view of the node."""

    def __init__(
        self,
        gpu: GpuPlan,
        *,
        look: Callable[[], GpuView],
        steps: Steps,
        record: JournalWriter,
        on_result: Callable[[StepResult], None],
    ) -> None:
        self._index = gpu.index
        self._uuid = gpu.uuid
        self._look = look
        self._steps = steps
        self._record = record
        self._on_result = on_result
        self._created: set[int] = set()
        self._is_touched = False
        self._doing = "look at the GPU"

    def run(self) -> GpuOutcome:
        """Change the GPU. StateDirError before it is touched, if the journal cannot be written; Stopped between two steps."""
        # If an earlier run was interrupted, a rollback restores the layout from before that run.
        former = self._record.unfinished(self._uuid)
        is_recovering = former is not None
        try:
            for _ in range(_MAX_ROUNDS):
                view = self._look_again()
                survey, gpu = self._find(view)
                if not gpu.operations and self._uuid not in view.compute_modes:
                    self._record.end(self._uuid, is_pending=False)
                    self._report("layout", Status.OK, layout_text(survey))
                    return GpuOutcome(index=self._index, reason=None)
                former = former or former_of(survey)
                self._record.begin(former, _mode_of(gpu))
                self._carry_out(gpu, survey, must_reset_compute_mode=self._uuid in view.compute_modes)
            raise StepError(
                ConditionReason.PARTITION_FAILED,
                "the GPU does not have the layout after all steps: another program is changing it",
            )
        except StepError as error:
            self._report(self._doing, Status.FAILED, str(error))
            return self._give_up(error, former, is_recovering=is_recovering)

    def _look_again(self) -> GpuView:
        try:
            return self._look()
        except DriverError as error:
            raise explain(error) from error

    def _find(self, view: GpuView) -> tuple[GpuInfo, GpuPlan]:
        """Return the GPU and its plan now. Since the last look the GPU may have been lost, or a process may have opened it."""
        survey = view.survey(self._uuid)
        gpu = next((one for one in view.plan.gpus if one.uuid == self._uuid), None)
        if survey is None or gpu is None:
            unfit = next((unfit_gpu for unfit_gpu in view.plan.unfit if unfit_gpu.index == self._index), None)
            raise StepError(
                ConditionReason.GPU_LOST if unfit is None else unfit.reason,
                "the driver no longer lists the GPU" if unfit is None else unfit.detail,
            )
        if self._uuid in view.blocked:
            raise StepError(ConditionReason.GPU_BUSY, "a process started to use the GPU")
        return survey, gpu

    def _carry_out(self, gpu: GpuPlan, survey: GpuInfo, *, must_reset_compute_mode: bool) -> None:
        self._is_touched = True
        if must_reset_compute_mode:
            self._doing = "reset the compute mode"
            self._steps.raise_if_stopped()
            self._steps.reset_compute_mode()
            self._on_result(
                StepResult(
                    step=self._doing,
                    target=f"GPU {self._index}",
                    status=Status.CHANGED,
                    before=("compute mode exclusive process",),
                    after=("compute mode default",),
                )
            )
        for operation in gpu.operations:
            self._doing = step_result(operation, self._index, Status.FAILED, names_of(survey)).step
            self._steps.raise_if_stopped()
            self._do(operation, survey)
            self._on_result(step_result(operation, self._index, Status.CHANGED, names_of(survey)))
        self._doing = "verify"
        self._verify(gpu, survey)

    def _do(self, operation: Operation, survey: GpuInfo) -> None:
        match operation:
            case EnableMig():
                self._steps.switch(enabled=True, may_reset=True)
            case DisableMig():
                self._steps.switch(enabled=False, may_reset=True)
            case DestroyInstance(instance=gone):
                standing = () if survey.mig is None else survey.mig.instances
                self._steps.destroy(next(instance for instance in standing if instance.gi_id == gone.gi_id))
            case CreateInstance():
                self._created.add(self._steps.create(operation))
            case ChangeModes():
                raise StepError(ConditionReason.PARTITION_FAILED, "only AMD's config manager divides these GPUs")
            case _:
                assert_never(operation)

    def _verify(self, gpu: GpuPlan, before: GpuInfo) -> None:
        """Raise StepError unless the GPU has exactly the kept and created instances, each whole and with its MIG device."""
        created = [
            InstanceSpec(profile_id=one.profile_id, start=one.start, size=one.size)
            for one in gpu.operations
            if isinstance(one, CreateInstance)
        ]
        gone = {operation.instance.gi_id for operation in gpu.operations if isinstance(operation, DestroyInstance)}
        kept = [instance_spec(instance) for instance in before.instances if instance.gi_id not in gone]
        after = self._steps.survey()
        standing = Counter(map(instance_spec, after.instances))
        if standing != Counter((*kept, *created)) or not all(map(_is_sound, after.instances)):
            raise StepError(
                ConditionReason.PARTITION_FAILED, f"the driver reports a layout that was not created: {layout_text(after)}"
            )

    def _give_up(self, error: StepError, former: FormerGpu | None, *, is_recovering: bool) -> GpuOutcome:
        """Try once to roll back to the former layout, if the GPU was touched and still responds."""
        reason, message = error.reason, f"{self._doing}: {error}"
        if former is None or not self._is_touched or reason.value.prevents_rollback or self._doing == "verify":
            return GpuOutcome(index=self._index, reason=reason, message=message)
        try:
            lost = self._roll_back(former, is_recovering=is_recovering)
        except StepError as another:
            self._report("roll back", Status.FAILED, str(another))
            message = f"{message}; the rollback failed: {another}"
            return GpuOutcome(index=self._index, reason=ConditionReason.PARTITION_FAILED, message=message)
        self._record.end(self._uuid, is_pending=False)
        if reason is ConditionReason.PARTITION_FAILED:
            reason = ConditionReason.ROLLED_BACK
        return GpuOutcome(index=self._index, reason=reason, message=f"{message}; {lost}")

    def _roll_back(self, former: FormerGpu, *, is_recovering: bool) -> str:
        """Restore the former layout; return the sentence that reports it."""
        gpu = next((one for one in self._look_again().state.gpus if one.uuid == self._uuid), None)
        way = rollback_plan(former, self._steps.survey(), created=self._created, takes_all=is_recovering)
        if gpu is None or way.is_blocked(gpu):
            raise StepError(ConditionReason.GPU_BUSY, "a process started to use an instance that must be destroyed")
        for instance in way.gone:
            self._steps.destroy(instance)
        if way.must_switch:
            self._steps.switch(enabled=former.mig, may_reset=False)
        elif way.must_cancel_pending:
            self._steps.cancel_pending(enabled=former.mig)
        for one in way.missing:
            self._steps.create(CreateInstance(uuid=self._uuid, profile_id=one.profile_id, start=one.start, size=one.size))
        after = self._steps.survey()
        if rollback_plan(former, after, created=(), takes_all=False).is_needed:
            raise StepError(
                ConditionReason.PARTITION_FAILED, f"the driver does not report the previous layout, but {layout_text(after)}"
            )
        message = "the previous layout is restored" + (", under new MIG UUIDs" if way.missing else "")
        self._report("roll back", Status.CHANGED if way.is_needed else Status.OK, message)
        return message

    def _report(self, step: str, status: Status, detail: str) -> None:
        self._on_result(StepResult(step=step, target=f"GPU {self._index}", status=status, detail=detail))


def _mode_of(gpu: GpuPlan) -> bool | None:
    """Return the MIG mode that the plan switches to, None if it switches none."""
    return next(
        (isinstance(operation, EnableMig) for operation in gpu.operations if isinstance(operation, EnableMig | DisableMig)),
        None,
    )


def _is_sound(instance: GpuInstance) -> bool:
    return is_whole(instance) and instance.compute[0].uuid is not None


class RollbackPlan(Struct):
    """`gone` and `missing` are instances to destroy and to create; the mode is switched, or a pending one cancelled."""

    gone: tuple[GpuInstance, ...]
    missing: tuple[InstanceSpec, ...]
    must_switch: bool
    must_cancel_pending: bool

    @property
    def is_needed(self) -> bool:
        """Whether the rollback must change anything."""
        return bool(self.gone or self.missing or self.must_switch or self.must_cancel_pending)

    def is_blocked(self, gpu: Gpu) -> bool:
        """Whether a process uses what the rollback must destroy or switch."""
        gone = {one.gi_id for one in self.gone}
        busy = {one.gi_id for one in (gpu.mig.instances if gpu.mig else ()) if one.is_busy}
        return bool(busy & gone) or (self.must_switch and (gpu.is_busy or bool(busy)))


def rollback_plan(former: FormerGpu, survey: GpuInfo, *, created: Collection[int], takes_all: bool) -> RollbackPlan:
    """Return the plan from the current to the former layout. `created` are GPU instances that this run has created.

    Other instances are destroyed only if this run created them, if they overlap a missing one, or if MIG is switched off; with
    `takes_all`, after a run that crashed and cannot report what it created, all of them are.
    """
    standing = survey.instances
    kept = {one.gi_id for one in standing if is_whole(one) and instance_spec(one) in former.instances}
    there = {instance_spec(one) for one in standing if one.gi_id in kept}
    missing = tuple(one for one in former.instances if one not in there)
    takes_all = takes_all or not former.mig
    gone = [
        instance
        for instance in standing
        if instance.gi_id not in kept and (takes_all or instance.gi_id in created or _overlaps(instance, missing))
    ]
    return RollbackPlan(
        gone=tuple(gone),
        missing=missing,
        must_switch=survey.mig is not None and survey.mig.current != former.mig,
        must_cancel_pending=survey.mig is not None and survey.mig.current == former.mig != survey.mig.pending,
    )


def former_of(survey: GpuInfo) -> FormerGpu:
    """Return the layout that a rollback restores. Only whole instances, because no others can be created again."""
    return FormerGpu(
        uuid=survey.uuid,
        mig=survey.is_mig_on,
        instances=tuple(instance_spec(instance) for instance in survey.instances if is_whole(instance)),
    )


def is_whole(instance: GpuInstance) -> bool:
    """Whether it contains exactly one compute instance, of its whole size."""
    return [compute_instance.is_whole for compute_instance in instance.compute] == [True]


def instance_spec(instance: GpuInstance) -> InstanceSpec:
    """Return what is needed to create it again."""
    return InstanceSpec(profile_id=instance.profile_id, start=instance.start, size=instance.size)


def _overlaps(instance: GpuInstance, places: Iterable[InstanceSpec]) -> bool:
    end = instance.start + instance.size
    return any(instance.start < place.start + place.size and place.start < end for place in places)
