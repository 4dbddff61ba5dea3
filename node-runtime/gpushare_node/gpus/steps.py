"""Steps: the single changes to one GPU, with the retries that each needs, and what is reported on each.

Every failure is a StepError with a reason. Owns retries, what the driver's answers mean, and the wording: an instance is
written as in nvidia-smi, `1g.5gb at 4:1` begins at memory slice 4 and occupies one slice. `transaction` decides which steps to
take, and what follows a failure.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar, assert_never

from gpushare_node.adapters.host.programs import Machine
from gpushare_node.contract.policy import DesiredInstance
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.core.clock import Clock
from gpushare_node.gpus.driver_handle import DriverHandle
from gpushare_node.gpus.programs import openers_text
from gpushare_node.partition import GpuPlan
from gpushare_node.partition.operations import ChangeModes, CreateInstance, DestroyInstance, DisableMig, EnableMig, Operation
from gpushare_node.partition.state import FaultKind
from gpushare_node.reporting.outcome import Status, StepResult
from gpushare_node.vendors.driver import Activation, Code, DriverError, GpuInfo, GpuInstance

_MODE_PAUSES_SECONDS = (2.0, 4.0, 8.0, 16.0, 30.0)
"""The pauses between attempts, a minute in all: GPU clients that were stopped take that long at most."""

_MODE_DEADLINE_SECONDS = 60.0
_DESTROY_TRIES = 10

_T = TypeVar("_T")


class StepError(Exception):
    """A step that failed. The message is for people."""

    def __init__(self, reason: ConditionReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def explain(error: DriverError) -> StepError:
    """Return what the driver's error means for the node."""
    match error.code:
        case Code.NO_PERMISSION:
            return StepError(
                ConditionReason.NO_PERMISSION, f"{error}: changing GPUs needs a privileged container that runs as root"
            )
        case Code.GPU_IS_LOST:
            return StepError(ConditionReason.GPU_LOST, f"{error}: the GPU has fallen off the bus")
        case Code.RESET_REQUIRED:
            return StepError(ConditionReason.RESET_REQUIRED, f"{error}: the GPU must be reset before it can be changed")
        case Code.IN_USE:
            return StepError(ConditionReason.GPU_BUSY, str(error))
        case Code.LIB_RM_VERSION_MISMATCH:
            return StepError(ConditionReason.DRIVER_MISMATCH, str(error))
        case Code.TIMEOUT:
            return StepError(ConditionReason.DRIVER_HUNG, f"{error}: a call to the driver did not return")
        case Code.UNINITIALIZED | Code.DRIVER_NOT_LOADED | Code.LIBRARY_NOT_FOUND:
            return StepError(ConditionReason.WAITING_FOR_DRIVER, f"{error}: the driver was unloaded during the change")
        case Code.FUNCTION_NOT_FOUND:
            return StepError(
                ConditionReason.PARTITION_FAILED, f"{error}: this driver does not support it; install a newer driver"
            )
        case _:
            return StepError(ConditionReason.PARTITION_FAILED, str(error))


