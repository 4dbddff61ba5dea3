"""Rules on shares of a device and their memory: GS301, GS302, GS501 to GS507, GS509 to GS511.

Caps have a value, fit the device, are set only on shared devices, and are enforced by a mechanism that the mode has. Of MPS
also what the device plugin's daemon accepts.
"""

from collections.abc import Iterator

from gpushare import vendors
from gpushare.core.diagnostics import Path, Severity
from gpushare.core.units import MIB, show_bytes
from gpushare.core.wording import pluralize
from gpushare.facts.catalog.cards import Card, usable_bytes
from gpushare.intent.types import CapWord, Pool
from gpushare.offering import modes, shares
from gpushare.offering.modes.mps import limits_clients
from gpushare.offering.shares import ShareKind
from gpushare.rules.rule import Problem, RuleContext, a_card, of_pool, pool_path, product, rule
from gpushare_node.contract.policy import Mechanism
from gpushare_node.contract.struct import Struct

SMALL_CAP_MIB = 512
"""Below this a CUDA context, a few hundred MiB by itself, leaves a program next to nothing."""


class _Shared(Struct):
    """One kind of shared device of one pool, with the path of the field that decides its cap."""

    pool: Pool
    card: Card
    kind: ShareKind
    path: Path

    @property
    def name(self) -> str:
        """The device's name as the user writes it."""
        return self.kind.profile.name if self.kind.profile else product(self.card)

    @property
    def usable(self) -> int | None:
        """Bytes that all its containers may use together, None if unknown."""
        return usable_bytes(self.kind.memory_mib, self.pool.memory.reserve)

    @property
    def cap_bytes(self) -> int | None:
        """The cap in bytes, if it is a quantity."""
        cap = shares.wanted_cap(self.pool, self.kind.profile)
        return None if isinstance(cap, CapWord) else cap


def _shared(context: RuleContext) -> Iterator[_Shared]:
    for pool, card in context.pools_with_card():
        for kind in context.kinds(pool) or ():
            if kind.shared:
                yield _Shared(pool=pool, card=card, kind=kind, path=_cap_path(pool, kind))


def _cap_path(pool: Pool, kind: ShareKind) -> Path:
    """Return the path of the cap of a kind, or of the mapping in which it is missing."""
    cap = pool.memory.cap
    if isinstance(cap, tuple) and kind.profile and kind.profile.name in dict(cap):
        return pool_path(pool, "memory", "cap", kind.profile.name)
    given = cap is not None or pool.memory.reserve is not None or pool.memory.oversubscribe_percent != 100
    return pool_path(pool, "memory", "cap") if given else pool_path(pool, "memory")


@rule("GS501")
def check_sum(context: RuleContext) -> Iterator[Problem]:
    """Containers at their caps would need more memory than the device has."""
    tightest: dict[Path, tuple[int, _Shared]] = {}
    for shared in _shared(context):
        cap, usable = shared.cap_bytes, shared.usable
        if cap is None or usable is None or cap < MIB or usable <= 0 or modes.of(shared.pool).has_daemon:
            continue  # under MPS a cap is limited by what the daemon gives each client: GS507
        room = usable * shared.pool.memory.oversubscribe_percent
        if cap * shared.kind.replicas * 100 > room and room < tightest.get(shared.path, (room + 1, shared))[0]:
            tightest[shared.path] = (room, shared)
    for path, (room, shared) in tightest.items():
        yield _too_much(shared, room, path)


_TIMES = ("not even once", "once", "twice")


def _too_much(shared: _Shared, room: int, path: Path) -> Problem:
    cap, replicas = shared.cap_bytes or 0, shared.kind.replicas
    percent = shared.pool.memory.oversubscribe_percent
    largest, fitting = room // (100 * replicas * MIB), room // (100 * cap)
    have = f"the {room // (100 * MIB)}Mi usable of {shared.name}" + (f" at oversubscribe: {percent}%" if percent != 100 else "")
    return Problem(
        message=f"{pluralize(replicas, 'share')} of {show_bytes(cap)} are more than {have}",
        hints=(
            f"the largest cap for {pluralize(replicas, 'replica')} is {largest}Mi",
            f"{show_bytes(cap)} fits {_TIMES[fitting] if fitting < len(_TIMES) else f'{fitting} times'}",
        ),
        path=path,
    )


