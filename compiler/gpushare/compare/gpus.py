"""What a change does to the GPUs of one node: instances that stay, shares that their users lose, and what each may use.

What one container may use before and after, and what happens above it, is from the pools' entries, as plain values.
"""

from collections import Counter
from collections.abc import Sequence

from gpushare.compare.changes import Amount, CapChange, GpuChange
from gpushare.compare.snapshots import Gpu, OfferedDevice, PoolSide
from gpushare.facts import mig
from gpushare.facts.catalog.cards import Geometry
from gpushare_node.contract.struct import replace

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


def caps(old: PoolSide | None, new: PoolSide | None) -> tuple[CapChange, ...]:
    """Return the cap of each share that one of the sides offers; None for no cap, or if the side does not offer it."""
    before, after = _caps(old), _caps(new)
    shares = sorted(before.keys() | after.keys(), key=lambda share: (share[1], share[0] or ""))
    return tuple(
        _mixed(
            CapChange(
                resource=resource,
                profile=profile,
                cap_mib=Amount(before=before.get((profile, resource)), after=after.get((profile, resource))),
                is_offered_twice=(profile, resource) in before and (profile, resource) in after,
            ),
            _device(old, profile, resource),
            None if _ends_all(old, new) else _device(new, profile, resource),
        )
        for profile, resource in shares
    )


def _mixed(cap: CapChange, old: OfferedDevice | None, new: OfferedDevice | None) -> CapChange:
    """Return the change with what containers of both caps may use together, if that is more than the device has.

    A container keeps a cap that is lowered, so as many as there were may run beside those that start on the added shares.
    """
    before, after = cap.cap_mib.before, cap.cap_mib.after
    if old is None or new is None or new.memory_mib is None or before is None or after is None or after >= before:
        return cap
    kept = min(old.replicas, new.replicas)
    both = Amount(before=kept, after=new.replicas - kept)
    used = kept * before + (new.replicas - kept) * after
    is_planned = new.replicas * after > new.memory_mib  # oversubscribed for good, which the intent asks for
    if used <= new.memory_mib or is_planned or not both.after:
        return cap
    return replace(cap, mixed=both, mixed_mib=used, memory_mib=new.memory_mib)


def _ends_all(old: PoolSide | None, new: PoolSide | None) -> bool:
    """Whether no container of before is left: MPS's daemon restarts, or the card is another."""
    if old is None or new is None:
        return True
    return old.card != new.card or (old.profile != new.profile and (old.has_daemon or new.has_daemon))


def _device(side: PoolSide | None, profile: str | None, resource: str) -> OfferedDevice | None:
    devices = (device for gpu in (side.gpus if side else ()) for device in gpu)
    return next((one for one in devices if (one.profile, one.resource) == (profile, resource)), None)


def actions(old: PoolSide | None, new: PoolSide | None) -> tuple[str | None, str | None]:
    """Return what happens to a container above its cap, before and after; None for a side without the pool."""
    return _action(old), _action(new)


def _caps(side: PoolSide | None) -> dict[tuple[str | None, str], int | None]:
    return {} if side is None else dict(side.caps)


def _action(side: PoolSide | None) -> str | None:
    return None if side is None else side.action