class Steps:
    """The steps on one GPU."""

    def __init__(self, uuid: str, *, connection: DriverHandle, clock: Clock, machine: Machine) -> None:
        self._uuid = uuid
        self._connection = connection
        self._clock = clock
        self._machine = machine

    def raise_if_stopped(self) -> None:
        """Raise Stopped if a signal stops the program. Called between two steps, so that no step is interrupted."""
        self._clock.sleep(0)

    def switch(self, *, enabled: bool, may_reset: bool) -> None:
        """Switch MIG on or off, now. Reopens the driver, because earlier handles are invalid (nvml.h, nvmlDeviceSetMigMode).

        With `may_reset` only this GPU is reset, if the switch needs a reset and the host has the program for it.
        """
        activation = self._request_mode(enabled=enabled)
        match activation:
            case Activation.ACTIVE:
                if self._has_mode(enabled=enabled):
                    return
                self._reset(enabled=enabled, may_reset=may_reset)
            case Activation.RESET_REQUIRED:
                self._reset(enabled=enabled, may_reset=may_reset)
            case Activation.IN_USE:
                word = "on" if enabled else "off"
                raise StepError(ConditionReason.CLIENTS_RUNNING, f"MIG cannot be switched {word}: {self._openers()}")
            case _:
                assert_never(activation)

    def cancel_pending(self, *, enabled: bool) -> None:
        """Cancel a pending mode, so that the next reset keeps the current one."""
        self._call(lambda: self._connection.partitioner.set_mig(self._uuid, enabled=enabled))
        self._connection.close()

    def reset_compute_mode(self) -> None:
        """Allow every process to open contexts again."""
        self._call(lambda: self._connection.driver.reset_compute_mode(self._uuid))

    def destroy(self, instance: GpuInstance) -> None:
        """Destroy the compute instances, then the instance; retry, as the driver releases an ended process within seconds."""
        for compute in instance.compute:
            self._patiently(partial(self._connection.partitioner.destroy_compute, self._uuid, instance.gi_id, compute.ci_id))
        self._patiently(lambda: self._connection.partitioner.destroy_instance(self._uuid, instance.gi_id))

    def create(self, desired: CreateInstance) -> int:
        """Create a whole instance; return its id. If its compute instance fails, destroy it again."""
        gi_id = self._call(
            lambda: self._connection.partitioner.create_instance(
                self._uuid, profile_id=desired.profile_id, start=desired.start, size=desired.size
            )
        )
        try:
            self._call(lambda: self._connection.partitioner.create_compute(self._uuid, gi_id))
        except StepError as error:
            try:
                self._connection.partitioner.destroy_instance(self._uuid, gi_id)
            except DriverError as another:
                raise StepError(error.reason, f"{error}; removing the unfinished instance failed: {another}") from error
            raise
        return gi_id

    def survey(self) -> GpuInfo:
        """Return the current state of the GPU. StepError if it does not answer."""
        survey = self._call(lambda: self._connection.survey(self._uuid))
        if survey is None:
            raise StepError(ConditionReason.GPU_LOST, "the driver no longer lists the GPU")
        if survey.fault is not None:
            is_lost = survey.fault.kind is FaultKind.LOST
            raise StepError(ConditionReason.GPU_LOST if is_lost else ConditionReason.GPU_UNREADABLE, survey.fault.detail)
        return survey

    def _openers(self) -> str:
        """Return which processes hold a GPU open, as far as /proc shows them. Our own session has been closed."""
        names = openers_text(self._machine.name_openers())
        if names:
            return f"a GPU is held open by {names}"
        return (
            "the GPU is held open, but by no process in /proc: the kernel module nvidia_drm holds it open if a display or the "
            "console uses the GPU (`lsmod` shows what uses `nvidia`)"
        )

    def _request_mode(self, *, enabled: bool) -> Activation:
        for pause in (*_MODE_PAUSES_SECONDS, None):
            activation = self._activation(enabled=enabled)
            self._connection.close()
            if activation is not Activation.IN_USE:
                return activation
            if pause is not None:
                self._clock.sleep(pause)
        return Activation.IN_USE

    def _activation(self, *, enabled: bool) -> Activation:
        """Set the mode; return its activation. Some drivers raise as an error what others return."""
        try:
            return self._connection.partitioner.set_mig(self._uuid, enabled=enabled)
        except DriverError as error:
            if error.code in (Activation.IN_USE, Activation.RESET_REQUIRED):
                return Activation(error.code)
            raise explain(error) from error

    def _has_mode(self, *, enabled: bool) -> bool:
        """Wait for the mode; return whether it is current in time. Meanwhile the GPU and the driver may be unavailable."""
        deadline = self._clock.now() + _MODE_DEADLINE_SECONDS
        while True:
            mig = None
            try:
                survey = self._connection.survey(self._uuid)
                mig = None if survey is None else survey.mig
            except DriverError:
                self._connection.close()
            if mig is not None and mig.current == mig.pending == enabled:
                return True
            if self._clock.now() >= deadline:
                return False
            self._clock.sleep(1.0)

    def _reset(self, *, enabled: bool, may_reset: bool) -> None:
        problem = self._try_reset() if may_reset else "which a rollback does not perform"
        if problem is None and self._has_mode(enabled=enabled):
            return
        word = "on" if enabled else "off"
        why = problem or "but a reset did not switch it"
        raise StepError(ConditionReason.RESET_REQUIRED, f"switching MIG {word} requires a GPU reset, {why}")

    def _try_reset(self) -> str | None:
        survey = self.survey()
        self._connection.close()
        if survey.pci_bus_id is None:
            return "which needs a PCI address that the driver does not report"
        problem = self._machine.reset(survey.pci_bus_id)
        return None if problem is None else f"which the runtime cannot perform: {problem}"

    def _patiently(self, call: Callable[[], None]) -> None:
        for _ in range(_DESTROY_TRIES):
            try:
                return call()
            except DriverError as error:
                if error.code != Code.IN_USE:
                    raise explain(error) from error
            self._clock.sleep(1.0)
        return self._call(call)

    def _call(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except DriverError as error:
            if error.code == Code.IN_USE:
                raise StepError(ConditionReason.GPU_BUSY, f"{error}: no process is listed, {self._openers()}") from error
            raise explain(error) from error


Names = Mapping[int, str]
"""Names of profiles by their ids."""


def names_of(survey: GpuInfo) -> Names:
    """Return the profile names that the driver reports."""
    return (
        {profile.id: profile.name for profile in survey.mig.profiles if profile.name is not None}
        if survey.mig is not None
        else {}
    )


def step_result(operation: Operation, index: int, status: Status, names: Names) -> StepResult:
    """Return the result of an operation."""
    lines: tuple[tuple[str, ...], tuple[str, ...]]
    match operation:
        case EnableMig():
            lines = ("MIG off",), ("MIG on",)
            step = "switch MIG on"
        case DisableMig():
            lines = ("MIG on",), ("MIG off",)
            step = "switch MIG off"
        case DestroyInstance(instance=gone):
            lines = (_place(gone.profile_id, gone.start, gone.size, names),), ()
            step = f"destroy {lines[0][0]}"
        case CreateInstance(profile_id=profile_id, start=start, size=size):
            lines = (), (_place(profile_id, start, size, names),)
            step = f"create {lines[1][0]}"
        case ChangeModes(before=old, after=new):
            lines = (old,), (new,)
            step = f"divide by {new}"
        case _:
            assert_never(operation)
    before, after = lines if status is Status.CHANGED else ((), ())
    return StepResult(step=step, target=f"GPU {index}", status=status, before=before, after=after)


def postponed_result(gpu: GpuPlan, desired: tuple[DesiredInstance, ...]) -> StepResult:
    """Return what `--check` reports if the driver lists no placements before MIG is on."""
    return StepResult(
        step="create instances",
        target=f"GPU {gpu.index}",
        status=Status.CHANGED,
        detail="placements are known once MIG is on",
        after=tuple(f"{one.profile} at {one.start}:{one.size}" for one in desired),
    )


def layout_text(survey: GpuInfo) -> str:
    """Return the layout of a GPU as a short text."""
    if survey.modes is not None:
        return survey.modes.word
    if not survey.is_mig_on:
        return "whole"
    names = names_of(survey)
    counts = Counter(names.get(instance.profile_id, f"profile {instance.profile_id}") for instance in survey.instances)
    return ", ".join(f"{count} × {name}" for name, count in sorted(counts.items())) or "MIG on, no instance"


def _place(profile_id: int, start: int, size: int, names: Names) -> str:
    return f"{names.get(profile_id, f'profile {profile_id}')} at {start}:{size}"
