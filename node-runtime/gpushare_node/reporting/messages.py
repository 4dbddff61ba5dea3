"""The messages of Events that tenants and operators read when a container is over its cap. Sends nothing.

Every message states the usage and the cap, for how long, and what happens next.
"""

from datetime import UTC, datetime
from typing import assert_never

from gpushare_node.guard.inputs import Cap
from gpushare_node.guard.verdicts import Next, ViolationDetails

_MIB = 1 << 20


def over_cap(facts: ViolationDetails, container: str) -> str:
    """Return the warning: usage, cap, since when, and the next step if nothing changes."""
    return _mark(facts, f"{_use(facts, container)}. {_what_next(facts)}")


def signalled(facts: ViolationDetails, container: str, pids: tuple[int, ...], signal: str) -> str:
    """Return the message for processes that were sent a signal, and what follows."""
    who = _who(pids)
    done = f"{who} would have been sent {signal}" if facts.dry_run else f"{who} has been sent {signal}"
    return _mark(facts, f"{_use(facts, container)}: {done}. {_what_next(facts)}")


def would_evict(facts: ViolationDetails, container: str) -> str:
    """Return the message for a pod that would be evicted, in a dry run."""
    return _mark(facts, f"{_use(facts, container)}: its pod would be evicted.")


def evicted(facts: ViolationDetails, container: str, *, is_forced: bool) -> str:
    """Return the message for an accepted eviction. `is_forced`: the pod was deleted, past its disruption budget."""
    how = "deleted, because its eviction, or a signal to it, was refused" if is_forced else "evicted"
    pace = (
        f" {facts.ended} containers of its namespace have been ended there in {_seconds(facts.ended_seconds)}, and new ones "
        "came at once."
        if facts.ended
        else ""
    )
    return f"{_use(facts, container)}: its pod has been {how}.{pace}"


def not_evicted(facts: ViolationDetails, container: str, *, why: str) -> str:
    """Return the message for an eviction that the API server refused."""
    return (
        f"{_use(facts, container)}, but its pod could not be evicted: {why}. The eviction is retried; "
        "if it keeps being refused, the pod is deleted or its processes are killed (SIGKILL)."
    )


def not_terminated(facts: ViolationDetails, container: str, pids: tuple[int, ...], why: str) -> str:
    """Return the message for processes that could not be signalled."""
    return _mark(facts, f"{_use(facts, container)}, but {_who(pids)} could not be terminated: {why}.")


def exemption_notice(cap: Cap, device: str, container: str) -> str:
    """Return the notice for a container that started before the cap existed."""
    return f"Container {container} has a cap of {size(cap.bytes)} on {device}. {_exemption(cap)}"


def size(amount_bytes: int) -> str:
    """Return the amount in whole MiB, rounded up, so that usage over the cap is never shown as equal to the cap."""
    return f"{-(-amount_bytes // _MIB)} MiB"


def _use(facts: ViolationDetails, container: str) -> str:
    tolerance = f" (plus a tolerance of {size(facts.cap.tolerance_bytes)})" if facts.cap.tolerance_bytes else ""
    return (
        f"Container {container} uses {size(facts.used_bytes)} of {facts.unit.device}, and has exceeded its cap of "
        f"{size(facts.cap.bytes)}{tolerance} {'on and off ' if facts.has_paused else ''}for {_seconds(facts.since_seconds)}"
    )


def _what_next(facts: ViolationDetails) -> str:
    if facts.next is Next.NOTHING:
        return _exemption(facts.cap) or "No action will be taken."
    when = f"in {_seconds(facts.next_seconds)}" if facts.next_seconds else "at once"
    return f"{_step(facts.next)} {when} unless it frees memory."


def _exemption(cap: Cap) -> str:
    """Return why and for how long the cap is not enforced; empty if it is."""
    if cap.exemption is None:
        return ""
    until = cap.exemption.until
    if until is None:
        return "It was started before the cap existed, so the cap is not enforced on it."
    date = datetime.fromtimestamp(until, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"It was started before the cap existed; the cap is enforced from {date}."


def _step(following: Next) -> str:
    match following:
        case Next.NOTHING:
            return ""
        case Next.TERMINATE:
            return "Its largest GPU process will be terminated (SIGTERM)"
        case Next.KILL:
            return "Its remaining processes will be killed (SIGKILL)"
        case Next.EVICT:
            return "Its pod will be evicted"
        case _:
            assert_never(following)


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s"


def _who(pids: tuple[int, ...]) -> str:
    return f"process {pids[0]}" if len(pids) == 1 else f"each of its {len(pids)} processes"


def _mark(facts: ViolationDetails, text: str) -> str:
    return f"Dry run: {text}" if facts.dry_run else text
