"""Loop: the schedule of `gpushare-node enforce`: a cycle every second, less often if the driver is slow, until it is stopped.

While a container has an open violation, cycles are four times as frequent: a container that oscillates faster than the cycles
would otherwise exceed its cap unseen. The interval is random: a tenant that could predict a cycle could be within its cap then.

Owns the schedule, what /healthz and /readyz answer, and the exit codes. A cycle that is late is skipped, never queued.
"""

import logging
import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from gpushare_node.contract.struct import Struct, field
from gpushare_node.core.clock import Clock, Stopped
from gpushare_node.enforce.enforcer import Enforcer
from gpushare_node.enforce.http import Answer, Pages
from gpushare_node.vendors.bounded_driver import NODE

EXIT_HUNG = 70
"""The driver has not answered about the node, or about any GPU, for a minute, or its version differs from that of the
container's library, or the container has lost its devices, or a policy that could not be read can be read now: kubelet restarts
the container."""

HUNG_SECONDS = 60.0
USELESS_SECONDS = 60.0
"""The library was mounted when the container was created, and stays the former one even if the upgrade succeeded; so do
the rights to devices."""

_BAD_SECONDS = 30.0
"""How long until /healthz fails: meanwhile no cap is enforced."""

_DUTY = 10
"""The interval is at least this many times the time to read the process lists: the driver holds a lock meanwhile."""

_MAX_SECONDS = 15.0
_CLOSE = 0.25
"""The fraction of the interval between two cycles while a container has an open violation."""

_SPREAD = (0.5, 1.5)
"""The random factor of the interval until the next cycle: least and most."""

_SHUTDOWN_GRACE_SECONDS = 15.0
"""How long the loop still terminates targets that were selected before the program was stopped: SIGTERM, MPS, SIGKILL."""

_LOG = logging.getLogger(__name__)


class Monitor(Protocol):
    """What looks after the node besides caps: `NodeMonitor`, or `Observer` where nothing may be changed."""

    @property
    def is_leaving(self) -> bool:
        """Whether the node leaves the pool, so that limits of the driver must be lifted."""
        ...

    def look(self, now: float) -> None:
        """Run the checks that are due. `now` is monotonic seconds."""
        ...


class Loop(Struct, frozen=False):
    """One run of enforcement. `pause` waits after the clock has been stopped; `spread` returns the factor of the next interval.

    `is_outdated`: whether this run's policy is no longer the one to enforce.
    """

    enforcer: Enforcer
    monitor: Monitor | None
    clock: Clock
    spread: Callable[[], float] = lambda: random.SystemRandom().uniform(*_SPREAD)
    pause: Callable[[float], None] = time.sleep
    is_outdated: Callable[[], bool] = lambda: False
    _list_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=31))
    _good_at: float | None = None
    _has_read: bool = False
    _hung_seconds: float = 0.0
    _useless_at: float | None = None

    def run(self) -> int:
        """Run until the clock is stopped (returns 0), or until only a restart helps (returns 70)."""
        due = self.clock.now()
        try:
            while True:
                self.clock.sleep(due - self.clock.now())
                self.step()
                if self._hung_seconds > HUNG_SECONDS:
                    _LOG.error("the driver has not answered for %.0f s", self._hung_seconds)
                    return EXIT_HUNG
                if self._useless_at is not None and self.clock.now() - self._useless_at > USELESS_SECONDS:
                    _LOG.error("only a new container can use the driver; the container restarts")
                    return EXIT_HUNG
                if self.is_outdated():
                    _LOG.warning("the policy is readable again: the container restarts with it")
                    return EXIT_HUNG
                due = self._next(due)
        except Stopped:
            self._finish()
            return 0

    def step(self) -> None:
        """Run one cycle and the monitor. A failed cycle is logged, and the next one follows; /healthz fails if that lasts."""
        began = self.clock.now()
        try:
            self.enforcer.cycle()
            if self.monitor is not None:
                self.monitor.look(began)
            self._good_at = self.clock.now()
        except Exception:
            _LOG.exception("an enforcement cycle failed")
        self._hung_seconds = self._silent_seconds()
        self._useless_at = (self._useless_at or began) if self._is_useless() else None
        self._has_read = self._has_read or any(device.rows is not None for device in self.enforcer.metrics.snapshot.devices)
        self._list_seconds.append(self.enforcer.list_seconds)
        metrics = self.enforcer.metrics
        metrics.cycle_seconds.observe(self.clock.now() - began)
        metrics.pods_age.set(self.enforcer.adapters.pods.age_seconds)
        metrics.unresolved.set(len(self.enforcer.inventory.unresolved))
        metrics.tier.replace(((tier.value,), 1) for tier in self.enforcer.limit_tiers.tiers())

    def _silent_seconds(self) -> float:
        """Return for how long the driver has not answered about anything: while some GPU answers, its caps are enforced."""
        hung = self.enforcer.adapters.driver.hung_seconds()
        sees_some = any(device.rows is not None for device in self.enforcer.metrics.snapshot.devices)
        return hung.get(NODE, 0.0) if sees_some else max(hung.values(), default=0.0)

    def _is_useless(self) -> bool:
        """Whether this container cannot use the driver again: it has the former library, or has lost its devices."""
        reason = self.enforcer.reason()
        return reason is not None and reason[0].value.needs_new_container

    def interval(self) -> float:
        """Return the current seconds between two cycles."""
        nominal = self.enforcer.config.settings.interval_seconds
        slow = _DUTY * statistics.median(self._list_seconds) if self._list_seconds else 0.0
        desired = nominal * _CLOSE if self.enforcer.is_counting else nominal
        return min(max(slow, desired), max(_MAX_SECONDS, nominal))

    def pages(self) -> Pages:
        """Return the pages that the HTTP server serves."""
        return Pages(metrics=self.enforcer.metrics.page, health=self.health, readiness=self.readiness)

    def health(self) -> Answer:
        """Return whether the loop is alive: the driver answers, and the last good cycle is recent."""
        if self._hung_seconds >= _BAD_SECONDS:
            return False, f"the driver has not answered for {self._hung_seconds:.0f} s"
        if self._good_at is not None and self.clock.now() - self._good_at > _BAD_SECONDS + self.interval():
            return False, f"the last successful cycle was {self.clock.now() - self._good_at:.0f} s ago"
        return True, "ok"

    def readiness(self) -> Answer:
        """Return whether a process list has been read at least once. Does not depend on the API server."""
        return (True, "ok") if self._has_read else (False, "no successful cycle yet")

    def _next(self, due: float) -> float:
        """Return when the next cycle is due; cycles that this one has overrun are skipped."""
        interval = self.interval()
        self.enforcer.metrics.interval_seconds.set(interval)
        due += interval * self.spread()
        late = self.clock.now() - due
        if late > 0:
            missed = int(late // interval) + 1
            self.enforcer.metrics.cycles_skipped.add(by=missed)
            due += missed * interval
        return due

    def _finish(self) -> None:
        """Terminate the present targets, within a time limit; select no others."""
        self.enforcer.stop_selecting()
        deadline = self.clock.now() + _SHUTDOWN_GRACE_SECONDS
        while self.enforcer.has_targets and self.clock.now() < deadline:
            self.pause(self.enforcer.config.settings.interval_seconds)
            self.step()
        self.enforcer.close(is_leaving=self.monitor is not None and self.monitor.is_leaving)
