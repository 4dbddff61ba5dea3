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


def await_servers(room: Drain, sight: GpuView, digest: str, announce: Callable[[], None]) -> GpuView:
    """What is seen when no MPS server is in the way any more. `announce` has the daemons learn that they are not wanted.

    Blocked with CLIENTS_RUNNING where a server stays.
    """
    if not sight.servers:
        return sight
    _mark(room, digest)
    announce()
    lack = room.visit.wait(lambda: _find(room), _END_SECONDS)
    if lack is not None or room.sight is None:
        raise Blocked(ConditionReason.CLIENTS_RUNNING, lack.message if lack is not None else _listing(sight))
    return room.sight


def _mark(room: Drain, digest: str) -> None:
    """From here on the node is no longer what it was before, though its hardware is: the next run must not offer it again."""
    visit = room.visit
    visit.is_touched = True
    journal = visit.site.folder.journal() or Journal(policy_digest=digest, boot_id=visit.site.boot_id)
    visit.site.folder.write_journal(replace(journal, is_changing=True))


def _find(room: Drain) -> Unmet | None:
    room.sight = room.hardware.look(room.wish.policy, room.allocated)
    return Unmet(reason=ConditionReason.CLIENTS_RUNNING, message=_listing(room.sight)) if room.sight.servers else None


def _listing(sight: GpuView) -> str:
    pids = sorted({pid for some in sight.servers.values() for pid in some})
    return f"the MPS server has not ended: {', '.join(f'process {pid}' for pid in pids)}; its control daemon must stop it"
