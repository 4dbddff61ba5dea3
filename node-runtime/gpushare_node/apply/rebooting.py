"""The one reboot that a policy may have. Never while anybody uses a GPU of the node, and never twice."""

from gpushare_node.apply.outcome import Halted
from gpushare_node.apply.visit import Visit
from gpushare_node.voice.reasons import Reason
from gpushare_node.voice.results import Status


def reboot(visit: Visit, digest: str) -> None:
    """Reboot, where it is allowed. Always Halted: the reboot comes, or it must be done by hand."""
    ask, folder = visit.site.reboot, visit.site.folder
    mark = folder.rebooted()
    if ask is None:
        raise Halted(Reason.RESET_REQUIRED, Reason.RESET_REQUIRED.value.means)
    if mark is not None and mark.policy_digest == digest:
        raise Halted(Reason.RESET_REQUIRED, "the node was rebooted once for this policy, and the MIG mode did not change")
    holders = visit.holders()
    if holders:
        raise Halted(Reason.RESET_REQUIRED, f"a reboot would end {holders[0].name}, which holds a GPU")
    folder.mark_reboot(digest, visit.site.boot_id)
    visit.say(Reason.REBOOTING, Reason.REBOOTING.value.means)
    problem = ask()
    visit.note("reboot", "node", Status.CHANGED if problem is None else Status.FAILED, problem or "asked for")
    if problem is not None:
        raise Halted(Reason.RESET_REQUIRED, f"the reboot failed: {problem}")
    raise Halted(Reason.REBOOTING, Reason.REBOOTING.value.means)
