"""What a change does to the GPUs of one node: instances that stay, and shares that their users lose."""

from collections import Counter
from collections.abc import Sequence

from gpushare.compare.changes import GpuChange
from gpushare.compare.snapshots import Gpu
from gpushare.facts import mig
from gpushare.facts.catalog.cards import Geometry

Instances = frozenset[tuple[str, int]]


def changes(old: Sequence[Gpu], new: Sequence[Gpu], geometry: Geometry | None) -> tuple[GpuChange, ...]:
    """Return the changes of every GPU that has or gets instances. `geometry` None: only equal placements count as kept."""
    found = []
    for index in range(max(len(old), len(new))):
        before = _instances(old[index]) if index < len(old) else frozenset()
        after = _placed(before, new[index], geometry) if index < len(new) else frozenset()
        if before or after:
            kept, destroyed, created = (
                tuple(sorted(part, key=lambda one: (one[1], one[0])))
                for part in (before & after, before - after, after - before)
            )
            found.append(GpuChange(index=index, kept=kept, destroyed=destroyed, created=created))
    return tuple(found)


def _instances(gpu: Gpu) -> Instances:
    return frozenset((device.profile, device.start) for device in gpu if device.profile is not None)


def _placed(before: Instances, gpu: Gpu, geometry: Geometry | None) -> Instances:
    """Return the placements of the new instances on a GPU that has `before`: as many as possible stay."""
    wanted = _instances(gpu)
    if not before or not wanted or geometry is None:
        return wanted
    layout = tuple(Counter(profile for profile, _ in wanted).items())
    placed = mig.place(geometry, layout, keep=tuple(sorted(before, key=lambda one: one[1])))
    return wanted if placed is None else frozenset((one.profile.name, one.start) for one in placed)


def disturbed(old: Sequence[Gpu], new: Sequence[Gpu], geometry: Geometry | None, *, restarts: bool) -> int:
    """Return how many shares of one node their users lose; `restarts`: the sharing daemon restarts (MPS)."""
    if restarts:
        return sum(device.replicas for gpu in old for device in gpu)
    kept = {change.index: change.kept for change in changes(old, new, geometry)}
    return sum(
        _lost(gpu, new[index] if index < len(new) else (), frozenset(kept.get(index, ()))) for index, gpu in enumerate(old)
    )


def _lost(old: Gpu, new: Gpu, kept: Instances) -> int:
    """Return the shares of devices that are removed, that get another resource name, or that get fewer replicas."""
    offered = {device.profile: device for device in new}
    lost = 0
    for device in old:
        after = offered.get(device.profile)
        stays = device.profile is None or (device.profile, device.start) in kept
        if after is None or not stays or after.resource != device.resource or after.replicas < device.replicas:
            lost += device.replicas
    return lost
