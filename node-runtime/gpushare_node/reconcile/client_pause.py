"""Pausing gpu-operator's GPU clients around a change that needs the GPU closed, and bringing them back in every way out.

The former values are in the journal before the first label is touched, so a run that is killed leaves them to the next.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gpushare_node.adapters.host.state_dir import Journal, StateDirError
from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.core.policy import Partitioner
from gpushare_node.core.structs import replace
from gpushare_node.reconcile.gpu_clients import PAUSED, mig_managers, running, to_pause, to_restore
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reporting.outcome import Blocked, Unmet
from gpushare_node.reporting.reasons import ConditionReason
from gpushare_node.reporting.results import Status

_LEAVE_SECONDS = 300.0
"""How long clients may take to go: mig-manager's own patience."""


@contextmanager
def paused(context: RunContext, digest: str, *, is_needed: bool) -> Iterator[None]:
    """Clients are away inside, and back after it. Blocked with CLIENTS_RUNNING where they do not go."""
    if not is_needed:
        yield
        return
    try:
        _pause(context, digest)
        yield
    except BaseException:
        # The API server may be what has failed; the journal knows, and the next run begins with it.
        with suppress(ClusterError, StateDirError):
            restore(context)
        raise
    restore(context)


def restore(context: RunContext) -> None:
    """Bring back what was paused by this run or by one that was killed. ClusterError leaves it in the journal."""
    journal = context.deps.folder.journal()
    labels = to_restore(context.cluster.node().labels, journal.paused if journal else {})
    if labels:
        context.cluster.write_labels(labels)
        context.record_step("resume GPU clients", "node", Status.CHANGED, ", ".join(labels))
    if journal is not None and journal.paused:
        context.deps.folder.write_journal(replace(journal, paused={}))


def recover(context: RunContext, partitioner: Partitioner) -> None:
    """Restore after a crash. Where mig-manager runs or partitions, the pause is its own."""
    if partitioner is Partitioner.GPUSHARE and not mig_managers(context.cluster.pods()):
        restore(context)


def _pause(context: RunContext, digest: str) -> None:
    labels = to_pause(context.cluster.node().labels)
    if labels:
        folder = context.deps.folder
        journal = folder.journal() or Journal(policy_digest=digest, boot_id=context.deps.boot_id)
        folder.write_journal(replace(journal, paused={**journal.paused, **labels}))
        context.cluster.write_labels(dict.fromkeys(labels, PAUSED))
        context.record_step("pause GPU clients", "node", Status.CHANGED, ", ".join(labels))
    mismatch = context.wait(lambda: _find_running(context), _LEAVE_SECONDS)
    if mismatch is not None:
        raise Blocked(mismatch.reason, mismatch.message, is_unchanged=True)


def _find_running(context: RunContext) -> Unmet | None:
    pods = running(context.cluster.pods())
    return Unmet(reason=ConditionReason.CLIENTS_RUNNING, message=f"still on the node: {', '.join(pods)}") if pods else None
