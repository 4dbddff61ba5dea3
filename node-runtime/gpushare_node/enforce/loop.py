"""Loop: the rhythm of `gpushare-node enforce`: a cycle every second, less often where the driver is slow, until asked to end.

While a container owes for time over its cap, looks are four times as close: whoever goes up and down faster than anybody looks
would be over unseen. No look comes when it is expected: a tenant that knew could be within its cap just then.

Owns the schedule, what /healthz and /readyz say, and the exit codes. A cycle that is late is skipped, never queued.
"""

import logging
import random
import statistics
import time
from collections import deque
from collections.abc import Callable

from gpushare_node.core.clock import Clock, Stopped
from gpushare_node.core.structs import Struct, field
from gpushare_node.enforce.enforcer import Enforcer
from gpushare_node.enforce.http import Answer, Pages
from gpushare_node.enforce.node_monitor import NodeMonitor
from gpushare_node.reporting.reasons import ConditionReason

EXIT_HUNG = 70
"""The driver has not answered for a minute, or is another one than our library's, or the policy can be read that could not be:
kubelet starts the container again."""

HUNG_SECONDS = 60.0
MISMATCH_SECONDS = 60.0
"""The library was mounted when the container was made, and stays the former one however well the upgrade has ended."""

_BAD_SECONDS = 30.0
"""From when on /healthz says no: while that lasts, nobody is held to a cap."""

_DUTY = 10
"""The interval is at least this many times what reading the lists takes: the driver holds a lock meanwhile."""

_LONGEST_SECONDS = 15.0
_CLOSE = 0.25
"""How much of the interval lies between two looks while somebody owes for time over its cap."""

_SPREAD = (0.5, 1.5)
"""How much of the interval passes until the next look, at random."""

_FAREWELL_SECONDS = 15.0
"""How long victims that were chosen are still seen to when the program is asked to end: SIGTERM, MPS, SIGKILL."""

_LOG = logging.getLogger(__name__)


class Loop(Struct, frozen=False):
    """One run of enforcement. `pause` waits after the clock has been stopped, `spread` says how early or late a look comes.

    `is_outdated`: whether the policy of this run is not the one to be held any more.
    """

    enforcer: Enforcer
    monitor: NodeMonitor | None
    clock: Clock
    spread: Callable[[], float] = lambda: random.SystemRandom().uniform(*_SPREAD)
    pause: Callable[[float], None] = time.sleep
    is_outdated: Callable[[], bool] = lambda: False
    _list_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=31))
    _good_at: float | None = None
    _has_read: bool = False
    _hung_seconds: float = 0.0
    _mismatch_at: float | None = None

    def run(self) -> int:
        """Go on until the clock is stopped (0), or until only another start helps (70)."""
        due = self.clock.now()
        try:
            while True:
                self.clock.sleep(due - self.clock.now())
                self.step()
                if self._hung_seconds > HUNG_SECONDS:
                    _LOG.error("the driver has not answered for %.0f s", self._hung_seconds)
                    return EXIT_HUNG
                if self._mismatch_at is not None and self.clock.now() - self._mismatch_at > MISMATCH_SECONDS:
                    _LOG.error("the driver's version differs from this container's library; the container restarts")
                    return EXIT_HUNG
                if self.is_outdated():
                    _LOG.warning("the policy can be read now: the container restarts with it")
                    return EXIT_HUNG
                due = self._next(due)
        except Stopped:
            self._finish()
            return 0

    def step(self) -> None:
        """One cycle with the upkeep. A cycle that fails is told, and the next one follows: health tells when it lasts."""
        began = self.clock.now()
        try:
            self.enforcer.cycle()
            if self.monitor is not None:
                self.monitor.look(began)
            self._good_at = self.clock.now()
        except Exception:
            _LOG.exception("a cycle failed")
        self._hung_seconds = max(self.enforcer.adapters.driver.hung_seconds().values(), default=0.0)
        self._mismatch_at = (self._mismatch_at or began) if self._has_mismatch() else None
        self._has_read = self._has_read or any(device.rows is not None for device in self.enforcer.figures.snapshot.devices)
        self._list_seconds.append(self.enforcer.list_seconds)
        figures = self.enforcer.figures
        figures.cycle_seconds.observe(self.clock.now() - began)
        figures.pods_age.set(self.enforcer.adapters.pods.age_seconds)
        figures.unresolved.set(len(self.enforcer.inventory.unresolved))
        figures.tier.replace(((tier.value,), 1) for tier in self.enforcer.limit_tiers.tiers())

    def _has_mismatch(self) -> bool:
        reason = self.enforcer.reason()
        return reason is not None and reason[0] is ConditionReason.DRIVER_MISMATCH

    def interval(self) -> float:
        """Seconds between two cycles now."""
        nominal = self.enforcer.config.settings.interval_seconds
        slow = _DUTY * statistics.median(self._list_seconds) if self._list_seconds else 0.0
        wanted = nominal * _CLOSE if self.enforcer.is_counting else nominal
        return min(max(slow, wanted), max(_LONGEST_SECONDS, nominal))

    def pages(self) -> Pages:
        """What is told over HTTP."""
        return Pages(metrics=self.enforcer.figures.page, health=self.health, readiness=self.readiness)

    def health(self) -> Answer:
        """Whether the loop lives."""
        if self._hung_seconds >= _BAD_SECONDS:
            return False, f"the driver has not answered for {self._hung_seconds:.0f} s"
        if self._good_at is not None and self.clock.now() - self._good_at > _BAD_SECONDS + self.interval():
            return False, f"the last good cycle was {self.clock.now() - self._good_at:.0f} s ago"
        return True, "ok"

    def readiness(self) -> Answer:
        """Whether processes have been seen to at least once. The API server has no part in it."""
        return (True, "ok") if self._has_read else (False, "no good cycle yet")

    def _next(self, due: float) -> float:
        """When the next cycle is due; those that this one has overrun are left out."""
        interval = self.interval()
        self.enforcer.figures.interval_seconds.set(interval)
        due += interval * self.spread()
        late = self.clock.now() - due
        if late > 0:
            missed = int(late // interval) + 1
            self.enforcer.figures.cycles_skipped.add(by=missed)
            due += missed * interval
        return due

    def _finish(self) -> None:
        """See to the victims that there are, for a bounded time; choose no other."""
        self.enforcer.stop_selecting()
        deadline = self.clock.now() + _FAREWELL_SECONDS
        while self.enforcer.has_victims and self.clock.now() < deadline:
            self.pause(self.enforcer.config.settings.interval_seconds)
            self.step()
        self.enforcer.close(is_leaving=self.monitor is not None and self.monitor.is_leaving)
