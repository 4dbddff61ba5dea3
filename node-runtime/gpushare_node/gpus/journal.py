"""JournalWriter: the journal of a run, and the backoff from the third failure on; before that `reconcile/retry.py` waits.

Owns when each entry is written: before the first change to a GPU, so that a full disk is noticed before anything is touched.
After a crash the hardware determines what to do; the journal has the former layout, the requested modes, and the number of
failed attempts.
"""

from contextlib import suppress

from gpushare_node.adapters.host.state_dir import FormerGpu, Journal, StateDir, StateDirError
from gpushare_node.contract.struct import replace
from gpushare_node.core.clock import Clock

_FREE_ATTEMPTS = 3
"""Runs that may fail in a row without a pause. Each further attempt may damage more than it repairs, and waits for a pause."""

_FIRST_PAUSE_SECONDS = 300
_MAX_PAUSE_SECONDS = 6 * 3600


class JournalWriter:
    """The journal. Every method that writes may raise StateDirError."""

    def __init__(self, folder: StateDir, clock: Clock, *, policy_digest: str, boot_id: str) -> None:
        self._folder = folder
        self._clock = clock
        self._digest = policy_digest
        self._boot_id = boot_id
        self.driver = ""
        """The driver's version, once it has been read: under another version the count of attempts starts again."""
        self.is_new_layout = False
        """Whether this run changes to another layout than the one in force, and does not only repair that."""
        self._was_changing: bool | None = None
        """Whether a change was in progress already when this run began its own; None before that."""

    @property
    def pending_modes(self) -> dict[str, bool]:
        """The MIG modes that this runtime has requested, by GPU."""
        return dict(self._journal().pending_modes)

    @property
    def backoff(self) -> tuple[int, int] | None:
        """The number of failed runs, and the seconds from the last to the next attempt; None: it may begin now."""
        journal = self._journal()
        if journal.attempts < _FREE_ATTEMPTS:
            return None
        pause = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(journal.attempts - _FREE_ATTEMPTS, 16))
        is_over = not 0 <= self._clock.now() - journal.failed_at_seconds < pause
        return None if is_over else (journal.attempts, pause)

    def unfinished(self, uuid: str) -> FormerGpu | None:
        """Return the GPU's layout before a run of this boot that did not finish; None if there was no such run."""
        return next((gpu for gpu in self._journal().former if gpu.uuid == uuid), None)

    def begin(self, former: FormerGpu, mode: bool | None) -> None:
        """Record that a GPU is about to change from `former`, and its mode to `mode` unless that is None."""
        journal = self._journal()
        if self._was_changing is None:
            self._was_changing = journal.is_changing
        others = tuple(gpu for gpu in journal.former if gpu.uuid != former.uuid)
        pending = journal.pending_modes if mode is None else {**journal.pending_modes, former.uuid: mode}
        is_new = self.is_new_layout or (journal.is_changing and journal.is_new_layout)
        journal = replace(journal, is_changing=True, is_new_layout=is_new)
        self._write(replace(journal, former=(*others, former), pending_modes=pending))

    def end(self, uuid: str, *, is_pending: bool) -> None:
        """Record that the GPU can stay in its state, with or without a pending mode. `close` records the state of the node."""
        journal = self._journal()
        former = tuple(gpu for gpu in journal.former if gpu.uuid != uuid)
        pending = {gpu: mode for gpu, mode in journal.pending_modes.items() if gpu != uuid or is_pending}
        self._write(replace(journal, former=former, pending_modes=pending))

    def close(self, *, has_failed: bool, has_changed: bool, is_as_desired: bool) -> None:
        """Record the end of the run. Deletes a journal that is no longer needed, and does not rewrite one that is unchanged.

        A change is in progress until every GPU is as desired, or every GPU is back in its layout from before the first change.
        """
        journal = self._journal()
        if has_failed:
            now = int(self._clock.now())
            journal = replace(journal, attempts=journal.attempts + 1, driver=self.driver, failed_at_seconds=now)
        elif is_as_desired:
            journal = replace(journal, attempts=0)
        if is_as_desired or (self._was_changing is False and not has_changed and not journal.former):
            journal = replace(journal, is_changing=False, is_new_layout=False)
        self._write(journal)

    def _journal(self) -> Journal:
        """Return the journal without what has expired: layouts expire with the boot, attempts with policy, driver and boot."""
        journal = self._folder.journal() or Journal(policy_digest=self._digest, boot_id=self._boot_id)
        if journal.boot_id != self._boot_id:
            journal = replace(journal, boot_id=self._boot_id, attempts=0, former=(), requested="")
        if journal.policy_digest != self._digest:
            journal = replace(journal, policy_digest=self._digest, attempts=0)
        if journal.attempts and self.driver and journal.driver != self.driver:
            journal = replace(journal, attempts=0)
        return journal

    def _write(self, journal: Journal) -> None:
        written = self._folder.journal()
        is_marked = journal.is_changing or journal.is_evicting
        if journal.attempts or journal.former or journal.pending_modes or journal.paused or is_marked:
            if journal != written:
                self._folder.write_journal(journal)
        elif written is not None:
            self._folder.clear_journal()
        elif self._folder.problems():
            with suppress(StateDirError):  # An unreadable journal counts as absent anyway.
                self._folder.clear_journal()
