"""Repeating: one attempt after the other, until one is good, and the pauses between them. Decides nothing about GPUs."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from gpushare_node.adapters.host.state_dir import StateDirError, StateDirLockedError
from gpushare_node.adapters.kube.cluster import (
    POOL_LABEL,
    RELEASE_ANNOTATION,
    REPARTITIONING_TAINT,
    RETRY_ANNOTATION,
    ClusterError,
)
from gpushare_node.adapters.nvml.driver import Code, DriverError
from gpushare_node.core.clock import Stopped
from gpushare_node.core.structs import replace
from gpushare_node.reconcile.run_context import SILENT_SECONDS, RunContext
from gpushare_node.reporting.outcome import Blocked, Outcome
from gpushare_node.reporting.reasons import ConditionReason
from gpushare_node.reporting.results import Status

_FIRST_PAUSE_SECONDS = 60.0
_FIRST_POOL_SECONDS = 15.0
"""The same of a node that another pool has: mostly it is being handed over, and its label tells when."""
_LONGEST_PAUSE_SECONDS = 600.0
"""An attempt asks the API server up to ten times; a node that rests should cost it next to nothing."""
_LOOK_SECONDS = 15.0
"""How often a run that waits looks whether its node has changed: asks its watch, or without one the API server."""

_TURN_SECONDS = 600.0
"""How long a run waits for its turn before it looks at its node and its GPUs anew."""
_TURN_LOOK_SECONDS = 60.0
"""The same as `_LOOK_SECONDS`, of a node that waits for its turn: hundreds may."""
_ASKER_SECONDS = 60.0
"""How often a released node looks whether who asked for that still lives, which its own watch does not tell."""
_ROOM_SECONDS = 5.0
"""How often a run that waits for tenants looks whether they have gone, by what it knows without a request."""
_VAIN_SECONDS = 30.0
"""For how long it does not look so, after such a look whose attempt found tenants again; doubled for each that follows."""


class _Marks(NamedTuple):
    """What is wanted of the node: another of these ends a pause."""

    pool: str | None
    request: str | None
    is_selected: bool
    must_retry: bool


def retry(context: RunContext, attempt: Callable[[], Outcome], *, hold: bool) -> Outcome:
    """The first usable outcome; without `hold`, or under another driver than our library's, the first of all.

    While it holds, the policy in force stays enforced. Each attempt has the folder's lock, the pauses have not: another pool's
    run may be what is waited for. FolderError when the first attempt finds another runtime at work, or no folder. Stopped when
    the program is asked to end.
    """
    repeats = vain = 0
    said: tuple[ConditionReason, str] | None = None
    try:
        while True:
            before = len(context.results)
            try:
                with context.deps.folder.lock():
                    outcome = _settle(context, attempt)
            except StateDirLockedError as error:
                if said is None:
                    raise
                outcome = Outcome(reason=ConditionReason.WAITING_FOR_POOL, message=str(error))
            is_news = any(one.status in (Status.CHANGED, Status.FAILED) for one in context.results[before:])
            is_new = _said(outcome) != said
            if not (hold and is_new and outcome.reason is ConditionReason.WAITING_FOR_TURN):
                context.report_outcome(outcome, is_news=is_news or (not outcome.is_usable and is_new))
            # A node that has waited for its turn, or for tenants, has not failed yet.
            repeats = repeats + 1 if said is not None and said[0] is outcome.reason else 0
            said = _said(outcome)
            if outcome.is_usable or not hold or outcome.reason is ConditionReason.DRIVER_MISMATCH:
                # Another library comes with another container alone, and without the driver nobody is held to a cap.
                return replace(outcome, results=tuple(context.results))
            if outcome.reason is ConditionReason.WAITING_FOR_TURN:
                _await_turn(context, outcome)
            else:
                has_slot_for_room = _pause(context, _length(context, outcome.reason, repeats), vain)
                vain = vain + 1 if has_slot_for_room else 0
    except Stopped:
        # The API server may be what was waited for; the next run finds the taint, and the turn expires.
        with suppress(ClusterError, Stopped):
            if _abort(context) and not context.has_failed():
                context.slot.give_back()
        raise
    finally:
        context.close_driver()


def _settle(context: RunContext, attempt: Callable[[], Outcome]) -> Outcome:
    """The attempt's outcome, whatever stopped it."""
    context.may_untaint_on_abort = context.is_touched = False
    context.blocker = None
    try:
        try:
            return attempt()
        except Blocked as halted:
            if halted.is_unchanged:
                _give_way(context, halted.reason, is_as_before=_abort(context))
            return Outcome(reason=halted.reason, message=halted.message)
    except ClusterError as error:
        return Outcome(reason=ConditionReason.PARTITIONING, message=f"a request to the API server failed: {error}")
    except DriverError as error:
        reason = ConditionReason.DRIVER_HUNG if error.code == Code.TIMEOUT else ConditionReason.WAITING_FOR_DRIVER
        return Outcome(reason=reason, message=str(error))
    except StateDirError as error:
        return Outcome(reason=ConditionReason.STATE_UNWRITABLE, message=str(error))


