"""DriverHandle: the partitioner's session with the driver: opened when it is needed, closed when open handles would block.

Owns when the driver is opened and closed, and the wait for one that is not loaded yet. Changes nothing on a GPU.
"""

from collections.abc import Callable

from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.core.clock import Clock
from gpushare_node.vendors.driver import ACCESS_LOST, Code, Driver, DriverError, GpuInfo, Partitionable, partitionable

_MAX_PAUSE_SECONDS = 30.0
_ACCESS_SECONDS = 30.0
"""How long lost access is waited for: a driver that is being replaced briefly gives the same answer."""


class DriverHandle:
    """At most one open Driver. Callers must not keep what `driver` returns: a mode change invalidates it."""

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

    @property
    def partitioner(self) -> Partitionable:
        """The open driver, to divide GPUs with. DriverError as for `driver`, and if its vendor's cannot be divided."""
        return partitionable(self.driver)

    def survey(self, uuid: str) -> GpuInfo | None:
        """Return the current state of the GPU; None if the driver does not list it."""
        return next((survey for survey in self.driver.survey() if survey.uuid == uuid), None)

    def close(self) -> None:
        """Close the driver: our own handles block mode changes, and are invalid after one."""
        driver, self._driver = self._driver, None
        if driver is not None:
            try:
                driver.close()
            except DriverError:
                return  # The session has ended already, and so have its handles.

    def wait(
        self,
        timeout_seconds: float,
        on_wait: Callable[[str], None],
        sleep: Callable[[float], None],
        *,
        had_access: bool = False,
    ) -> ConditionReason | None:
        """Wait until the driver answers; after the timeout, return why not. A driver container may compile for minutes.

        `had_access`: it has answered in this container before. If it then fails as without devices, only a new container helps.
        """
        began = self._clock.now()
        deadline = began + timeout_seconds
        pause = 1.0
        while True:
            try:
                self.driver.survey()
            except DriverError as error:
                self.close()
                if had_access and error.code in ACCESS_LOST:
                    deadline = min(deadline, began + _ACCESS_SECONDS)
                    if self._clock.now() >= deadline:
                        return ConditionReason.ACCESS_LOST
                elif error.code == Code.NO_PERMISSION:
                    return ConditionReason.NO_PERMISSION  # Waiting grants no permission.
                if error.code == Code.TIMEOUT:
                    return ConditionReason.DRIVER_HUNG  # The call itself has waited long enough.
                left = deadline - self._clock.now()
                if left <= 0:
                    is_mismatch = error.code == Code.LIB_RM_VERSION_MISMATCH
                    return ConditionReason.DRIVER_MISMATCH if is_mismatch else ConditionReason.WAITING_FOR_DRIVER
                on_wait(str(error))
                sleep(min(pause, left))
                pause = min(pause * 2, _MAX_PAUSE_SECONDS)
            else:
                return None
