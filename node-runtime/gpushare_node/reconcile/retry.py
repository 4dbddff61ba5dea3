"""Retry: one attempt after another until one is good, with pauses between them. Decides nothing about GPUs.

A pause, also after the first two failures, ends early if node, slot or tenants change. The backoff from the third failure on is
counted in the journal (`gpus/journal.py`), because it must outlive the program.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from gpushare_node.adapters.host.state_dir import StateDirError, StateDirLockedError
from gpushare_node.adapters.kube.cluster import CHANGE_TAINTS, ClusterError
from gpushare_node.contract.names import POOL_LABEL, RELEASE_ANNOTATION, RETRY_ANNOTATION
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.core.clock import Stopped
from gpushare_node.reconcile.run_context import SILENT_SECONDS, RunContext
from gpushare_node.reporting.outcome import Blocked, Outcome, Status, StepResult
from gpushare_node.vendors.driver import Code, DriverError

_FIRST_PAUSE_SECONDS = 60.0
_FIRST_POOL_SECONDS = 15.0
"""The first pause of a node that another pool has: mostly it is being handed over, and its label shows when."""
_MAX_PAUSE_SECONDS = 600.0
"""An attempt makes up to ten requests to the API server; a waiting node must cost it next to nothing."""
_LOOK_SECONDS = 15.0
"""How often a pause checks whether the node has changed: by its watch, or without one by a request."""

_SLOT_SECONDS = 600.0
"""How long a run waits for its slot before it looks at its node and its GPUs again."""
_SLOT_LOOK_SECONDS = 60.0
"""How often a node that waits for its slot looks again: hundreds may wait."""
_REQUESTER_SECONDS = 60.0
"""How often a node that has left checks whether the Job that requested this still exists: its watch does not show that."""
_TENANTS_SECONDS = 5.0
"""How often a pause checks whether tenants have gone, by what is known without a request."""
_INNOCENT = (ConditionReason.GPU_BUSY, ConditionReason.GPU_FAULTY)
"""The reasons that say nothing against the change: a slot is not kept for them."""

_FRUITLESS_BACKOFF_SECONDS = 30.0
"""How long to skip checks after an attempt that still found tenants; doubled for each further attempt."""


class _Marks(NamedTuple):
    """What the node's marks request. When they change, a pause ends."""

    pool: str | None
    request: str | None
    is_selected: bool
    must_retry: bool


