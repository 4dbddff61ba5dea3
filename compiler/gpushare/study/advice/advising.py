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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import mean, stdev
from typing import Any

from gpushare.core.diagnostics import Finding, is_error
from gpushare.core.prices import Price
from gpushare.core.units import MIB
from gpushare.core.wording import gib, join_first, pluralize
from gpushare.intent import writer
from gpushare.offering import modes, shares
from gpushare.offering.modes.traits import Variant
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare.study.advice import distribution
from gpushare.study.advice.advised import Advice, AdvisedSharing, BackTest, PoolAdvice, Refusal
from gpushare.study.advice.candidates import Candidate, Isolation, Ways, gpus, present, words
from gpushare.study.advice.distribution import Coverage
from gpushare.study.advice.history import History
from gpushare.study.advice.replay import Measured, Terms, replay
from gpushare_node.contract.policy import Action
from gpushare_node.contract.struct import Struct, content_of, replace

Window = tuple[int, int]
Document = Mapping[str, Any]
Check = Callable[[Document], Sequence[Finding]]
"""The findings of an intent."""

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


class Caution(Struct):
    """How cautious the advice is. `risk` is the most endings for each container and week; 0: none may be seen.

    `min_seconds` and `min_containers` of a pool's history are needed, or nothing is advised for it.
    """

    risk: float = 0.0
    min_seconds: int = 12 * 3600
    min_containers: int = 10
    isolation: Isolation = Isolation.PRESENT