@rule("GS502")
def check_place(context: RuleContext) -> Iterator[Problem]:
    """A cap on a device that is not shared, so that nothing would enforce it."""
    for pool in context.intent.pools:
        card, cap = context.card(pool), pool.memory.cap
        if cap is None:
            continue
        path, is_partitioned = pool_path(pool, "memory", "cap"), modes.of(pool).is_partitioned
        if card and not (vendor := vendors.of(card)).has_shares:
            gpus = f"{vendor.name}'s GPUs"
            message = f"the driver bounds what a container of pool {pool.name} has of {gpus}, so memory.cap has no effect here"
            hint = "remove it, or choose a mode with smaller partitions"
            yield Problem(message=message, hints=(hint,), path=path)
        elif pool.sharing.replicas == () and not is_partitioned:
            yield _nothing_shared("whole GPUs are not shared, so memory.cap has no effect here", path)
        elif isinstance(cap, tuple) and not is_partitioned:
            yield Problem(
                message="memory.cap by profile needs mode: mig", hints=("write one quantity, even or none",), path=path
            )
        elif isinstance(cap, tuple) and card:
            unshared = [name for name, _ in cap if name in card.profiles and not _replicated(context, pool, name)]
            for name in unshared:
                message = f"{name} is not replicated in pool {pool.name}, so it has no cap"
                yield _nothing_shared(message, (*path, name), on_key=True)
        elif pool.sharing.replicas == ():
            yield _nothing_shared(f"no profile of pool {pool.name} is replicated, so memory.cap has no effect here", path)


def _replicated(context: RuleContext, pool: Pool, name: str) -> bool:
    kinds = context.kinds(pool)
    if kinds is not None:
        return any(kind.shared and kind.profile and kind.profile.name == name for kind in kinds)
    card = context.card(pool)
    return card is None or modes.of(pool).replicas_of(card.profiles[name]) > 1


def _nothing_shared(message: str, path: Path, *, on_key: bool = False) -> Problem:
    hint = "remove it, or share the device with replicas: a device of one container needs no cap"
    return Problem(message=message, hints=(hint,), path=path, on_key=on_key)


@rule("GS503")
def check_known(context: RuleContext) -> Iterator[Problem]:
    """`even`, written or by default, of a memory size that is not known."""
    seen: set[Path] = set()
    for shared in _shared(context):
        even = shares.wanted_cap(shared.pool, shared.kind.profile) is CapWord.EVEN
        if not even or shared.kind.memory_mib or shared.path in seen:
            continue
        seen.add(shared.path)
        what = f"{shared.name} of {a_card(shared.card)}" if shared.kind.profile else a_card(shared.card)
        default = "" if shared.pool.memory.cap is CapWord.EVEN else ", the default,"
        yield Problem(
            message=f"the memory of {what} is not known, so cap: even{default} cannot be computed",
            hints=("write a cap, such as memory: {cap: 8Gi}, or memory: {cap: none}",),
            path=shared.path,
        )


@rule("GS504", Severity.WARNING)
def check_small(context: RuleContext) -> Iterator[Problem]:
    """A cap that is hardly large enough for a CUDA context."""
    seen: set[Path] = set()
    for shared in _shared(context):
        kind = shared.kind
        cap = shares.cap_mib(shared.pool, shared.card, kind.profile, kind.replicas)
        if not cap or cap >= SMALL_CAP_MIB or _too_many_replicas(shared):
            continue
        path = shared.path if shared.pool.memory.cap is not None else _replicas_path(shared)
        if path not in seen:
            seen.add(path)
            yield Problem(
                message=f"each of {kind.replicas} containers on {shared.name} gets {cap}Mi, hardly more than a CUDA context",
                hints=(f"a cap of {SMALL_CAP_MIB}Mi or more, or fewer replicas, leaves room for data",),
                path=path,
            )


def _too_many_replicas(shared: _Shared) -> bool:
    """Whether GS301 already asks for fewer replicas."""
    return shared.kind.replicas > modes.of(shared.pool).most_replicas(shared.card)


def _replicas_path(shared: _Shared) -> Path:
    path = pool_path(shared.pool, "sharing", "replicas")
    by_profile = isinstance(shared.pool.sharing.replicas, tuple)
    return (*path, shared.kind.profile.name) if by_profile and shared.kind.profile else path


@rule("GS507")
def check_mps(context: RuleContext) -> Iterator[Problem]:
    """A cap above what the MPS daemon gives a client; the driver would refuse the memory before the cap is reached."""
    for shared in _shared(context):
        if _over_mps(shared):
            replicas = shared.kind.replicas
            even = (shared.kind.memory_mib or 0) // replicas
            yield Problem(
                message=f"a cap of {show_bytes(shared.cap_bytes or 0)} is more than MPS gives each of {replicas} clients",
                hints=(f"write cap: even, which is {even}Mi on {a_card(shared.card)}, a smaller cap, or fewer replicas",),
                path=shared.path,
            )


