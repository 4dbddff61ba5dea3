"""What claims ask of NVIDIA's DRA driver: the parts of a device that make a share, and the shapes that a pool offers. Pure.

The driver lets claims share every device or none, for the whole cluster: by memory, or by a count of shares. A capacity that a
claim does not ask for goes to the first claim whole, unless the driver gives it a default: all memory or none of it, one share.
An instance of MIG has capacities without a default, also the memory slices of its place: a claim on a part of it asks for a
part of every one, with an alternative for each place (consumable_shares.go and mig.go of dra-driver-nvidia-gpu 0.5.0).
"""

from collections.abc import Iterable, Iterator, Mapping

from gpushare.core.units import MIB
from gpushare.facts.catalog.cards import Card, DeviceProfile, MigProfile
from gpushare.intent.types import Intent, Pool
from gpushare.offering import modes
from gpushare.offering.backends.dra import DraDriver
from gpushare.offering.shares import ShareKind
from gpushare_node.contract.names import MEMORY, SHARES
from gpushare_node.contract.policy import DraShares
from gpushare_node.contract.struct import NOTHING, Struct

Capacity = Mapping[str, str]
"""What a claim asks of a device: quantities by capacity."""

_SLICE = "memorySlice"


class Division(Struct):
    """How the driver lets claims share devices: `by` None, not at all. `shares` is the count that every device has then."""

    by: DraShares | None
    shares: int = 1


class ClaimShape(Struct):
    """One kind of claim: the template's name, and what the claim asks of a device of the class.

    `alternatives`: of which the first that fits is taken; one, which may be empty, if the place of a device does not matter.
    """

    template: str
    device_class: str
    alternatives: tuple[Capacity, ...]


class Bound(Struct):
    """What claims of tenants may ask of a device of the class. `most`: all of these, at most as much; `exactly`: just that.

    `slices`: of how many memory slices they must ask nothing. All empty: of no capacity.
    """

    device_class: str
    most: Capacity = NOTHING
    exactly: Capacity = NOTHING
    slices: int = 0
    is_shared: bool = False


def of_dra(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    """Return the pools that the driver serves."""
    return tuple(pool for pool in pools if pool.backend.has_claims)


def division(intent: Intent) -> Division:
    """Return how the driver of a cluster divides devices. A rule ensures that all counts of shares are equal."""
    counts = {count for pool in of_dra(intent.pools) for count in _counts(pool)}
    if max(counts, default=1) < 2:
        return Division(by=None)
    by = intent.platform.of_dra.shares
    return Division(by=by, shares=max(counts) if by is DraShares.COUNT else 1)


def _counts(pool: Pool) -> Iterator[int]:
    if pool.sizes:
        yield 2
    replicas = modes.of(pool).sharing.replicas
    yield from [replicas] if isinstance(replicas, int) else [count for _, count in replicas]


def missing(profile: MigProfile) -> tuple[str, ...]:
    """Return the capacities of an instance that the catalogue does not know, as the driver calls them."""
    return tuple(name for name, amount in _capacities(profile).items() if amount is None)


def _capacities(profile: MigProfile) -> Mapping[str, int | None]:
    engines = profile.engines
    return {
        MEMORY: profile.memory_mib,
        "multiprocessors": profile.sm,
        "copyEngines": engines.copy,
        "decoders": engines.decoders,
        "encoders": engines.encoders,
        "jpegEngines": engines.jpeg,
        "ofaEngines": engines.ofa,
    }


def shapes(pool: Pool, card: Card, kinds: tuple[ShareKind, ...], divided: Division) -> tuple[ClaimShape, ...]:
    """Return the claims that a pool offers: one for each kind of device, then the pool's sizes."""
    backend = DraDriver(pool, card)
    found = [
        ClaimShape(
            template=backend.template(kind.resource),
            device_class=kind.resource,
            alternatives=_alternatives(kind, divided),
        )
        for kind in kinds
    ]
    whole = next((kind.resource for kind in kinds if kind.profile is None), "")
    found += [
        ClaimShape(template=backend.template_name(name), device_class=whole, alternatives=({MEMORY: f"{size // MIB}Mi"},))
        for name, size in sorted(pool.sizes)
    ]
    return tuple(found)


def _alternatives(kind: ShareKind, divided: Division) -> tuple[Capacity, ...]:
    if not kind.shared:
        return (_whole(kind.profile, divided),)
    own = _share(kind, divided)
    if not isinstance(kind.profile, MigProfile):
        return (own,)
    places = sorted({(place.start, place.size) for place in kind.profile.placements})
    return tuple(own | {f"{_SLICE}{at}": "0" for at in range(start, start + size)} for start, size in places)


def _whole(profile: DeviceProfile | None, divided: Division) -> Capacity:
    """Return what makes a device of its own: a count of shares, where one is the default."""
    return {SHARES: str(divided.shares)} if profile is None and divided.by is DraShares.COUNT else {}


def _share(kind: ShareKind, divided: Division) -> dict[str, str]:
    parts = _capacities(kind.profile) if isinstance(kind.profile, MigProfile) else {MEMORY: kind.memory_mib}
    own = {name: (amount or 0) // kind.replicas for name, amount in parts.items()}
    if divided.by is DraShares.COUNT:
        del own[MEMORY]
    return {name: f"{amount}Mi" if name == MEMORY else str(amount) for name, amount in own.items()}


def bounds(pool: Pool, kinds: tuple[ShareKind, ...], divided: Division) -> tuple[Bound, ...]:
    """Return what claims of tenants may ask of each class of the pool: no more than the largest of its shapes."""
    return tuple(_bound(pool, kind, divided) for kind in kinds)


def _bound(pool: Pool, kind: ShareKind, divided: Division) -> Bound:
    if not kind.shared:
        return Bound(device_class=kind.resource, exactly=_whole(kind.profile, divided))
    most = _share(kind, divided)
    if kind.profile is None and most:
        largest = max([(kind.memory_mib or 0) // kind.replicas, *(size // MIB for _, size in pool.sizes)])
        most = {MEMORY: f"{largest}Mi"}
    slices = kind.profile.placements[0].size if isinstance(kind.profile, MigProfile) and kind.profile.placements else 0
    return Bound(device_class=kind.resource, most=most, slices=slices, is_shared=True)
