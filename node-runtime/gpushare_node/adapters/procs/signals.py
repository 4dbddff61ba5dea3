"""How a signal reaches exactly the process that was meant. Sends; decides nothing about whom.

The process is held by a pidfd before it is looked at once more, so its number cannot pass to another in between. Where the
kernel or a seccomp profile has no pidfd, the look comes right before `kill`: a process that ends and whose number is given away
anew within those microseconds would be hit. Numbers are given out in a circle, so that takes a full round of them.
"""

import errno
import os
import signal as numbers
from collections.abc import Callable

from gpushare_node.adapters.procs.processes import Signal, SignalResult

_NUMBERS = {Signal.TERM: numbers.SIGTERM, Signal.KILL: numbers.SIGKILL}
_BLOCKED = (errno.ENOSYS, errno.EPERM)
_NO_PROCESS = (errno.EINVAL, errno.ENOENT)
"""What `pidfd_open` says to the number of a mere thread."""

Objection = Callable[[], SignalResult | None]
"""Looks at the process once more: why it must not be signalled, or None."""


def deliver(pid: int, signal: Signal, objection: Objection) -> SignalResult:
    """Send it, unless there is an objection once the process is held. We and the first two processes are never sent any."""
    if _is_protected(pid):
        return SignalResult.REFUSED
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        return SignalResult.GONE
    except OSError as error:
        if error.errno in _BLOCKED:
            return _deliver_by_number(pid, signal, objection)
        return SignalResult.REUSED if error.errno in _NO_PROCESS else SignalResult.REFUSED
    try:
        return _deliver_held(held, pid, signal, objection)
    finally:
        os.close(held)


def _deliver_held(held: int, pid: int, signal: Signal, objection: Objection) -> SignalResult:
    found = objection()
    if found is not None:
        return found
    try:
        numbers.pidfd_send_signal(held, _NUMBERS[signal])
    except ProcessLookupError:
        return SignalResult.GONE
    except OSError as error:
        # A missing right and a seccomp profile answer alike; `kill` tells them apart.
        return _deliver_by_number(pid, signal, objection) if error.errno in _BLOCKED else _refusal(error)
    return SignalResult.SENT


def _deliver_by_number(pid: int, signal: Signal, objection: Objection) -> SignalResult:
    found = objection()
    if found is not None:
        return found
    try:
        os.kill(pid, _NUMBERS[signal])
    except ProcessLookupError:
        return SignalResult.GONE
    except OSError as error:
        return _refusal(error)
    return SignalResult.SENT


def _refusal(error: OSError) -> SignalResult:
    """A missing capability is EPERM; the security modules' hooks answer EACCES."""
    return SignalResult.DENIED if error.errno == errno.EACCES else SignalResult.REFUSED


def _is_protected(pid: int) -> bool:
    """Whether it is init, the kernel's parent of threads, ourselves, or one of our own group. 0 and -1 would mean groups."""
    if pid <= 2 or pid == os.getpid():
        return True
    try:
        return os.getpgid(pid) == os.getpgrp()
    except ProcessLookupError:
        return False