def _over_mps(shared: _Shared) -> bool:
    """Whether the cap is a quantity above the MPS daemon's limit: total memory over replicas, in whole MiB."""
    cap, memory = shared.cap_bytes, shared.kind.memory_mib
    return bool(modes.of(shared.pool).has_daemon and cap and memory and cap > memory // shared.kind.replicas * MIB)


@rule("GS509")
def check_reserve(context: RuleContext) -> Iterator[Problem]:
    """A reserve that leaves no memory of a device, or less than one MiB for each share."""
    for pool, card in context.pools_with_card():
        for kind in context.kinds(pool) or ():
            usable = usable_bytes(kind.memory_mib, pool.memory.reserve)
            if usable is None or usable >= kind.replicas * MIB:
                continue
            name = kind.profile.name if kind.profile else product(card)
            yield Problem(
                message=f"the reserve takes all of the {kind.memory_mib}Mi of {name}",
                hints=("remove memory.reserve: the default reserves 3 %, but at least 256Mi",),
                path=pool_path(pool, "memory", "reserve"),
            )
            break


@rule("GS510")
def check_units(context: RuleContext) -> Iterator[Problem]:
    """A cap under one MiB, which a bare number of bytes usually is by mistake."""
    for pool in context.intent.pools:
        path, cap = pool_path(pool, "memory", "cap"), pool.memory.cap
        by_profile = [((*path, name), value) for name, value in cap] if isinstance(cap, tuple) else [(path, cap)]
        for where, value in by_profile:
            if value is not None and not isinstance(value, CapWord) and value < MIB:
                yield Problem(
                    message=f"a cap of {value} bytes is less than 1Mi",
                    hints=(f"a bare number counts bytes; for MiB write {value}Mi",),
                    path=where,
                )


def _daemon_pools(context: RuleContext) -> Iterator[tuple[Pool, Card]]:
    return ((pool, card) for pool, card in context.pools_with_mode() if modes.of(pool).has_daemon)


@rule("GS301")
def check_mps_replicas(context: RuleContext) -> Iterator[Problem]:
    """More MPS replicas than the daemon admits; it would fail to start and the plugin would wait for it forever."""
    for pool, card in _daemon_pools(context):
        replicas = modes.of(pool).replicas_of(None)
        capability = card.compute_capability
        if not card.mps_supported or capability is None or replicas <= card.mps_max_replicas:
            continue
        major, minor = capability
        old = capability < (7, 5)
        why = f"the device plugin allows {card.mps_max_replicas} on compute capability {major}.{minor}"
        yield Problem(
            message=f"{replicas} MPS replicas are more than {a_card(card)} allows",
            hints=(
                why + (", since that is below 7.5" if old else ""),
                f"write replicas: {card.mps_max_replicas} or less, or mode: time-slicing, which has no such limit",
            ),
            path=pool_path(pool, "sharing", "replicas"),
        )


@rule("GS302")
def check_mps_support(context: RuleContext) -> Iterator[Problem]:
    """A card on which the device plugin's MPS does not run, or whose MPS holds no client to its share."""
    for pool, card in _daemon_pools(context):
        if not card.mps_supported:
            message = f"the device plugin does not run MPS on {a_card(card)}"
        elif not limits_clients(card):
            message = f"MPS needs Volta or newer to give clients of {a_card(card)} shares of their own"
        else:
            continue
        hint = f"write mode: time-slicing to share each {product(card)}"
        yield Problem(message=message, hints=(hint,), path=pool_path(pool, "sharing", "mode"))


def _mechanism(pool: Pool, message: str, hint: str) -> Problem:
    return of_pool(pool, message, hint, "enforcement", "mechanism")


def _lacking(context: RuleContext, mechanism: Mechanism) -> list[Pool]:
    """Return the pools that ask for a mechanism that their mode lacks."""
    asking = (pool for pool in context.intent.pools if pool.enforcement.mechanism is mechanism)
    return [pool for pool in asking if mechanism not in modes.of(pool).mechanisms]


@rule("GS505")
def check_driver_mechanism(context: RuleContext) -> Iterator[Problem]:
    """Driver limits on MIG, where the driver does not support them."""
    for pool in _lacking(context, Mechanism.DRIVER):
        message = "the driver's memory limits do not exist on MIG instances"
        yield _mechanism(pool, message, "write mechanism: auto or mechanism: watcher")


@rule("GS506")
def check_mps_mechanism(context: RuleContext) -> Iterator[Problem]:
    """MPS limits in a mode in which no MPS daemon runs."""
    for pool in _lacking(context, Mechanism.MPS):
        message = f"mechanism: mps needs mode: mps, and pool {pool.name} has {pool.mode.value}"
        yield _mechanism(pool, message, "write mechanism: auto, which takes the strongest that the node has")


@rule("GS511", Severity.WARNING)
def check_blind_mps(context: RuleContext) -> Iterator[Problem]:
    """`mechanism: mps` with a cap that the MPS daemon cannot enforce, because it gives every client the even share."""
    for pool, card in context.pools_with_card():
        cap = pool.memory.cap
        if pool.enforcement.mechanism is not Mechanism.MPS or not modes.of(pool).has_daemon or cap is CapWord.NONE:
            continue
        instead = "write mechanism: auto, which watches each container as well"
        if not limits_clients(card):
            message = f"MPS on {a_card(card)} has no memory limits, so no cap is enforced"
            yield _mechanism(pool, message, instead)
        elif isinstance(cap, int):
            message = f"mechanism: mps enforces only the even share, not the cap of {show_bytes(cap)}"
            yield _mechanism(pool, message, instead)
