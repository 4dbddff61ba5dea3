"""Sends a signal to exactly the intended process. Does not decide which process.

It opens a pidfd before it checks the process again, so that the pid cannot pass to another process in between. If the kernel or
a seccomp profile does not allow pidfds, the check comes right before `kill`: if the process ends and its pid is reused within
those microseconds, the signal hits the wrong process. The kernel assigns pids in a cycle, so that takes a full cycle.
"""

import errno
import os
import signal as numbers
from collections.abc import Callable

from gpushare_node.adapters.procs.processes import Signal, SignalResult

_NUMBERS = {Signal.TERM: numbers.SIGTERM, Signal.KILL: numbers.SIGKILL}
_BLOCKED = (errno.ENOSYS, errno.EPERM)
_NO_PROCESS = (errno.EINVAL, errno.ENOENT)
"""The errors of `pidfd_open` for the id of a thread that is not a process."""

Objection = Callable[[], SignalResult | None]
"""Checks the process again: returns why it must not be signalled, or None."""


def deliver(pid: int, signal: Signal, objection: Objection) -> SignalResult:
    """Send it, unless there is an objection once the pidfd is open. Never sends one to ourselves or the first two processes."""
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
        # A missing permission and a seccomp profile return the same error; `kill` distinguishes them.
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
    """Return the result for an error: a missing capability is EPERM; the security modules' hooks return EACCES."""
    return SignalResult.DENIED if error.errno == errno.EACCES else SignalResult.REFUSED


def _is_protected(pid: int) -> bool:
    """Whether it is init, kthreadd, ourselves, or in our own process group. 0 and -1 would mean groups."""
    if pid <= 2 or pid == os.getpid():
        return True
    try:
        return os.getpgid(pid) == os.getpgrp()
    except ProcessLookupError:
        return False
