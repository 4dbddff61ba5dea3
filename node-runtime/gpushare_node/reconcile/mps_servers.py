"""Waiting for MPS servers to end: a server outlives its clients, and ends when its daemon learns that the label has changed.

So the label goes first, and what needs the GPU without the server comes after it.
"""

from collections.abc import Callable

from gpushare_node.adapters.host.state_dir import Journal
from gpushare_node.core.structs import replace
from gpushare_node.gpus.view import GpuView
from gpushare_node.reconcile.drain import Drain
from gpushare_node.reporting.outcome import Blocked, Unmet
from gpushare_node.reporting.reasons import ConditionReason

_END_SECONDS = 300.0
"""As long as other GPU clients may take. The daemon's pod goes only after the feature labels have been written anew."""


def await_servers(drain: Drain, view: GpuView, digest: str, announce: Callable[[], None]) -> GpuView:
    """What is seen when no MPS server is in the way any more. `announce` has the daemons learn that they are not wanted.

    Blocked with CLIENTS_RUNNING where a server stays.
    """
    if not view.servers:
        return view
    _mark(drain, digest)
    announce()
    mismatch = drain.context.wait(lambda: _find(drain), _END_SECONDS)
    if mismatch is not None or drain.view is None:
        raise Blocked(ConditionReason.CLIENTS_RUNNING, mismatch.message if mismatch is not None else _listing(view))
    return drain.view


def _mark(drain: Drain, digest: str) -> None:
    """From here on the node is no longer what it was before, though its hardware is: the next run must not offer it again."""
    context = drain.context
    context.is_touched = True
    journal = context.deps.folder.journal() or Journal(policy_digest=digest, boot_id=context.deps.boot_id)
    context.deps.folder.write_journal(replace(journal, is_changing=True))


def _find(drain: Drain) -> Unmet | None:
    drain.view = drain.hardware.look(drain.request.policy, drain.allocated)
    return Unmet(reason=ConditionReason.CLIENTS_RUNNING, message=_listing(drain.view)) if drain.view.servers else None


def _listing(view: GpuView) -> str:
    pids = sorted({pid for some in view.servers.values() for pid in some})
    return f"the MPS server has not ended: {', '.join(f'process {pid}' for pid in pids)}; its control daemon must stop it"
