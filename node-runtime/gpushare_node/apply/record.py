"""Record: the journal of one run of the partitioner, kept in step with what is done. Owns when what is written down.

Written before the first change to a GPU, so that a full disk is known before anything is touched. After a crash hardware
decides what is to be done; the journal says what stood before, which modes were asked for, and how often it went wrong.
"""

from contextlib import suppress
from dataclasses import replace

from gpushare_node.host.folder import Folder, FolderError, FormerGpu, Journal

MOST_ATTEMPTS = 3
"""Runs that may fail for one policy in one boot. What failed three times destroys only more."""


class Record:
    """The journal. Every method that writes raises FolderError."""

    def __init__(self, folder: Folder, *, policy_digest: str, boot_id: str) -> None:
        self._folder = folder
        self._digest = policy_digest
        self._boot_id = boot_id
        self._was_changing: bool | None = None
        """Whether a change was under way already, when this run began to change things."""

    @property
    def pending_modes(self) -> dict[str, bool]:
        """The modes that this runtime has asked for, by GPU."""
        return dict(self._journal().pending_modes)

    @property
    def is_exhausted(self) -> bool:
        """Whether so many runs have failed that no more may be tried."""
        return self._journal().attempts >= MOST_ATTEMPTS

    def unfinished(self, uuid: str) -> FormerGpu | None:
        """The GPU as it was before a run that did not end, in this boot."""
        return next((gpu for gpu in self._journal().former if gpu.uuid == uuid), None)

    def begin(self, former: FormerGpu, mode: bool | None) -> None:
        """A GPU is about to change from `former`, and its mode to `mode`, if to any."""
        journal = self._journal()
        if self._was_changing is None:
            self._was_changing = journal.is_changing
        others = tuple(gpu for gpu in journal.former if gpu.uuid != former.uuid)
        pending = journal.pending_modes if mode is None else {**journal.pending_modes, former.uuid: mode}
        self._write(replace(journal, former=(*others, former), pending_modes=pending, is_changing=True))

    def end(self, uuid: str, *, is_pending: bool) -> None:
        """The GPU is in a state in which it can be left, its mode still waiting or not. What the node is, `close` says."""
        journal = self._journal()
        former = tuple(gpu for gpu in journal.former if gpu.uuid != uuid)
        pending = {gpu: mode for gpu, mode in journal.pending_modes.items() if gpu != uuid or is_pending}
        self._write(replace(journal, former=former, pending_modes=pending))

    def close(self, *, has_failed: bool, has_changed: bool, is_as_wanted: bool) -> None:
        """The run has come to its end. What nobody needs any more is deleted; what stands written already is not rewritten.

        A change is under way until all is as wanted, or every GPU back where it was before the first one was touched.
        """
        journal = self._journal()
        if has_failed:
            journal = replace(journal, attempts=journal.attempts + 1)
        elif is_as_wanted:
            journal = replace(journal, attempts=0)
        if is_as_wanted or (self._was_changing is False and not has_changed and not journal.former):
            journal = replace(journal, is_changing=False)
        self._write(journal)

    def _journal(self) -> Journal:
        """What is written, as far as it still holds: instances end with the boot, attempts with policy and boot."""
        journal = self._folder.journal() or Journal(policy_digest=self._digest, boot_id=self._boot_id)
        if journal.boot_id != self._boot_id:
            journal = replace(journal, boot_id=self._boot_id, attempts=0, former=())
        if journal.policy_digest != self._digest:
            journal = replace(journal, policy_digest=self._digest, attempts=0)
        return journal

    def _write(self, journal: Journal) -> None:
        written = self._folder.journal()
        if journal.attempts or journal.former or journal.pending_modes or journal.paused or journal.is_changing:
            if journal != written:
                self._folder.write_journal(journal)
        elif written is not None:
            self._folder.clear_journal()
        elif self._folder.problems():
            with suppress(FolderError):  # What cannot be read counts as absent already.
                self._folder.clear_journal()
