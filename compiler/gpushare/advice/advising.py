"""From measured use to a change of each pool's `sharing` and cap, tested on the part of the history it was not learned from.

The first two thirds of the history are learned from. A share must hold the most that a container used of one in them, and more
if their sixths differ: the bound below which the maxima of the next three sixths stay with a probability of 95 %, if they vary
as these six do (Student's distribution, Bonferroni). It must hold what running containers use now. With a risk, it need hold
only so much that the guard ends no more containers than that in any sixth.

Of the ways to share the card that give each container so much, those with the most shares come first. The first one is advised
under which the guard, replaying the last third, ends no more containers than the risk allows. So the last third decides only
which of these fail: what was advised after a failure was chosen with it, and a note says so.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from statistics import mean, stdev
from typing import Any

from gpushare import modes, pipeline
from gpushare.advice import distribution
from gpushare.advice.advised import Advice, BackTest, Change, PoolAdvice, Refusal
from gpushare.advice.distribution import Coverage
from gpushare.advice.history import ContainerUse, History
from gpushare.advice.replay import Measured, Tenant, Terms, replay
from gpushare.bundle.lock import EMPTY
from gpushare.catalog.cards import Card
from gpushare.catalog.device_memory import usable_bytes
from gpushare.core import emit
from gpushare.core.diagnostics import is_error
from gpushare.core.prices import Price
from gpushare.core.record import Record, fields, replace
from gpushare.core.units import MIB
from gpushare.core.wording import gib, join_first, layout_text, pluralize
from gpushare.intent.types import Action, CapWord, Layout, Pool, Sharing
from gpushare.modes import fit
from gpushare.modes.demand import Demand, FaultIsolation, MemoryIsolation, Need, Variant
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare.sharing import caps, shares
from gpushare.sharing.shares import ShareKind

Window = tuple[int, int]
Document = Mapping[str, Any]

LEARNED_THIRDS = 2
PARTS = 6
"""Parts of equal length of what is learned from. The tested part is as long as three of them."""

_T = 2.912
"""Student's t for 5 degrees of freedom and 5 % / 3 in one tail: the largest of three further parts."""

_MIN_PARTS = 3
_MAX_GAPS = 0.2
_MAX_CAPPED = 0.1
_MAX_LEVELS = 40
_RUNS_SECONDS = 3600
"""A container runs if it was measured so shortly before the last sample of its pool: clocks differ, and scrapes fail."""
_TIMES = (5, 6, 8, 12, 16, 24, 32)
"""How much more than they need containers may have, in quarters, if less fails the back-test."""
_FEWER = 16
"""How many smaller numbers of replicas are tried for each need."""
_MAX_TRIED = 60


class Isolation(StrEnum):
    """What may keep containers apart: at least what does now, hardware alone, or anything."""

    PRESENT = "present"
    MEMORY = "memory"
    NONE = "none"


class Settings(Record):
    """How cautious the advice is. `risk` is the most endings for each container and week; 0: none may be seen.

    `min_seconds` and `min_containers` of a pool's history are needed, or nothing is advised for it.
    """

    risk: float = 0.0
    min_seconds: int = 12 * 3600
    min_containers: int = 10
    isolation: Isolation = Isolation.PRESENT


class _Candidate(Record):
    """One way to share. `cap_bytes` is what each container may use: by a cap (`is_capped`), else all that the device has."""

    pool: Pool
    variant: Variant
    layouts: tuple[Layout, ...]
    kinds: tuple[ShareKind, ...]
    cap_bytes: int
    is_capped: bool

    @property
    def per_node(self) -> int:
        return sum(kind.per_node for kind in self.kinds)


