"""Pauses: the wait between two attempts, also after the first two failures, which ends early if node, slot or tenants change.

The backoff from the third failure on is counted in the journal (`gpus/journal.py`), because it must outlive the program.
"""

import math
from typing import NamedTuple

from gpushare_node.adapters.kube.cluster import POOL_LABEL, RELEASE_ANNOTATION, RETRY_ANNOTATION, ClusterError
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct
from gpushare_node.reconcile.run_context import SILENT_SECONDS, RunContext
from gpushare_node.reporting.outcome import Outcome

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
