"""Retry: one attempt after another until one is good, with a pause between them. Decides nothing about GPUs."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from gpushare_node.adapters.host.state_dir import StateDirError, StateDirLockedError
from gpushare_node.adapters.kube.cluster import CHANGE_TAINTS, ClusterError
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.core.clock import Stopped
from gpushare_node.reconcile.pauses import Pauses
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reporting.outcome import Blocked, Outcome, Status, StepResult
from gpushare_node.vendors.driver import Code, DriverError


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
        """Give the slot to another node if tenants or the hour are in the way: neither proves a bad change, and both last.

        After any other reason, and after failed attempts, the node keeps the slot; it expires when it is no longer renewed.
        """
        context = self.context
        if context.has_failed():
            return
        is_blocked = (reason is ConditionReason.GPU_BUSY or reason.value.is_held) and not context.is_half_done()
        if is_blocked or (reason is ConditionReason.RELEASING and is_as_before):
            with suppress(ClusterError):
                context.slot.give_back()