def advise(  # noqa: PLR0913, PLR0917 - all that advice depends on
    plan: Plan,
    document: Document,
    history: History,
    prices: Mapping[str, Price],
    settings: Settings,
    names: Iterable[str] = (),
) -> Advice:
    """Return the advice for the pools, or for those named. `document` is what the plan was made from, `prices` are by pool."""
    history = of_pools(history, plan)
    learned, tested = split(history)
    measured = (use for use in history.containers if use.points and use.points[-1][0] + history.step_seconds > learned[0])
    history = replace(history, containers=tuple(measured))
    wanted, known = set(names), frozenset(finding.code for finding in _compiled(document).findings)
    pools = [pool for pool in plan.pools if not wanted or pool.name in wanted]
    currencies = {price.currency for price in prices.values()}
    return Advice(
        learned=learned,
        tested=tested,
        pools=tuple(_Adviser(pool, document, history, settings, known).advice(prices.get(pool.name)) for pool in pools),
        currency=next(iter(currencies), ""),
        assumed=history.assumed,
    )


def split(history: History) -> tuple[Window, Window]:
    """Return the part of the history to learn from and the part to test on, between its first and its last sample."""
    first = min((use.points[0][0] for use in history.containers if use.points), default=history.start)
    last = max((use.points[-1][0] for use in history.containers if use.points), default=history.end) + history.step_seconds
    start, end = max(first, history.start), max(min(last, history.end), history.start)
    middle = start + (end - start) * LEARNED_THIRDS // 3
    return (start, middle), (middle, end)


def of_pools(history: History, plan: Plan) -> History:
    """Return the history of the plan's pools, with the pool of each container if there is only one that it can be."""
    names = [pool.name for pool in plan.pools]
    if len(names) == 1 and not all(use.pool for use in history.containers):
        history = replace(
            history,
            containers=tuple(replace(use, pool=use.pool or names[0]) for use in history.containers),
            assumed=(*history.assumed, f"containers without a pool are of {names[0]}, the only one"),
        )
    others = [use for use in history.containers if use.pool not in names]
    if not others:
        return history
    reasons = []
    if nameless := sum(not use.pool for use in others):
        reasons.append(f"{pluralize(nameless, 'container')} without a pool: the intent has several")
    if named := [use.pool for use in others if use.pool]:
        pools = join_first(sorted(set(named)))
        reasons.append(f"{pluralize(len(named), 'container')} of pools that the intent does not have for containers: {pools}")
    return replace(
        history,
        containers=tuple(use for use in history.containers if use.pool in names),
        left_out=(*history.left_out, *reasons),
    )