class Pauses(Struct, frozen=False):
    """The pauses of one run. `_fruitless_wakeups`: how many pauses in a row ended because tenants seemed to have gone."""

    context: RunContext
    _fruitless_wakeups: int = 0

    def pause(self, reason: ConditionReason, repeats: int) -> None:
        """Wait after an attempt that ended with `reason`, as `repeats` attempts before it did."""
        have_gone = self._pause(self._length(reason, repeats))
        self._fruitless_wakeups = self._fruitless_wakeups + 1 if have_gone else 0

    def await_slot(self, outcome: Outcome) -> None:
        """Wait until the node has its slot, or must be looked at. Only the slot is requested meanwhile.

        The condition is set once the wait has lasted: a pool whose nodes get their slots at once must not write for each.
        """
        context, now = self.context, self.context.deps.clock.now
        end, looked, before = now() + _SLOT_SECONDS, now(), self._marks()
        silent = SILENT_SECONDS
        while now() < end and not _is_requested(before):
            pause = context.slot.patience
            if 0.0 < silent <= pause:
                context.sleep(silent)
                context.report_outcome(outcome, is_news=False)
                pause, silent = pause - silent, 0.0
            silent -= pause
            context.sleep(pause)
            if context.slot.take_again():
                return
            if now() - looked >= _SLOT_LOOK_SECONDS:
                looked = now()
                if (before is None or context.deps.has_news()) and self._marks() != before:
                    return

    def _length(self, reason: ConditionReason, repeats: int) -> float:
        """Return the longest pause, in seconds."""
        context = self.context
        if reason is ConditionReason.RELEASED:
            return math.inf
        if reason is ConditionReason.RELEASING:
            # A change was cancelled: the next attempt releases the node.
            return 0.0
        if reason is ConditionReason.UNSELECTED:
            return _FIRST_PAUSE_SECONDS
        if reason.value.is_held:
            # A clock that is set is noticed after at most this pause.
            opens_in = math.inf if context.opens_at is None else context.opens_at - context.deps.wall()
            return min(_MAX_PAUSE_SECONDS, max(1.0, opens_in))
        first = _FIRST_POOL_SECONDS if reason is ConditionReason.WAITING_FOR_POOL else _FIRST_PAUSE_SECONDS
        length = float(min(_MAX_PAUSE_SECONDS, first * 2 ** min(repeats, 16)))
        if reason is not ConditionReason.GPU_BUSY:
            return length
        if context.blocker is not None and context.blocker.holders and context.deps.followed() is not None:
            # The pause sees that the tenants have gone, without an attempt.
            length = _MAX_PAUSE_SECONDS
        to_drain = 0.0 if context.drains_at is None else context.drains_at - context.deps.clock.now()
        return min(length, to_drain) if to_drain > 0 else length

    def _pause(self, seconds: float) -> bool:
        """Wait at most `seconds`, until the node's pool, its selection or its requests change, or tenants have gone.

        Return whether tenants have gone.
        """
        context, now = self.context, self.context.deps.clock.now
        before, looked = self._marks(), now()
        tenants_at = looked + (
            _FRUITLESS_BACKOFF_SECONDS * 2 ** min(self._fruitless_wakeups - 1, 16) if self._fruitless_wakeups else 0.0
        )
        seen = looked
        is_requested = _is_requested(before)
        if seconds == math.inf and before is not None and before.is_selected and not is_requested:
            # The request that the attempt followed was withdrawn meanwhile.
            seconds = _LOOK_SECONDS
        elif seconds < math.inf and (is_requested or (before is not None and before.must_retry)):
            # The request may be newer than what the attempt read.
            seconds = min(seconds, _FIRST_PAUSE_SECONDS)
        end = now() + seconds
        while (left := end - now()) > 0:
            context.sleep(min(_TENANTS_SECONDS, left))
            if now() >= tenants_at and context.are_blockers_gone():
                return True
            if now() - seen < _LOOK_SECONDS:
                continue
            seen = now()
            # Neither an API server that answers again nor the end of the requester is a change of the node.
            is_due = before is None or (is_requested and now() - looked >= _REQUESTER_SECONDS)
            if is_due or context.deps.has_news():
                looked = now()
                if self._marks() != before:
                    return False
        return context.are_blockers_gone()

    def _marks(self) -> _Marks | None:
        """Return None without an answer of the API server: when it answers again, that is a change."""
        cluster = self.context.cluster
        if not cluster.has_server:
            return None
        try:
            node = cluster.node()
            is_selected = cluster.selects(node)
        except ClusterError:
            return None
        return _Marks(
            pool=node.labels.get(POOL_LABEL),
            request=node.annotations.get(RELEASE_ANNOTATION),
            is_selected=is_selected,
            must_retry=RETRY_ANNOTATION in node.annotations,
        )


def _is_requested(marks: _Marks | None) -> bool:
    """Return whether the node is requested to leave the pool."""
    return marks is not None and marks.request is not None


