"""What the partitioner reports on each step: its name, its target, and the lines removed from and added to the layout. Pure.

Owns the wording. An instance is written as in nvidia-smi: `1g.5gb at 4:1` begins at memory slice 4 and occupies one slice.
"""

from collections import Counter
from collections.abc import Mapping
from typing import assert_never

from gpushare_node.contract.policy import DesiredInstance
from gpushare_node.partition import GpuPlan
from gpushare_node.partition.operations import ChangeModes, CreateInstance, DestroyInstance, DisableMig, EnableMig, Operation
from gpushare_node.reporting.outcome import Status, StepResult
from gpushare_node.vendors.driver import GpuInfo

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