class _Adviser:
    """The advice for one pool."""

    def __init__(self, plan: PoolPlan, document: Document, history: History, settings: Settings, known: frozenset[str]) -> None:
        self._plan, self._document, self._history, self._settings = plan, document, history, settings
        self._pool, self._card = plan.pool, plan.card
        self._learned, self._tested = split(history)
        self._known = known
        self._present = _present(plan)
        self._uses = tuple(distribution.uses(history, plan.name))
        self._tenants = tuple(Tenant(use=use, shares=self._shares(use)) for use in self._uses)
        self._notes: list[str] = []
        self._measured_parts: list[Measured] | None = None
        self._least = 0

    def advice(self, price: Price | None) -> PoolAdvice:
        """Return the advice."""
        found = distribution.of(self._history, self._plan.name, self._learned)
        coverage = distribution.coverage(self._history, self._plan.name, self._learned)
        refusal = self._refusal(coverage)
        self._notes += distribution.limits(coverage, found)
        change = present = None
        if refusal is None:
            measured = self._measured(self._tested)
            if several := sum(tenant.shares > 1 for tenant in self._tenants):
                self._notes.append(
                    f"the caps of {pluralize(several, 'container')} are multiples of the present one: they count as holding"
                    " several shares, and keep that number; if the pool's cap was changed in the window, use --window"
                )
            if self._present is None:
                self._notes.append("its shares have several sizes: which of them a container holds is not in the history")
            else:
                present = self._replay(measured, self._present)
                change = self._change(measured, coverage, price)
        return PoolAdvice(
            pool=self._plan.name,
            distributions=found,
            change=change,
            refusal=refusal,
            present=present,
            notes=tuple(self._notes),
        )

    def _refusal(self, learned: Coverage) -> Refusal | None:
        tested = distribution.coverage(self._history, self._plan.name, self._tested)
        if not self._tenants:
            return Refusal.NO_USE
        measured = [part for part in _parts(self._learned) if self._peaks(part)]
        seconds = min(self._tested[1], max(use.points[-1][0] for use in self._uses) + self._history.step_seconds)
        seconds -= max(self._learned[0], min(use.points[0][0] for use in self._uses))
        if seconds < self._settings.min_seconds or len(measured) < _MIN_PARTS:
            return Refusal.SHORT
        if max(learned.gap_part, tested.gap_part, self._history.missing.get(self._plan.name, 0.0)) > _MAX_GAPS:
            return Refusal.GAPS
        if learned.containers < self._settings.min_containers or not tested.containers:
            return Refusal.FEW
        if learned.near_cap > _MAX_CAPPED * learned.containers:
            return Refusal.CAPPED
        return None

    def _shares(self, use: ContainerUse) -> int:
        """Return how many shares a container holds: its cap is the sum of theirs."""
        own = self._present.cap_bytes if self._present and self._present.is_capped else 0
        return use.cap_bytes // own if use.cap_bytes and own and use.cap_bytes % own == 0 else 1

    def _peaks(self, window: Window) -> list[int]:
        """Return the most that each container used of one share in the window."""
        found = ((distribution.peak(one.use, window, self._history.gap_seconds), one.shares) for one in self._tenants)
        return [-(-most // number) for most, number in found if most is not None]

    def _needs(self, coverage: Coverage) -> list[int]:
        """Return what a share may have to hold, in bytes: the most cautious first, others only if a risk is allowed."""
        peaks = sorted(self._peaks(self._learned))
        maxima = [max(found) for part in _parts(self._learned) if (found := self._peaks(part))]
        bound = mean(maxima) + _T * stdev(maxima) * math.sqrt(1 + 1 / len(maxima))
        now = floor = max((-(-used // number) for used, number in self._running()), default=0)
        if coverage.near_cap and self._present:
            floor = max(floor, self._present.cap_bytes)
        most, self._least = max(peaks[-1], math.ceil(bound), floor), max(peaks[-1], floor)
        self._notes.append(
            f"a new share must hold {_size(most)}: containers used up to {_size(peaks[-1])}, in sixths of the learned part"
            f" up to between {_size(min(maxima))} and {_size(max(maxima))}"
            f"; those that run used up to {_size(now)} at the end"
        )
        if not self._settings.risk:
            return [most]
        levels = [max(one, floor) for one in peaks[:: max(1, len(peaks) // _MAX_LEVELS)]]
        return sorted({most, *levels}, reverse=True)

    def _running(self) -> Iterator[tuple[int, int]]:
        """Yield what each container that runs at the end of the pool's history uses now, and its number of shares."""
        last = max(one.use.points[-1][0] for one in self._tenants)
        for one in self._tenants:
            at, used = one.use.points[-1]
            if at + max(_RUNS_SECONDS, self._history.gap_seconds) >= last:
                yield used, one.shares

    def _change(self, measured: Measured, coverage: Coverage, price: Price | None) -> Change | None:
        if self._present is None:
            return None
        needs = self._needs(coverage)
        allowed = [variant for variant in modes.VARIANTS if self._is_allowed(variant)]
        tried: list[tuple[_Candidate, BackTest]] = []
        for one in self._candidates(allowed, needs):
            if self._settings.risk and any(self._exceeds(self._replay(part, one)) for part in self._learned_parts()):
                continue
            back_test = self._replay(measured, one)
            if not self._exceeds(back_test) and (one is self._present or self._compiles(one)):
                self._note_failures(tried, one)
                self._note_others(allowed, needs, one)
                if one is self._present and one.cap_bytes < needs[0]:
                    self._notes.append(f"the present cap of {_size(one.cap_bytes)} has ended no container, and is below that")
                return None if one is self._present else self._described(one, back_test, price)
            tried.append((one, back_test))
        self._note_failures(tried, None)
        return None

    def _is_allowed(self, variant: Variant) -> bool:
        if self._settings.isolation is Isolation.NONE or self._present is None:
            return True
        if self._settings.isolation is Isolation.MEMORY:
            return variant.memory is MemoryIsolation.HARDWARE
        now = self._present.variant
        return _rank(variant) <= _rank(now)

    def _candidates(self, variants: Sequence[Variant], needs: Sequence[int]) -> list[_Candidate]:
        """Return the ways to share that give each container what it needs, or more: the one with the most shares first."""
        found: dict[tuple[object, ...], _Candidate] = {}
        more = (needs[0] * times // 4 for times in _TIMES)
        for need, variant in ((need, variant) for need in (*needs, *more) for variant in variants):
            demand = Demand(card=self._card, needs=(Need(memory_bytes=need),), gpus_per_node=self._pool.gpus_per_node, nodes=1)
            divided = variant.divide(demand)
            for sharing in () if isinstance(divided, str) else divided:
                for one in self._with_fewer(variant, sharing, need):
                    if not self._isolates_less(one):
                        found.setdefault((variant.word, one.layouts, one.pool.sharing.replicas), one)
        own = self._present
        if own is not None:
            same = (own.variant.word, own.layouts, own.pool.sharing.replicas)
            if own.variant in variants and own.cap_bytes >= min(needs[-1], self._least):
                found[same] = own
        return sorted(found.values(), key=self._preference)[:_MAX_TRIED]

    def _isolates_less(self, one: _Candidate) -> bool:
        """Whether more containers share an instance than its kind of MIG is for: all of a GPU, or those of several now."""
        if not modes.of(one.pool).is_partitioned or not one.pool.sharing.replicas:
            return False
        if any(sum(number for _, number in layout) == 1 for layout in one.layouts):
            return True
        own = self._present
        is_replicated = own is not None and modes.of(own.pool).is_partitioned and bool(own.pool.sharing.replicas)
        return is_replicated and self._settings.isolation is Isolation.PRESENT and one.layouts != getattr(own, "layouts", ())

    def _preference(self, one: _Candidate) -> tuple[int, ...]:
        is_other = self._present is None or one.variant.word != self._present.variant.word
        return -one.per_node, one is not self._present, is_other, *_rank(one.variant), len(one.kinds)

    def _with_fewer(self, variant: Variant, sharing: Sharing, need: int) -> Iterator[_Candidate]:
        """Yield the way to share with the pool's own reserve and settings, and with each smaller number of replicas."""
        sharing = modes.of(self._pool).with_settings(sharing)
        memory = replace(self._pool.memory, cap=None if self._pool.memory.cap is None else CapWord.EVEN)
        most = sharing.replicas if isinstance(sharing.replicas, int) else 0
        several = [replace(sharing, replicas=number) for number in range(most, max(1, most - _FEWER), -1)]
        for each in several or [sharing]:
            one = _candidate(replace(self._pool, sharing=each, memory=memory), self._card, variant, None)
            if one is not None and one.cap_bytes >= need:
                yield one

    def _replay(self, measured: Measured, one: _Candidate) -> BackTest:
        return replay(measured, self._terms(one))

    def _terms(self, one: _Candidate) -> Terms:
        enforcement = one.pool.enforcement
        tolerance = caps.tolerance_mib(one.cap_bytes // MIB, enforcement.tolerance) * MIB if one.is_capped else 0
        return Terms(
            cap_bytes=one.cap_bytes,
            tolerance_bytes=tolerance,
            action=enforcement.action,
            grace_seconds=enforcement.grace_seconds if one.is_capped else 0,
            is_mps=modes.of(one.pool).has_daemon,
        )

    def _exceeds(self, back_test: BackTest) -> bool:
        return bool(back_test.endings) and back_test.rate.value > self._settings.risk

    def _learned_parts(self) -> list[Measured]:
        if self._measured_parts is None:
            self._measured_parts = [self._measured(part) for part in _parts(self._learned)]
        return self._measured_parts

    def _measured(self, window: Window) -> Measured:
        return Measured(self._tenants, window, self._history.step_seconds, self._history.gap_seconds)

    def _compiles(self, one: _Candidate) -> bool:
        """Whether the intent with this change has no errors. Notes the warnings that it adds."""
        after = _compiled(changed(self._document, {self._plan.name: self._fields(one)}))
        errors = [finding for finding in after.findings if is_error(finding)]
        if errors:
            self._notes.append(f"{_words(one)} is left out: {errors[0].code} {errors[0].message}")
            return False
        new = dict.fromkeys(finding.code for finding in after.findings if finding.code not in self._known)
        if new:
            self._notes.append(f"the changed intent has new warnings: {join_first(list(new))}; `gpushare check` explains them")
        return True

    def _fields(self, one: _Candidate) -> dict[str, Any]:
        """Return the fields of the pool that change, with their new values."""
        old = self._document["spec"]["pools"][self._plan.name]
        own, new = old["sharing"], modes.of(one.pool).document()
        if self._present is not None and one.layouts == self._present.layouts and modes.of(one.pool).is_partitioned:
            new.pop("layout")
            new |= {key: own[key] for key in ("layout", "layouts", "goal") if key in own}
        has = fields(one.pool.sharing)
        new |= {key: own[key] for key in modes.of(one.pool).settings if key in own and key in has}
        found = {} if new == own else {"sharing": {key: new[key] for key in (*own, *new) if key in new}}
        memory = dict(old.get("memory") or {})
        if memory.get("cap", "even") != "even":
            found["memory"] = {**memory, "cap": "even" if one.is_capped else "none"}
        return found

    def _described(self, one: _Candidate, back_test: BackTest, price: Price | None) -> Change | None:
        if self._present is None:
            return None
        peak = self._peak()
        before, after = (_gpus(each, peak) for each in (self._present, one))
        self._note_effects(one)
        memory = self._card.memory_mib
        return Change(
            sharing=one.pool.sharing,
            cap_bytes=one.cap_bytes if one.is_capped else None,
            shares_before=self._present.per_node,
            shares_after=one.per_node,
            gpus_before=before,
            gpus_after=after,
            saved_per_hour=None if price is None else (before - after) * price.per_hour,
            freed_mib=None if memory is None else (before - after) * memory,
            back_test=back_test,
            fields=self._fields(one),
        )

    def _peak(self) -> int:
        """Return how many shares were held at once in the learned part, at most."""
        steps: list[tuple[int, int]] = []
        for one in self._tenants:
            start, end = one.use.points[0][0], one.use.points[-1][0] + self._history.step_seconds
            if start < self._learned[1] and end > self._learned[0]:
                steps += [(max(start, self._learned[0]), one.shares), (end, -one.shares)]
        held = most = 0
        for _, change in sorted(steps):
            held += change
            most = max(most, held)
        return most

    def _note_effects(self, one: _Candidate) -> None:
        if self._present is None:
            return
        names = [tuple(sorted({kind.resource for kind in each.kinds})) for each in (self._present, one)]
        if names[0] != names[1]:
            self._notes.append(f"pods must request {join_first(names[1])} in place of {join_first(names[0])}")
        if one.is_capped and not self._present.is_capped:
            self._notes.append("there is no cap now: the change introduces one")
        if self._pool.enforcement.action in {Action.WARN, Action.NONE} and one.is_capped:
            self._notes.append(
                f"enforcement.action is {self._pool.enforcement.action}: the back-test counts as if it were kill"
            )
        most = max(kind.replicas for kind in one.kinds)
        if most > max(kind.replicas for kind in self._present.kinds):
            self._notes.append(f"up to {most} containers compute on one device: use of compute is not in the history")
        elif one.per_node > self._present.per_node:
            self._notes.append("a share has a smaller part of a GPU's compute: use of compute is not in the history")
        if (one.layouts, one.variant) != (self._present.layouts, self._present.variant):
            self._notes.append("running pods lose their shares when the nodes change: `gpushare plan` says how many, and when")

    def _note_failures(self, tried: Sequence[tuple[_Candidate, BackTest]], chosen: _Candidate | None) -> None:
        failed = [(one, test) for one, test in tried if test.endings]
        for one, test in failed[:3]:
            names = list(dict.fromkeys(f"{end.namespace}/{end.pod}" for end in test.endings))
            self._notes.append(
                f"{_words(one)} failed the back-test: {pluralize(len(test.endings), 'container')} ended ({join_first(names)})"
            )
        if failed and chosen is not None:
            self._notes.append("the advice was chosen after these failures, with the tested part: its rate may be higher")
        if chosen is None:
            self._notes.append(f"no way to share {self._card.id} serves this use at this risk")

    def _note_others(self, allowed: Sequence[Variant], needs: Sequence[int], chosen: _Candidate) -> None:
        """Note a way to share that isolates less and has more shares."""
        others = [variant for variant in modes.VARIANTS if variant not in allowed]
        more = [one for one in self._candidates(others, needs[:1]) if one.per_node > chosen.per_node]
        if more:
            self._notes.append(
                f"{_words(more[0])} would have {more[0].per_node} shares per node, with less isolation (--isolation none)"
            )


def changed(document: Document, changes: Mapping[str, Document]) -> Document:
    """Return an intent's document with other fields of pools."""
    pools = document["spec"]["pools"]
    new = {name: {**pool, **changes.get(name, {})} for name, pool in pools.items()}
    return {**document, "spec": {**document["spec"], "pools": new}}


def _compiled(document: Document) -> pipeline.Compilation:
    return pipeline.compile_intent(emit.json_text(document).encode(), "intent", EMPTY)


def _present(plan: PoolPlan) -> _Candidate | None:
    """Return how the pool shares now; None if its shares have several sizes."""
    variant = next(one for one in modes.VARIANTS if one.word == _variant_word(plan.pool))
    one = _candidate(plan.pool, plan.card, variant, plan.layout_of_goal)
    if one is None:
        return None
    provided = {_provides(plan.pool, plan.card, kind) for kind in one.kinds}
    return one if len(provided) == 1 else None


def _variant_word(pool: Pool) -> str:
    return "mig-replicas" if modes.of(pool).is_partitioned and pool.sharing.replicas else pool.mode.value


def _candidate(pool: Pool, card: Card, variant: Variant, pinned: Layout | None) -> _Candidate | None:
    layouts = modes.of(pool).layouts(card, pinned)
    kinds = shares.kinds(pool, card, layouts) if layouts else ()
    provided = [_provides(pool, card, kind) for kind in kinds]
    if layouts is None or not kinds or None in provided:
        return None
    is_capped = any(caps.cap_mib(pool, card, kind.profile, kind.replicas) is not None for kind in kinds)
    cap = min(one for one in provided if one is not None)
    return _Candidate(pool=pool, variant=variant, layouts=layouts, kinds=kinds, cap_bytes=cap, is_capped=is_capped)


def _provides(pool: Pool, card: Card, kind: ShareKind) -> int | None:
    """Return what a container with one share may use, in bytes: its cap, or what the device has; None if not known."""
    cap = caps.cap_mib(pool, card, kind.profile, kind.replicas)
    return usable_bytes(kind.memory_mib, pool.memory.reserve) if cap is None else cap * MIB


def _rank(variant: Variant) -> tuple[int, int, int]:
    """Return what is larger for less isolation; of those that share a device, MIG with replicas has the most."""
    is_shared = variant.memory is not MemoryIsolation.HARDWARE
    faults = list(FaultIsolation).index(variant.faults)
    return int(is_shared), faults, modes.VARIANTS.index(variant) if is_shared else 0


def _gpus(one: _Candidate, peak: int) -> int:
    """Return how many GPUs have so many shares, by whole nodes, as `gpushare size` counts."""
    need = (Need(memory_bytes=one.cap_bytes, users=peak),)
    return (fit.nodes_for(((one.cap_bytes, one.per_node),), need) or 0) * one.pool.gpus_per_node


def _parts(window: Window) -> list[Window]:
    start, end = window
    edges = [start + (end - start) * number // PARTS for number in range(PARTS + 1)]
    return list(pairwise(edges))


def _words(one: _Candidate) -> str:
    """Return a way to share in words: `time-slicing ×4`."""
    layout = layout_text(one.layouts[0]) if one.layouts[0] else ""
    replicas = one.pool.sharing.replicas
    times = f"×{replicas}" if isinstance(replicas, int) and replicas else ""
    return " ".join(filter(None, (one.pool.mode.value, layout, times)))


def _size(number: int) -> str:
    return gib(number / MIB)
