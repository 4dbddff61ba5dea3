"""Layout: what a policy wants of one GPU, in the driver's own numbers. Pure.

Owns the lookup of the policy's profiles in the driver's table. The table decides, even if the policy disagrees.
"""

from collections.abc import Sequence

from gpushare_node.contract.policy import DesiredInstance
from gpushare_node.contract.struct import Struct
from gpushare_node.partition.placement import Place
from gpushare_node.partition.state import Profile


class LayoutError(ValueError):
    """A layout that the GPU cannot have; the message says why."""


class Layout(Struct):
    """The desired profile ids, one for each instance; every place where one may be created; the places in the policy."""

    profile_ids: tuple[int, ...]
    places: frozenset[Place]
    preferred: frozenset[Place]


def resolve(desired: Sequence[DesiredInstance], table: Sequence[Profile]) -> Layout:
    """Return the layout; LayoutError if the driver does not know a profile. `placement` checks whether all fit together."""
    profiles = [_find(instance, table) for instance in desired]
    places = {(at.start, at.size, one.id) for one in profiles for at in one.placements if at.start >= 0 and at.size > 0}
    named = {(instance.start, instance.size, one.id) for instance, one in zip(desired, profiles, strict=True)}
    return Layout(
        profile_ids=tuple(profile.id for profile in profiles),
        places=frozenset(places),
        preferred=frozenset(named),
    )


def _find(instance: DesiredInstance, table: Sequence[Profile]) -> Profile:
    """Find the profile by name, because pods request it by name; by id only if the driver has no name for the id."""
    for profile in table:
        if profile.name == instance.profile:
            return profile
    for profile in table:
        if profile.name is None and profile.id == instance.profile_id:
            return profile
    raise LayoutError(f"the driver does not know the profile {instance.profile} on this GPU")