def advise(  # noqa: PLR0913, PLR0917 - all that advice depends on
    plan: Plan,
    document: Document,
    check: Check,
    history: History,
    prices: Mapping[str, Price],
    settings: Caution,
    names: Iterable[str] = (),
) -> Advice:
    """Return the advice for the pools, or for those named. `document` is what the plan was made from, `prices` are by pool."""
    history = of_pools(history, plan)
    learned, tested = split(history)
    measured = (use for use in history.containers if use.points and use.points[-1][0] + history.step_seconds > learned[0])
    history = replace(history, containers=tuple(measured))
    wanted, known = set(names), frozenset(finding.code for finding in check(document))
    pools = [pool for pool in plan.pools if not wanted or pool.name in wanted]
    currencies = {price.currency for price in prices.values()}
    return Advice(
        learned=learned,
        tested=tested,
        pools=tuple(_Adviser(pool, document, check, history, settings, known).advice(prices.get(pool.name)) for pool in pools),
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

    def __init__(  # noqa: PLR0913, PLR0917 - what `advise` is given
        self, plan: PoolPlan, document: Document, check: Check, history: History, settings: Caution, known: frozenset[str]
    ) -> None:
        self._plan, self._document, self._check, self._history, self._settings = plan, document, check, history, settings
        self._pool, self._card = plan.pool, plan.card
        self._learned, self._tested = split(history)
        self._known = known
        self._present = present(plan)
        self._ways = Ways(plan, self._present, settings.isolation)
        self._uses = tuple(distribution.uses(history, plan.name))
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
        if modes.of(self._pool).is_on_demand:
            return Refusal.ON_DEMAND
        if not self._uses:
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

    def _peaks(self, window: Window) -> list[int]:
        """Return the most that each container used in the window."""
        found = (distribution.peak(use, window, self._history.gap_seconds) for use in self._uses)
        return [most for most in found if most is not None]

    def _needs(self, coverage: Coverage) -> list[int]:
        """Return what a share may have to hold, in bytes: the most cautious first, others only if a risk is allowed."""
        peaks = sorted(self._peaks(self._learned))
        maxima = [max(found) for part in _parts(self._learned) if (found := self._peaks(part))]
        bound = mean(maxima) + _T * stdev(maxima) * math.sqrt(1 + 1 / len(maxima))
        now = floor = max(self._running(), default=0)
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

    def _running(self) -> Iterator[int]:
        """Yield what each container that runs at the end of the pool's history uses now."""
        last = max(use.points[-1][0] for use in self._uses)
        for use in self._uses:
            at, used = use.points[-1]
            if at + max(_RUNS_SECONDS, self._history.gap_seconds) >= last:
                yield used

    def _change(self, measured: Measured, coverage: Coverage, price: Price | None) -> AdvisedSharing | None:
        if self._present is None:
            return None
        needs = self._needs(coverage)
        allowed = [variant for variant in modes.VARIANTS if self._ways.is_allowed(variant)]
        tried: list[tuple[Candidate, BackTest]] = []
        for one in self._ways.of(allowed, needs, self._least):
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

    def _replay(self, measured: Measured, one: Candidate) -> BackTest:
        return replay(measured, self._terms(one))

    def _terms(self, one: Candidate) -> Terms:
        enforcement = one.pool.enforcement
        tolerance = shares.tolerance_mib(one.pool, one.cap_bytes // MIB) * MIB if one.is_capped else 0
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
        return Measured(self._uses, window, self._history.step_seconds, self._history.gap_seconds)

    def _compiles(self, one: Candidate) -> bool:
        """Whether the intent with this change has no errors. Notes the warnings that it adds."""
        after = self._check(changed(self._document, {self._plan.name: self._fields(one)}))
        errors = [finding for finding in after if is_error(finding)]
        if errors:
            self._notes.append(f"{words(one)} is left out: {errors[0].code} {errors[0].message}")
            return False
        new = dict.fromkeys(finding.code for finding in after if finding.code not in self._known)
        if new:
            self._notes.append(f"the changed intent has new warnings: {join_first(list(new))}; `gpushare check` explains them")
        return True

    def _fields(self, one: Candidate) -> dict[str, Any]:
        """Return the fields of the pool that change, with their new values."""
        old = self._document["spec"]["pools"][self._plan.name]
        own, new = old["sharing"], writer.write_sharing(one.pool.sharing)
        if self._present is not None and one.layouts == self._present.layouts and modes.of(one.pool).is_partitioned:
            divided = ("layout", "layouts", "goal")
            new = {key: value for key, value in new.items() if key not in divided}
            new |= {key: own[key] for key in divided if key in own}
        has = content_of(one.pool.sharing)
        new |= {key: own[key] for key in modes.of(one.pool).settings if key in own and key in has}
        found = {} if new == own else {"sharing": {key: new[key] for key in (*own, *new) if key in new}}
        memory = dict(old.get("memory") or {})
        if memory.get("cap", "even") != "even":
            found["memory"] = {**memory, "cap": "even" if one.is_capped else "none"}
        return found

    def _described(self, one: Candidate, back_test: BackTest, price: Price | None) -> AdvisedSharing | None:
        if self._present is None:
            return None
        peak = self._peak()
        before, after = (gpus(each, peak) for each in (self._present, one))
        self._note_effects(one)
        memory = self._card.memory_mib
        return AdvisedSharing(
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
        for use in self._uses:
            start, end = use.points[0][0], use.points[-1][0] + self._history.step_seconds
            if start < self._learned[1] and end > self._learned[0]:
                steps += [(max(start, self._learned[0]), 1), (end, -1)]
        held = most = 0
        for _, change in sorted(steps):
            held += change
            most = max(most, held)
        return most

    def _note_effects(self, one: Candidate) -> None:
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

    def _note_failures(self, tried: Sequence[tuple[Candidate, BackTest]], chosen: Candidate | None) -> None:
        failed = [(one, test) for one, test in tried if test.endings]
        for one, test in failed[:3]:
            names = list(dict.fromkeys(f"{end.namespace}/{end.pod}" for end in test.endings))
            self._notes.append(
                f"{words(one)} failed the back-test: {pluralize(len(test.endings), 'container')} ended ({join_first(names)})"
            )
        if failed and chosen is not None:
            self._notes.append("the advice was chosen after these failures, with the tested part: its rate may be higher")
        if chosen is None:
            self._notes.append(f"no way to share {self._card.id} serves this use at this risk")

    def _note_others(self, allowed: Sequence[Variant], needs: Sequence[int], chosen: Candidate) -> None:
        """Note a way to share that isolates less and has more shares."""
        others = [variant for variant in modes.VARIANTS if variant not in allowed]
        more = [one for one in self._ways.of(others, needs[:1], self._least) if one.per_node > chosen.per_node]
        if more:
            self._notes.append(
                f"{words(more[0])} would have {more[0].per_node} shares per node, with less isolation (--isolation none)"
            )


def changed(document: Document, changes: Mapping[str, Document]) -> Document:
    """Return an intent's document with other fields of pools."""
    pools = document["spec"]["pools"]
    new = {name: {**pool, **changes.get(name, {})} for name, pool in pools.items()}
    return {**document, "spec": {**document["spec"], "pools": new}}


def _parts(window: Window) -> list[Window]:
    start, end = window
    edges = [start + (end - start) * number // PARTS for number in range(PARTS + 1)]
    return list(pairwise(edges))


def _size(number: int) -> str:
    return gib(number / MIB)