class Retry(Struct):
    """The attempts of one run. Each attempt holds the folder's lock; a pause does not: it may wait for another pool's run."""

    context: RunContext
    attempt: Callable[[], Outcome]
    hold: bool

    def run(self) -> Outcome:
        """Return the first usable outcome; without `hold`, or if only a new container helps, the first of all.

        StateDirError if the first attempt finds another runtime at work, or no folder. Stopped if a signal stops the program.
        """
        context, pauses = self.context, Pauses(context=self.context)
        last: Outcome | None = None
        repeats = 0
        try:
            while True:
                reported = len(context.results)
                try:
                    with context.deps.folder.lock():
                        outcome = self._attempt()
                except StateDirLockedError as error:
                    if last is None:
                        raise
                    outcome = Outcome(reason=ConditionReason.WAITING_FOR_POOL, message=str(error))
                self._report(outcome, last, context.results[reported:])
                # A node that has waited for its slot, or for tenants, has not failed yet.
                repeats = repeats + 1 if last is not None and last.reason is outcome.reason else 0
                last = outcome
                if outcome.is_usable or not self.hold or outcome.reason.value.needs_new_container:
                    return replace(outcome, results=tuple(context.results))
                if outcome.reason is ConditionReason.WAITING_FOR_TURN:
                    pauses.await_slot(outcome)
                else:
                    pauses.pause(outcome.reason, repeats)
        except Stopped:
            with suppress(Stopped):
                context.faults.let_go(context.cluster)
            # The API server may be what did not answer; the next run finds the taint, and the slot expires.
            with suppress(ClusterError, Stopped):
                if self._abort() and not context.has_failed():
                    context.slot.give_back()
            raise
        finally:
            context.close_driver()

    def _report(self, outcome: Outcome, last: Outcome | None, results: Sequence[StepResult]) -> None:
        """Report an attempt with these results: an event for each change and each new reason; the condition has the rest."""
        is_new = last is None or (outcome.reason, outcome.message) != (last.reason, last.message)
        if self.hold and is_new and outcome.reason is ConditionReason.WAITING_FOR_TURN:
            return  # `Pauses.await_slot` reports it once the wait has lasted.
        has_changed = any(result.status in (Status.CHANGED, Status.FAILED) for result in results)
        self.context.report_outcome(outcome, is_news=has_changed or (not outcome.is_usable and is_new))

    def _attempt(self) -> Outcome:
        """Return the outcome of one attempt, whatever has stopped it."""
        context = self.context
        context.may_untaint_on_abort = context.is_touched = False
        context.blocker = None
        try:
            try:
                return self.attempt()
            except Blocked as blocked:
                if blocked.is_unchanged:
                    self._give_way(blocked.reason, is_as_before=self._abort())
                return Outcome(reason=blocked.reason, message=blocked.message)
        except ClusterError as error:
            return Outcome(reason=ConditionReason.PARTITIONING, message=f"a request to the API server failed: {error}")
        except DriverError as error:
            reason = ConditionReason.DRIVER_HUNG if error.code == Code.TIMEOUT else ConditionReason.WAITING_FOR_DRIVER
            return Outcome(reason=reason, message=str(error))
        except StateDirError as error:
            return Outcome(reason=ConditionReason.STATE_UNWRITABLE, message=str(error))

    def _abort(self) -> bool:
        """Remove the taint if the node offers its former layout and nothing was changed, and return whether that is so.

        The taint may also be that of an earlier run that was killed.
        """
        context = self.context
        if context.is_touched or not context.may_untaint_on_abort or context.is_half_done():
            return False
        context.remove_taints(*CHANGE_TAINTS)
        # From here on the taint may be another pool's.
        context.may_untaint_on_abort = False
        return True

    def _give_way(self, reason: ConditionReason, *, is_as_before: bool) -> None:
        """Give the slot to another node for tenants, the hour or a broken GPU: they prove no bad change, and last.

        After any other reason, and after failed attempts, the node keeps the slot; it expires when it is no longer renewed.
        """
        context = self.context
        if context.has_failed():
            return
        is_blocked = (reason in _INNOCENT or reason.value.is_held) and not context.is_half_done()
        if is_blocked or (reason is ConditionReason.RELEASING and is_as_before):
            with suppress(ClusterError):
                context.slot.give_back()