def _abort(context: RunContext) -> bool:
    """Where the former layout stands, and nothing was changed, pods may come again: also where a run that died kept them off.

    Whether it is so.
    """
    if context.deps.cluster is None or context.is_touched or not context.may_untaint_on_abort or context.is_half_done():
        return False
    context.remove_taints(REPARTITIONING_TAINT)
    # From here on the taint may be another pool's.
    context.may_untaint_on_abort = False
    return True


def _give_way(context: RunContext, reason: ConditionReason, *, is_as_before: bool) -> None:
    """Tenants are no sign of a bad change: the turn goes to another node, or one long job would stop the whole pool.

    After any other reason, and after attempts that failed, the turn is kept, and expires when nobody renews it.
    """
    if context.has_failed():
        return
    if (reason is ConditionReason.GPU_BUSY and not context.is_half_done()) or (
        reason is ConditionReason.RELEASING and is_as_before
    ):
        with suppress(ClusterError):
            context.slot.give_back()


def _said(outcome: Outcome) -> tuple[ConditionReason, str]:
    """What an event would say. The same again is none: the condition says how it stands."""
    return outcome.reason, outcome.message


def _length(context: RunContext, reason: ConditionReason, repeats: int) -> float:
    if reason is ConditionReason.RELEASED:
        return math.inf
    if reason is ConditionReason.RELEASING:
        # What was under way was called off: the next attempt leaves.
        return 0.0
    first = _FIRST_POOL_SECONDS if reason is ConditionReason.WAITING_FOR_POOL else _FIRST_PAUSE_SECONDS
    length = float(min(_LONGEST_PAUSE_SECONDS, first * 2 ** min(repeats, 16)))
    if reason is not ConditionReason.GPU_BUSY:
        return length
    if context.blocker is not None and context.blocker.holders and context.deps.followed() is not None:
        # That they have gone is seen without an attempt.
        length = _LONGEST_PAUSE_SECONDS
    to_drain = 0.0 if context.drains_at is None else context.drains_at - context.deps.clock.now()
    return min(length, to_drain) if to_drain > 0 else length


def _pause(context: RunContext, seconds: float, vain: int) -> bool:
    """Wait, but not longer than until the node's pool, its selection or a wish to release is another, or tenants have gone.

    Whether these have; so many times in a row before they had not.
    """
    now = context.deps.clock.now
    before, looked = _marks(context), now()
    room_at = looked + (_VAIN_SECONDS * 2 ** min(vain - 1, 16) if vain else 0.0)
    seen = looked
    is_asked = _is_asked(before)
    if seconds == math.inf and before is not None and before.is_selected and not is_asked:
        # What the attempt heeded was taken back while it did.
        seconds = _LOOK_SECONDS
    elif seconds < math.inf and (is_asked or (before is not None and before.must_retry)):
        # That may have been asked after the attempt looked.
        seconds = min(seconds, _FIRST_PAUSE_SECONDS)
    end = now() + seconds
    while (left := end - now()) > 0:
        context.sleep(min(_ROOM_SECONDS, left))
        if now() >= room_at and context.has_slot_for_room():
            return True
        if now() - seen < _LOOK_SECONDS:
            continue
        seen = now()
        # Neither an API server that answers again nor the end of who asks is a change of the node.
        is_due = before is None or (is_asked and now() - looked >= _ASKER_SECONDS)
        if is_due or context.deps.has_news():
            looked = now()
            if _marks(context) != before:
                return False
    return context.has_slot_for_room()


def _await_turn(context: RunContext, outcome: Outcome) -> None:
    """Until the node has its turn, or something else is to be looked at. Only the turn is asked for meanwhile.

    That it waits is told once it has lasted: a write for every node of a pool whose turn comes at once would be in vain.
    """
    now = context.deps.clock.now
    end, looked, before = now() + _TURN_SECONDS, now(), _marks(context)
    silent = SILENT_SECONDS
    while now() < end and not _is_asked(before):
        pause = context.slot.patience
        if 0.0 < silent <= pause:
            context.sleep(silent)
            context.report_outcome(outcome, is_news=False)
            pause, silent = pause - silent, 0.0
        silent -= pause
        context.sleep(pause)
        if context.slot.take_again():
            return
        if now() - looked >= _TURN_LOOK_SECONDS:
            looked = now()
            if (before is None or context.deps.has_news()) and _marks(context) != before:
                return


def _is_asked(marks: _Marks | None) -> bool:
    """Whether somebody asks for the node's release."""
    return marks is not None and marks.request is not None


def _marks(context: RunContext) -> _Marks | None:
    """None without an answer of the API server: when it answers again, that is a change."""
    if context.deps.cluster is None:
        return None
    try:
        node = context.deps.cluster.node()
        is_selected = context.deps.cluster.selects(node)
    except ClusterError:
        return None
    return _Marks(
        pool=node.labels.get(POOL_LABEL), request=node.annotations.get(RELEASE_ANNOTATION), is_selected=is_selected,
        must_retry=RETRY_ANNOTATION in node.annotations,
    )
