"""DriverHandle: the driver as the partitioner holds it: opened when it is needed, closed where open handles are in the way.

Owns when the driver is opened and closed, and the wait for one that is not there yet. Changes nothing on a GPU.
"""

from collections.abc import Callable

from gpushare_node.adapters.nvml.driver import Code, Driver, DriverError, GpuInfo
from gpushare_node.core.clock import Clock
from gpushare_node.reporting.reasons import ConditionReason

_LONGEST_PAUSE_SECONDS = 30.0


class DriverHandle:
    """At most one open Driver. Nobody keeps what `driver` returns: a mode change makes it void."""

    def __init__(self, open_driver: Callable[[], Driver], clock: Clock) -> None:
        self._open = open_driver
        self._clock = clock
        self._driver: Driver | None = None

    @property
    def driver(self) -> Driver:
        """The open driver. DriverError if it cannot be opened."""
        if self._driver is None:
            self._driver = self._open()
        return self._driver

    def survey(self, uuid: str) -> GpuInfo | None:
        """The GPU as it is now; None if the driver does not show it."""
        return next((survey for survey in self.driver.survey() if survey.uuid == uuid), None)

    def close(self) -> None:
        """Give the driver back: our own handles block mode changes, and are void after one."""
        driver, self._driver = self._driver, None
        if driver is not None:
            try:
                driver.close()
            except DriverError:
                return  # It is gone already, and so are the handles.

    def wait(
        self, timeout_seconds: float, on_wait: Callable[[str], None], sleep: Callable[[float], None]
    ) -> ConditionReason | None:
        """Until the driver answers; after this time, why it does not. A driver container compiles for minutes at times."""
        deadline = self._clock.now() + timeout_seconds
        pause = 1.0
        while True:
            try:
                self.driver.survey()
            except DriverError as error:
                self.close()
                if error.code == Code.NO_PERMISSION:
                    return ConditionReason.NO_PERMISSION  # Waiting gives nobody rights.
                if error.code == Code.TIMEOUT:
                    return ConditionReason.DRIVER_HUNG  # It was waited for long enough.
                left = deadline - self._clock.now()
                if left <= 0:
                    is_mismatch = error.code == Code.LIB_RM_VERSION_MISMATCH
                    return ConditionReason.DRIVER_MISMATCH if is_mismatch else ConditionReason.WAITING_FOR_DRIVER
                on_wait(str(error))
                sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            else:
                return None
