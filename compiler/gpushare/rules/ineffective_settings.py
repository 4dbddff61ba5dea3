"""Rules on settings without effect, or with a surprising one; `grace` and `rollout` included: GS508 and GS512 to GS515."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpushare import vendors
from gpushare.core.diagnostics import Path, Severity
from gpushare.core.units import MIB, show_bytes
from gpushare.core.wording import pluralize
from gpushare.facts.catalog.cards import usable_bytes
from gpushare.intent.types import CapValue, CapWord, Enforcement, Intent, MemoryEach, Pool, Requests
from gpushare.offering import modes, shares
from gpushare.offering.modes.mps import limits_clients
from gpushare.offering.shares import ShareKind
from gpushare.rules.rule import Problem, RuleContext, a_card, of_pool, pool_path, rule
from gpushare.rules.versions import operator_driver
from gpushare_node.contract.policy import Action, Mechanism, OnBusy
from gpushare_node.contract.tenancy import AdmissionMode, AdmissionScope

DRIVER_LIMITS_FROM = 615
"""The driver branch from which the driver itself can hold a cgroup to a memory limit."""

Steps = tuple[str, ...]

_Idle = Iterator[tuple[Steps, str, str]]
"""Steps below the pool or `spec`, why the setting there does nothing, and what to do."""


@rule("GS508", Severity.WARNING)
def check_effect(context: RuleContext) -> Iterator[Problem]:
    """Settings that have no effect."""
    for pool in context.intent.pools:
        kinds = context.kinds(pool)
        if kinds is None:
            continue
        shared = [kind for kind in kinds if kind.shared]
        of_sharing = _of_sharing(context, pool, shared) if shared else _unshared(context, pool)
        for steps, why, hint in (*of_sharing, *_of_rollout(context, pool), *_of_backend(context, pool)):
            yield _found(pool_path(pool, *steps), steps, why, hint)
    for steps, why, hint in (
        *_of_admission(context.intent),
        *_of_quotas(context),
        *_of_all_rollouts(context),
        *_of_driver(context.intent),
    ):
        yield _found(("spec", *steps), steps, why, hint)


def _found(path: Path, steps: Steps, why: str, hint: str) -> Problem:
    message = f"{'.'.join(steps)} has no effect: {why}"
    return Problem(message=message, hints=(hint,), path=path)


def _of_admission(intent: Intent) -> _Idle:
    why, hint = "admission.enforce: none creates no policies", "remove it, or write another enforce"
    if intent.admission.mode is AdmissionMode.NONE and intent.admission.scope is not AdmissionScope.TENANTS:
        yield ("admission", "scope"), why, hint
    if intent.admission.mode is AdmissionMode.NONE and intent.admission.localhost_profiles:
        yield ("admission", "localhostProfiles"), why, hint


def _of_quotas(context: RuleContext) -> _Idle:
    for namespace, limits in context.document.get("spec", {}).get("quotas", {}).items():
        if not limits:
            yield ("quotas", namespace), "it limits nothing", "remove it, or write a pool with a number; 0 allows none"
        for pool, limit in limits.items():
            if isinstance(limit, dict) and limit.get("shares") == 0 and "memory" in limit:
                yield ("quotas", namespace, pool, "memory"), "shares: 0 allows none", "remove it, or write more shares"


def _unshared(context: RuleContext, pool: Pool) -> _Idle:
    why, hint = f"no device of pool {pool.name} is shared", "remove it"
    if (card := context.card(pool)) is None or vendors.of(card).has_shares:
        hint += ", or share devices with replicas"
    if pool.enforcement != Enforcement() and not is_misplaced(pool):
        yield ("enforcement",), why, hint
    if pool.memory.oversubscribe_percent != 100:
        yield ("memory", "oversubscribe"), why, hint
    if pool.memory.reserve is not None and not modes.of(pool).is_partitioned:
        yield ("memory", "reserve"), why, hint
    if "rename" in _written(context, pool, "sharing"):
        yield ("sharing", "rename"), why, hint


def _of_sharing(context: RuleContext, pool: Pool, shared: list[ShareKind]) -> _Idle:
    wanted: set[CapValue] = {shares.wanted_cap(pool, kind.profile) for kind in shared}
    uncapped, by_mps = wanted == {CapWord.NONE}, modes.of(pool).has_daemon
    if pool.memory.reserve is not None and (by_mps or uncapped) and not _goal_in_memory(pool):
        why = "the MPS daemon divides all memory" if by_mps else f"pool {pool.name} has no caps"
        yield ("memory", "reserve"), why, "remove it" if by_mps else "remove it, or write a cap"
    if pool.memory.oversubscribe_percent != 100 and (by_mps or wanted <= {CapWord.NONE, CapWord.EVEN}):
        why = "even caps never add up to more than the device" if CapWord.EVEN in wanted else f"pool {pool.name} has no caps"
        why = "the MPS daemon gives no client more than its share" if by_mps else why
        yield ("memory", "oversubscribe"), why, "remove it" if by_mps else "remove it, or write a cap as a size"
    if pool.enforcement != Enforcement() and uncapped and not is_misplaced(pool):
        yield ("enforcement",), "with cap: none there is nothing to enforce", "remove it, or write another cap"
    elif not uncapped:
        yield from _of_enforcement(context, pool)


def _of_enforcement(context: RuleContext, pool: Pool) -> _Idle:
    action = pool.enforcement.action
    if action not in (Action.KILL, Action.EVICT):
        why, hint = f"action: {action.value} terminates nothing", "remove it, or write action: kill or evict"
        for setting in _written(context, pool, "enforcement"):
            if setting == "notice" or (setting == "grace" and action is Action.NONE):
                yield ("enforcement", setting), why, hint


def _of_rollout(context: RuleContext, pool: Pool) -> _Idle:
    if pool.rollout.on_busy is OnBusy.FAIL and "drainTimeout" in _written(context, pool, "rollout"):
        yield ("rollout", "drainTimeout"), "onBusy: fail waits for no pod", "remove it, or write onBusy: wait or evict"


def _of_backend(context: RuleContext, pool: Pool) -> _Idle:
    if not pool.backend.has_claims:
        if context.writes(pool_path(pool, "requests")):
            yield ("requests",), f"pool {pool.name} has the device plugin", "remove it, or write backend: dra"
    elif pool.requests is Requests.CLAIMS:
        is_shared = any(kind.shared for kind in context.kinds(pool) or ())
        for setting in _written(context, pool, "sharing"):
            if setting == "strategy" or (setting == "rename" and is_shared):
                yield ("sharing", setting), "claims name a class of the pool", "remove it, or write requests: both"


def _of_driver(intent: Intent) -> _Idle:
    if intent.platform.dra is not None and all(not pool.backend.has_claims for pool in intent.pools):
        yield ("platform", "dra"), "no pool has backend: dra", "remove it, or write backend: dra in a pool"


def _of_all_rollouts(context: RuleContext) -> _Idle:
    written = [_written(context, pool, "rollout") for pool in context.intent.pools]
    for setting in context.document.get("spec", {}).get("rollout", {}):
        if written and all(setting in one for one in written):
            yield ("rollout", setting), f"every pool has its own {setting}", "remove it, or that of a pool"


def _goal_in_memory(pool: Pool) -> bool:
    """Whether the reserve decides which layout a goal resolves to."""
    return isinstance(modes.of(pool).goal, MemoryEach)


def _written(context: RuleContext, pool: Pool, section: str) -> Mapping[str, Any]:
    """Return a section of the pool as the user wrote it, including settings that equal a default."""
    found: Mapping[str, Any] = context.document.get("spec", {}).get("pools", {}).get(pool.name, {}).get(section, {})
    return found


def is_misplaced(pool: Pool) -> bool:
    """Whether another finding reports the mechanism: this mode does not have it."""
    return pool.enforcement.mechanism not in modes.of(pool).mechanisms


@rule("GS512", Severity.WARNING)
def check_daemon(context: RuleContext) -> Iterator[Problem]:
    """No cap under MPS, although the daemon always sets one."""
    for pool, card in context.pools_with_card():
        if not modes.of(pool).has_daemon or not limits_clients(card):
            continue
        for kind in context.kinds(pool) or ():
            if shares.wanted_cap(pool, kind.profile) is CapWord.NONE and kind.memory_mib:
                even, clients = kind.memory_mib // kind.replicas, pluralize(kind.replicas, "client")
                message = f"with cap: none the MPS daemon still gives each of {clients} {even}Mi at most"
                hint = "write cap: even to say so, or mode: time-slicing, where a container may use all memory"
                yield of_pool(pool, message, hint, "memory", "cap")


@rule("GS513", Severity.WARNING)
def check_driver_limits(context: RuleContext) -> Iterator[Problem]:
    """`mechanism: driver` with a driver that does not support memory limits yet."""
    version = operator_driver(context)
    branch = int(version.partition(".")[0]) if version.partition(".")[0].isdecimal() else DRIVER_LIMITS_FROM
    if branch >= DRIVER_LIMITS_FROM:
        return
    for pool in context.intent.pools:
        if pool.enforcement.mechanism is Mechanism.DRIVER and not is_misplaced(pool):
            message = f"driver {version} has no memory limits, so no cap of pool {pool.name} is enforced"
            hint = f"write mechanism: auto, or driver R{DRIVER_LIMITS_FROM} or newer"
            yield of_pool(pool, message, hint, "enforcement", "mechanism")


@rule("GS514", Severity.WARNING)
def check_beyond(context: RuleContext) -> Iterator[Problem]:
    """A cap that is larger than the device, so that no container can reach it."""
    for pool, kind, size in _sizes(context):
        if kind.memory_mib and size > kind.memory_mib * MIB:
            yield Problem(
                message=f"a cap of {show_bytes(size)} is more than the whole device, which has {kind.memory_mib}Mi",
                hints=(f"write {kind.memory_mib}Mi or less, or cap: none",),
                path=_cap_path(pool, kind),
            )


@rule("GS515", Severity.WARNING)
def check_oversubscription(context: RuleContext) -> Iterator[Problem]:
    """Caps that add up to more than the device has, as `oversubscribe` allows."""
    for pool, kind, size in _sizes(context):
        usable = usable_bytes(kind.memory_mib, pool.memory.reserve)
        together = kind.replicas * (size // MIB)
        allowed = usable * pool.memory.oversubscribe_percent // 100 if usable else 0
        if usable and usable < size * kind.replicas <= allowed:  # more than is allowed is GS501
            card = context.card(pool)
            device = kind.profile.name if kind.profile else a_card(card) if card else "the device"
            needed = f"{pluralize(kind.replicas, 'container')} at their caps need {together}Mi"
            message = f"{needed}, and {device} has {usable // MIB}Mi"
            hint = "the container that allocates last fails, within its cap: write a smaller cap, or fewer replicas"
            yield of_pool(pool, message, hint, "memory", "oversubscribe")


def _sizes(context: RuleContext) -> Iterator[tuple[Pool, ShareKind, int]]:
    """Yield every shared kind whose cap is a size, except under MPS: there GS507 checks it."""
    for pool in context.intent.pools:
        for kind in context.kinds(pool) or ():
            cap = shares.wanted_cap(pool, kind.profile)
            if kind.shared and isinstance(cap, int) and not modes.of(pool).has_daemon:
                yield pool, kind, cap


def _cap_path(pool: Pool, kind: ShareKind) -> tuple[str | int, ...]:
    steps = (kind.profile.name,) if isinstance(pool.memory.cap, tuple) and kind.profile else ()
    return pool_path(pool, "memory", "cap", *steps)
