"""What one container may use before and after, and what happens above it: from the pools' entries, as plain values."""

from gpushare.compare.changes import Amount, CapChange
from gpushare.compare.snapshots import PoolSide


def caps(old: PoolSide | None, new: PoolSide | None) -> tuple[CapChange, ...]:
    """Return the cap of each share that one of the sides offers; None for no cap, or if the side does not offer it."""
    before, after = _caps(old), _caps(new)
    shares = sorted(before.keys() | after.keys(), key=lambda share: (share[1], share[0] or ""))
    return tuple(
        CapChange(
            resource=resource,
            profile=profile,
            cap_mib=Amount(before=before.get((profile, resource)), after=after.get((profile, resource))),
        )
        for profile, resource in shares
    )


def actions(old: PoolSide | None, new: PoolSide | None) -> tuple[str | None, str | None]:
    """Return what happens to a container above its cap, before and after; None for a side without the pool."""
    return _action(old), _action(new)


def _caps(side: PoolSide | None) -> dict[tuple[str | None, str], int | None]:
    return {} if side is None else dict(side.policy["caps"])


def _action(side: PoolSide | None) -> str | None:
    return None if side is None else side.policy.get("enforcement", {}).get("action")
